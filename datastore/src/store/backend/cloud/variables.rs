//! The values of the environment variables that configure a cloud.
//!
//! It does not read the environment itself: `config` passes a function that does.

use std::collections::BTreeMap;
use std::str::FromStr;

use secrecy::{ExposeSecret, SecretString};

use crate::store::backend::cloud::provider::Provider;

/// Values of a cloud's variables by name. All are kept as secrets, because some are.
#[derive(Clone, Debug, Default)]
pub struct Variables(BTreeMap<&'static str, SecretString>);

impl Variables {
    /// Reads the variables of a provider from `environment`. An empty variable counts as unset.
    pub fn read(provider: Provider, environment: &dyn Fn(&str) -> Option<String>) -> Self {
        let found = provider.variables().iter().filter_map(|name| {
            let value = environment(name).filter(|value| !value.is_empty())?;
            Some((*name, SecretString::from(value)))
        });
        Self(found.collect())
    }

    /// The names of the variables that are set.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }

    pub(in crate::store) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(ExposeSecret::expose_secret)
    }

    /// Whether requests are sent without a signature, as to a public bucket.
    pub(in crate::store) fn skip_signature(&self) -> bool {
        ["AWS_SKIP_SIGNATURE", "GOOGLE_SKIP_SIGNATURE", "AZURE_SKIP_SIGNATURE"]
            .iter()
            .any(|name| self.is_true(name))
    }

    /// Whether a variable is set to true, in any spelling that `object_store` accepts.
    pub(in crate::store) fn is_true(&self, name: &str) -> bool {
        self.get(name).is_some_and(is_true)
    }

    /// The variables that a builder of `object_store` knows, by their typed keys, with their values.
    pub(in crate::store) fn typed<K: FromStr>(&self) -> impl Iterator<Item = (K, &str)> {
        self.0.iter().filter_map(|(name, value)| {
            Some((name.to_ascii_lowercase().parse().ok()?, value.expose_secret()))
        })
    }
}

/// Whether a value means true, in any spelling that `object_store` accepts.
pub(in crate::store) fn is_true(value: &str) -> bool {
    ["1", "true", "on", "yes", "y"].contains(&&*value.to_ascii_lowercase())
}

impl PartialEq for Variables {
    fn eq(&self, other: &Self) -> bool {
        let all = |variables: &Self| {
            variables.0.iter().map(|(k, v)| (*k, v.expose_secret().to_owned())).collect::<Vec<_>>()
        };
        all(self) == all(other)
    }
}

impl Eq for Variables {}
