//! Callers that are `ServiceAccounts` of Kubernetes, and what follows from the namespace they live in.

use std::fmt;
use std::str::FromStr;

use secrecy::SecretString;

use crate::auth::cache::{Reviews, Verdict};
use crate::auth::caller::{Caller, Rights};
use crate::auth::error::AuthError;
use crate::auth::kubernetes::{KubeApi, Reviewer};
use crate::auth::policy::{Policy, ServiceAccount, Who};

/// `ServiceAccounts` as callers.
#[derive(Clone, Debug)]
pub struct Kubernetes {
    /// Who knows their tokens.
    pub api: KubeApi,
    /// If it is set, only these may authenticate.
    pub allowed: Option<Vec<ServiceAccount>>,
    /// Callers from this namespace may do everything: Burrito's controllers and server.
    pub main_namespace: Option<String>,
    /// What the others may do.
    pub isolation: Isolation,
}

/// What those who are let in may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Each in its own namespace; see [`Kubernetes::main_namespace`].
    #[default]
    Namespace,
    /// Everything, everywhere, as upstream has it.
    Burrito,
}

/// Tells accounts by their tokens.
#[derive(Debug)]
pub(super) struct Accounts {
    reviews: Reviews,
    allowed: Option<Vec<ServiceAccount>>,
    main_namespace: Option<String>,
    isolation: Isolation,
}

impl Accounts {
    pub(super) async fn open(kubernetes: Kubernetes) -> anyhow::Result<Self> {
        let Kubernetes { api, allowed, main_namespace, isolation } = kubernetes;
        let reviews = Reviews::new(Reviewer::open(&api).await?);
        Ok(Self { reviews, allowed, main_namespace, isolation })
    }

    pub(super) async fn caller(
        &self,
        token: SecretString,
        policy: &Policy,
    ) -> Result<Caller, AuthError> {
        let username = match self.reviews.verdict(token).await {
            Verdict::Known(username) => username,
            Verdict::Refused => return Err(AuthError::Invalid),
            Verdict::Failed => return Err(AuthError::Unavailable),
        };
        let (namespace, name) = account(&username).ok_or(AuthError::NotAllowed)?;
        let is_listed =
            |allowed: &Vec<ServiceAccount>| allowed.iter().any(|one| one.matches(namespace, name));
        if !self.allowed.as_ref().is_none_or(is_listed) {
            return Err(AuthError::NotAllowed);
        }
        let everything = self.isolation == Isolation::Burrito
            || self.main_namespace.as_deref() == Some(namespace);
        let rights = if everything {
            Rights::Everything
        } else {
            let about = |who: &Who| matches!(who, Who::ServiceAccount(some) if some.matches(namespace, name));
            Rights::Some { home_namespace: Some(namespace.to_owned()), rules: policy.of(about) }
        };
        Ok(Caller::new(format!("serviceaccount {namespace}/{name}"), rights))
    }
}

/// Namespace and name of the account with this user name; none if it is another kind of user.
fn account(username: &str) -> Option<(&str, &str)> {
    let (namespace, name) = username.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

impl FromStr for Isolation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "namespace" => Ok(Self::Namespace),
            "burrito" => Ok(Self::Burrito),
            _ => Err("is neither `namespace` nor `burrito`".to_owned()),
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
    fn only_service_accounts_are_accounts() {
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
