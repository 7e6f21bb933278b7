//! `/metrics`: what the service has done so far, as Prometheus reads it.
//!
//! [`crate::observe::counters`] counts the requests. Every other figure is read where it is kept.

mod process;

use std::fmt::{Display, Write as _};
use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};

use crate::observe::counters::{BUCKETS, Metrics, Series};
use crate::observe::metrics::process::Process;
use crate::store::Store;
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
    // Cheap, but they are files.
    if let Ok(process) = tokio::task::spawn_blocking(Process::read).await {
        page.process(&process);
    }
    page.requests(&metrics);
    page.connections(&connections, tls.as_ref());
    page.admission(&admission.occupancy());
    page.storage(&store);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page.0).into_response()
}

/// The text format of Prometheus, version 0.0.4.
#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _never_fails = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &dyn Display)], value: impl Display) {
        self.0.push_str(name);
        for (place, (label, text)) in labels.iter().enumerate() {
            let sign = if place == 0 { '{' } else { ',' };
            let _never_fails = write!(self.0, "{sign}{label}=\"{text}\"");
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _never_fails = writeln!(self.0, "{end} {value}");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.family(name, kind, help);
        self.line(name, &[], value);
    }

    fn build(&mut self) {
        self.family("datastore_build_info", "gauge", "Which build this is.");
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
                // Most of these never happen, and are then no line.
                if value > 0 {
                    self.line(name, &labels.pairs(), value);
                }
            }
        }
        let name = "datastore_request_seconds";
        self.family(
            name,
            "histogram",
            "From the head of a request to the last byte of its answer.",
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
            self.line(&format!("{name}_sum"), &pairs, series.took.as_secs_f64());
            self.line(&format!("{name}_count"), &pairs, series.requests);
        }
        let name = "datastore_refusals_total";
        self.family(name, "counter", "Requests refused for a limit or for want of a right.");
        for (reason, refused) in &counts.refused {
            self.line(name, &[("reason", reason)], refused);
        }
    }

    fn connections(&mut self, connections: &Connections, tls: Option<&Tls>) {
        let gauge = "gauge";
        self.one("datastore_connections_open", gauge, "Open connections.", connections.open());
        let help = "Connections that there may be; 64 more answer only /healthz and /readyz.";
        self.one("datastore_connections_limit", gauge, help, connections.limit());
        let help = "Idle connections without a valid token that were closed to make room.";
        let name = "datastore_connections_closed_idle_total";
        self.one(name, "counter", help, connections.closed_idle());
        if let Some(expires) = tls.and_then(Tls::expires) {
            let name = "datastore_certificate_expiry_timestamp_seconds";
            self.family(name, gauge, "When the certificate that serves now expires.");
            self.line(name, &[], expires);
        }
    }

    fn admission(&mut self, occupancy: &Occupancy) {
        let Occupancy { taken, all, uploads, waiting, refused } = *occupancy;
        let gauges = [
            ("datastore_uploads_active", "Uploads under way.", uploads),
            ("datastore_admission_active_bytes", "Memory given out to transfers.", taken),
            ("datastore_admission_limit_bytes", "Memory that there is for transfers.", all),
            ("datastore_admission_waiting", "Requests that wait for memory.", waiting),
        ];
        for (name, help, value) in gauges {
            self.one(name, "gauge", help, value);
        }
        let help = "Requests that waited in vain for memory, and were answered 503.";
        self.one("datastore_admission_refused_total", "counter", help, refused);
    }

    fn storage(&mut self, store: &Store) {
        let results = store.probe_results();
        let name = "datastore_storage_can";
        self.family(
            name,
            "gauge",
            "What the storage was seen to do when it was last tried: 1 or 0.",
        );
        for (ability, can) in &results.abilities {
            self.line(name, &[("ability", &ability.name())], u8::from(*can));
        }
        let help = "Tries of the storage that failed since the last one that did not.";
        self.one("datastore_storage_failures", "gauge", help, results.failures.into());
        let help = "Running jobs in the file system of a directory whose callers have given up.";
        self.one("datastore_storage_hung_jobs", "gauge", help, store.jobs_left() as u64);
        if let Some(age) = store.since_success() {
            let name = "datastore_storage_probe_age_seconds";
            self.family(name, "gauge", "Time since the storage was last tried with success.");
            self.line(name, &[], age.as_secs_f64());
        }
        if let Some(skew) = results.skew {
            let name = "datastore_storage_clock_skew_seconds";
            let help = "How far this machine's clock is ahead of the storage's.";
            self.family(name, "gauge", help);
            self.line(name, &[], skew);
        }
        let calls = store.calls().all();
        let name = "datastore_backend_calls_total";
        self.family(name, "counter", "What the storage was asked, and how that ended.");
        for (call, outcome, ended) in &calls {
            self.line(name, &[("call", call), ("outcome", outcome)], ended.calls);
        }
        let name = "datastore_backend_seconds_total";
        self.family(name, "counter", "How long that took.");
        for (call, outcome, ended) in &calls {
            let took = ended.took.as_secs_f64();
            self.line(name, &[("call", call), ("outcome", outcome)], took);
        }
    }
}

/// What is counted of requests: name, meaning, value.
type Counter = (&'static str, &'static str, fn(&Series) -> u64);

const COUNTERS: [Counter; 5] = [
    ("datastore_requests_total", "Requests answered, or left by their callers.", |s| s.requests),
    ("datastore_received_bytes_total", "Bytes of uploads as they came in.", |s| s.bytes_in),
    ("datastore_sent_bytes_total", "Bytes of answers as they went out.", |s| s.bytes_out),
    (
        "datastore_broken_answers_total",
        "Answers broken off: what is stored has changed, or the storage failed.",
        |s| s.broken,
    ),
    (
        "datastore_foreign_reads_total",
        "Reads of what another program has stored, whose digest nobody knows.",
        |s| s.foreign,
    ),
];
