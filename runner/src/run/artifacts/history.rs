//! What an earlier apply has reported of the state.

use datastore_api::{ClientError, Name};

use crate::report::{AppliedRecord, StateReport};
use crate::run::artifacts::Artifacts;

impl Artifacts {
    /// The state as the attempt reports it that has made this apply.
    pub(crate) async fn state_after(
        &self,
        record: &AppliedRecord,
    ) -> Result<Option<StateReport>, ClientError> {
        let Ok(run) = record.run.parse::<Name>() else { return Ok(None) };
        Ok(self.record_of(&run, record.attempt).await?.and_then(|record| record.state))
    }
}
