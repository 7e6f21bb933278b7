//! The document that `push` writes, from a file or from standard input.

use std::io::{self, Write as _};
use std::path::PathBuf;

use datastore_api::StateKey;
use datastore_api::digest::Hasher;
use datastore_api::state::StateHead;
use fs_err::tokio as fs;
use tokio::io::AsyncReadExt as _;

use crate::cli::error::CommandError;
use crate::store::state::document::{has_empty_lineage, with_lineage};

/// A state document.
pub(super) enum Document {
    File(PathBuf),
    Bytes(Vec<u8>),
}

impl Document {
    /// The document of a file. A pipe, such as standard input, is read whole: the document may be read more than once.
    pub(super) async fn open(file: Option<PathBuf>) -> Result<Self, CommandError> {
        let Some(path) = file else {
            let mut bytes = Vec::new();
            let read = tokio::io::stdin().read_to_end(&mut bytes).await;
            return read.map(|_| Self::Bytes(bytes)).map_err(CommandError::File);
        };
        match fs::metadata(&path).await.map_err(CommandError::File)? {
            found if found.is_file() => Ok(Self::File(path)),
            found if found.is_dir() => {
                Err(CommandError::File(io::Error::from(io::ErrorKind::IsADirectory)))
            }
            // A pipe can be read only once.
            _ => fs::read(path).await.map(Self::Bytes).map_err(CommandError::File),
        }
    }

    /// The document with a lineage, where it has an empty one and is the first of its state: a tool that has never reached the
    /// backend keeps such a document, and makes a lineage up when it pushes it. This one is always the same for the document.
    pub(super) async fn with_lineage(
        self,
        key: &StateKey,
        before: &StateHead,
    ) -> Result<Self, CommandError> {
        let read;
        let bytes = match &self {
            Self::Bytes(bytes) => bytes,
            Self::File(path) if is_without_lineage(path.clone()).await? => {
                read = fs::read(path).await.map_err(CommandError::File)?;
                &read
            }
            Self::File(_) => return Ok(self),
        };
        let mut hasher = Hasher::default();
        hasher.update(key.to_string().as_bytes());
        hasher.update(bytes);
        let lineage = format!("{:.32}", hasher.finish().to_string());
        let is_first = before.version.as_ref().is_none_or(|version| version.lineage == lineage);
        match with_lineage(bytes, &lineage).filter(|_| is_first) {
            Some(document) => {
                let note = "the lineage of the document is empty, because its tool had never reached the backend";
                writeln!(io::stderr(), "{note}: it gets {lineage}")?;
                Ok(Self::Bytes(document))
            }
            None => Ok(self),
        }
    }
}

async fn is_without_lineage(path: PathBuf) -> Result<bool, CommandError> {
    let read = move || {
        let file = fs_err::File::open(path)?;
        Ok(has_empty_lineage(&mut io::BufReader::new(file)))
    };
    let read = tokio::task::spawn_blocking(read).await.map_err(io::Error::other);
    read.flatten().map_err(CommandError::File)
}
