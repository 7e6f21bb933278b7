//! Why a command failed, and its exit code.

use std::io;

use crate::StartError;
use crate::store::StoreError;

/// A word could not be done.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// There is no such directory.
    #[error("there is no directory {0}")]
    NoStorage(String),
    /// There is no such key.
    #[error("there is no `{0}`; `datastore ls` shows what there is")]
    NoKey(String),
    /// No key begins so.
    #[error("there is nothing to verify below `{0}`; `datastore ls` shows what there is")]
    NothingBelow(String),
    /// What was read is not what was stored.
    #[error("what was written so far must not be used")]
    Corrupt(#[source] StoreError),
    /// The service could not start on it.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The storage is at fault.
    #[error("cannot {0}")]
    Storage(&'static str, #[source] StoreError),
    /// The storage does not do what is needed of it.
    #[error("the storage does not do what is needed: {0}")]
    Unfit(String),
    /// Objects have changed since they were stored.
    #[error(
        "{0} of the objects have changed since they were stored; `datastore verify --accept KEY` adopts one"
    )]
    Changed(usize),
    /// Objects could not be read.
    #[error("{0} of the objects could not be read")]
    Unread(usize),
    /// Some objects are still there.
    #[error("{0} of the objects could not be deleted")]
    Undeleted(usize),
    /// No token could be made, or its rule not be kept.
    #[error("no token was made: {0}")]
    Token(String),
    /// Nobody reads what we write.
    #[error("cannot write to standard output")]
    Output(#[from] io::Error),
}

impl CommandError {
    /// The exit code; `docs/datastore.md` lists them.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::NoStorage(_) | Self::NoKey(_) | Self::NothingBelow(_) => 8,
            Self::Corrupt(_) | Self::Changed(_) => 9,
            Self::Start(error) => error.exit_code(),
            Self::Storage(..) | Self::Unfit(_) => 10,
            Self::Undeleted(_) | Self::Unread(_) => 10,
            Self::Output(_) | Self::Token(_) => 1,
        }
    }

    /// Whether whoever read what we wrote has had enough of it: nothing to talk about.
    pub(super) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
