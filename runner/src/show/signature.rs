//! The signature of a plan, for people.

use std::path::Path;

use serde::{Serialize, Serializer};

use crate::basis::binding::Binding;
use crate::source::regular;

/// Whether a plan is signed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Signature {
    /// The plan has nothing that could be signed, and no key was named.
    Unbound,
    /// A key was named, and the run has stored no plan.
    NoPlan,
    None,
    NotVerified,
    Valid {
        /// The file of the key.
        key: String,
        /// Whether it is one of what people read of the plan, too.
        is_of_renderings: bool,
    },
}

impl Signature {
    /// `key` is the file of the key with which the binding was verified.
    pub(super) fn new(binding: Option<&Binding>, has_plan: bool, key: Option<&Path>) -> Self {
        match (binding, key) {
            (None, Some(_)) if !has_plan => Self::NoPlan,
            (None, _) => Self::Unbound,
            (Some(binding), _) if !binding.is_signed => Self::None,
            (Some(_), None) => Self::NotVerified,
            (Some(binding), Some(key)) => Self::Valid {
                key: regular::in_command(key),
                is_of_renderings: binding.has_renderings(),
            },
        }
    }

    pub(super) fn describe(&self) -> String {
        match self {
            Self::Unbound => String::new(),
            Self::NoPlan => "none: this run has stored no plan".to_owned(),
            Self::None => "none".to_owned(),
            Self::NotVerified => "signed, not verified (--verify-key)".to_owned(),
            Self::Valid { key, is_of_renderings } => {
                let limit = if *is_of_renderings {
                    ""
                } else {
                    ", but not for the text below, which an earlier release did not bind"
                };
                format!("signed by the key in {key}, valid{limit}")
            }
        }
    }
}

/// One word, for programs.
impl Serialize for Signature {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unbound | Self::NoPlan => to.serialize_none(),
            Self::None => to.serialize_str("none"),
            Self::NotVerified => to.serialize_str("not verified"),
            Self::Valid { .. } => to.serialize_str("valid"),
        }
    }
}
