//! The state in the datastore to which an address of the backend `http` leads.

use datastore_api::Name;
use datastore_api::state::{DEFAULT_WORKSPACE, StateKey};
use percent_encoding::percent_decode_str;
use url::Url;

/// The route of states.
const ROUTE: &str = "/api/state/";

/// Where an address leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Leads {
    /// To a state of this datastore.
    Here(StateKey),
    /// To a state of a datastore at another URL, which may be the same one.
    MaybeHere,
    Elsewhere,
}

impl Leads {
    pub(super) fn of(address: &str, datastore: &Url) -> Self {
        let Ok(url) = Url::parse(address) else { return Self::Elsewhere };
        let Some((base, rest)) = url.path().split_once(ROUTE) else { return Self::Elsewhere };
        let is_same = url.origin() == datastore.origin();
        match key(rest) {
            Some(key) if is_same && base == datastore.path().trim_end_matches('/') => {
                Self::Here(key)
            }
            Some(_) => Self::MaybeHere,
            None => Self::Elsewhere,
        }
    }
}

/// The state of `namespace/layer` or `namespace/layer/workspace`.
fn key(path: &str) -> Option<StateKey> {
    let names = path.split('/').map(|segment| {
        let name = percent_decode_str(segment).decode_utf8().ok()?;
        name.parse::<Name>().ok()
    });
    let names = names.collect::<Option<Vec<_>>>()?;
    let default = || DEFAULT_WORKSPACE.parse().ok();
    let (namespace, layer, workspace) = match &*names {
        [namespace, layer] => (namespace, layer, default()?),
        [namespace, layer, workspace] => (namespace, layer, workspace.clone()),
        _ => return None,
    };
    Some(StateKey { namespace: namespace.clone(), layer: layer.clone(), workspace })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_of_this_datastore_names_a_state() {
        let leads =
            |address: &str| Leads::of(address, &"http://host:9700/behind/".parse().unwrap());
        let here = |text: &str| match leads(text) {
            Leads::Here(key) => key.to_string(),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(here("http://host:9700/behind/api/state/n/l"), "n/l/default");
        assert_eq!(here("http://HOST:9700/behind/api/state/n/a%20b/w?fence=7"), "n/a b/w");
        for text in [
            "http://localhost:9700/behind/api/state/n/l",
            "https://host:9700/behind/api/state/n/l",
            "http://host:9700/api/state/n/l",
        ] {
            assert_eq!(leads(text), Leads::MaybeHere, "{text}");
        }
        for text in [
            "http://host:9700/behind/state/n/l",
            "http://host:9700/behind/api/state/n",
            "http://host:9700/behind/api/state/n/l/w/x",
            "http://host:9700/behind/api/state/n/..%2F",
            "state",
        ] {
            assert_eq!(leads(text), Leads::Elsewhere, "{text}");
        }
    }
}
