//! The action `migrate`: tofu takes the place of terraform. Nothing is changed unless both plan no changes, and whatever fails
//! after that restores the state.
//!
//! The steps: the lease; a copy of the state in the datastore; init and plan of the old tool; init and plan of the new one, in
//! the same private copy of the code; a record that the migration is unfinished, which refuses every other run; the state with
//! the next serial, written by the new tool, since its apply of no changes would write nothing; a second plan; the record of
//! the new tool.

pub(crate) mod error;
pub(in crate::run) mod layer_tool;
mod lock_files;
mod plans;
mod record;
mod rollback;
mod state;
mod version_paths;

use std::cmp::Ordering;
use std::ffi::OsStr;

use datastore_api::chain;
use datastore_api::state::{LayerTool, Migration, StateBackup};
use fs_err as fs;
use jiff::Timestamp;
use secrecy::ExposeSecret;

use crate::cli::Environment;
use crate::order::job::Migrate;
use crate::release::Installed;
use crate::report::{MigrationReport, MigrationResult, StateReport};
use crate::run::error::RunError;
use crate::run::migrate::error::MigrationError;
use crate::run::migrate::layer_tool::{compared, layer_tool};
use crate::run::migrate::lock_files::LockFiles;
use crate::run::migrate::state::StatePlace;
use crate::run::migrate::version_paths::VersionPaths;
use crate::run::prepare::Prepared;
use crate::run::{Run, open_artifacts};
use crate::tool::declared_backend::declares_encryption;
use crate::version::ToolName;

/// Arguments of a plan that a migration must not have.
pub(crate) const PARTIAL: [&str; 4] = ["-target", "-replace", "-refresh", "-destroy"];

/// The tools of a migration.
struct Tools {
    old: Installed,
    new: Installed,
}

