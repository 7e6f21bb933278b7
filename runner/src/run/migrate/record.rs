//! What the datastore keeps for a migration: the record of the layer's tool, and the copy of the state.

use std::path::Path;

use datastore_api::client::{StateOrigin, Upload};
use datastore_api::state::{LayerTool, Migration, StateBackup, StateKey, StateVersion, ToolRecord};
use datastore_api::{Client, ClientError, Sha256};
use fs_err as fs;

use crate::report::StateReport;
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::migrate::error::MigrationError;
use crate::run::prepare::Prepared;
use crate::source::regular::unless_missing;

/// Versions of one page.
const PAGE: u16 = 100;

impl Run<'_> {
    /// The datastore, which a migration always has.
    fn records(&self) -> Result<&Client, RunError> {
        self.job.datastore.as_ref().ok_or_else(|| MigrationError::Unsupported.into())
    }

    /// The recorded migration of this workspace.
    pub(super) fn recorded_migration(&self) -> Option<&Migration> {
        self.layer_tool.as_ref()?.migrations.get(self.own_state_key().workspace.as_ref())
    }

    /// Replaces the record: the layer's tool, and the migration of this workspace.
    pub(super) async fn record_migration(
        &mut self,
        tool: LayerTool,
        migration: Option<Migration>,
    ) -> Result<(), RunError> {
        let key = self.own_state_key();
        let mut record = ToolRecord {
            tool,
            migrations: self.layer_tool.clone().map(|record| record.migrations).unwrap_or_default(),
        };
        match migration {
            Some(migration) => record.migrations.insert(key.workspace.to_string(), migration),
            None => record.migrations.remove(key.workspace.as_ref()),
        };
        let put = self.records()?.put_layer_tool(&key.namespace, &key.layer, &record);
        let put = self.signals.within(self.upload_grace(), put).await.map_err(RunError::Stopped)?;
        put.map_err(of_record)?;
        self.layer_tool = Some(record);
        Ok(())
    }

    /// Copies the state to the datastore, and reads it again.
    pub(super) async fn back_up(
        &self,
        prepared: &Prepared,
        file: &Path,
        state: &StateReport,
    ) -> Result<Option<StateBackup>, RunError> {
        let (Some(lineage), Some(serial)) = (state.lineage.clone(), state.serial) else {
            return Ok(None);
        };
        let (key, datastore) = (self.own_state_key(), self.records()?);
        let upload = Upload::file(file).await?;
        let sha256 = upload.sha256();
        let tool = Some(prepared.layer_tool());
        let origin = StateOrigin { run: Some(self.run_name()), tool, ..StateOrigin::default() };
        let stored = async {
            datastore.put_snapshot(&key, &origin, &upload).await?;
            find(datastore, &key, sha256).await
        };
        let stored = self.signals.or(stored).await.map_err(RunError::Stopped)?;
        let Some(StateVersion { version, .. }) = stored.map_err(of_record)? else {
            let reason = "it is not among the versions of the state".to_owned();
            return Err(MigrationError::Backup { key, reason }.into());
        };
        let backup = StateBackup { version, lineage, serial, sha256 };
        let copy = self.scratch.join("backup");
        self.fetch_backup(&backup, &copy).await?;
        unless_missing(fs::remove_file(copy))?;
        tracing::info!(
            "the state is copied to the datastore, as version {} of {key}",
            backup.version
        );
        Ok(Some(backup))
    }

    /// Reads the copy of a state into a new private file.
    pub(super) async fn fetch_backup(
        &self,
        backup: &StateBackup,
        to: &Path,
    ) -> Result<(), RunError> {
        let key = self.own_state_key();
        unless_missing(fs::remove_file(to))?;
        let saved = self.records()?.save_state(&key, Some(&backup.version), to);
        let reason = match self.signals.or(saved).await.map_err(RunError::Stopped)?? {
            Some(sha256) if sha256 == backup.sha256 => return Ok(()),
            Some(sha256) => format!("its SHA-256 is {sha256}, not {}", backup.sha256),
            None => "it does not exist".to_owned(),
        };
        Err(MigrationError::Backup { key, reason }.into())
    }
}

/// An error of a request that an older datastore does not know.
fn of_record(error: ClientError) -> RunError {
    if error.lacks_route() { MigrationError::Unsupported.into() } else { error.into() }
}

/// The newest version with these bytes that is or was the state, or a snapshot.
async fn find(
    datastore: &Client,
    key: &StateKey,
    sha256: Sha256,
) -> Result<Option<StateVersion>, ClientError> {
    let mut cursor = None::<String>;
    loop {
        let page = datastore.states(key, None, PAGE, cursor.as_deref()).await?;
        if let Some(version) = page.versions.into_iter().find(|version| version.sha256 == sha256) {
            return Ok(Some(version));
        }
        if page.next.is_none() {
            return Ok(page.head.version.filter(|version| version.sha256 == sha256));
        }
        cursor = page.next;
    }
}
