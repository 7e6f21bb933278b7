//! What applies of the layer have done before, by their ledgers.

use datastore_api::{ClientError, RunKey};

use crate::report::ledger::{Ledger, Resource, ReviewedPlan};
use crate::run::Run;

/// The ledgers of the layer.
#[derive(Debug)]
pub(super) struct History {
    /// Those of earlier runs and attempts, the earliest first.
    stored: Vec<Ledger>,
    /// Those of this process, each with the number of its first try in this process.
    ours: Vec<(Ledger, u32)>,
    run: RunKey,
}

/// What an entry of a ledger is of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Of<'a> {
    /// An earlier try of this process: it has the same code, plan and credentials.
    ThisProcess,
    /// An earlier attempt of this run, with its stored plan.
    ThisRun(Option<&'a ReviewedPlan>),
    /// Another run, whose place and providers may have been others.
    OtherRun,
}

impl Run<'_> {
    pub(super) async fn history(&self) -> Result<History, ClientError> {
        let (ours, mut stored) = (self.ledgers_of_process(), Vec::new());
        if let Some(artifacts) = self.artifacts.as_ref().filter(|of| of.takes_other_files()) {
            stored = artifacts.ledgers_of_layer().await?;
            stored.retain(|ledger| !ours.iter().any(|(of, _)| of.is_same_attempt(ledger)));
            stored.sort_by_key(Ledger::started);
        }
        Ok(History { stored, ours, run: self.job.run.clone() })
    }
}

impl History {
    /// Whether an import of this address was tried in this run.
    pub(super) fn has_tried(&self, address: &str) -> bool {
        let ours = self.ours.iter().map(|(ledger, _)| ledger);
        let stored = self.stored.iter().filter(|ledger| ledger.is_of_run(&self.run));
        let mut imports = ours.chain(stored).flat_map(Ledger::imports);
        imports.any(|import| import.address == address)
    }

    /// Whether the ledgers list everything.
    pub(super) fn is_whole(&self) -> bool {
        let ours = self.ours.iter().map(|(ledger, _)| ledger);
        self.stored.iter().chain(ours).all(Ledger::is_whole)
    }

    /// All that was done, in that order, but for the last try of the tool.
    pub(super) fn past(&self) -> impl Iterator<Item = (&Resource, Of<'_>)> {
        let stored = self.stored.iter();
        let stored = stored.flat_map(|ledger| of(ledger, u32::MAX, ledger.is_of_run(&self.run)));
        let last = self.ours.len().saturating_sub(1);
        let ours = self.ours.iter().enumerate().flat_map(move |(at, (ledger, first))| {
            let is_over = move |resource: &Resource| at < last || !ledger.is_last_try(resource);
            of(ledger, *first, true).filter(move |(resource, _)| is_over(resource))
        });
        stored.chain(ours)
    }
}

/// The entries of a ledger, of which those from the try `first` on are of this process.
fn of(ledger: &Ledger, first: u32, is_of_run: bool) -> impl Iterator<Item = (&Resource, Of<'_>)> {
    ledger.resources().map(move |resource| {
        let of = if resource.number >= first {
            Of::ThisProcess
        } else if is_of_run {
            Of::ThisRun(ledger.reviewed(resource.number))
        } else {
            Of::OtherRun
        };
        (resource, of)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(started: &str, tries: u32, entries: &[(&str, u32)]) -> Ledger {
        let resources = entries.iter().map(|(address, number)| {
            serde_json::json!({
                "address": address, "action": "create", "state": "unknown", "since": started, "try": number,
            })
        });
        let json = serde_json::json!({
            "version": 1, "namespace": "n", "layer": "l", "run": "r", "attempt": 0, "started": started,
            "updated": started, "tries": tries, "resources": resources.collect::<Vec<_>>(),
            "reviewed": [{"try": 1, "sha256": datastore_api::Sha256::of(b""), "run": "p", "attempt": 0}],
        });
        Ledger::parse(json.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn the_last_try_is_not_the_past_and_tries_of_earlier_processes_are_of_their_plan() {
        let time = "2026-01-01T00:00:00Z";
        let stored = vec![ledger(time, 2, &[("s.a", 1), ("s.b", 2)])];
        // The first ledger was continued from try 2 on; the second one is that of the next attempt.
        let ours = vec![
            (ledger(time, 2, &[("o.a", 1), ("o.b", 2)]), 2),
            (ledger(time, 2, &[("l.a", 1), ("l.b", 2)]), 1),
        ];
        let run = RunKey {
            namespace: "n".parse().unwrap(),
            layer: "l".parse().unwrap(),
            run: "r".parse().unwrap(),
        };
        let other = RunKey { run: "other".parse().unwrap(), ..run.clone() };
        let of_other = History { stored: stored.clone(), ours: Vec::new(), run: other };
        assert!(of_other.past().all(|(_, of)| matches!(of, Of::OtherRun)));
        let history = History { stored, ours, run };
        let past = history.past().map(|(resource, of)| {
            let of = match of {
                Of::ThisProcess => "ours",
                Of::ThisRun(Some(_)) => "planned",
                Of::ThisRun(None) => "unknown",
                Of::OtherRun => "other",
            };
            format!("{} {of}", resource.address)
        });
        let expected = ["s.a planned", "s.b unknown", "o.a planned", "o.b ours", "l.a ours"];
        assert_eq!(past.collect::<Vec<_>>(), expected);
    }
}
