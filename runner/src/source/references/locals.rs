//! Where the local values of one module are used.
//!
//! Local values are visible only in their module, so its files alone decide whether a value reaches anything else than
//! connections and providers.

use std::collections::BTreeSet;

/// The uses in some files of a module.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Locals {
    /// Each used local value, and where it is used.
    uses: Vec<(String, Use)>,
    /// Whether there may be other uses: in a file that is not parsed, or of a name that is computed.
    is_incomplete: bool,
}

/// Where a local value is used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// In a `provider` or `connection` block: no plan contains the values there.
    Connection,
    /// In another local value.
    Local(String),
    Elsewhere,
}

impl Locals {
    /// Those of a file that is not parsed.
    pub(super) fn unknown() -> Self {
        Self { uses: Vec::new(), is_incomplete: true }
    }

    /// Adds a use. `None`: the name is computed.
    pub(super) fn add(&mut self, name: Option<&str>, of: Use) {
        match name {
            Some(name) => self.uses.push((name.to_owned(), of)),
            None => self.is_incomplete = true,
        }
    }

    /// Adds those of another file.
    pub(super) fn extend(&mut self, other: Self) {
        self.uses.extend(other.uses);
        self.is_incomplete |= other.is_incomplete;
    }

    /// The local values that are used, but only for connections and providers, also by way of others.
    pub(super) fn only_of_connections(&self) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        if self.is_incomplete {
            return found;
        }
        loop {
            let is_one = |name: &str| {
                self.uses.iter().filter(|(used, _)| used == name).all(|(_, of)| match of {
                    Use::Connection => true,
                    Use::Local(user) => found.contains(user.as_str()),
                    Use::Elsewhere => false,
                })
            };
            let names = self.uses.iter().map(|(name, _)| name.as_str());
            let next = names.filter(|name| is_one(name)).collect::<BTreeSet<_>>();
            if next.len() == found.len() {
                return found;
            }
            found = next;
        }
    }
}
