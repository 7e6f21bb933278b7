//! `ledger.json`: what an apply has started, completed and failed to do, resource by resource. It is stored before the tool
//! starts and while it works, so that it survives the runner. It has addresses, and no values but IDs.

mod imports;

use std::collections::HashMap;

use datastore_api::{Attempt, RunKey, Sha256};
use jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use serde::{Deserialize, Serialize};

use crate::report::PlanReport;
pub(crate) use crate::report::ledger::imports::{ImportRecord, ImportState, StateBefore};
use crate::tool::diagnostics::{Action, Phase, Progress, without_indexes};

/// The version of this document.
const VERSION: u32 = 1;
/// Bytes of all resources together that are listed; a resource takes about 200.
const MAX_BYTES: usize = 24 << 20;
/// Bytes of an error's summary that are kept.
const MAX_SUMMARY: usize = 500;
/// Bytes of a resource without its texts.
const OVERHEAD: usize = 150;
/// Where the tool does not print the key of a deposed object.
const UNKNOWN_KEY: &str = "unknown";
/// A message names at most this many resources, each with at most so many bytes.
const NAMED: usize = 10;
const MAX_NAME: usize = 500;

/// Version 1 of the document.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ledger {
    version: u32,
    namespace: String,
    layer: String,
    run: String,
    attempt: Attempt,
    /// The digest of the plan that is applied; none where the tool plans and applies in one.
    plan_sha256: Option<Sha256>,
    tool: Option<LedgerTool>,
    /// When the tool was first started for this attempt.
    started: Timestamp,
    updated: Timestamp,
    /// When the tool had ended. Missing while it runs, and if the runner was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<Timestamp>,
    /// Whether the tool has ended by itself, and the backend has its state, in each try.
    #[serde(default)]
    state_saved: bool,
    /// The same of the tries before.
    #[serde(skip)]
    saved_before: bool,
    /// How often the tool was started for this attempt.
    tries: u32,
    /// The reviewed plans of the tries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    reviewed: Vec<ReviewedPlan>,
    /// Objects that were imported, or were to be, because their creation found that they exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    imports: Vec<ImportRecord>,
    /// In the order in which they were started.
    resources: Vec<Resource>,
    /// How many further ones there is no room for.
    #[serde(default, skip_serializing_if = "is_zero")]
    unlisted: u64,
    /// Where the resources of the current try are.
    #[serde(skip)]
    current: HashMap<String, Vec<usize>>,
    #[serde(skip)]
    size: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LedgerTool {
    pub(crate) name: String,
    pub(crate) version: String,
}

/// The stored plan that was reviewed for a try; the try may have applied the rest of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ReviewedPlan {
    #[serde(rename = "try")]
    pub(crate) number: u32,
    pub(crate) sha256: Sha256,
    /// The run and the attempt that have it; empty for a plan in a file.
    pub(crate) run: String,
    pub(crate) attempt: Attempt,
    /// The digest of the environment variables that select where providers work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) places: Option<Sha256>,
}

/// One action on one resource, by one try.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Resource {
    pub(crate) address: String,
    /// The terragrunt unit, where one is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unit: Option<String>,
    /// The key of an object that a replacement has left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deposed: Option<String>,
    pub(crate) action: Action,
    pub(crate) state: State,
    /// Since when it is in this state.
    pub(crate) since: Timestamp,
    /// Which start of the tool it is of, from 1.
    #[serde(rename = "try")]
    pub(crate) number: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    /// The class of the error, as `runner classify` has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) class: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) summary: Option<String>,
    /// Whether the error leaves open what was done: no answer came, or the service failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) unanswered: bool,
}

/// How far an action is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// The tool works at it, or did when its runner was killed.
    Started,
    Completed,
    /// The tool has reported an error.
    Failed,
    /// The tool has ended without an answer.
    Unknown,
}

