//! The imports of a run. Tools that read `import {}` blocks change nothing before the plan with the
//! import is applied. Older ones have only the command `import`, which changes the state before that plan: the ledger
//! records it first, and a plan that is refused removes the object from the state again. After a kill the next run does.

use std::io;

use datastore_api::chain;

use crate::process::text::clean;
use crate::report::ledger::{ImportState, Ledger, StateBefore};
use crate::run::Run;
use crate::run::apply::ledger::WATCH;
use crate::run::apply::remainder::{Imported, Imports};
use crate::run::artifacts::Artifacts;
use crate::run::error::RunError;
use crate::run::prepare::Prepared;
use crate::tool::argv::PlanOptions;
use crate::tool::diagnosis::ExistingObjects;

impl Run<'_> {
    /// Begins to import these objects. Without any: they are not imported, and it is said why.
    pub(in crate::run::apply) async fn begin_imports(
        &mut self,
        prepared: &mut Prepared,
        existing: &ExistingObjects,
        options: &PlanOptions,
    ) -> Result<Imports, RunError> {
        let prepared_imports = async {
            let mut imports = self.imports(prepared, existing).await?;
            if imports.is_empty() {
                return Ok(imports);
            }
            let addresses = imports.keys().map(|address| clean(address)).collect::<Vec<_>>();
            let line = format!("importing what exists already: {}", addresses.join(", "));
            tracing::warn!("{line}");
            self.log.line(&line)?;
            if prepared.tool().reads_import_blocks() {
                self.record_imports(&imports, ImportState::Planned, None).await?;
                return Ok(imports);
            }
            self.import_by_command(prepared, &imports, options).await?;
            for imported in imports.values_mut() {
                imported.is_pending = false;
            }
            Ok::<_, RunError>(imports)
        };
        match Box::pin(prepared_imports).await {
            Err(error) if !error.is_stop() => {
                self.advise_imports(existing, &chain(&error))?;
                Ok(Imports::new())
            }
            imports => imports,
        }
    }

    /// Says why none of these objects is imported, and how a person does it.
    pub(in crate::run::apply) fn advise_imports(
        &self,
        existing: &ExistingObjects,
        reason: &str,
    ) -> Result<(), RunError> {
        existing.objects.iter().try_for_each(|object| {
            self.advise_import(&object.address, object.id.as_deref(), reason)
        })
    }

    async fn import_by_command(
        &mut self,
        prepared: &mut Prepared,
        imports: &Imports,
        options: &PlanOptions,
    ) -> Result<(), RunError> {
        const NO_LEDGER: &str = "the tool has no import blocks, and without Plancha's datastore nothing could undo an \
             import that is interrupted";
        if !self.artifacts.as_ref().is_some_and(Artifacts::takes_other_files) {
            return Err(io::Error::other(NO_LEDGER).into());
        }
        let reviewed = match self.report.plan {
            Some(_) => Some(self.reviewed_json(prepared).await?),
            None => None,
        };
        let options = &self.with_recorded_values(options, reviewed.as_deref())?;
        for (address, imported) in imports {
            if let Err(error) = self.import_one(prepared, (address, imported), options).await {
                if error.is_stop() {
                    self.leave_imports(prepared, imports)?;
                } else {
                    self.undo(prepared, imports).await?;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Imports one object when the ledger says so.
    async fn import_one(
        &mut self,
        prepared: &Prepared,
        (address, imported): (&String, &Imported),
        options: &PlanOptions,
    ) -> Result<(), RunError> {
        let state = self.objects(prepared).await?.map_err(io::Error::other)?;
        let only = Imports::from([(address.clone(), imported.clone())]);
        let before = Some((state.lineage.as_str(), state.serial));
        self.record_imports(&only, ImportState::Planned, before).await?;
        self.refresh_ledger()?;
        self.step("import", &prepared.tool().import(address, &imported.id, options)).await
    }

    /// The plan with these imports cannot be applied, for this reason: nothing of them stays.
    pub(in crate::run::apply) async fn refuse_imports(
        &mut self,
        prepared: &mut Prepared,
        imports: &Imports,
        cause: &RunError,
    ) -> Result<(), RunError> {
        let reason = chain(cause);
        if !prepared.tool().reads_import_blocks() {
            self.undo(prepared, imports).await?;
        } else if let Err(error) = self.record_imports(imports, ImportState::Refused, None).await {
            tracing::debug!("the ledger does not have that the import is refused: {error}");
        }
        for (address, imported) in imports {
            self.advise_import(address, Some(&imported.id), &reason)?;
        }
        Ok(())
    }

    /// The run is stopped before the plan with these imports is accepted.
    pub(in crate::run::apply) fn leave_imports(
        &self,
        prepared: &Prepared,
        imports: &Imports,
    ) -> Result<(), RunError> {
        if prepared.tool().reads_import_blocks() {
            return Ok(());
        }
        let names = imports.keys().map(|address| clean(address)).collect::<Vec<_>>().join(", ");
        let line = format!(
            "the state may have {names}, which is imported, and whose plan is not accepted: the next run of the layer undoes that"
        );
        tracing::warn!("{line}");
        Ok(self.log.line(&line)?)
    }

    /// Removes those of these objects from the state that this run has imported by the command.
    async fn undo(&mut self, prepared: &mut Prepared, imports: &Imports) -> Result<(), RunError> {
        let state = match self.objects(prepared).await? {
            Ok(state) => state,
            Err(reason) => {
                let names = imports.keys().map(|address| clean(address)).collect::<Vec<_>>();
                let names = names.join(", ");
                let line = format!(
                    "the import of {names} is not undone: {reason}; the next run of the layer undoes it"
                );
                tracing::warn!("{line}");
                return Ok(self.log.line(&line)?);
            }
        };
        for (address, imported) in imports {
            let is_there = state.has_at(address, &imported.id);
            if is_there && !self.forget(prepared, address).await? {
                continue;
            }
            let only = Imports::from([(address.clone(), imported.clone())]);
            if let Err(error) = self.record_imports(&only, ImportState::Refused, None).await {
                tracing::warn!("the ledger does not have that an import was undone: {error}");
            }
        }
        Ok(())
    }

    /// Makes the state forget an object that was imported. Otherwise it says how a person does it.
    async fn forget(&mut self, prepared: &mut Prepared, address: &str) -> Result<bool, RunError> {
        let removed = self.step("state rm", &prepared.tool().state_rm(address)).await;
        let name = clean(address);
        let (is_removed, line) = match removed {
            Ok(()) => (true, format!("the import of {name} is undone: the state forgets it")),
            Err(error) if error.is_stop() => return Err(error),
            Err(error) => {
                let reason = chain(&error);
                let command = format!("terraform state rm '{name}'");
                (false, format!("the import of {name} is not undone: {reason}; run `{command}`"))
            }
        };
        tracing::warn!("{line}");
        self.log.line(&line)?;
        Ok(is_removed)
    }

    /// Undoes imports by the command that a killed run of this layer has left in the state. Nothing else may have changed the
    /// state since, and the run must have ended.
    pub(in crate::run) async fn undo_killed_imports(
        &mut self,
        prepared: &mut Prepared,
    ) -> Result<(), RunError> {
        if prepared.terragrunt.is_some() || prepared.tool().reads_import_blocks() {
            return Ok(());
        }
        let Some(artifacts) = self.artifacts.clone().filter(Artifacts::takes_other_files) else {
            return Ok(());
        };
        let Some(ledgers) = self.ledgers_with_imports(&artifacts).await? else { return Ok(()) };
        if ledgers.is_empty() {
            return Ok(());
        }
        tracing::info!(
            "run {} has imported objects to plan with them: finding out for {WATCH:?} whether it still works",
            ledgers[0].name()
        );
        self.signals.or(tokio::time::sleep(WATCH)).await.map_err(RunError::Stopped)?;
        let Some(now) = self.ledgers_with_imports(&artifacts).await? else { return Ok(()) };
        for mut ledger in now {
            let left = ledger.left_imports();
            if !ledgers.iter().any(|before| before.is_same_state(&ledger)) {
                let names = names_of(&left);
                let why = "is planning with them".to_owned();
                return Err(RunError::LeftImport {
                    run: ledger.name(),
                    names,
                    why,
                    is_working: true,
                });
            }
            if self.undo_killed_import(prepared, &mut ledger, &left).await?
                && let Err(error) = artifacts.put_ledger_of(&ledger).await
            {
                tracing::warn!("the ledger does not have that an import was undone: {error}");
            }
        }
        Ok(())
    }

    /// The ledgers of the layer with imports of which nothing says how they have ended. `None`: they cannot be read.
    async fn ledgers_with_imports(
        &self,
        artifacts: &Artifacts,
    ) -> Result<Option<Vec<Ledger>>, RunError> {
        let read = self.signals.or(artifacts.ledgers_of_layer()).await;
        match read.map_err(RunError::Stopped)? {
            Ok(mut ledgers) => {
                ledgers.retain(|ledger| !ledger.left_imports().is_empty());
                Ok(Some(ledgers))
            }
            Err(error) => {
                tracing::warn!("imports of killed runs are not looked for: {}", chain(&error));
                Ok(None)
            }
        }
    }

    /// Undoes those that a killed run has left, and takes them out of its ledger. Returns whether that has changed.
    async fn undo_killed_import(
        &mut self,
        prepared: &mut Prepared,
        ledger: &mut Ledger,
        left: &[(String, String, StateBefore)],
    ) -> Result<bool, RunError> {
        let state = match self.objects(prepared).await? {
            Ok(state) => state,
            Err(reason) => {
                let why = format!("the state cannot be searched for that: {reason}");
                self.leave_import(ledger, names_of(left), why)?;
                return Ok(false);
            }
        };
        let is_there =
            |(address, id, _): &&(String, String, StateBefore)| state.has_at(address, id);
        let there = left.iter().filter(is_there).map(|(address, ..)| address).collect::<Vec<_>>();
        // Each import has raised the serial by one.
        let first = left.iter().map(|(.., before)| before).min_by_key(|before| before.serial);
        let is_last = first.is_some_and(|before| {
            (before.lineage.is_empty() || before.lineage == state.lineage)
                && before.serial + there.len() as u64 == state.serial
        });
        let mut has_changed = false;
        for (address, ..) in left {
            let name = clean(address);
            let run = format!("run {}", ledger.name());
            let is_undone = if !there.contains(&address) {
                true
            } else if is_last {
                let line = format!(
                    "{run} was killed before a plan with its import of {name} was accepted"
                );
                tracing::warn!("{line}");
                self.log.line(&line)?;
                self.forget(prepared, address).await?
            } else {
                let why =
                    "was killed; the state was changed since, so this is not undone".to_owned();
                self.leave_import(ledger, name, why)?;
                false
            };
            if is_undone {
                ledger.refuse_import(address);
            }
            has_changed |= is_undone;
        }
        Ok(has_changed)
    }

    /// An import stays in the state. What is applied without a review could delete the object: that is refused.
    fn leave_import(&self, ledger: &Ledger, names: String, why: String) -> Result<(), RunError> {
        let error = RunError::LeftImport { run: ledger.name(), names, why, is_working: false };
        if self.job.action.is_apply() && self.report.plan.is_none() {
            return Err(error);
        }
        tracing::warn!("{error}: if they are not to be there, run `terraform state rm ADDRESS`");
        Ok(())
    }
}

fn names_of(left: &[(String, String, StateBefore)]) -> String {
    left.iter().map(|(address, ..)| clean(address)).collect::<Vec<_>>().join(", ")
}
