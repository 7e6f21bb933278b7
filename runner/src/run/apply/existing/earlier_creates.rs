//! Whether an apply would create again what an earlier apply of the same plan or run has created, or was to create. Such an
//! object is not in the state if the apply was killed, if a connection broke, or if the state could not be saved.

use std::collections::BTreeMap;

use fs_err as fs;

use crate::process::redact::is_masked;
use crate::process::text::clean;
use crate::report::ledger::{Ledger, Resource, list};
use crate::run::Run;
use crate::run::apply::existing::evidence::{is_created, unanswered_create};
use crate::run::apply::existing::state::ByAddress;
use crate::run::apply::remainder::{Creation, creations};
use crate::run::artifacts::Artifacts;
use crate::run::error::RunError;
use crate::run::prepare::Prepared;
use crate::run::step::found_lock::FoundLock;
use crate::tool::diagnostics::{Action, type_of};

/// An object that earlier applies may have left, and the state may lack.
struct Earlier<'a> {
    address: &'a str,
    /// Of the apply that did something at this address last.
    ledger: &'a Ledger,
    /// Its creation had no answer.
    is_open: bool,
    /// It was to replace another one, which the state may still have.
    is_replacement: bool,
    /// Of several states: it is not known which one it belongs to.
    is_of_unit: bool,
    /// The ID that its creation has printed.
    id: Option<&'a str>,
}

impl<'a> Earlier<'a> {
    /// `past`: all that was done at this address.
    fn of(address: &'a str, past: &[(&'a Resource, &'a Ledger)]) -> Option<Self> {
        let resources = || past.iter().map(|(resource, _)| *resource);
        let is_open = unanswered_create(address, past.iter().copied()).is_ok();
        let is_left = is_open || is_created(resources());
        // A replacement that creates first ends with the deletion of the old object.
        let is_current = |(resource, _): &&(&Resource, _)| resource.deposed.is_none();
        let (last, ledger) = *past.iter().rfind(is_current).filter(|_| is_left)?;
        let is_replacement = resources().any(|resource| resource.action == Action::Delete);
        let (is_of_unit, id) = (last.unit.is_some(), last.id.as_deref());
        Some(Self { address, ledger, is_open, is_replacement, is_of_unit, id })
    }

    /// Whether the state shows that the object was saved, or does not show that it was not. The state may have another object at
    /// the address, which was to be replaced, or whose address has another secret.
    fn is_saved(&self, state: &ByAddress<'_>, is_replacement: bool) -> bool {
        match (self.is_open, self.id) {
            (false, _) if self.is_of_unit => true,
            (false, Some(id)) => state.has(self.address, id),
            (false, None) => state.may_have(self.address),
            (true, _) => {
                !is_replacement && !is_masked(self.address) && state.may_have(self.address)
            }
        }
    }
}

/// What may exist without being in the state.
struct Left {
    run: String,
    names: String,
    /// Whether the run may still work.
    may_work: bool,
}

impl Left {
    fn of(earlier: &[Earlier<'_>]) -> Option<Self> {
        let names = list(earlier.iter().map(|of| clean(of.address)))?;
        let run = earlier.last()?.ledger.name();
        Some(Self { run, names, may_work: earlier.iter().any(|of| !of.ledger.has_ended()) })
    }

    /// What the run of a ledger may have created.
    fn of_plan(creating: &[(&String, &Creation)], running: &Ledger) -> Option<Self> {
        let names = list(creating.iter().map(|(address, _)| clean(address)))?;
        Some(Self { run: running.name(), names, may_work: true })
    }
}

impl Run<'_> {
    /// Refuses the apply if it would make an object a second time. An object whose ID is unique may be created again: the service
    /// refuses a second one. A plan that was made since is another one.
    pub(in crate::run) async fn check_earlier_creates(
        &mut self,
        prepared: &Prepared,
    ) -> Result<(), RunError> {
        let Some(artifacts) = self.artifacts.clone().filter(Artifacts::takes_other_files) else {
            return Ok(());
        };
        if self.job.again {
            return Ok(());
        }
        let planned = self.report.planned;
        let plan = self.report.plan.as_ref().map(|plan| (plan.sha256, planned));
        let read = self.signals.or(artifacts.earlier_ledgers(plan)).await;
        let mut ledgers = read.map_err(RunError::Stopped)?.map_err(RunError::Ledger)?;
        ledgers.sort_by_key(Ledger::started);
        let mut past = BTreeMap::<&str, Vec<_>>::new();
        for ledger in &ledgers {
            for resource in ledger.resources() {
                past.entry(&resource.address).or_default().push((resource, ledger));
            }
        }
        let earlier = past.iter().filter_map(|(address, past)| Earlier::of(address, past));
        let earlier = earlier.collect::<Vec<_>>();
        let running = ledgers.iter().rev().find(|ledger| !ledger.has_ended());
        if earlier.is_empty() && running.is_none() {
            return Ok(());
        }
        let left = match plan {
            Some(_) => self.left_of_plan(prepared, earlier, running).await?,
            None => self.left_of_run(prepared, earlier).await?,
        };
        match left {
            Some(left) => Err(self.refuse_creates(prepared, left).await),
            None => Ok(()),
        }
    }