impl Run<'_> {
    /// Migrates the state of this workspace to the other tool, or back. Report and log are stored.
    pub(super) async fn migrate_tool(&mut self, migrate: &Migrate) -> Result<(), RunError> {
        self.report.migration = Some(MigrationReport::default());
        let ended = Box::pin(self.run_migration(migrate)).await;
        let report = self.report.migration.get_or_insert_default();
        let result = match ended {
            Ok(result) => result,
            Err(error) => {
                let is_refused = matches!(&error, RunError::Migration(error) if error.is_refusal());
                if is_refused && report.serial_after.is_none() {
                    report.result = MigrationResult::Refused;
                }
                report.reason = Some(chain(&error));
                return Err(error);
            }
        };
        report.result = result;
        let line = self.migration_line(result);
        tracing::info!("{line}");
        self.log.line(&line)?;
        self.record_unchanged().await
    }

    async fn run_migration(&mut self, migrate: &Migrate) -> Result<MigrationResult, RunError> {
        let paths = VersionPaths::load(migrate.version_paths.as_deref())?;
        let opened = self.signals.or(open_artifacts(self.job)).await;
        self.set_artifacts(opened.map_err(RunError::Stopped)??);
        self.check_arguments()?;
        if self.environment.data_dir().is_absolute() {
            return Err(MigrationError::DataDir.into());
        }
        let mut code = Box::pin(self.check_out(None)).await?;
        let dir = &code.workspace.dir;
        if code.terragrunt.is_some() || fs::exists(dir.join("terragrunt.hcl"))? {
            return Err(MigrationError::Terragrunt.into());
        }
        if migrate.to.is_some()
            && (self.environment.encrypts || declares_encryption(&code.workspace.dir)?)
        {
            return Err(MigrationError::Encryption.into());
        }
        if let Some(argument) = partial_plan(self.environment) {
            return Err(MigrationError::PartialPlan(argument).into());
        }
        if let Some(workspace) = &self.job.place.workspace
            && self.job.state.is_none()
        {
            code.env.push(("TF_WORKSPACE".to_owned(), workspace.into()));
        }
        self.take_lease().await?;
        // Another migration may have ended before this run had the lease.
        self.read_layer_tool().await?;
        match &migrate.to {
            None => Box::pin(self.roll_back(code)).await,
            Some(to) => {
                let request = to.request.as_deref().map(|version| (version, "--to"));
                let new = self.install_other(ToolName::Tofu, request, &code.workspace).await?;
                Box::pin(self.migrate_to(migrate, &paths, code, new)).await
            }
        }
    }

    async fn migrate_to(
        &mut self,
        migrate: &Migrate,
        paths: &VersionPaths,
        mut code: Prepared,
        new: Installed,
    ) -> Result<MigrationResult, RunError> {
        let tools = Tools { old: code.installed.clone(), new };
        self.name_tools(layer_tool(&tools.old), layer_tool(&tools.new));
        if self.is_migrated(&tools.new)? {
            if !migrate.dry_run {
                self.forget_backend(&code);
            }
            return Ok(MigrationResult::Already);
        }
        paths.check(&tools.old.version, &tools.new.version)?;
        let unfinished =
            self.recorded_migration().filter(|migration| migration.unfinished).cloned();
        if let (Some(migration), true) = (&unfinished, migrate.dry_run) {
            let (key, migration) = (self.own_state_key(), Box::new(migration.clone()));
            return Err(MigrationError::Unfinished { key, migration }.into());
        }
        let mut lock_files = LockFiles::read(&code.workspace)?;
        if unfinished.is_some() {
            self.use_tool(&mut code, &tools.new)?;
        }
        let mut prepared = self.initialize(code).await?;
        self.use_backend(&mut prepared).await?;
        let place = self.place_state(&mut prepared).await?;
        if let Some(migration) = unfinished {
            let file = self.scratch.join("state");
            let found = self.read_migrated_state(&prepared, &place, &file).await?;
            if self.is_of_migration(&found, &file, &migration).await? {
                tracing::info!(
                    "an interrupted migration has written the state: it goes on from there"
                );
                self.report_backup(migration.backup.as_ref());
                let migration = self.continued(migration, &tools.new)?;
                self.finish(migrate, &mut prepared, &place, (migration, lock_files)).await?;
                return Ok(MigrationResult::Migrated);
            }
            tracing::info!("an interrupted migration has written nothing: it begins again");
            self.use_tool(&mut prepared, &tools.old)?;
            self.initialize_again(&mut prepared).await?;
        }
        lock_files.keep_old(&prepared.workspace.dir)?;
        self.compare_tools(migrate, &mut prepared, &place, &tools, lock_files).await
    }

    /// A migration that this version of the new tool goes on with. An older one than has written the state is refused.
    fn continued(&self, migration: Migration, new: &Installed) -> Result<Migration, RunError> {
        if compared(&new.version, &migration.to) == Some(Ordering::Less) {
            return Err(self.older(&migration.to, new).into());
        }
        Ok(Migration { to: layer_tool(new), ..migration })
    }

    fn older(&self, recorded: &LayerTool, new: &Installed) -> MigrationError {
        let layer = format!("{}/{}", self.job.run.namespace, self.job.run.layer);
        let (recorded, wanted) = (recorded.to_string(), layer_tool(new).to_string());
        MigrationError::Older { layer, recorded, wanted }
    }

    /// Plans with both tools, and writes the state by the new one.
    async fn compare_tools(
        &mut self,
        migrate: &Migrate,
        prepared: &mut Prepared,
        place: &StatePlace,
        tools: &Tools,
        lock_files: LockFiles,
    ) -> Result<MigrationResult, RunError> {
        let file = self.scratch.join("state");
        let state = self.read_migrated_state(prepared, place, &file).await?;
        if !state.exists() {
            self.check_never_applied(prepared).await?;
        }
        let backup =
            if migrate.dry_run { None } else { self.back_up(prepared, &file, &state).await? };
        self.report_state(&state, backup.as_ref());
        let old_name = self.tool_name();
        let old = if state.exists() { Some(self.planned_changes(prepared).await?) } else { None };
        if !migrate.dry_run {
            old.iter().try_for_each(|changes| changes.check(&old_name))?;
        }
        self.use_tool(prepared, &tools.new)?;
        self.initialize_again(prepared).await?;
        if let Some(old) = old {
            let (new_name, new) = (self.tool_name(), self.planned_changes(prepared).await?);
            if migrate.dry_run {
                self.say_difference(&old.difference(&new))?;
                old.check(&old_name)?;
            }
            new.check(&new_name)?;
        }
        if migrate.dry_run {
            return Ok(MigrationResult::Ready);
        }
        let migration = Migration {
            from: layer_tool(&tools.old),
            to: layer_tool(&tools.new),
            backup,
            written: None,
            unfinished: true,
            started: format!("{:.0}", Timestamp::now()),
        };
        self.write(migrate, prepared, place, (migration, lock_files), &tools.old).await?;
        Ok(MigrationResult::Migrated)
    }

    /// Writes the state by the new tool. What fails is undone, unless a signal has ended it.
    async fn write(
        &mut self,
        migrate: &Migrate,
        prepared: &mut Prepared,
        place: &StatePlace,
        (migration, lock_files): (Migration, LockFiles),
        old: &Installed,
    ) -> Result<(), RunError> {
        let before = self.layer_tool.clone();
        let tool =
            before.as_ref().map_or_else(|| migration.from.clone(), |record| record.tool.clone());
        self.record_migration(tool.clone(), Some(migration.clone())).await?;
        let (backup, started) = (migration.backup.clone(), migration.clone());
        let written = async {
            if let Some(backup) = &backup {
                let report = self.report.migration.get_or_insert_default();
                report.serial_after = Some(backup.serial + 1);
                let file = self.scratch.join("state");
                self.push_with_serial(prepared, &file, backup.serial + 1).await?;
            }
            self.finish(migrate, prepared, place, (migration, lock_files)).await
        };
        let Err(error) = Box::pin(written).await else { return Ok(()) };
        if !error.is_stop() {
            let undone =
                Box::pin(self.undo_migration(prepared, place, &started, (old, tool))).await;
            match undone {
                Ok(()) => {
                    tracing::warn!("the migration has failed, and the state is as it was before");
                }
                Err(undo) => tracing::error!(
                    "the migration has failed, and could not be undone ({}): `runner migrate --rollback` undoes it, and no other run of \
                     this layer starts until then",
                    chain(&undo)
                ),
            }
        }
        Err(error)
    }

    /// Checks what was written, and records the new tool.
    async fn finish(
        &mut self,
        migrate: &Migrate,
        prepared: &mut Prepared,
        place: &StatePlace,
        (mut migration, lock_files): (Migration, LockFiles),
    ) -> Result<(), RunError> {
        let tool = self.tool_name();
        if migration.backup.is_some() {
            let file = self.scratch.join("written");
            let found = self.read_migrated_state(prepared, place, &file).await?;
            if !self.is_of_migration(&found, &file, &migration).await? {
                let reason = format!("it has {}", named(&found));
                return Err(MigrationError::Written { tool, reason }.into());
            }
            self.report.migration.get_or_insert_default().serial_after = found.serial;
            migration.written = found.serial;
            self.planned_changes(prepared).await?.check(&tool)?;
        }
        for platform in &migrate.lock_platforms {
            self.lock_providers(prepared, platform).await?;
        }
        let dir = prepared.workspace.dir.clone();
        lock_files.merge(&dir)?;
        let migration = Migration { unfinished: false, ..migration };
        self.record_migration(migration.to.clone(), Some(migration)).await?;
        self.forget_backend(prepared);
        if let Err(error) = lock_files.write_back(&dir) {
            tracing::warn!("the lock file is not changed: {error}");
        }
        Ok(())
    }

    /// Whether the layer has this tool already. An older version than the recorded one is refused.
    fn is_migrated(&self, new: &Installed) -> Result<bool, RunError> {
        let Some(record) = &self.layer_tool else { return Ok(false) };
        if record.tool.name != new.tool.program() {
            return Ok(false);
        }
        if compared(&new.version, &record.tool) == Some(Ordering::Less) {
            return Err(self.older(&record.tool, new).into());
        }
        let own = self.recorded_migration();
        // Without any migration somebody has recorded the tool by hand.
        Ok(own.map_or(record.migrations.is_empty(), |migration| !migration.unfinished))
    }

    fn say_difference(&self, difference: &[String]) -> Result<(), RunError> {
        let mut lines = vec![match difference {
            [] => "the plans of both tools are the same".to_owned(),
            _ => "the plans differ (-: only the old tool, +: only the new one):".to_owned(),
        }];
        lines.extend(difference.iter().map(|line| format!("  {line}")));
        for line in lines {
            tracing::info!("{line}");
            self.log.line(&line)?;
        }
        Ok(())
    }
}

