//! Index entries that this process already knows, so that not every upload lists its attempt.

use std::collections::HashMap;
use std::time::Instant;

use object_store::path::Path;

/// Attempts that are in the index, as far as this process knows.
pub(in crate::store) type Indexed = HashMap<Path, Entry>;

/// How this process knows of the index entry of an attempt.
#[derive(Clone, Debug)]
pub(in crate::store) enum Entry {
    /// This process has written the entry.
    Written(Path),
    /// The attempt had objects at this time, so the entry had been written before.
    Found(Instant),
}
