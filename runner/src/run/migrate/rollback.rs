//! The way back: the copy of the state is written by the old tool, if nothing else was written since the migration.

use std::path::Path;

use datastore_api::state::{LayerTool, Migration};

use crate::release::Installed;
use crate::report::{MigrationResult, StateReport};
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::migrate::error::MigrationError;
use crate::run::migrate::layer_tool::layer_tool;
use crate::run::migrate::state::{StatePlace, has_same_contents};
use crate::run::migrate::{is_copied, named, written_by};
use crate::run::prepare::Prepared;
use crate::version::ToolName;

impl Run<'_> {
    /// Undoes the recorded migration.
    pub(super) async fn roll_back(
        &mut self,
        mut code: Prepared,
    ) -> Result<MigrationResult, RunError> {
        let Some(migration) = self.recorded_migration().cloned() else {
            return Err(MigrationError::NothingToRollBack(self.own_state_key()).into());
        };
        let Migration { from, to, backup, .. } = migration.clone();
        self.name_tools(from.clone(), to.clone());
        self.report_backup(backup.as_ref());
        let (old, new) = (self.recorded(&from, &code).await?, self.recorded(&to, &code).await?);
        self.use_tool(&mut code, &new)?;
        let mut prepared = self.initialize(code).await?;
        self.use_backend(&mut prepared).await?;
        let place = self.place_state(&mut prepared).await?;
        // Other workspaces of the layer may belong to the new tool.
        let others = self.layer_tool.as_ref().filter(|record| record.migrations.len() > 1);
        if let Some(record) = others {
            tracing::warn!(
                "other workspaces of the layer are migrated: it stays with {}, also in this workspace, until they are rolled back",
                record.tool
            );
        }
        let tool = others.map_or(from, |record| record.tool.clone());
        self.undo_migration(&mut prepared, &place, &migration, (&old, tool)).await?;
        if backup.is_some()
            && let Err(error) =
                self.planned_changes(&mut prepared).await?.check(&layer_tool(&old).to_string())
        {
            tracing::warn!("the state is restored, but {error}");
        }
        Ok(MigrationResult::RolledBack)
    }

    /// Installs a recorded tool.
    async fn recorded(
        &self,
        LayerTool { name, version }: &LayerTool,
        code: &Prepared,
    ) -> Result<Installed, RunError> {
        let tool =
            if name == ToolName::Tofu.program() { ToolName::Tofu } else { ToolName::Terraform };
        let request = Some((&**version, "the record of the migration"));
        self.install_other(tool, request, &code.workspace).await
    }

    /// Restores the state by the old tool, if the migration has written it, and records that tool.
    pub(super) async fn undo_migration(
        &mut self,
        prepared: &mut Prepared,
        place: &StatePlace,
        migration: &Migration,
        (old, tool): (&Installed, LayerTool),
    ) -> Result<(), RunError> {
        let backup = migration.backup.as_ref();
        let file = self.scratch.join("written");
        let found = self.read_migrated_state(prepared, place, &file).await?;
        let is_ours =
            !is_copied(&found, backup) && self.is_of_migration(&found, &file, migration).await?;
        if !is_ours && !is_copied(&found, backup) {
            let now = named(&found);
            if !migration.unfinished {
                let (key, written) = (self.own_state_key(), migration.written);
                return Err(MigrationError::ChangedSince { key, now, written }.into());
            }
            tracing::warn!(
                "another process has written the state meanwhile ({now}): it stays as it is"
            );
        }
        if is_ours && !migration.unfinished {
            // From here on every other run is refused, as before the write of a migration.
            let current =
                self.layer_tool.as_ref().map_or_else(|| tool.clone(), |record| record.tool.clone());
            let again = Migration { unfinished: true, written: None, ..migration.clone() };
            self.record_migration(current, Some(again)).await?;
        }
        self.use_tool(prepared, old)?;
        self.initialize_again(prepared).await?;
        if let (Some(backup), Some(serial), true) = (backup, found.serial, is_ours) {
            let file = self.scratch.join("state");
            self.fetch_backup(backup, &file).await?;
            self.push_with_serial(prepared, &file, serial + 1).await?;
            let restored = self.read_migrated_state(prepared, place, &file).await?;
            if restored.lineage != found.lineage || restored.serial <= found.serial {
                let (tool, reason) = (self.tool_name(), format!("it has {}", named(&restored)));
                return Err(MigrationError::Written { tool, reason }.into());
            }
            self.report.migration.get_or_insert_default().serial_after = restored.serial;
        }
        self.record_migration(tool, None).await?;
        self.forget_backend(prepared);
        Ok(())
    }

    /// Whether a state, which is in this file, is that of the migration: with the contents of the copy.
    pub(super) async fn is_of_migration(
        &self,
        found: &StateReport,
        file: &Path,
        migration: &Migration,
    ) -> Result<bool, RunError> {
        let is_later = written_by(found, migration);
        let Some(backup) = migration.backup.as_ref().filter(|_| is_later) else {
            return Ok(is_later);
        };
        let copy = self.scratch.join("backup");
        self.fetch_backup(backup, &copy).await?;
        Ok(has_same_contents(&copy, file))
    }

    /// Adds the hashes for a platform to the lock file.
    pub(super) async fn lock_providers(
        &mut self,
        prepared: &mut Prepared,
        platform: &str,
    ) -> Result<(), RunError> {
        self.step_with_retries(
            prepared,
            "providers lock",
            || Ok(()),
            |tool| tool.lock_providers(platform),
        )
        .await
    }
}
