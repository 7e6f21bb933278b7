//! Example values of JSON answers, of which their schemas are made. It knows no route.

use std::collections::BTreeMap;

use datastore_api::approval::{ApprovalUse, Approvals, ListedOffer, Offer, UnreadableOffer};
use datastore_api::document::{StatusOfLayer, Statuses};
use datastore_api::key::{AttemptFiles, Attempts, FileInfo, Live, RunInfo, Runs};
use datastore_api::layers::{LayerRun, Layers, ListedLayer, Namespaces, PlanCounts};
use datastore_api::state::{
    GrantedLease, LayerTool, Lease, LeaseRequest, Migration, StateBackup, StateHead, StateKind,
    StateVersion, States, ToolRecord,
};
use datastore_api::status::{Condition, LayerStatus, RunResult};
use datastore_api::{Attempt, Sha256, VersionId};
use serde::Serialize;
use serde_json::json;

/// Two values that together show every field of an answer, and which of them can be null or empty.
pub(super) trait Example: Serialize + Sized {
    fn examples() -> [Self; 2];
}

impl Example for Runs {
    fn examples() -> [Self; 2] {
        let run = RunInfo { run: String::new(), started: String::new() };
        [Self { runs: vec![run], next: Some(String::new()) }, Self::default()]
    }
}

impl Example for States {
    fn examples() -> [Self; 2] {
        let version = example_version();
        let text = || Some(String::new());
        let head = StateHead {
            version: Some(version.clone()),
            deleted: text(),
            lock: Some(json!({})),
            place: text(),
        };
        [Self { head, versions: vec![version], next: text() }, Self::default()]
    }
}

/// A version in which no field is null.
fn example_version() -> StateVersion {
    StateVersion {
        version: VersionId::new(0, 0),
        kind: StateKind::Head,
        generation: 1,
        serial: 1,
        lineage: String::new(),
        sha256: Sha256::of(b""),
        size: 0,
        resources: Some(0),
        terraform_version: Some(String::new()),
        encrypted: false,
        run: Some(String::new()),
        tool: Some(LayerTool { name: String::new(), version: String::new() }),
        caller: Some(String::new()),
        created: String::new(),
        fence: Some(1),
        reason: Some(String::new()),
    }
}

fn example_lease() -> Lease {
    let text = || Some(String::new());
    let request = LeaseRequest { holder: String::new(), host: String::new(), run: text() };
    Lease {
        number: 1,
        request,
        caller: text(),
        acquired: String::new(),
        renewed: String::new(),
        expires: String::new(),
        valid: true,
        took_over: text(),
    }
}

impl Example for Lease {
    fn examples() -> [Self; 2] {
        let full = example_lease();
        let request = LeaseRequest { run: None, ..full.request.clone() };
        let bare = Self { request, caller: None, took_over: None, ..full.clone() };
        [full, bare]
    }
}

impl Example for LeaseRequest {
    fn examples() -> [Self; 2] {
        Lease::examples().map(|lease| lease.request)
    }
}

impl Example for GrantedLease {
    fn examples() -> [Self; 2] {
        let [full, bare] = Lease::examples();
        let credential = Some(String::new());
        [Self { lease: full, credential }, Self { lease: bare, credential: None }]
    }
}

impl Example for ToolRecord {
    fn examples() -> [Self; 2] {
        let tool = LayerTool { name: String::new(), version: String::new() };
        let (version, lineage) = (VersionId::new(0, 0), String::new());
        let backup = Some(StateBackup { version, lineage, serial: 1, sha256: Sha256::of(b"") });
        let (from, to, started) = (tool.clone(), tool.clone(), String::new());
        let written = Some(2);
        let migration = Migration { from, to, backup, written, unfinished: true, started };
        let bare =
            Migration { backup: None, written: None, unfinished: false, ..migration.clone() };
        let migrations = [(String::new(), migration), ("other".to_owned(), bare)].into();
        [Self { tool: tool.clone(), migrations }, Self { tool, migrations: BTreeMap::new() }]
    }
}

