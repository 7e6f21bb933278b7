//! Whether an apply would create again what an earlier apply of the same plan or run has created, or was to create. Such an
//! object is not in the state if the apply was killed, if a connection broke, or if the state could not be saved.

use std::collections::BTreeMap;

use fs_err as fs;

use crate::process::redact::is_masked;
use crate::process::text::clean;
use crate::report::ledger::{Ledger, Resource, list};
use crate::run::Run;
use crate::run::apply::existing::evidence::{is_created, unanswered_create};
use crate::run::apply::remainder::creations;
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
}

impl<'a> Earlier<'a> {
    /// `past`: all that was done at this address.
    fn of(address: &'a str, past: &[(&'a Resource, &'a Ledger)]) -> Option<Self> {
        let resources = || past.iter().map(|(resource, _)| *resource);
        let is_open = unanswered_create(address, past.iter().copied()).is_ok();
        let is_left = is_open || is_created(resources());
        let (last, ledger) = *past.last().filter(|_| is_left)?;
        let is_replacement = resources().any(|resource| resource.action == Action::Delete);
        let is_of_unit = last.unit.is_some();
        Some(Self { address, ledger, is_open, is_replacement, is_of_unit })
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

    /// What the run of a ledger may have created that has no unique ID.
    fn of_plan(creations: &BTreeMap<String, bool>, running: &Ledger) -> Option<Self> {
        let names = list(creations.keys().map(|address| clean(address)))?;
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
        let earlier = self.not_in_state(prepared, earlier).await?;
        let left = match plan {
            Some(_) => self.not_unique(prepared, earlier, running).await?,
            None => Left::of(&earlier),
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

    /// Those that the state does not have by now. Of an object that replaces another one this is not known. If the state has what a
    /// stored plan creates, the tool refuses the plan as stale.
    async fn not_in_state<'a>(
        &mut self,
        prepared: &Prepared,
        mut earlier: Vec<Earlier<'a>>,
    ) -> Result<Vec<Earlier<'a>>, RunError> {
        if earlier.is_empty() {
            return Ok(earlier);
        }
        match self.objects(prepared).await? {
            Ok(state) => earlier.retain(|of| {
                let is_missing = || !state.may_have_at(of.address);
                if of.is_open {
                    of.is_replacement || is_missing()
                } else {
                    !of.is_of_unit && !is_masked(of.address) && is_missing()
                }
            }),
            // In a state that cannot be searched, what was created is presumed to be.
            Err(reason) => {
                tracing::debug!("{reason}");
                earlier.retain(|of| of.is_open);
            }
        }
        Ok(earlier)
    }

    /// Of a stored plan, those that a second creation could make twice. Of a run that has not ended the last changes of the ledger may
    /// be missing.
    async fn not_unique(
        &mut self,
        prepared: &Prepared,
        mut earlier: Vec<Earlier<'_>>,
        running: Option<&Ledger>,
    ) -> Result<Option<Left>, RunError> {
        let plan = self.reviewed_json(prepared).await?;
        let rules = self.retries.rules();
        let template = |address: &str| rules.planned_id(&type_of(address)?).map(str::to_owned);
        let mut creations =
            creations(fs::File::open(plan)?, template).map_err(std::io::Error::other)?;
        earlier.retain(|of| creations.get(of.address) != Some(&true));
        let (Some(running), None) = (running, Left::of(&earlier)) else {
            return Ok(Left::of(&earlier));
        };
        creations.retain(|_, is_unique| !*is_unique);
        if !creations.is_empty()
            && let Ok(state) = self.objects(prepared).await?
        {
            creations.retain(|address, _| !state.may_have_at(address));
        }
        Ok(Left::of_plan(&creations, running))
    }
}
