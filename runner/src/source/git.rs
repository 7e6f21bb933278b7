//! Git, by the `git` program: it knows the user's configuration, keys and helpers.

mod ask;
mod checkout;
mod command;
mod converted;
mod files;
mod hidden;
mod incomplete;
mod index;
mod nested;
mod ordered;
mod reason;
mod running;
mod source;
mod work_tree;

pub(crate) use crate::source::git::ask::ask;
pub(super) use crate::source::git::checkout::{Git, needs_whole_history, prepare, unbundle};
pub(super) use crate::source::git::command::question;
pub(crate) use crate::source::git::converted::converted;
pub(super) use crate::source::git::files::checked_out;
pub(crate) use crate::source::git::files::{files, tracked_files};
pub(super) use crate::source::git::incomplete::mark_complete;
pub(crate) use crate::source::git::ordered::{OrderedRevision, is_commit, named_revision};
pub(crate) use crate::source::git::reason::CHANGED_KEY;
pub(crate) use crate::source::git::source::GitSource;
pub(super) use crate::source::git::work_tree::revision;
pub(crate) use crate::source::git::work_tree::{
    WorkTree, changed_code, is_top_of, is_tracked, nearest_top, top, work_tree,
};
