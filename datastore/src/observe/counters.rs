//! Counts requests when they end.
//!
//! Every label has few values, all of them known beforehand: no label has a namespace, a layer or the path that the
//! caller sent.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::api::route::Route;
use crate::kind::Kind;
use crate::observe::context::RequestContext;
use crate::observe::refusal::Refusal;

/// Counters of one service. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics(Arc<Mutex<Counts>>);

#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) requests: BTreeMap<Labels, Series>,
    /// Refusals, in the order of [`Refusal::ALL`].
    pub(super) refusals: [u64; Refusal::ALL.len()],
}

/// The labels of a request. Requests with the same labels are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Labels {
    route: &'static str,
    method: &'static str,
    status: &'static str,
    kind: &'static str,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Series {
    pub(super) requests: u64,
    pub(super) broken: u64,
    pub(super) foreign: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    pub(super) duration: Duration,
    /// Requests that took at most as long as the bucket of [`BUCKETS`] at the same position.
    pub(super) within: [u64; BUCKETS.len()],
}

/// Upper bounds in milliseconds, from a small cached file to a gigabyte over a slow connection.
pub(super) const BUCKETS: [u64; 12] =
    [1, 2, 5, 10, 25, 100, 250, 1000, 5000, 15_000, 60_000, 300_000];

impl Metrics {
    /// Counts a request that has ended.
    pub(super) fn count(&self, context: &RequestContext) {
        let duration = context.elapsed();
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reason) = context.refusal() {
            counts.refusals[reason as usize] += 1;
        }
        let series = counts.requests.entry(Labels::of(context)).or_default();
        series.requests += 1;
        series.broken += u64::from(context.is_broken());
        series.foreign += u64::from(context.is_foreign());
        series.bytes_in += context.bytes_in();
        series.bytes_out += context.bytes_out();
        series.duration += duration;
        for (within, bucket) in series.within.iter_mut().zip(BUCKETS) {
            *within += u64::from(duration <= Duration::from_millis(bucket));
        }
    }

    pub(super) fn counts(&self) -> Counts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Labels {
    /// The labels of reads that can fail because stored bytes have changed or the storage failed: a GET after the head
    /// of its answer, and a GET or HEAD instead of it.
    pub(super) fn of_reads() -> impl Iterator<Item = Self> {
        let artifacts = Route::ALL.into_iter().flat_map(|route| {
            route.returned_kinds().iter().map(move |kind| (route.path(), kind.as_str()))
        });
        let reads = artifacts.chain([(Route::GetApplied.path(), "")]);
        let outcomes = [("GET", "2xx"), ("GET", "5xx"), ("HEAD", "5xx")];
        reads.flat_map(move |(route, kind)| {
            outcomes.map(|(method, status)| Self { route, method, status, kind })
        })
    }

    fn of(context: &RequestContext) -> Self {
        let methods = ["GET", "HEAD", "PUT", "POST", "DELETE", "LOCK", "UNLOCK"];
        let method = methods.into_iter().find(|method| *method == context.method().as_str());
        let status = match context.status().map(|status| status.as_u16()) {
            None => "left",
            Some(..200) => "1xx",
            Some(200..300) => "2xx",
            Some(300..400) => "3xx",
            Some(400..500) => "4xx",
            Some(500..) => "5xx",
        };
        Self {
            route: context.route().path(),
            method: method.unwrap_or("other"),
            status,
            kind: context.route().kind(context.query()).map_or("", Kind::as_str),
        }
    }

    pub(super) fn pairs(&self) -> [(&str, &dyn Display); 4] {
        let Self { route, method, status, kind } = self;
        [("route", route), ("method", method), ("status", status), ("kind", kind)]
    }
}
