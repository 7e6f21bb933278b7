//! Whether an apply would create again what an earlier apply of the same plan or run has created, or was to create. Such an
//! object is not in the state if the apply was killed, if a connection broke, or if the state could not be saved.

use std::collections::{BTreeMap, BTreeSet};

use datastore_api::Sha256;
use fs_err as fs;

use crate::process::redact::is_masked;
use crate::process::text::clean;
use crate::report::ledger::{Ledger, Resource, list};
use crate::run::Run;
use crate::run::apply::existing::evidence::{Creation, last_creation};
use crate::run::apply::existing::state::ByAddress;
use crate::run::apply::remainder::{Creation as Planned, creations};
use crate::run::artifacts::Artifacts;
use crate::run::error::RunError;
use crate::run::prepare::Prepared;
use crate::run::step::found_lock::FoundLock;
use crate::run::unsent;
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
    /// The ID that its creation has printed.
    id: Option<&'a str>,
}

impl<'a> Earlier<'a> {
    /// `past`: all that was done at this address, in one unit.
    fn of(address: &'a str, past: &[(&'a Resource, &'a Ledger)]) -> Option<Self> {
        // A replacement that creates first ends with the deletion of the old object.
        let current = past.iter().filter(|(resource, _)| resource.deposed.is_none());
        let (last, ledger) = *current.clone().next_back()?;
        let is_open = match last_creation(current.map(|(resource, _)| *resource)) {
            Creation::Open => true,
            Creation::Completed => false,
            // The object may exist, and be tainted: by a provisioner, or by a later step of its creation.
            Creation::Failed if !ledger.is_state_saved() => false,
            Creation::Failed | Creation::None => return None,
        };
        let is_replacement = past.iter().any(|(resource, _)| resource.action == Action::Delete);
        Some(Self { address, ledger, is_open, is_replacement, id: last.id.as_deref() })
    }

    /// Whether the state may lack it. What was saved may be at another address by now, or gone.
    fn may_be_unsaved(&self) -> bool {
        self.is_open || !self.ledger.is_state_saved()
    }

    /// Whether the state has it. It may have another object at the address, which was to be replaced, or whose address has another
    /// secret.
    fn is_saved(&self, state: &ByAddress<'_>, is_replacement: bool) -> bool {
        let may_have = || !is_replacement && state.may_have(self.address);
        match (self.is_open, self.id) {
            (false, Some(id)) => state.has(self.address, id),
            (false, None) => may_have(),
            (true, _) => !is_masked(self.address) && may_have(),
        }
    }
}

/// What may exist without being in the state.
struct Left {
    /// The attempts that have it from the ledgers.
    runs: String,
    names: String,
    /// Whether one of them may still work.
    may_work: bool,
    /// Why it is not known what the state has.
    unread: Option<String>,
}

impl Left {
    fn of(earlier: &[Earlier<'_>]) -> Option<Self> {
        let names = list(earlier.iter().map(|of| clean(of.address)))?;
        let runs = earlier.iter().map(|of| (of.ledger.started(), of.ledger.name()));
        let runs = runs.collect::<BTreeSet<_>>().into_iter().map(|(_, name)| name);
        let may_work = earlier.iter().any(|of| !of.ledger.has_ended());
        Some(Self { runs: list(runs)?, names, may_work, unread: None })
    }

    /// What the run of a ledger may have created.
    fn of_plan(creating: &[(&String, &Planned)], running: &Ledger) -> Option<Self> {
        let names = list(creating.iter().map(|(address, _)| clean(address)))?;
        Some(Self { runs: running.name(), names, may_work: true, unread: None })
    }
}

impl<'r> Run<'r> {
    /// Reads the ledgers that the next function needs, beside other work; `None` if it needs none. Call it under the lease: no
    /// other apply of the layer can begin then.
    pub(in crate::run) fn earlier_ledgers(
        &self,
    ) -> impl Future<Output = Result<Option<Vec<Ledger>>, RunError>> + use<'r> {
        let artifacts = self.artifacts.clone().filter(Artifacts::takes_other_files);
        let artifacts = artifacts.filter(|_| !self.job.again);
        let planned = self.report.planned;
        let plan = self.report.plan.as_ref().map(|plan| (plan.sha256, planned));
        let signals = self.signals;
        // First: one that is sent meanwhile is stored before it is removed here.
        let kept = self.kept_ledgers(plan.map(|(sha256, _)| sha256));
        async move {
            let Some(artifacts) = artifacts else { return Ok(None) };
            let read = signals.or(artifacts.earlier_ledgers(plan)).await;
            let stored = read.map_err(RunError::Stopped)?.map_err(RunError::Ledger)?;
            Ok(Some(with_kept(stored, kept)))
        }
    }

