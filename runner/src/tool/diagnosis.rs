//! What kind of failure the errors of a tool are: `runner classify`.
//!
//! `diagnostics.rs` reads errors in an output. This module matches each of them with rules, which are data
//! (`diagnosis/rules/*.yaml` and `--rules`), and decides what they mean together.

mod cause;
mod class;
mod command;
mod error;
mod existing;
mod import_id;
mod output;
#[cfg(any(test, fuzzing))]
mod properties;
mod rule_file;
mod rules;
mod verdict;

pub(crate) use cause::Cause;
pub(crate) use class::Class;
pub(crate) use command::{classify, load_rules};
pub(crate) use error::ClassifyError;
pub(crate) use existing::{Existing, ExistingObjects};
pub(crate) use import_id::import_block;
pub(crate) use rules::Rules;
pub(crate) use verdict::{Verdict, each_block};

/// What fuzz targets call.
#[cfg(fuzzing)]
pub(crate) mod fuzz {
    /// Any bytes as the output of a tool.
    pub fn diagnostics(bytes: &[u8]) {
        super::properties::check(bytes);
    }
}

#[cfg(test)]
mod tests;
