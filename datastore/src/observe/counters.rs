//! Requests, counted as they end. Written by hand: a map behind a lock is all that it takes, and a service in a
//! test has its own.
//!
//! Every label has few values, all of them known here: no namespace, no layer, no path as it came.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::kind::Kind;
use crate::observe::context::RequestContext;

/// What the service has done so far. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics(Arc<Mutex<Counts>>);

#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) requests: BTreeMap<Labels, Series>,
    /// Refusals by their reason.
    pub(super) refused: BTreeMap<&'static str, u64>,
}

/// Requests that are counted together.
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
    pub(super) took: Duration,
    /// Requests that took at most so long, by [`BUCKETS`].
    pub(super) within: [u64; BUCKETS.len()],
}

/// Milliseconds, from a small file out of the cache to a gigabyte over a slow line.
pub(super) const BUCKETS: [u64; 12] =
    [1, 2, 5, 10, 25, 100, 250, 1000, 5000, 15_000, 60_000, 300_000];

impl Metrics {
    /// Counts a request that has ended.
    pub(super) fn count(&self, context: &RequestContext) {
        let took = context.elapsed();
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reason) = context.refusal() {
            *counts.refused.entry(reason).or_default() += 1;
        }
        let series = counts.requests.entry(Labels::of(context)).or_default();
        series.requests += 1;
        series.broken += u64::from(context.is_broken());
        series.foreign += u64::from(context.is_foreign());
        series.bytes_in += context.bytes_in();
        series.bytes_out += context.bytes_out();
        series.took += took;
        for (within, bucket) in series.within.iter_mut().zip(BUCKETS) {
            *within += u64::from(took <= Duration::from_millis(bucket));
        }
    }

    pub(super) fn counts(&self) -> Counts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Labels {
    fn of(context: &RequestContext) -> Self {
        let methods = ["GET", "HEAD", "PUT", "POST", "DELETE"];
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