    /// Refuses the apply if it would make an object a second time. An object whose ID is unique may be created again: the service
    /// refuses a second one. A plan that was made since is another one.
    pub(in crate::run) async fn check_earlier_creates(
        &mut self,
        prepared: &Prepared,
        ledgers: Option<Vec<Ledger>>,
    ) -> Result<(), RunError> {
        let Some(mut ledgers) = ledgers else { return Ok(()) };
        ledgers.sort_by_key(Ledger::started);
        let mut past = BTreeMap::<_, Vec<_>>::new();
        for ledger in &ledgers {
            for resource in ledger.resources() {
                let place = (&*resource.address, &resource.unit);
                past.entry(place).or_default().push((resource, ledger));
            }
        }
        let earlier = past.iter().filter_map(|((address, _), past)| Earlier::of(address, past));
        let earlier = earlier.collect::<Vec<_>>();
        let running = ledgers.iter().rev().find(|ledger| !ledger.has_ended());
        if earlier.is_empty() && running.is_none() {
            return Ok(());
        }
        let left = match &self.report.plan {
            Some(_) => self.left_of_plan(prepared, earlier, running).await?,
            None => self.left_of_run(prepared, earlier).await?,
        };
        match left {
            Some(left) => Err(self.refuse_creates(prepared, left).await),
            None => Ok(()),
        }
    }

    /// The ledgers of the same order that earlier runs could not store.
    fn kept_ledgers(&self, plan: Option<Sha256>) -> Vec<Ledger> {
        let (run, state_home) = (&self.job.run, self.environment.state_home.as_deref());
        let Some(datastore) = self.datastore_url() else { return Vec::new() };
        let mut kept = unsent::ledgers(state_home, self.scratch, &self.killed, run, datastore);
        kept.retain(|ledger| match plan {
            Some(plan) => ledger.has_reviewed(plan),
            None => ledger.is_of_run(run),
        });
        kept
    }

    async fn refuse_creates(&mut self, prepared: &Prepared, left: Left) -> RunError {
        let (order, next) = match (&self.report.plan, self.job.pod) {
            (Some(_), _) => ("plan", "then plan again"),
            (None, true) => ("run", "then start a new run of the layer"),
            (None, false) => ("run", "then run again with --again"),
        };
        let lock = if left.may_work { self.find_lock(prepared).await } else { FoundLock::Unknown };
        let Left { runs, names, unread, .. } = left;
        let unread = unread.map(|reason| format!("; what the state has is not known: {reason}"));
        let unread = unread.unwrap_or_default();
        RunError::EarlierCreates { runs, order, names, unread, next, lock: lock.into() }
    }

    /// What an apply without a stored plan would create again.
    async fn left_of_run(
        &mut self,
        prepared: &Prepared,
        mut earlier: Vec<Earlier<'_>>,
    ) -> Result<Option<Left>, RunError> {
        earlier.retain(Earlier::may_be_unsaved);
        if earlier.is_empty() {
            return Ok(None);
        }
        let unread = match self.objects(prepared).await? {
            Ok(state) => {
                let state = state.by_address(|text| self.environment.redaction.text(text));
                earlier.retain(|of| !of.is_saved(&state, of.is_replacement));
                None
            }
            Err(reason) => Some(reason),
        };
        Ok(Left::of(&earlier).map(|left| Left { unread, ..left }))
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
        if self.planned_state.is_none() {
            earlier.retain(Earlier::may_be_unsaved);
        }
        let (is_empty, mut unread) = (earlier.is_empty() && creating.is_empty(), None);
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
                Err(reason) => unread = Some(reason),
            }
        }
        let left = Left::of(&earlier).or_else(|| Left::of_plan(&creating, running?));
        Ok(left.map(|left| Left { unread, ..left }))
    }

    /// By their addresses as a ledger has them.
    fn masked(&self, creations: BTreeMap<String, Planned>) -> BTreeMap<String, Planned> {
        let mut masked = BTreeMap::<String, Planned>::new();
        for (address, Planned { has_id, is_new }) in creations {
            let address = self.environment.redaction.text(&address);
            let same = masked.entry(address).or_insert(Planned { has_id, is_new });
            (same.has_id, same.is_new) = (same.has_id && has_id, same.is_new && is_new);
        }
        masked
    }
}

/// Adds ledgers that could not be stored.
fn with_kept(mut stored: Vec<Ledger>, kept: Vec<Ledger>) -> Vec<Ledger> {
    for ledger in kept {
        match stored.iter_mut().find(|stored| stored.is_same_attempt(&ledger)) {
            Some(stored) if ledger.continues(stored) => *stored = ledger,
            Some(_) => {}
            None => stored.push(ledger),
        }
    }
    stored
}
