//! Objects that exist although the tool was to create them: they are imported, if everything shows that this layer itself has
//! created them, or if `--import-existing` says so. Otherwise the runner prints how to import them.

mod command;
mod earlier_creates;
mod evidence;
mod history;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use datastore_api::{ClientError, File, PlanFormat, chain};
use fs_err as fs;
use jiff::Timestamp;

use crate::process::text::clean;
use crate::report::ledger::{ImportRecord, ImportState, Resource, ReviewedPlan};
use crate::run::apply::existing::evidence::{Creation, last_creation, unanswered_create};
use crate::run::apply::existing::history::{History, Of};
use crate::run::apply::existing::state::Objects;
use crate::run::apply::remainder::{Imported, Imports, is_same_creation, planned_id};
use crate::run::error::RunError;
use crate::run::prepare::Prepared;
use crate::run::{PLAN_FILE, Run};
use crate::source::regular::unless_missing;
use crate::tool::diagnosis::{Existing, ExistingObjects, import_block};
use crate::tool::diagnostics::is_address;

/// Reasons for which an import block would not help.
const HAS_ADDRESS: &str = "the state has another object at this address: give the new one another name, or remove the old \
    one first";
const HAS_ID: &str = "the state has an object with this ID already, and one object belongs to one address: remove one of the \
    two from the code, or add a `moved` block";
const REPEATED_ID: &str = "another address of this apply has the same ID, and one object belongs to one address: remove one \
    of the two from the code";

/// Why an object is not imported.
struct Refusal {
    /// Its import ID, if that is known exactly.
    id: Option<String>,
    reason: String,
}

/// What objects are compared with.
struct Known {
    state: Result<Objects, String>,
    history: Result<History, String>,
    /// The reviewed plan as JSON. None if the tool plans and applies in one.
    reviewed: Option<PathBuf>,
}

