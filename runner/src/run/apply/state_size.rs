//! The size of a state that the backend `kubernetes` keeps in a Secret.

use fs_err as fs;

use crate::basis::place::DEFAULT_WORKSPACE;
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::prepare::Prepared;
use crate::source::regular::unless_missing;
use crate::source::states::file::{StateFileError, compressed_size};

/// The maximum size of the data of a Secret, in bytes.
const LIMIT: u64 = 1 << 20;
/// What a state may fill of it, in percent.
const MAX_PERCENT: u64 = 90;

impl Run<'_> {
    /// Refuses an apply if the state, which the backend compresses, nearly fills its Secret: what the apply adds may not be
    /// saved.
    pub(super) async fn check_state_size(&mut self, prepared: &Prepared) -> Result<(), RunError> {
        let Some(secret) = self.state_secret().filter(|_| !self.job.allow_large_state) else {
            return Ok(());
        };
        let file = self.scratch.join("state-size");
        let size = match self.read_state(prepared, &file).await {
            Ok(()) => {
                let file = file.clone();
                let size = tokio::task::spawn_blocking(move || compressed_size(&file));
                size.await.map_err(std::io::Error::other)?.map_err(|error| error.to_string())
            }
            Err(stopped) if stopped.is_stop() => return Err(stopped),
            Err(error) => Err(error.to_string()),
        };
        unless_missing(fs::remove_file(file))?;
        match size {
            Ok(size) if is_too_large(size) => {
                Err(StateFileError::Large { secret, size, limit: LIMIT }.into())
            }
            Ok(_) => Ok(()),
            Err(reason) => {
                tracing::warn!(
                    "the size of the state in the Secret {secret} is not known: {reason}"
                );
                Ok(())
            }
        }
    }

    /// The Secret with the state, with its namespace. `None`: it is in another backend.
    fn state_secret(&self) -> Option<String> {
        let backend =
            self.report.backend.as_ref().filter(|backend| backend.kind == "kubernetes")?;
        let workspace = self.job.place.workspace.as_deref().filter(|name| !name.is_empty());
        let workspace = workspace.unwrap_or(DEFAULT_WORKSPACE);
        let suffix = backend.value("secret_suffix").unwrap_or("SUFFIX");
        let namespace = backend.value("namespace").unwrap_or("default");
        Some(format!("{namespace}/tfstate-{workspace}-{suffix}"))
    }
}

fn is_too_large(size: u64) -> bool {
    size * 100 > LIMIT * MAX_PERCENT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_90_percent_of_a_secret_is_too_large() {
        assert!(!is_too_large(943_718));
        assert!(is_too_large(943_719));
    }
}
