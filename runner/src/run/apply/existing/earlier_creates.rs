//! Whether an apply may create again what an earlier apply of the same plan or run has created without an answer: because it was
//! killed, or because a connection broke.

use std::collections::BTreeSet;

use fs_err as fs;

use crate::process::text::clean;
use crate::report::ledger::{Ledger, Resource, list};
use crate::run::Run;
use crate::run::apply::existing::evidence::unanswered_create;
use crate::run::apply::remainder::planned_id;
use crate::run::artifacts::Artifacts;
use crate::run::error::RunError;
use crate::run::prepare::Prepared;
use crate::tool::diagnostics::{Action, type_of};

/// What to do about objects that an earlier apply was to create.
const LOOK_AND_PLAN: &str = "look for it, import it or delete it, and plan again";
const LOOK_AND_ORDER: &str =
    "look for it, import it or delete it, and start a new run of the layer";
const LOOK_AND_REPEAT: &str = "look for it, import it or delete it, and run again with --again";

impl Run<'_> {
    /// Refuses the apply if an earlier one was to create an object, and nothing is known of it. An object whose ID is unique may be
    /// created again: the service refuses a second one. A plan that was made since is another one.
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
        let (plan, planned) = (self.report.plan.as_ref(), self.report.planned);
        let read = artifacts.earlier_ledgers(plan.is_some_and(|plan| plan.run.is_some()), planned);
        let read = self.signals.or(read).await.map_err(RunError::Stopped)?;
        let mut ledgers = read.map_err(RunError::Ledger)?;
        ledgers.retain(|ledger| self.is_of_this_order(ledger));
        ledgers.sort_by_key(Ledger::started);
        let past = || ledgers.iter().flat_map(Ledger::resources).map(|resource| (resource, ()));
        let addresses = past().map(|(Resource { address, .. }, ())| address);
        let addresses = addresses.collect::<BTreeSet<_>>().into_iter();
        let open = addresses.filter(|address| unanswered_create(address, past()).is_ok());
        let open = open.cloned().collect::<Vec<_>>();
        if open.is_empty() {
            return Ok(());
        }
        let is_replaced = |address: &str| {
            past().any(|(of, ())| of.address == address && of.action == Action::Delete)
        };
        let open = self.not_unique(prepared, open, is_replaced).await?;
        let Some(names) = list(open.iter().map(|address| clean(address))) else { return Ok(()) };
        let (order, next) = match (&self.report.plan, self.job.pod) {
            (Some(_), _) => ("plan", LOOK_AND_PLAN),
            (None, true) => ("run", LOOK_AND_ORDER),
            (None, false) => ("run", LOOK_AND_REPEAT),
        };
        Err(RunError::Unanswered { order, names, next: next.to_owned() })
    }

    /// Whether a ledger is of an apply of the same stored plan, or of the same run without one.
    fn is_of_this_order(&self, ledger: &Ledger) -> bool {
        match &self.report.plan {
            Some(plan) => ledger.has_reviewed(plan.sha256),
            None => ledger.is_of_run(&self.job.run),
        }
    }

    /// Those that a second creation could make twice. If the state had one of them by now, the tool would refuse a stored plan as
    /// stale; without a plan, one that the state has is not created, unless it was to be replaced.
    async fn not_unique(
        &mut self,
        prepared: &Prepared,
        mut addresses: Vec<String>,
        is_replaced: impl Fn(&str) -> bool,
    ) -> Result<Vec<String>, RunError> {
        if self.report.plan.is_none() {
            // A state that cannot be searched has none of them.
            if let Ok(state) = self.objects(prepared).await? {
                addresses.retain(|address| is_replaced(address) || !state.may_have_at(address));
            }
            return Ok(addresses);
        }
        let (plan, mut left) = (self.reviewed_json(prepared).await?, Vec::new());
        for address in addresses {
            let rules = self.retries.rules();
            let template = type_of(&address).and_then(|kind| rules.planned_id(&kind));
            let is_unique = match template {
                Some(template) => planned_id(fs::File::open(&plan)?, &address, template)
                    .map_err(std::io::Error::other)?
                    .is_some(),
                None => false,
            };
            if !is_unique {
                left.push(address);
            }
        }
        Ok(left)
    }
}
