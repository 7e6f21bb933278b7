//! Whether something was applied to a layer since it was last destroyed.

use datastore_api::key::AttemptFiles;
use datastore_api::{ClientError, Name, RunKey};

use crate::report::{AppliedRecord, StateReport};
use crate::run::artifacts::{APPLIED, Artifacts, LEDGER};

impl Artifacts {
    /// The newest attempt that has applied something, also if it failed, as `<run>/<attempt>`. `None`: there is none, or it
    /// has destroyed everything.
    pub(crate) async fn last_apply(&self) -> Result<Option<String>, ClientError> {
        let RunKey { namespace, layer, .. } = &self.run;
        let mut cursor = None;
        loop {
            let page = self.client.runs(namespace, layer, cursor.as_deref()).await?;
            for run in page.runs.iter().filter_map(|run| run.run.parse::<Name>().ok()) {
                for files in self.client.attempts(&self.sibling(&run)).await?.attempts.iter().rev()
                {
                    if !self.has_applied(&run, files).await? {
                        continue;
                    }
                    let record = self.record_of(&run, files.attempt).await?;
                    let is_destroyed = record.is_some_and(|record| record.has_destroyed_all());
                    return Ok((!is_destroyed).then(|| format!("{run}/{}", files.attempt)));
                }
            }
            cursor = page.next;
            if cursor.is_none() {
                return Ok(None);
            }
        }
    }

    /// Whether an attempt has applied anything: it has the record of an apply, or a ledger with resources.
    async fn has_applied(&self, run: &Name, files: &AttemptFiles) -> Result<bool, ClientError> {
        let has = |name: &str| files.artifacts.iter().any(|file| file.name == name);
        if has(APPLIED) || !has(LEDGER) {
            return Ok(has(APPLIED));
        }
        let ledger = self.ledger_of(run, files.attempt).await?;
        Ok(ledger.is_some_and(|ledger| ledger.has_resources()))
    }

    /// The state as the attempt reports it that has made this apply.
    pub(crate) async fn state_after(
        &self,
        record: &AppliedRecord,
    ) -> Result<Option<StateReport>, ClientError> {
        let Ok(run) = record.run.parse::<Name>() else { return Ok(None) };
        Ok(self.record_of(&run, record.attempt).await?.and_then(|record| record.state))
    }
}
