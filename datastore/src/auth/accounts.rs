//! Callers that are `ServiceAccounts` of Kubernetes, and their permissions by namespace.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use datastore_api::Sha256;
use secrecy::{ExposeSecret as _, SecretString};

use crate::auth::cache::{Reviews, Verdict};
use crate::auth::caller::{Caller, Rights};
use crate::auth::error::AuthError;
use crate::auth::kubernetes::{KubeApi, Reviewer};
use crate::auth::policy::{Policy, ServiceAccount, Who};

/// How `ServiceAccounts` are authenticated, as configured.
#[derive(Clone, Debug)]
pub struct Kubernetes {
    /// The API that reviews their tokens.
    pub api: KubeApi,
    /// If set, only these may authenticate.
    pub allowed: Option<Vec<ServiceAccount>>,
    /// `ServiceAccounts` of this namespace have every permission: Burrito's controllers and server.
    pub main_namespace: Option<String>,
    /// The default permissions of the others.
    pub isolation: Isolation,
}

/// The default permissions of a `ServiceAccount`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Its own namespace only; see [`Kubernetes::main_namespace`].
    #[default]
    Namespace,
    /// Every namespace, as with Burrito's own datastore.
    Burrito,
}

/// Authenticates `ServiceAccounts` by their tokens.
#[derive(Debug)]
pub(super) struct Accounts {
    reviews: Reviews,
    allowed: Option<Vec<ServiceAccount>>,
    main_namespace: Option<String>,
    isolation: Isolation,
    /// Tokens of sessions by their digests, and until when, in seconds since 1970. A session does not hold its token, and only
    /// the token tells whether the account still exists.
    signed_in: Mutex<HashMap<Sha256, (SecretString, i64)>>,
}

/// The maximum number of tokens of sessions.
const MAX_SIGNED_IN: usize = 1000;

impl Accounts {
    pub(super) async fn open(kubernetes: Kubernetes) -> anyhow::Result<Self> {
        let Kubernetes { api, allowed, main_namespace, isolation } = kubernetes;
        let reviews = Reviews::new(Reviewer::open(&api).await?);
        let signed_in = Mutex::default();
        Ok(Self { reviews, allowed, main_namespace, isolation, signed_in })
    }

    /// Keeps the token of a session until then.
    pub(super) fn keep(&self, token: SecretString, until: i64) {
        let now = jiff::Timestamp::now().as_second();
        let mut all = self.signed_in.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, (_, until)| *until > now);
        if all.len() >= MAX_SIGNED_IN {
            let first = all.iter().min_by_key(|(_, (_, until))| *until).map(|(digest, _)| *digest);
            first.and_then(|digest| all.remove(&digest));
        }
        all.insert(Sha256::of(token.expose_secret().as_bytes()), (token, until));
    }

    /// The token of a session, if it was signed in here.
    pub(super) fn signed_in(&self, digest: Sha256) -> Option<SecretString> {
        let all = self.signed_in.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&digest).map(|(token, _)| token.clone())
    }

    pub(super) async fn caller(
        &self,
        token: SecretString,
        policy: &Policy,
    ) -> Result<Caller, AuthError> {
        let username = match self.reviews.verdict(token).await {
            Verdict::Valid(username) => username,
            Verdict::Invalid => return Err(AuthError::Invalid),
            Verdict::Failed => return Err(AuthError::Unavailable),
        };
        let (namespace, name) = account(&username).ok_or(AuthError::NotAllowed)?;
        let is_listed =
            |allowed: &Vec<ServiceAccount>| allowed.iter().any(|one| one.matches(namespace, name));
        if !self.allowed.as_ref().is_none_or(is_listed) {
            return Err(AuthError::NotAllowed);
        }
        let has_all_rights = self.isolation == Isolation::Burrito
            || self.main_namespace.as_deref() == Some(namespace);
        let is_it =
            |who: &Who| matches!(who, Who::ServiceAccount(some) if some.matches(namespace, name));
        let (home_namespace, rules) = (Some(namespace.to_owned()), policy.of(is_it));
        let rights = if has_all_rights {
            Rights::AllButStates { home_namespace, rules }
        } else {
            Rights::Some { home_namespace, rules }
        };
        Ok(Caller::new(format!("serviceaccount {namespace}/{name}"), rights))
    }
}

/// Namespace and name of the `ServiceAccount` with this user name; none for other users.
fn account(username: &str) -> Option<(&str, &str)> {
    let (namespace, name) = username.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

impl FromStr for Isolation {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "namespace" => Ok(Self::Namespace),
            "burrito" => Ok(Self::Burrito),
            _ => Err("expected namespace or burrito"),
        }
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Namespace => "namespace",
            Self::Burrito => "burrito",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_user_name_of_a_service_account_is_accepted() {
        assert_eq!(account("system:serviceaccount:team-a:runner"), Some(("team-a", "runner")));
        for other in [
            "admin",
            "system:node:a",
            "system:serviceaccount:team-a",
            "system:serviceaccount::runner",
            "system:serviceaccount:team-a:",
            "system:serviceaccount:team-a:b:c",
            "x system:serviceaccount:team-a:runner",
        ] {
            assert_eq!(account(other), None, "{other}");
        }
    }
}