impl Example for Statuses {
    fn examples() -> [Self; 2] {
        let text = String::new;
        let (status, layer) = (example_status(), text());
        let read = StatusOfLayer { layer, status: Some(status), unreadable: None };
        let unread = StatusOfLayer { layer: text(), status: None, unreadable: Some(text()) };
        [Self { statuses: vec![read, unread], next: Some(text()) }, Self::default()]
    }
}

/// A status without the fields that are left out where they are not known.
fn example_status() -> LayerStatus {
    LayerStatus {
        version: 1,
        status: Condition::Ok,
        class: None,
        message: None,
        result: RunResult::Unchanged,
        action: String::new(),
        run: None,
        ended: String::new(),
        last_ok: None,
        last_success: None,
        failed_in_a_row: 0,
        counts: BTreeMap::new(),
        changes: Vec::new(),
        plan_sha256: None,
        approval: None,
        policy_sha256: None,
        seconds: BTreeMap::new(),
        runs_by_class: BTreeMap::new(),
        state_bytes: None,
        locked_since: None,
        tool: None,
        stale: None,
        metric: None,
    }
}

fn example_offer() -> Offer {
    let approval = Sha256::of(b"");
    Offer { approval, first_stored: String::new(), expires: String::new() }
}

impl Example for Offer {
    fn examples() -> [Self; 2] {
        [example_offer(), example_offer()]
    }
}

impl Example for ApprovalUse {
    fn examples() -> [Self; 2] {
        let (at, run) = (String::new(), String::new());
        let known = Self { approved_by: Some(String::new()), at, run };
        [known.clone(), Self { approved_by: None, ..known }]
    }
}

impl Example for Approvals {
    fn examples() -> [Self; 2] {
        let [used, _] = ApprovalUse::examples();
        let known = ListedOffer {
            offer: example_offer(),
            set: Sha256::of(b""),
            generation: 0,
            run: String::new(),
            offered_by: Some(String::new()),
            used: Some(used),
        };
        let unknown = ListedOffer { offered_by: None, used: None, ..known.clone() };
        let unreadable = UnreadableOffer {
            approval: Sha256::of(b""),
            set: Sha256::of(b""),
            generation: 0,
            reason: String::new(),
        };
        let approvals = vec![known, unknown];
        [Self { approvals, unreadable: vec![unreadable] }, Self::default()]
    }
}

impl Example for Namespaces {
    fn examples() -> [Self; 2] {
        let text = String::new;
        [Self { namespaces: vec![text()], next: Some(text()) }, Self::default()]
    }
}

impl Example for Layers {
    fn examples() -> [Self; 2] {
        let text = || Some(String::new());
        let known = LayerRun {
            run: String::new(),
            attempt: Attempt(0),
            action: text(),
            outcome: text(),
            created: String::new(),
            finished: text(),
            counts: Some(PlanCounts::default()),
            revision: text(),
            tool: text(),
            tool_version: text(),
            live: Some(Live::Running),
        };
        let unknown = LayerRun::without_result(String::new(), Attempt(0), String::new());
        let layer = |last_run, status| ListedLayer { name: String::new(), last_run, status };
        let layers = vec![
            layer(Some(known), Some(example_status())),
            layer(Some(unknown), None),
            layer(None, None),
        ];
        [Self { layers, next: text() }, Self::default()]
    }
}

impl Example for Attempts {
    fn examples() -> [Self; 2] {
        let file = FileInfo { name: String::new(), size: 0, modified: String::new() };
        let live = Some(Live::Running);
        let attempt = AttemptFiles { attempt: Attempt(0), artifacts: vec![file], live };
        let complete = AttemptFiles { live: None, ..attempt.clone() };
        [Self { attempts: vec![attempt, complete] }, Self::default()]
    }
}
