//! Whether an apply may create again what an earlier, killed apply of the same plan or run has created without an answer.

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
use crate::tool::diagnostics::type_of;

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
        let read = artifacts.earlier_ledgers(self.report.plan.as_ref(), self.report.planned);
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
        let open = self.not_unique(prepared, open).await?;
        match list(open.iter().map(|address| clean(address))) {
            Some(names) => {
                Err(RunError::Unanswered { names, is_planned: self.report.plan.is_some() })
            }
            None => Ok(()),
        }
    }

    /// Whether a ledger is of an apply of the same stored plan, or of the same run without one.
    fn is_of_this_order(&self, ledger: &Ledger) -> bool {
        match &self.report.plan {
            Some(plan) => ledger.has_reviewed(plan.sha256),
            None => ledger.is_of_run(&self.job.run),
        }
    }

    /// Those that the state does not have, and that a second creation could make twice.
    async fn not_unique(
        &mut self,
        prepared: &Prepared,
        mut addresses: Vec<String>,
    ) -> Result<Vec<String>, RunError> {
        // A state that cannot be searched has none of them.
        if let Ok(state) = self.objects(prepared).await? {
            addresses.retain(|address| !state.may_have_at(address));
        }
        if self.report.plan.is_none() || addresses.is_empty() {
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