impl Resource {
    /// Whether it was started, and nothing says how it has ended.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(self.state, State::Started | State::Unknown)
    }

    /// Its address and action, for people.
    pub(crate) fn name(&self) -> String {
        let unit = self.unit.as_ref().map(|unit| format!("[{unit}] ")).unwrap_or_default();
        let deposed = self.deposed.as_ref().map(|key| format!(", deposed object {key}"));
        let deposed = deposed.unwrap_or_default();
        format!("{unit}{} ({}{deposed})", self.address, self.action.name())
    }

    fn size(&self) -> usize {
        let texts = [&self.unit, &self.deposed, &self.id, &self.class, &self.summary];
        let texts = texts.into_iter().flatten().map(String::len).sum::<usize>();
        OVERHEAD + self.address.len() + texts
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The time in milliseconds.
fn now() -> Timestamp {
    let now = Timestamp::now();
    let round = TimestampRound::new().smallest(Unit::Millisecond).mode(RoundMode::Trunc);
    now.round(round).unwrap_or(now)
}

impl Ledger {
    /// That of an apply whose tool was never started.
    pub(crate) fn new(run: &RunKey, attempt: Attempt) -> Self {
        Self {
            version: VERSION,
            namespace: run.namespace.to_string(),
            layer: run.layer.to_string(),
            run: run.run.to_string(),
            attempt,
            plan_sha256: None,
            tool: None,
            started: now(),
            updated: now(),
            ended: None,
            state_saved: false,
            saved_before: true,
            tries: 0,
            reviewed: Vec::new(),
            imports: Vec::new(),
            resources: Vec::new(),
            unlisted: 0,
            current: HashMap::new(),
            size: 0,
        }
    }

    /// Parses `ledger.json`.
    pub(crate) fn parse(json: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        match serde_json::from_slice(json) {
            Ok(Versioned { version }) if version > VERSION => {
                return Err(format!("it has version {version}, which this runner does not know"));
            }
            _ => {}
        }
        let mut ledger = serde_json::from_slice::<Self>(json).map_err(|error| error.to_string())?;
        ledger.size = ledger.resources.iter().map(Resource::size).sum();
        Ok(ledger)
    }

    /// The document.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a ledger has only text keys and numbers") + "\n"
    }

    /// Whether the tool has begun to change anything.
    pub(crate) fn has_resources(&self) -> bool {
        !self.resources.is_empty() || !self.imports.is_empty() || self.unlisted > 0
    }

    /// The attempt that it is of.
    pub(crate) fn is_of(&self, run: &RunKey, attempt: Attempt) -> bool {
        let RunKey { namespace, layer, run } = run;
        *namespace.as_ref() == *self.namespace
            && *layer.as_ref() == *self.layer
            && *run.as_ref() == *self.run
            && attempt == self.attempt
    }

    /// Whether this is a later state of the same ledger.
    pub(crate) fn continues(&self, earlier: &Self) -> bool {
        fn key(of: &Ledger) -> (&str, &str, &str, Attempt, Timestamp) {
            (&of.namespace, &of.layer, &of.run, of.attempt, of.started)
        }
        key(self) == key(earlier) && (self.tries, self.updated) >= (earlier.tries, earlier.updated)
    }

    /// The tool is about to be started. What an earlier one has left open, it has left without an answer.
    pub(crate) fn begin(
        &mut self,
        plan: Option<Sha256>,
        (reviewed, places): (Option<&PlanReport>, Option<Sha256>),
        tool: Option<LedgerTool>,
    ) {
        self.leave_unanswered();
        self.current.clear();
        (self.plan_sha256, self.tool) = (plan, tool);
        self.saved_before = self.tries == 0 || self.state_saved;
        self.tries += 1;
        if let Some(PlanReport { sha256, run, attempt, .. }) = reviewed {
            let (run, attempt) = (run.clone().unwrap_or_default(), attempt.unwrap_or_default());
            let (number, sha256) = (self.tries, *sha256);
            self.reviewed.push(ReviewedPlan { number, sha256, run, attempt, places });
        }
        (self.ended, self.state_saved) = (None, false);
        self.updated = now();
    }

    /// Adds a line of the tool. Returns whether it changes anything.
    pub(crate) fn add(&mut self, progress: Progress) -> bool {
        if !progress.action.changes() {
            return false;
        }
        let Some(at) = self.find(&progress) else {
            let is_replaced = self.is_replaced(&progress);
            let Progress { unit, address, deposed, action, phase, id } = progress;
            let resource = Resource {
                address,
                unit: Some(unit).filter(|unit| !unit.is_empty()),
                deposed: deposed.or_else(|| is_replaced.then(|| UNKNOWN_KEY.to_owned())),
                action,
                state: state_after(phase),
                since: now(),
                number: self.tries,
                id,
                class: None,
                summary: None,
                unanswered: false,
            };
            return self.push(resource, phase == Phase::Started);
        };
        let Progress { phase, id, .. } = progress;
        let resource = &mut self.resources[at];
        let state = if phase == Phase::Running { resource.state } else { state_after(phase) };
        let has_new_id = id.is_some() && id != resource.id;
        if state == resource.state && !has_new_id {
            return false;
        }
        let before = resource.size();
        if state != resource.state {
            (resource.state, resource.since) = (state, now());
        }
        resource.id = id.or_else(|| resource.id.take());
        self.size = self.size + resource.size() - before;
        true
    }

    /// The position of the resource of this try that a line is of. One that is started again is that of another unit, which
    /// terragrunt does not name. They end in the order in which they were started, so what is left open comes last.
    fn find(&self, progress: &Progress) -> Option<usize> {
        if progress.phase == Phase::Started {
            return None;
        }
        let of_action = self.of_address(&progress.address).filter(|at| {
            let resource = &self.resources[*at];
            resource.action == progress.action
                && resource.unit.as_deref().unwrap_or_default() == progress.unit
        });
        let is_same = |at: &usize| self.resources[*at].deposed == progress.deposed;
        let is_open = |at: &usize| self.resources[*at].state == State::Started;
        // At the end terraform 1.11 and older do not name a deposed object.
        let same_open = of_action.clone().find(|at| is_same(at) && is_open(at));
        same_open
            .or_else(|| of_action.clone().find(is_open))
            .or_else(|| of_action.clone().find(is_same))
    }

    /// Whether this is the deletion of an object that a new one has replaced. With `-json` the tool does not say that it is
    /// deposed.
    fn is_replaced(&self, progress: &Progress) -> bool {
        let is_new = |resource: &Resource| {
            resource.action == Action::Create
                && resource.state == State::Completed
                && resource.unit.as_deref().unwrap_or_default() == progress.unit
        };
        progress.action == Action::Delete
            && self.of_address(&progress.address).any(|at| is_new(&self.resources[at]))
    }

    fn push(&mut self, resource: Resource, is_first: bool) -> bool {
        let size = resource.size();
        if self.size + size > MAX_BYTES {
            // Each of its lines comes here.
            self.unlisted += u64::from(is_first);
            return false;
        }
        self.size += size;
        self.current.entry(resource.address.clone()).or_default().push(self.resources.len());
        self.resources.push(resource);
        true
    }

    /// The positions of the resources of the current try with this address.
    fn of_address<'a>(&'a self, address: &str) -> impl Iterator<Item = usize> + Clone + use<'a> {
        self.current.get(address).into_iter().flatten().copied()
    }

    /// The tool has reported an error of this resource. Returns whether it had started it.
    pub(crate) fn fail(
        &mut self,
        (address, unit): (&str, Option<&str>),
        (class, unanswered): (&str, bool),
        summary: &str,
    ) -> bool {
        let open = self.of_address(address).filter(|at| {
            let resource = &self.resources[*at];
            let is_of_unit =
                unit.is_none() || resource.unit.is_none() || resource.unit.as_deref() == unit;
            resource.state == State::Started && is_of_unit
        });
        let open = open.collect::<Vec<_>>();
        let end = summary.floor_char_boundary(MAX_SUMMARY.min(summary.len()));
        for at in &open {
            let resource = &mut self.resources[*at];
            (resource.state, resource.since) = (State::Failed, now());
            let before = resource.size();
            resource.class = Some(class.to_owned());
            resource.unanswered = unanswered;
            resource.summary = Some(summary[..end].to_owned());
            self.size = self.size + resource.size() - before;
        }
        !open.is_empty()
    }

    /// The address that ends like this, without its indexes, if the tool works only at one of them.
    pub(crate) fn only_started(&self, end: &str) -> Option<String> {
        let started = self.current.values().flatten().map(|at| &self.resources[*at]);
        let mut found = started.filter(|resource| {
            let address = without_indexes(&resource.address);
            let before = address.strip_suffix(end);
            resource.state == State::Started
                && before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
        });
        found.next().filter(|_| found.next().is_none()).map(|only| only.address.clone())
    }

    /// The tool has ended. If it has succeeded, everything that it had started is complete.
    pub(crate) fn end(&mut self, has_succeeded: bool, state_saved: bool) {
        self.state_saved = state_saved && self.saved_before;
        if has_succeeded {
            for at in self.current.values().flatten() {
                let resource = &mut self.resources[*at];
                if resource.state == State::Started {
                    (resource.state, resource.since) = (State::Completed, now());
                }
            }
        }
        self.leave_unanswered();
        self.ended = Some(now());
    }

    /// The runner has pushed the state of the last try.
    pub(crate) fn set_state_saved(&mut self) {
        self.state_saved = self.saved_before;
    }

    /// The state of the last try is not where the next run looks for it.
    pub(crate) fn set_state_unsaved(&mut self) {
        self.state_saved = false;
    }

    /// Whether the state has what the tool has done, as far as it has said so.
    pub(crate) fn is_state_saved(&self) -> bool {
        self.state_saved
    }

    fn leave_unanswered(&mut self) {
        for resource in &mut self.resources {
            if resource.state == State::Started {
                (resource.state, resource.since) = (State::Unknown, now());
            }
        }
    }

    /// Whether the tool has ended, and the runner has seen it.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Sets the time of the document that is stored next.
    pub(crate) fn touch(&mut self) {
        self.updated = now();
    }

    /// The resources that were started, and of which nothing says how they have ended, or only an error without an answer.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = &Resource> {
        let is_open = |resource: &&Resource| resource.is_unanswered() || resource.unanswered;
        self.resources.iter().filter(is_open)
    }

    /// The addresses at which the last start of the tool was to create an object, and got no answer: it may exist.
    pub(crate) fn unanswered_creates(&self) -> impl Iterator<Item = &str> {
        let creates = self
            .unanswered()
            .filter(|resource| resource.number == self.tries && resource.action == Action::Create);
        creates.map(|resource| resource.address.as_str())
    }

    /// Those of the last start of the tool, for a message.
    pub(crate) fn describe_unanswered(&self) -> Option<String> {
        let names = self.unanswered().filter(|resource| resource.number == self.tries);
        list(names.map(Resource::name))
    }
}

