//! The changes of a plan, listed: `plan.json` is read once, as a stream, and becomes the small document that
//! `GET /api/changes` answers. It knows no storage and no HTTP.
//!
//! The format that is read is the "JSON plan representation" of HashiCorp and OpenTofu, `format_version` 0.1 to 1.x. Memory is
//! bounded, whatever the bytes are: long strings are cut while they are read ([`guard`]), the values of one resource have a
//! budget ([`value`]), and so has the whole list ([`listing`]).
//!
//! No sensitive value is listed: what the plan marks is hidden with all below it ([`marks`]), where a mark is missing or does
//! not fit its value, the value is hidden too, and a text that is marked in one place is searched for in all others,
//! within limits ([`secrets`]).

mod compare;
mod error;
pub(crate) mod guard;
mod listing;
mod marks;
mod plan;
mod resource;
mod secrets;
#[cfg(test)]
mod tests;
mod value;

use std::io::Read;

pub(crate) use crate::changes::error::UnreadablePlan;
pub(crate) use crate::changes::listing::VERSION;

/// The most memory that a list takes while it is made, in bytes.
pub(crate) const MEMORY: usize = 64 << 20;

/// Reads the output of `show -json`, to its end, and lists its changes. Returns JSON.
pub(crate) fn list(plan: impl Read) -> Result<Vec<u8>, UnreadablePlan> {
    plan::read(plan).map(listing::Listing::into_json)
}