    async fn refuse_creates(&mut self, prepared: &Prepared, left: Left) -> RunError {
        let (order, next) = match (&self.report.plan, self.job.pod) {
            (Some(_), _) => ("plan", "then plan again"),
            (None, true) => ("run", "then start a new run of the layer"),
            (None, false) => ("run", "then run again with --again"),
        };
        let lock = if left.may_work { self.find_lock(prepared).await } else { FoundLock::Unknown };
        let Left { run, names, .. } = left;
        RunError::EarlierCreates { run, order, names, next, lock: lock.into() }
    }

    /// What an apply without a stored plan would create again. In a state that cannot be searched, what was created is presumed to
    /// be.
    async fn left_of_run(
        &mut self,
        prepared: &Prepared,
        mut earlier: Vec<Earlier<'_>>,
    ) -> Result<Option<Left>, RunError> {
        if !earlier.is_empty() {
            match self.objects(prepared).await? {
                Ok(state) => {
                    let state = state.by_address(|text| self.environment.redaction.text(text));
                    earlier.retain(|of| !of.is_saved(&state, of.is_replacement));
                }
                Err(reason) => {
                    warn_of_unread(&reason);
                    earlier.retain(|of| of.is_open);
                }
            }
        }
        Ok(Left::of(&earlier))
    }

    /// What a stored plan would create again, and make twice. If its state is still that of the plan, nothing was saved. Else the tool
    /// refuses it as stale, which is said only if nothing is left. Of a run that has not ended the last changes of the ledger
    /// may be missing.
    async fn left_of_plan(
        &mut self,
        prepared: &Prepared,
        mut earlier: Vec<Earlier<'_>>,
        running: Option<&Ledger>,
    ) -> Result<Option<Left>, RunError> {
        let plan = self.reviewed_json(prepared).await?;
        let rules = self.retries.rules();
        let template = |address: &str| rules.planned_id(&type_of(address)?).map(str::to_owned);
        let creations = creations(fs::File::open(plan)?, template);
        let creations = self.masked(creations.map_err(std::io::Error::other)?);
        let of_plan = |address: &str| creations.get(address);
        let replaces = |address: &str| of_plan(address).is_some_and(|creation| !creation.is_new);
        earlier.retain(|of| of_plan(of.address).is_none_or(|creation| !creation.has_id));
        let mut creating = creations.iter().filter(|_| running.is_some()).collect::<Vec<_>>();
        creating.retain(|(_, creation)| !creation.has_id);
        let is_empty = earlier.is_empty() && creating.is_empty();
        if self.planned_state.is_none() && !is_empty {
            match self.objects(prepared).await? {
                Ok(state) => {
                    let state = state.by_address(|text| self.environment.redaction.text(text));
                    earlier.retain(|of| {
                        !of.is_saved(&state, of.is_replacement || replaces(of.address))
                    });
                    creating
                        .retain(|(address, creation)| !creation.is_new || !state.may_have(address));
                }
                Err(reason) => {
                    warn_of_unread(&reason);
                    earlier.retain(|of| of.is_open);
                }
            }
        }
        Ok(Left::of(&earlier).or_else(|| Left::of_plan(&creating, running?)))
    }

    /// By their addresses as a ledger has them.
    fn masked(&self, creations: BTreeMap<String, Creation>) -> BTreeMap<String, Creation> {
        let mut masked = BTreeMap::<String, Creation>::new();
        for (address, Creation { has_id, is_new }) in creations {
            let address = self.environment.redaction.text(&address);
            let same = masked.entry(address).or_insert(Creation { has_id, is_new });
            (same.has_id, same.is_new) = (same.has_id && has_id, same.is_new && is_new);
        }
        masked
    }
}

fn warn_of_unread(reason: &str) {
    tracing::warn!(
        "it is not known whether the state has what an earlier apply has created, and it is presumed to: {reason}"
    );
}
