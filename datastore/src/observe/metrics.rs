//! `GET /metrics`: which metrics there are, their help texts, and where each value comes from.
//!
//! [`crate::observe::counters`] counts the requests. Every other value is read where the service keeps it.

mod page;
mod process;

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};

use crate::observe::counters::{BUCKETS, Labels, Metrics, Series};
use crate::observe::metrics::page::Page;
use crate::observe::metrics::process::Process;
use crate::observe::refusal::Refusal;
use crate::store::{Ability, Store};
use crate::transport::admission::{Admission, Occupancy};
use crate::transport::connections::Connections;
use crate::transport::tls::Tls;

pub(crate) async fn metrics(
    State(metrics): State<Metrics>,
    State(admission): State<Admission>,
    State(store): State<Store>,
    State(connections): State<Connections>,
    State(tls): State<Option<Tls>>,
) -> Response {
    let mut page = Page::default();
    page.build();
    // Its figures are files, so reading them may block.
    if let Ok(process) = tokio::task::spawn_blocking(Process::read).await {
        process.write(&mut page);
    }
    page.requests(&metrics);
    page.connections(&connections, tls.as_ref());
    page.admission(&admission.occupancy());
    page.storage(&store);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page.into_text()).into_response()
}

impl Page {
    fn build(&mut self) {
        self.family("datastore_build_info", "gauge", "The build.");
        let commit = option_env!("PLANCHA_REVISION").unwrap_or("unknown");
        let version = env!("CARGO_PKG_VERSION");
        self.line("datastore_build_info", &[("version", &version), ("commit", &commit)], 1);
    }

    fn requests(&mut self, metrics: &Metrics) {
        let counts = metrics.counts();
        let all = counts.requests;
        for (name, help, value) in COUNTERS {
            self.family(name, "counter", help);
            for (labels, series) in &all {
                let value = value(series);
                // A value of 0 has no line: most of these never happen.
                if value > 0 {
                    self.line(name, &labels.pairs(), value);
                }
            }
        }
        self.broken(&all);
        let name = "datastore_request_seconds";
        self.family(
            name,
            "histogram",
            "Time from the head of a request to the last byte of its answer.",
        );
        for (labels, series) in &all {
            let pairs = labels.pairs();
            for (bucket, within) in BUCKETS.iter().zip(series.within) {
                let le = Duration::from_millis(*bucket).as_secs_f64();
                let pairs = [&pairs[..], &[("le", &le)]].concat();
                self.line(&format!("{name}_bucket"), &pairs, within);
            }
            let inf = [&pairs[..], &[("le", &"+Inf")]].concat();
            self.line(&format!("{name}_bucket"), &inf, series.requests);
            self.line(&format!("{name}_sum"), &pairs, series.duration.as_secs_f64());
            self.line(&format!("{name}_count"), &pairs, series.requests);
        }
        let name = "datastore_refusals_total";
        self.family(name, "counter", "Requests refused for a limit or a missing permission.");
        for (reason, refusals) in Refusal::ALL.into_iter().zip(counts.refusals) {
            self.line(name, &[("reason", &reason.name())], refusals);
        }
    }

    /// Broken answers. All reads start at 0, because `increase` does not count the first event of a new series.
    fn broken(&mut self, all: &BTreeMap<Labels, Series>) {
        let name = "datastore_broken_answers_total";
        let help =
            "Answers broken off or refused: stored bytes have changed, or the storage failed.";
        self.family(name, "counter", help);
        let mut broken = Labels::of_reads().map(|labels| (labels, 0)).collect::<BTreeMap<_, _>>();
        broken.extend(
            all.iter().filter(|(_, series)| series.broken > 0).map(|(l, s)| (*l, s.broken)),
        );
        for (labels, value) in broken {
            self.line(name, &labels.pairs(), value);
        }
    }

    fn connections(&mut self, connections: &Connections, tls: Option<&Tls>) {
        let gauge = "gauge";
        self.one("datastore_connections_open", gauge, "Open connections.", connections.open());
        let help = "Maximum of open connections; 64 more answer only /healthz and /readyz.";
        self.one("datastore_connections_limit", gauge, help, connections.limit());
        let help = "Idle connections without a valid token that were closed to make room.";
        let name = "datastore_connections_closed_idle_total";
        self.one(name, "counter", help, connections.closed_idle());
        if let Some(expires) = tls.and_then(Tls::expires) {
            let name = "datastore_certificate_expiry_timestamp_seconds";
            self.family(name, gauge, "When the certificate in use expires.");
            self.line(name, &[], expires);
        }
    }

    fn admission(&mut self, occupancy: &Occupancy) {
        let Occupancy { taken, all, uploads, waiting, refused } = *occupancy;
        let gauges = [
            ("datastore_uploads_active", "Uploads in progress.", uploads),
            ("datastore_admission_active_bytes", "Memory in use by transfers.", taken),
            ("datastore_admission_limit_bytes", "Memory that transfers may use.", all),
            ("datastore_admission_waiting", "Requests that wait for memory.", waiting),
        ];
        for (name, help, value) in gauges {
            self.one(name, "gauge", help, value);
        }
        let help = "Requests that got 503 because no memory became free in time.";
        self.one("datastore_admission_refused_total", "counter", help, refused);
    }

    fn storage(&mut self, store: &Store) {
        let results = store.probe_results();
        let name = "datastore_storage_can";
        let help = "Whether the storage can do this, as the last check saw it that saw it: 1 yes, 0 no, -1 not known.";
        self.family(name, "gauge", help);
        for ability in Ability::ALL {
            let can = results.can(ability).map_or(-1, i8::from);
            self.line(name, &[("ability", &ability.name())], can);
        }
        let help = "Storage checks that failed since the last success.";
        self.one("datastore_storage_failures", "gauge", help, results.failures.into());
        let help = "File jobs of a directory whose callers have given up, and closings and removals that have taken 10 s or more.";
        self.one("datastore_storage_hung_jobs", "gauge", help, store.hung_jobs() as u64);
        let name = "datastore_storage_probe_age_seconds";
        let help = "Time since the last successful storage check, or since the start before the first one.";
        self.family(name, "gauge", help);
        self.line(name, &[], store.since_success().as_secs_f64());
        if let Some(skew) = results.skew {
            let name = "datastore_storage_clock_skew_seconds";
            let help = "How far this machine's clock is ahead of the storage's.";
            self.family(name, "gauge", help);
            self.line(name, &[], skew);
        }
        let calls = store.calls().all();
        let name = "datastore_backend_calls_total";
        self.family(name, "counter", "Calls to the storage, by outcome.");
        for (call, outcome, ended) in &calls {
            self.line(name, &[("call", call), ("outcome", outcome)], ended.calls);
        }
        let name = "datastore_backend_seconds_total";
        self.family(name, "counter", "Duration of the calls to the storage.");
        for (call, outcome, ended) in &calls {
            let took = ended.took.as_secs_f64();
            self.line(name, &[("call", call), ("outcome", outcome)], took);
        }
    }
}

/// A counter of requests: its name, its help text, its value.
type Counter = (&'static str, &'static str, fn(&Series) -> u64);

const COUNTERS: [Counter; 4] = [
    ("datastore_requests_total", "Requests answered, or abandoned by their callers.", |s| {
        s.requests
    }),
    ("datastore_received_bytes_total", "Bytes received in uploads.", |s| s.bytes_in),
    ("datastore_sent_bytes_total", "Bytes sent in answers.", |s| s.bytes_out),
    (
        "datastore_foreign_reads_total",
        "Reads of objects that another program stored, without a known digest.",
        |s| s.foreign,
    ),
];
