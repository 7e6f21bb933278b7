//! States that killed runs have left are copied to the directory of their layer.

use std::io;
use std::path::{Path, PathBuf};

use datastore_api::RunKey;
use fs_err as fs;

use crate::run::unsent::copies::{copy_state, keep_output, read_copy, write_record};
use crate::run::unsent::find::of_layer;
use crate::source::regular::{self, unless_missing};
use crate::source::scratch::{self, KilledApply, Scratch, UNSENT};
use crate::source::states::{self, KeptState};

/// Keeps copies of the states that killed runs of the layer have left in their private directories, or where their code
/// stays. Those that cannot be copied stay as they are.
pub(crate) fn adopt_left(
    state_home: Option<&Path>,
    scratch: &Scratch,
    run: &RunKey,
    layer: &str,
) -> io::Result<()> {
    let Some(home) = state_home else { return Ok(()) };
    for state in scratch.left_states(layer)? {
        adopt(&of_layer(home, run), &state);
    }
    Ok(())
}

/// A state that an ended run has left. Its own copies there may have originals that stay.
pub(crate) fn read_left(state: KeptState) -> KeptState {
    let is_copy = |private: &PathBuf| state.file.starts_with(private.join(UNSENT));
    match state.found_in.as_ref().filter(|private| is_copy(private)) {
        Some(_) => KeptState { found_in: state.found_in, ..read_copy(state.file) },
        None => state,
    }
}

/// Keeps a copy of a state that a killed run of a layer (`NAMESPACE/LAYER`) has left. Returns the state as it is kept.
pub(crate) fn adopt_abandoned(
    state_home: Option<&Path>,
    layer: Option<&str>,
    state: &KeptState,
) -> Option<KeptState> {
    adopt(&of_named(state_home?, layer?)?, state)
}

/// The states that a killed apply of any layer has left. They are copied as [`adopt_left`] does.
pub(crate) fn left_by(
    state_home: Option<&Path>,
    killed: &KilledApply,
) -> io::Result<Vec<KeptState>> {
    let of_layer = state_home.and_then(|home| of_named(home, killed.layer()));
    let Some((of_layer, name)) = of_layer.zip(killed.name()) else { return killed.left_states() };
    for state in killed.left_states()? {
        adopt(&of_layer, &state);
    }
    // An earlier run may have copied them. Other killed runs had directories of the same name.
    let copies = states::kept(&of_layer.join(name).join("0")).into_iter().map(read_copy);
    let mut found = copies.filter(|copy| killed.is_of(copy)).collect::<Vec<_>>();
    for state in killed.left_states()?.into_iter().map(read_left) {
        if !found.iter().any(|copy| copy.is_of(&state.file)) {
            found.push(state);
        }
    }
    Ok(found)
}

/// The directory of the runs of a layer (`NAMESPACE/LAYER`).
fn of_named(state_home: &Path, layer: &str) -> Option<PathBuf> {
    let (namespace, layer) = layer.split_once('/')?;
    let (namespace, layer) = (namespace.parse().ok()?, layer.parse().ok()?);
    // The name of the run is not known, and is no part of the directory of its layer.
    let run = RunKey { namespace, layer, run: "unknown".parse().ok()? };
    Some(of_layer(state_home, &run))
}

/// Copies a state below the directory of its layer. A file in a private directory, which is removed some day, is moved.
fn adopt(of_layer: &Path, state: &KeptState) -> Option<KeptState> {
    let from = &state.file;
    let private = state.found_in.as_deref()?;
    // What the run itself has kept there stays.
    if from.starts_with(private.join(UNSENT)) {
        return None;
    }
    let is_private = from.starts_with(private);
    let dir = of_layer.join(private.file_name()?).join("0");
    let copy = existing_copy(&dir, from).map_or_else(|| copy_state(from, &dir), Ok);
    let copy = match copy {
        Ok(copy) => copy,
        Err(error) => {
            tracing::warn!("{} cannot be copied, and stays: {error}", from.display());
            return None;
        }
    };
    if let Some(record) = &state.record {
        let record = record.clone();
        let record = if is_private { record } else { record.of_original(from) };
        write_record(&record, &copy, &copy);
    }
    // What is kept of the tool's output may be the only record of a state that is not whole.
    if let Err(error) = keep_output(&scratch::output_of(private), &copy) {
        tracing::warn!(
            "{} stays: what the tool printed there cannot be copied: {error}",
            private.display()
        );
        return Some(read_copy(copy));
    }
    if is_private && let Err(error) = unless_missing(fs::remove_file(from)) {
        tracing::warn!("{} is copied to {}, and stays: {error}", from.display(), copy.display());
    }
    Some(read_copy(copy))
}

/// A copy of this file that an earlier run has made.
fn existing_copy(dir: &Path, file: &Path) -> Option<PathBuf> {
    let digest = regular::sha256(file).ok()?;
    let copies = states::kept(dir).into_iter();
    let mut copies = copies.filter(|copy| !copy.is_symlink());
    copies.find(|copy| regular::sha256(copy).ok().as_ref() == Some(&digest))
}
