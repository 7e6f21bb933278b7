//! Records of earlier applies that could not be stored, and are kept on this machine.

use datastore_api::{Sha256, chain};

use crate::basis::order::OrderKey;
use crate::order::job::Apply;
use crate::report::AppliedRecord;
use crate::run::Run;
use crate::run::artifacts::Artifacts;
use crate::run::error::{RunError, UnreadableError};
use crate::run::unsent::{self, KeptRecord, Sending, UnreadableRecord};

impl Run<'_> {
    /// The kept record of an earlier apply that could not be stored. With `plan` it is the record of that plan,
    /// whichever datastore it is for; else that of this run, which is another run in another datastore.
    pub(in crate::run::apply) fn unsent_record(
        &self,
        plan: Option<Sha256>,
    ) -> Option<AppliedRecord> {
        let ours = self.datastore_url()?;
        let mut kept = self.kept_records().into_iter();
        let found = kept.find(|kept| match plan {
            Some(plan) => kept.record.is_of(plan),
            None => self.is_of_this_run(kept) && kept.other_datastore(ours).is_none(),
        });
        found.map(|kept| kept.record)
    }

    /// Warns of kept files of a run of this name in another datastore. They are not this run's.
    pub(in crate::run::apply) fn warn_of_other_datastores(&self) {
        for kept in self.kept_records().iter().filter(|kept| self.is_of_this_run(kept)) {
            self.warn_if_for_another(kept);
        }
    }

    fn warn_if_for_another(&self, kept: &KeptRecord) -> bool {
        let Some(ours) = self.datastore_url() else { return true };
        let Some(theirs) = kept.other_datastore(ours) else { return false };
        tracing::warn!(
            "{dir} has files of run {run} for the datastore {theirs}, which are not sent to {ours}: send them with \
             `{command}`",
            dir = kept.dir.display(),
            run = kept.record.run,
            command = unsent::upload_command(self.job.burrito, theirs, &[], &kept.dir)
        );
        true
    }

    /// The latest kept record of the order with this key, for this datastore.
    pub(in crate::run::apply) fn unsent_record_of_order(
        &self,
        key: OrderKey,
    ) -> Option<AppliedRecord> {
        let ours = self.datastore_url()?;
        let kept = self.kept_records().into_iter().filter(|kept| {
            let theirs = kept.record.order_key.filter(|theirs| theirs.sha256 == key.sha256);
            theirs.is_some() && kept.other_datastore(ours).is_none()
        });
        let index = |kept: &KeptRecord| kept.record.order_key.map(|key| key.index);
        kept.max_by_key(index).map(|kept| kept.record)
    }

    fn is_of_this_run(&self, kept: &KeptRecord) -> bool {
        kept.record.run == self.job.run.run.as_ref()
    }

    /// The records that earlier runs of the layer have kept, as far as they can be read.
    pub(in crate::run) fn kept_records(&self) -> Vec<KeptRecord> {
        self.kept_files().into_iter().filter_map(Result::ok).collect()
    }

    /// The records that earlier runs of the layer have kept. Without a datastore none is ever kept.
    fn kept_files(&self) -> Vec<Result<KeptRecord, UnreadableRecord>> {
        if self.job.datastore.is_none() {
            return Vec::new();
        }
        let state_home = self.environment.state_home.as_deref();
        unsent::records(state_home, self.scratch, &self.killed, &self.job.run)
    }

    /// Refuses an apply that such a record may be of, if the record cannot be read. Other ones are a warning.
    pub(in crate::run::apply) fn check_kept_records(&self, from: &Apply) -> Result<(), RunError> {
        let Some(datastore) = self.datastore_url() else { return Ok(()) };
        let is_planned = !matches!(from, Apply::Unplanned(_));
        let any_run = is_planned || self.job.order_key.is_some();
        for unreadable in self.kept_files().into_iter().filter_map(Result::err) {
            let may_be = any_run || unreadable.may_be_of(&self.job.run.run, datastore);
            if may_be && !self.job.again {
                return Err(UnreadableError { record: unreadable, is_planned }.into());
            }
            let UnreadableRecord { file, reason, .. } = unreadable;
            tracing::warn!("the record of an apply, {}, cannot be read: {reason}", file.display());
        }
        Ok(())
    }

    pub(in crate::run::apply) fn datastore_url(&self) -> Option<&url::Url> {
        self.job.datastore.as_ref().map(|client| &client.settings().url)
    }

    /// Sends the kept files of an apply. If that fails, its record is used all the same.
    pub(super) async fn send_kept(&self, record: &AppliedRecord) {
        let Some(client) = self.artifacts.as_ref().map(Artifacts::client) else { return };
        let kept = self.kept_records().into_iter();
        for kept in kept.filter(|kept| kept.record.is_same_apply(record)) {
            if self.warn_if_for_another(&kept) {
                continue;
            }
            let dir = kept.dir.display();
            let sending = unsent::send_unless_used(client, &kept.dir);
            match self.signals.within(self.upload_grace(), sending).await {
                Ok(Ok(Sending::Sent)) => tracing::info!("sent what was kept in {dir}"),
                Ok(Ok(Sending::Busy)) => tracing::info!("another runner sends the files in {dir}"),
                Ok(Ok(Sending::Gone)) => {}
                Ok(Err(error)) => tracing::warn!("{dir} is not sent: {}", chain(&error)),
                Err(_) => tracing::warn!("{dir} is not sent: stopped"),
            }
        }
    }
}
