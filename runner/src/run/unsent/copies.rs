//! The runner's copies of states. A copy counts until the backend has its state, or until a person removes it: it is never
//! dropped because another file is missing. Which states are copied is not known here.

use std::io;
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::run::unsent::directory::{self, builder};
use crate::run::unsent::state_contents::StateContents;
use crate::source::regular::{self, unless_missing};
use crate::source::states::{self, KeptState, PushRecord};

/// Copies a state into a directory, synced to disk, under a name that is free. Its record is not written.
pub(super) fn copy_state(from: &Path, dir: &Path) -> io::Result<PathBuf> {
    builder().recursive(true).create(dir)?;
    // A truncated state could be mistaken for a complete one, so the name comes last.
    let mut copy = directory::partial(dir)?;
    io::copy(&mut fs::File::open(from)?, &mut copy)?;
    copy.as_file().sync_all()?;
    let mut index = 0;
    loop {
        let path = dir.join(states::errored_name(index));
        match copy.persist_noclobber(&path) {
            Ok(_) => return directory::sync(dir).map(|()| path),
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
                (copy, index) = (error.file, index + 1);
            }
            Err(error) => return Err(error.error),
        }
    }
}

/// Keeps what the tool printed beside a state that is not whole: the tool also prints a state that it cannot save.
pub(super) fn keep_output(output: &Path, state: &Path) -> io::Result<()> {
    let to = states::output_of(state);
    if states::is_whole(state) || to.exists() {
        return Ok(());
    }
    let Some(mut from) = unless_missing(regular::open(output))? else { return Ok(()) };
    let dir = state.parent().unwrap_or(state);
    let mut copy = directory::partial(dir)?;
    io::copy(&mut from, &mut copy)?;
    copy.as_file().sync_all()?;
    copy.persist(&to).map_err(|error| error.error)?;
    directory::sync(dir)
}

/// Writes the record of a kept state. Without it the state is still found.
pub(super) fn write_record(record: &PushRecord, state: &Path, name: &Path) {
    if let Err(error) = record.write(state, name) {
        tracing::warn!("the workspace of {} is not recorded: {error}", state.display());
    }
}

/// A copy with its record. If its original has a newer version of the state, that is the one to push.
pub(super) fn read_copy(copy: PathBuf) -> KeptState {
    let mut state = KeptState::read(copy.clone(), &copy);
    state.copy = Some(copy.clone());
    let Some(record) = &state.record else { return state };
    let Some(original) = record.original.clone().filter(|original| original.is_file()) else {
        return state;
    };
    if record.is_equal_to(&original) {
        state.others.push(original);
    } else if let (Ok(ours), Ok(theirs)) =
        (StateContents::read(&copy), StateContents::read(&original))
        && theirs.is_newer_than(&ours)
    {
        state.file = original;
        state.others.push(copy);
    }
    state
}

/// Removes a copy whose state the backend has, with its record and the output beside it.
pub(crate) fn remove_copy(copy: &Path) -> io::Result<()> {
    unless_missing(fs::remove_file(copy))?;
    unless_missing(fs::remove_file(states::record_of(copy)))?;
    unless_missing(fs::remove_file(states::output_of(copy)))?;
    directory::sync(copy.parent().unwrap_or(copy))
}