impl Run<'_> {
    /// The addresses whose last object a run of this layer has started to create, and has not completed. `after`: only what
    /// was done after this time counts.
    pub(in crate::run) async fn created_by_failed_runs(
        &self,
        after: Option<Timestamp>,
    ) -> Result<BTreeSet<String>, ClientError> {
        let history = self.history().await?;
        let mut past = BTreeMap::<_, Vec<_>>::new();
        let since = |resource: &Resource| after.is_none_or(|after| resource.since > after);
        let counts = |resource: &Resource| resource.deposed.is_none() && since(resource);
        for (resource, _) in history.past().filter(|(resource, _)| counts(resource)) {
            past.entry(&resource.address).or_default().push(resource);
        }
        let is_incomplete = |past: &Vec<&Resource>| {
            matches!(last_creation(past.iter().copied()), Creation::Open | Creation::Failed)
        };
        let incomplete = past.into_iter().filter(|(_, past)| is_incomplete(past));
        Ok(incomplete.map(|(address, _)| address.clone()).collect())
    }

    /// The objects to import, if all of those that exist can be. Otherwise it says why not, and how a person imports them.
    pub(super) async fn imports(
        &mut self,
        prepared: &Prepared,
        found: &ExistingObjects,
    ) -> Result<Imports, RunError> {
        let known = self.known(prepared).await?;
        let (mut imports, mut refused) = (Imports::new(), Vec::new());
        for object in &found.objects {
            let mut checked = self.check(object, &known).await?;
            if !found.is_all {
                let reason = "the apply has other errors as well".to_owned();
                let id = checked.map_or_else(|refusal| refusal.id, Some);
                checked = Err(Refusal { id, reason });
            }
            match checked {
                Ok(id) => {
                    imports.insert(object.address.clone(), Imported { id, is_pending: true });
                }
                Err(refusal) => refused.push((object.address.as_str(), refusal)),
            }
        }
        if let Some((address, imported)) = repeated_id(&imports) {
            let id = Some(imported.id.clone());
            let reason = REPEATED_ID.to_owned();
            refused.push((address.as_str(), Refusal { id, reason }));
        }
        if refused.is_empty() {
            return Ok(imports);
        }
        for (address, Refusal { id, reason }) in refused {
            self.advise_import(address, id.as_deref(), &reason)?;
        }
        Ok(Imports::new())
    }

    /// Says why an object is not imported, and how a person does it.
    pub(super) fn advise_import(
        &self,
        address: &str,
        id: Option<&str>,
        reason: &str,
    ) -> Result<(), RunError> {
        let line = format!("{} exists, and is not imported: {}", clean(address), clean(reason));
        if [HAS_ADDRESS, HAS_ID, REPEATED_ID].contains(&reason) {
            tracing::warn!("{line}");
            return Ok(self.log.line(&line)?);
        }
        let line =
            format!("{line}; if it belongs to this layer, add this to the code, and plan again:");
        tracing::warn!("{line}");
        self.log.line(&line)?;
        for line in import_block(&clean(address), id).lines() {
            tracing::warn!("{line}");
            self.log.line(line)?;
        }
        Ok(())
    }

    async fn known(&mut self, prepared: &Prepared) -> Result<Known, RunError> {
        let reviewed = match self.report.plan {
            Some(_) => Some(self.reviewed_json(prepared).await?),
            None => None,
        };
        let state = self.objects(prepared).await?;
        let history = self.signals.or(self.history()).await.map_err(RunError::Stopped)?;
        Ok(Known { state, history: history.map_err(|error| chain(&error)), reviewed })
    }

    /// What the state has. The inner error is the reason why that is unknown.
    async fn objects(&mut self, prepared: &Prepared) -> Result<Result<Objects, String>, RunError> {
        let file = self.scratch.join("objects");
        let pulled = self.read_state(prepared, &file).await;
        let objects = match pulled {
            Ok(()) => Objects::read(&file).map_err(|error| error.to_string()),
            Err(stopped) if stopped.is_stop() => return Err(stopped),
            Err(error) => Err(chain(&error)),
        };
        unless_missing(fs::remove_file(file))?;
        Ok(objects)
    }

    /// The ID to import, or why it is not imported.
    async fn check(
        &self,
        object: &Existing,
        known: &Known,
    ) -> Result<Result<String, Refusal>, RunError> {
        let id = match exact_id(object, known) {
            Ok(id) => id,
            Err(reason) => return Ok(Err(Refusal { id: None, reason })),
        };
        let refusal = match self.check_known(object, &id, known) {
            Ok(None) => None,
            Ok(Some(earlier)) => self.check_earlier(object, &id, known, earlier).await?.err(),
            Err(reason) => Some(reason),
        };
        Ok(match refusal {
            None => Ok(id),
            Some(reason) => Err(Refusal { id: Some(id), reason }),
        })
    }

    /// Everything but the comparison with an earlier plan, which is returned if one is needed.
    fn check_known<'a>(
        &self,
        object: &Existing,
        id: &str,
        known: &'a Known,
    ) -> Result<Option<&'a ReviewedPlan>, String> {
        let Existing { address, kind, .. } = object;
        let history = known.history.as_ref();
        let history = history
            .map_err(|reason| format!("the ledgers of this layer cannot be read: {reason}"))?;
        if history.has_tried(address) {
            return Err("this run has tried to import it before".to_owned());
        }
        let state = known.state.as_ref();
        let state = state.map_err(|reason| format!("the state cannot be searched: {reason}"))?;
        if state.may_have_at(address) {
            return Err(HAS_ADDRESS.to_owned());
        }
        if kind.as_ref().is_none_or(|kind| state.has(kind, id)) {
            return Err(HAS_ID.to_owned());
        }
        if self.job.retry.import_existing {
            return Ok(None);
        }
        if !history.is_whole() {
            return Err("a ledger of this layer does not list all resources".to_owned());
        }
        match unanswered_create(address, history.past()) {
            Ok(Of::ThisProcess) => Ok(None),
            Ok(Of::ThisRun(Some(plan))) if plan.places != self.environment.places => {
                Err(OTHER_PLACE.to_owned())
            }
            Ok(Of::ThisRun(Some(plan))) => Ok(Some(plan)),
            Ok(Of::ThisRun(None)) => {
                Err("the earlier create of it was not that of a stored plan".to_owned())
            }
            Ok(Of::OtherRun) => Err(OTHER_RUN.to_owned()),
            Err(reason) => Err(format!("{reason} (--import-existing imports it all the same)")),
        }
    }

    /// Whether the plan of the earlier create was to create the same object. An address may have meant another one.
    async fn check_earlier(
        &self,
        object: &Existing,
        id: &str,
        known: &Known,
        earlier: &ReviewedPlan,
    ) -> Result<Result<(), String>, RunError> {
        let (Some(reviewed), Some(artifacts)) = (known.reviewed.clone(), &self.artifacts) else {
            return Ok(Err("this apply has no stored plan to compare".to_owned()));
        };
        let file = self.scratch.join("earlier.json");
        let fetched = artifacts.fetch_file_of(earlier, &File::Plan(PlanFormat::Json), &file);
        match self.signals.or(fetched).await.map_err(RunError::Stopped)? {
            Ok(true) => {}
            Ok(false) => return Ok(Err("the plan of its earlier create is not stored".to_owned())),
            Err(error) => {
                let reason = chain(&error);
                return Ok(Err(format!("the plan of its earlier create cannot be read: {reason}")));
            }
        }
        let (address, id) = (object.address.clone(), id.to_owned());
        let compared = tokio::task::spawn_blocking(move || {
            let plans = [fs::File::open(&file)?, fs::File::open(reviewed)?];
            let is_same = is_same_creation(plans, &address, &id);
            fs::remove_file(file)?;
            is_same.map_err(RunError::from)
        });
        let is_same = compared.await.map_err(std::io::Error::other)??;
        Ok(if is_same {
            Ok(())
        } else {
            Err("its earlier create was that of another object, or may have been".to_owned())
        })
    }

    /// Records in the ledger that these objects are about to be imported. Without that they are not.
    pub(super) async fn record_imports(
        &mut self,
        imports: &Imports,
        state: ImportState,
        before: Option<(&str, u64)>,
    ) -> Result<(), RunError> {
        let records = imports.iter().map(|(address, imported)| {
            let (address, id) = (address.clone(), imported.id.clone());
            ImportRecord::new(address, id, state, before)
        });
        let records = records.collect::<Vec<_>>();
        let signals = self.signals;
        let changed = self.change_ledger(|ledger| ledger.set_imports(records));
        let changed = signals.or(changed).await.map_err(RunError::Stopped)?;
        changed.map_err(RunError::Ledger)
    }

    /// The reviewed plan as JSON.
    pub(in crate::run) async fn reviewed_json(
        &mut self,
        prepared: &Prepared,
    ) -> Result<PathBuf, RunError> {
        let reviewed = self.scratch.join(REVIEWED);
        if !reviewed.exists() {
            let plan = self.scratch.join(PLAN_FILE);
            let shown =
                self.step_into("show json", &prepared.tool().show_json(&plan), &reviewed).await;
            if let Err(error) = shown {
                // A part of it.
                unless_missing(fs::remove_file(&reviewed))?;
                return Err(error);
            }
        }
        Ok(reviewed)
    }
}

