//! An authenticated caller and its permissions.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::auth::policy::{Access, Rule, Verb};
use crate::kind::Kind;

/// The sender of a request.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// Its name in the log.
    name: String,
    rights: Rights,
    /// Whether it is known by a session of a browser.
    is_session: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Rights {
    Everything,
    /// Everything but states, leases and outputs, for which it has what `Some` has: no default right includes a state.
    AllButStates {
        home_namespace: Option<String>,
        rules: Arc<[Rule]>,
    },
    /// The state of the request's path, by the credential of the lease with this number.
    OneState(u64),
    /// To renew the lease of the request's path, by its credential.
    OneLease,
    Some {
        /// The namespace of its `ServiceAccount`.
        home_namespace: Option<String>,
        rules: Arc<[Rule]>,
    },
}

/// The name of every caller where callers are not authenticated.
const ANONYMOUS: &str = "anybody";

/// Whether a valid token was sent on a connection. Each request of the connection carries it.
#[derive(Clone, Debug)]
pub(crate) struct KnownCaller(pub(crate) Arc<AtomicBool>);

impl Caller {
    pub(super) fn new(name: String, rights: Rights) -> Self {
        Self { name, rights, is_session: false }
    }

    /// The same caller, known by a session in a browser: what only programs need, it has only by rules that say so.
    pub(super) fn in_browser(self) -> Self {
        Self { name: format!("{} by session", self.name), is_session: true, ..self }
    }

    /// A caller where callers are not authenticated: it has every permission.
    pub(super) fn anonymous() -> Self {
        Self::new(ANONYMOUS.to_owned(), Rights::Everything)
    }

    /// Its name in the log.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its name; none where callers are not authenticated.
    pub(crate) fn known_name(&self) -> Option<&str> {
        Some(&*self.name).filter(|name| *name != ANONYMOUS)
    }

    /// Whether it has this permission.
    pub(crate) fn may(&self, access: Access) -> bool {
        match &self.rights {
            // A session has a caller of `AllButStates` or `Some`.
            Rights::AllButStates { rules, .. } | Rights::Some { rules, .. }
                if self.is_session && access.is_for_programs() =>
            {
                rules.iter().any(|rule| rule.allows_in_browsers(access))
            }
            Rights::Everything => true,
            Rights::OneState(_) => {
                access.kind == Some(Kind::State) && matches!(access.verb, Verb::Read | Verb::Write)
            }
            Rights::OneLease => {
                access.kind == Some(Kind::Lease) && matches!(access.verb, Verb::Write)
            }
            Rights::AllButStates { .. }
                if !matches!(access.kind, Some(Kind::State | Kind::Lease | Kind::Outputs)) =>
            {
                true
            }
            Rights::AllButStates { home_namespace, rules }
            | Rights::Some { home_namespace, rules } => {
                let is_home = home_namespace.as_deref() == Some(access.namespace.as_ref());
                is_home && default_rights(access) || rules.iter().any(|rule| rule.allows(access))
            }
        }
    }

    /// A caller that is known by the credential of its lease: it may use the state of the request's path, or renew the lease.
    pub(super) fn of_lease(holder: &str, rights: Rights) -> Self {
        let of = if holder.is_empty() { String::new() } else { format!(" of {holder}") };
        Self::new(format!("lease{of}"), rights)
    }

    /// The number of the lease by whose credential it is known. It writes under no other one.
    pub(crate) fn fence(&self) -> Option<u64> {
        match self.rights {
            Rights::OneState(number) => Some(number),
            _ => None,
        }
    }

    /// The text of a 403: the missing permission, and the file in which a rule can grant it.
    pub(crate) fn denial(&self, access: Access) -> String {
        let Access { namespace, kind, verb, .. } = access;
        let verb_name = if verb == Verb::Admin { "administer" } else { verb.name() };
        if let (Rights::OneState(_) | Rights::OneLease, Some(kind)) = (&self.rights, kind) {
            return format!(
                "{} may not {verb_name} `{kind}` in the namespace `{namespace}`: the credential of a lease only reads, writes \
                 and locks its state; use a token that may",
                self.name
            );
        }
        let (name, verb, rules) = (&self.name, verb_name, self.rules_setting());
        let (what, rule) = match kind {
            Some(kind) if self.is_session && access.is_for_programs() => {
                (format!("`{kind}`"), "a rule with `browser: all`".to_owned())
            }
            Some(kind) => (format!("`{kind}`"), "a rule".to_owned()),
            // A listing needs no certain kind, and bundles are not listed.
            None => (
                "runs and attempts".to_owned(),
                format!("a rule with the verb `{verb}` for any kind but `bundle`"),
            ),
        };
        format!(
            "{name} may not {verb} {what} in the namespace `{namespace}`; {rule} in the datastore's {rules} can allow \
             it"
        )
    }