/// An argument in a variable by which a plan is not that of the whole code, or does not look for changes outside of the tool.
fn partial_plan(environment: &Environment) -> Option<&'static str> {
    let of_plan = ["TF_CLI_ARGS", "TF_CLI_ARGS_plan"].into_iter();
    let values = of_plan.filter_map(|name| environment.inputs.get(OsStr::new(name)));
    let values = values.map(ExposeSecret::expose_secret).collect::<Vec<_>>();
    PARTIAL.into_iter().find(|argument| {
        values.iter().any(|value| memchr::memmem::find(value, argument.as_bytes()).is_some())
    })
}

/// Whether a state is the one that was copied, and nothing was written since.
fn is_copied(state: &StateReport, backup: Option<&StateBackup>) -> bool {
    let expected = backup.map(|backup| (&backup.lineage, backup.serial));
    state.lineage.as_ref().zip(state.serial) == expected
}

/// Whether the serial of a state is one that the migration has written: the recorded one, or any later one until it is
/// recorded. Its contents are compared as well.
fn written_by(state: &StateReport, Migration { backup, written, .. }: &Migration) -> bool {
    let (Some(backup), Some(serial)) = (backup, state.serial) else {
        return backup.is_none() && !state.exists();
    };
    let is_expected = written.map_or(serial > backup.serial, |written| serial == written);
    is_expected && state.lineage.as_ref() == Some(&backup.lineage)
}