/// The reviewed plan as JSON, in the private directory of the run.
const REVIEWED: &str = "reviewed.json";

/// The first of several addresses with one ID.
fn repeated_id(imports: &Imports) -> Option<(&String, &Imported)> {
    let mut ids = BTreeSet::new();
    imports.iter().find(|(_, imported)| !ids.insert(&imported.id))
}

/// Why the ledger of another run is not enough.
const OTHER_RUN: &str = "the earlier create of it was that of another run, whose place and providers may have been others \
    (--import-existing imports it all the same)";

/// Why the ledger of an earlier attempt is not enough.
const OTHER_PLACE: &str = "the earlier create of it had other environment variables of providers, such as a region \
    (--import-existing imports it all the same)";

/// The import ID of an object, if it is known exactly: by the error, by the planned values, or by both.
fn exact_id(object: &Existing, known: &Known) -> Result<String, String> {
    const UNKNOWN: &str = "its import ID is not known exactly";
    if !is_address(&object.address) || object.address.starts_with("data.") {
        return Err("its address is not known exactly".to_owned());
    }
    let planned = match (&object.planned, &known.reviewed) {
        (Some(template), Some(reviewed)) => {
            let plan = fs::File::open(reviewed).map_err(|error| error.to_string())?;
            planned_id(plan, &object.address, template).map_err(|error| error.to_string())?
        }
        _ => None,
    };
    let id = match (&object.id, planned) {
        (Some(named), Some(planned)) if *named != planned => {
            return Err(format!("{UNKNOWN}: the error names {named}, and {planned} is planned"));
        }
        (Some(named), _) => named.clone(),
        (None, Some(planned)) => planned,
        (None, None) => return Err(UNKNOWN.to_owned()),
    };
    // The log hides secrets.
    if id.contains("***") { Err(UNKNOWN.to_owned()) } else { Ok(id) }
}
