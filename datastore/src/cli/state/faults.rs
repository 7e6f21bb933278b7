//! What `verify` checks of states beside the digests of their documents.

use std::io::Write;

use datastore_api::chain;

use crate::cli::error::{CommandError, Damage};
use crate::store::{StateError, StateSettings, Store, concise};

/// Prints, and counts, control objects that are missing or damaged, and states whose document is missing, below a prefix.
pub(in crate::cli) async fn print_faults(
    store: &Store,
    prefix: &str,
    damage: &mut Damage,
    out: &mut impl Write,
) -> Result<(), CommandError> {
    if !"states/".starts_with(prefix) && !prefix.starts_with("states/") {
        return Ok(());
    }
    let store = store.with_states(StateSettings::read_only());
    let layers = store.layers_with_states().await;
    for layer in layers.map_err(|error| CommandError::Storage("list the states", error))? {
        let [own, documents] = layer.state_directories();
        if !documents.starts_with(prefix) && !prefix.starts_with(&*documents) {
            continue;
        }
        let faults = match store.state_faults(&layer).await {
            Ok(faults) => faults,
            Err(StateError::Store(error)) => {
                damage.unread += 1;
                writeln!(out, "unread ({}) {own}control", concise(&chain(&error)))?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        for fault in faults {
            let is_shown = fault.path.starts_with(prefix) || fault.path.starts_with(&*own);
            // A directory has shown this by the digest record.
            let is_printed = store.is_lost(&fault.path).await.unwrap_or_default();
            if !is_shown || is_printed {
                continue;
            }
            let (count, of_its_kind) = if fault.is_missing {
                (&mut damage.missing, &mut damage.missing_states)
            } else if fault.is_description {
                (&mut damage.changed, &mut damage.changed_descriptions)
            } else {
                (&mut damage.changed, &mut damage.changed_states)
            };
            *count += 1;
            *of_its_kind += 1;
            let verdict = if fault.is_missing { "missing" } else { "changed" };
            writeln!(out, "{verdict} {}", fault.path)?;
        }
    }
    Ok(())
}