/// Serial and lineage of a state, for people.
fn named(state: &StateReport) -> String {
    match (&state.lineage, state.serial) {
        (Some(lineage), Some(serial)) => format!("serial {serial} of lineage {lineage}"),
        _ => "no state".to_owned(),
    }
}

impl Run<'_> {
    fn name_tools(&mut self, from: LayerTool, to: LayerTool) {
        let report = self.report.migration.get_or_insert_default();
        (report.from, report.to) = (Some(from), Some(to));
    }

    fn report_state(&mut self, state: &StateReport, backup: Option<&StateBackup>) {
        let report = self.report.migration.get_or_insert_default();
        report.lineage.clone_from(&state.lineage);
        report.serial_before = state.serial;
        self.report_backup(backup);
    }

    fn report_backup(&mut self, backup: Option<&StateBackup>) {
        let Some(backup) = backup else { return };
        let report = self.report.migration.get_or_insert_default();
        report.lineage = Some(backup.lineage.clone());
        report.serial_before = Some(backup.serial);
        report.backup = Some(backup.version.clone());
        report.sha256 = Some(backup.sha256);
    }

    /// How the migration has ended, for people.
    fn migration_line(&self, result: MigrationResult) -> String {
        let (key, report) =
            (self.own_state_key(), self.report.migration.clone().unwrap_or_default());
        let shown = |tool: Option<LayerTool>| tool.map(|tool| tool.to_string()).unwrap_or_default();
        let (from, to) = (shown(report.from), shown(report.to));
        match result {
            MigrationResult::Migrated => format!(
                "{key} is migrated from {from} to {to}: from now on runs need tofu (--tool tofu, a .opentofu-version file, or the \
                 layer's spec.opentofu.enabled)"
            ),
            MigrationResult::Already => format!("{key} belongs to tofu already: nothing is done"),
            MigrationResult::Ready => format!(
                "{key} can be migrated from {from} to {to}; nothing was changed (--dry-run)"
            ),
            MigrationResult::RolledBack => format!(
                "{key} belongs to {from} again, and the state is as it was before the migration"
            ),
            MigrationResult::Refused | MigrationResult::Failed => format!("{key} is not migrated"),
        }
    }
}
