//! What a module has beside its code while its state is in the datastore.

use std::io;

use crate::run::prepare::lock_file::LockFile;
use crate::source::checkout::Workspace;
use crate::tool::state_file::StateFile;

/// What a module has beside its code while its state is in the datastore.
#[derive(Debug)]
pub(in crate::run) struct UsedState {
    /// Removed at the end.
    _file: StateFile,
    /// That of the user, if the code is a copy of a directory that is used in place otherwise.
    pub(super) lock_file: Option<LockFile>,
}

impl UsedState {
    /// Writes the file that configures the backend. `follows_init`: what init changes in the lock file is written to that of
    /// the user.
    pub(super) fn create(
        Workspace { dir, in_place_of, .. }: &Workspace,
        follows_init: bool,
    ) -> io::Result<Self> {
        let module = in_place_of.as_deref().filter(|_| follows_init);
        let lock_file = module.map(LockFile::read).transpose()?;
        Ok(Self { _file: StateFile::create(dir)?, lock_file })
    }
}