    /// The same for a request that needs the permission `admin`.
    pub(crate) fn admin_denial(&self) -> String {
        format!(
            "{} may not encrypt all objects; a rule with the verb `admin` in the datastore's {} can allow it",
            self.name,
            self.rules_setting()
        )
    }

    /// The file in which a rule can grant it a permission.
    fn rules_setting(&self) -> &'static str {
        if self.name.starts_with("token ") {
            "file of tokens (--auth tokens=FILE)"
        } else {
            "policy (PLANCHA_POLICY)"
        }
    }

    /// Whether it has the permission `admin`.
    pub(crate) fn may_administer(&self) -> bool {
        match &self.rights {
            Rights::Everything | Rights::AllButStates { .. } => true,
            Rights::OneState(_) | Rights::OneLease => false,
            Rights::Some { rules, .. } => rules.iter().any(Rule::allows_admin),
        }
    }
}

/// The permissions of a `ServiceAccount` in its own namespace. It may not write bundles: they are code, and only the
/// controllers store them. It has no permission for states: any job there could read all secrets of its layers.
fn default_rights(access: Access) -> bool {
    if access.kind == Some(Kind::State) {
        return false;
    }
    match access.verb {
        Verb::Read | Verb::List => true,
        Verb::Write => access.kind.is_some_and(|kind| kind != Kind::Bundle),
        Verb::Append => access.kind == Some(Kind::Log),
        Verb::Delete | Verb::Admin => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_names_the_rules_that_can_allow_it() {
        let home = "team-a".parse().unwrap();
        let caller = |name: &str| {
            let rights = Rights::Some { home_namespace: None, rules: Arc::default() };
            Caller::new(name.to_owned(), rights)
        };
        let denial = |name| caller(name).denial(Access::of(&home, Kind::Log, Verb::Read));
        let admin = |name| caller(name).admin_denial();
        let listing = Access::list(&home);
        let in_browser = caller("token ci").in_browser();
        insta::assert_snapshot!(in_browser.denial(Access::of(&home, Kind::Bin, Verb::Read)), @"token ci by session may not read `bin` in the namespace `team-a`; a rule with `browser: all` in the datastore's file of tokens (--auth tokens=FILE) can allow it");
        insta::assert_snapshot!(caller("token ci").denial(listing), @"token ci may not list runs and attempts in the namespace `team-a`; a rule with the verb `list` for any kind but `bundle` in the datastore's file of tokens (--auth tokens=FILE) can allow it");
        insta::assert_snapshot!(admin("token ci"), @"token ci may not encrypt all objects; a rule with the verb `admin` in the datastore's file of tokens (--auth tokens=FILE) can allow it");
        insta::assert_snapshot!(admin("serviceaccount a/b"), @"serviceaccount a/b may not encrypt all objects; a rule with the verb `admin` in the datastore's policy (PLANCHA_POLICY) can allow it");
        insta::assert_snapshot!(denial("token ci"), @"token ci may not read `log` in the namespace `team-a`; a rule in the datastore's file of tokens (--auth tokens=FILE) can allow it");
        insta::assert_snapshot!(denial("serviceaccount a/b"), @"serviceaccount a/b may not read `log` in the namespace `team-a`; a rule in the datastore's policy (PLANCHA_POLICY) can allow it");
    }

    #[test]
    fn the_home_namespace_allows_every_read_and_no_write_of_bundles_and_no_state() {
        let home = "team-a".parse().unwrap();
        let may = |verb| {
            Kind::ALL
                .into_iter()
                .filter(|kind| default_rights(Access::of(&home, *kind, verb)))
                .collect::<Vec<_>>()
        };
        let all_but_states = Kind::ALL.into_iter().filter(|kind| *kind != Kind::State);
        assert_eq!(may(Verb::Read), all_but_states.collect::<Vec<_>>());
        let written = may(Verb::Write);
        assert_eq!(written.len(), Kind::ALL.len() - 2);
        assert!(!written.contains(&Kind::Bundle) && !written.contains(&Kind::State));
        assert_eq!(may(Verb::Append), [Kind::Log]);
        assert!(may(Verb::Delete).is_empty() && may(Verb::Admin).is_empty());
    }
}