fn state_after(phase: Phase) -> State {
    if phase == Phase::Completed { State::Completed } else { State::Started }
}

/// Some names, each of a bounded length, and the number of the others.
pub(crate) fn list(mut names: impl Iterator<Item = String>) -> Option<String> {
    let first = names.by_ref().take(NAMED).map(shortened).collect::<Vec<_>>();
    let more = match names.count() {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    (!first.is_empty()).then(|| first.join(", ") + &more)
}

fn shortened(name: String) -> String {
    let end = name.floor_char_boundary(MAX_NAME.min(name.len()));
    if end == name.len() { name } else { format!("{}...", &name[..end]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::diagnostics::ProgressReader;

    fn ledger() -> Ledger {
        let name = |name: &str| name.parse().unwrap();
        let run = RunKey { namespace: name("n"), layer: name("l"), run: name("r") };
        let mut ledger = Ledger::new(&run, Attempt(0));
        ledger.begin(None, (None, None), None);
        ledger
    }

    /// How many of these lines change the ledger.
    fn read(ledger: &mut Ledger, lines: &[&str]) -> usize {
        let mut reader = ProgressReader::new(false);
        let progress = lines.iter().filter_map(|line| reader.line(line)).collect::<Vec<_>>();
        progress.into_iter().map(|progress| usize::from(ledger.add(progress))).sum()
    }

    fn states(ledger: &Ledger) -> String {
        let states = ledger.resources.iter().map(|resource| {
            let id = resource.id.as_ref().map(|id| format!(" {id}")).unwrap_or_default();
            format!("{}: {:?}/{}{id}", resource.name(), resource.state, resource.number)
        });
        states.collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn resources_are_followed_from_start_to_end() {
        let mut ledger = ledger();
        let lines = [
            "a_b.c: Creating...",
            "a_b.c: Still creating... [10s elapsed]",
            "data.a_b.c: Reading...",
            "a_b.d: Creating...",
            "a_b.c: Creation complete after 20s [id=1]",
            "a_b.e: Destroying... [id=2]",
        ];
        assert_eq!(read(&mut ledger, &lines), 4);
        assert_eq!(
            states(&ledger),
            "a_b.c (create): Completed/1 1; a_b.d (create): Started/1; a_b.e (delete): Started/1 2"
        );
        assert_eq!(ledger.only_started("a_b.d").as_deref(), Some("a_b.d"));
        assert!(ledger.fail(("a_b.d", None), ("transient", true), "timeout"));
        assert_eq!(ledger.only_started("a_b.d"), None);
        assert!(!ledger.fail(("a_b.c", None), ("auth", false), "of one that is complete"));
        ledger.end(false, true);
        let open = "a_b.d (create), a_b.e (delete)";
        assert_eq!(ledger.describe_unanswered().as_deref(), Some(open));
        let parsed = Ledger::parse(ledger.to_json().as_bytes()).unwrap();
        assert_eq!(states(&parsed), states(&ledger));
        assert!(parsed.ended.is_some() && parsed.size == ledger.size);
    }

    #[test]
    fn address_is_known_by_its_end_if_only_one_is_started() {
        let mut ledger = ledger();
        let lines = [
            "module.m[\"x.y\"].a_b.c[0]: Creating...",
            "module.m.a_b.d: Creating...",
            "module.n.a_b.d: Creating...",
            "xa_b.e: Creating...",
        ];
        read(&mut ledger, &lines);
        let only = |end: &str| ledger.only_started(end);
        assert_eq!(only("a_b.c").as_deref(), Some("module.m[\"x.y\"].a_b.c[0]"));
        assert_eq!((only("a_b.d"), only("a_b.e"), only("a_b.f")), (None, None, None));
    }

    /// Lines of terraform 1.11.4.
    #[test]
    fn deletion_of_a_deposed_object_ends_without_its_key() {
        let mut ledger = ledger();
        let lines = [
            "a_b.c: Creating...",
            "a_b.c: Creation complete after 0s [id=2]",
            "a_b.c (deposed object 41a4cfbf): Destroying... [id=1]",
            "a_b.c: Destruction complete after 0s",
        ];
        read(&mut ledger, &lines);
        assert_eq!(
            states(&ledger),
            "a_b.c (create): Completed/1 2; a_b.c (delete, deposed object 41a4cfbf): Completed/1 1"
        );
    }

    /// Lines of terraform 1.11.4, shortened.
    #[test]
    fn json_deletion_after_a_creation_is_of_a_deposed_object() {
        let line = |kind: &str, action: &str, id: &str| {
            let id = serde_json::json!({"resource": {"addr": "a_b.c"}, "action": action, "id_key": "id", "id_value": id});
            serde_json::json!({"type": kind, "hook": id}).to_string()
        };
        let lines = [
            line("apply_start", "create", ""),
            line("apply_complete", "create", "2"),
            line("apply_start", "delete", "1"),
            line("apply_complete", "delete", "1"),
        ];
        let mut ledger = ledger();
        assert_eq!(read(&mut ledger, &lines.each_ref().map(String::as_str)), 4);
        assert_eq!(
            states(&ledger),
            "a_b.c (create): Completed/1 2; a_b.c (delete, deposed object unknown): Completed/1 1"
        );
    }

    #[test]
    fn same_address_of_several_units_is_listed_for_each() {
        let mut ledger = ledger();
        let lines = [
            "a_b.c: Creating...",
            "a_b.c: Creating...",
            "a_b.c: Creating...",
            "a_b.c: Creation complete after 0s [id=2]",
            "a_b.c: Creation complete after 0s [id=3]",
        ];
        assert_eq!(read(&mut ledger, &lines), 5);
        assert_eq!(
            states(&ledger),
            "a_b.c (create): Completed/1 2; a_b.c (create): Completed/1 3; a_b.c (create): Started/1"
        );
    }

    #[test]
    fn replacement_is_a_deletion_and_a_creation() {
        let mut ledger = ledger();
        let lines = [
            "a_b.c: Destroying... [id=1]",
            "a_b.c: Destruction complete after 0s",
            "a_b.c: Creating...",
        ];
        read(&mut ledger, &lines);
        assert_eq!(states(&ledger), "a_b.c (delete): Completed/1 1; a_b.c (create): Started/1");
    }

    #[test]
    fn later_try_forgets_nothing_of_an_earlier_one() {
        let mut ledger = ledger();
        read(
            &mut ledger,
            &["a_b.c: Creating...", "a_b.d: Creating...", "a_b.d: Creation complete after 0s"],
        );
        // The runner was killed.
        let before = Ledger::parse(ledger.to_json().as_bytes()).unwrap();
        let mut ledger = before.clone();
        ledger.begin(None, (None, None), None);
        assert_eq!(ledger.describe_unanswered(), None, "of this try");
        read(&mut ledger, &["a_b.c: Creating..."]);
        assert!(ledger.fail(("a_b.c", None), ("already_exists", false), "it exists"));
        ledger.end(false, true);
        assert_eq!(
            states(&ledger),
            "a_b.c (create): Unknown/1; a_b.d (create): Completed/1; a_b.c (create): Failed/2"
        );
        assert!(ledger.continues(&before) && !before.continues(&ledger));
    }

    #[test]
    fn tool_that_succeeds_has_completed_everything() {
        let mut ledger = ledger();
        read(&mut ledger, &["a_b.c: Creating..."]);
        ledger.end(true, true);
        assert_eq!(states(&ledger), "a_b.c (create): Completed/1");
    }

    #[test]
    fn ten_thousand_resources_are_listed_in_bounded_memory() {
        let mut ledger = ledger();
        for n in 0..10_000 {
            let address = format!("module.m[\"{n}\"].terraform_data.some_resource[{n}]");
            read(&mut ledger, &[&format!("{address}: Creating...")]);
            let complete = format!("{address}: Creation complete after 0s [id=0123456789abcdef]");
            read(&mut ledger, &[&complete]);
        }
        let json = ledger.to_json();
        assert!(json.len() < 3 << 20, "{}", json.len());
        assert_eq!((ledger.resources.len(), ledger.unlisted), (10_000, 0));
        let long = "b".repeat(4000);
        for n in 0..7000 {
            read(&mut ledger, &[&format!("a{n}.{long}: Creating...")]);
        }
        let listed = ledger.resources.len() as u64 - 10_000;
        assert_eq!((ledger.unlisted > 0, listed + ledger.unlisted), (true, 7000));
        read(&mut ledger, &[&format!("a6999.{long}: Creation complete after 0s")]);
        assert_eq!(listed + ledger.unlisted, 7000);
        assert!(ledger.to_json().len() < MAX_BYTES + (1 << 20));
    }

    #[test]
    fn ledger_of_a_later_version_is_not_read() {
        let error = Ledger::parse(br#"{"version": 2, "resources": {}}"#).unwrap_err();
        assert_eq!(error, "it has version 2, which this runner does not know");
        Ledger::parse(b"[]").unwrap_err();
    }

    #[test]
    fn long_list_ends_with_a_number() {
        let names = |count: usize| list((0..count).map(|n| n.to_string()));
        assert_eq!(names(0), None);
        assert_eq!(names(2).as_deref(), Some("0, 1"));
        assert_eq!(names(12).as_deref(), Some("0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"));
        let long = list(["\u{e9}".repeat(1 << 20)].into_iter()).unwrap();
        assert!(long.ends_with("\u{e9}...") && long.len() == 503);
    }
}
