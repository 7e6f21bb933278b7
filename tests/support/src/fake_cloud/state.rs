//! The state that requests and tests share.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Bytes;

use super::bucket::Bucket;

/// The dialect of a fake cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Amazon S3's.
    S3,
    /// The XML dialect of Google Cloud Storage, with generations.
    Gcs,
}

impl Dialect {
    /// All dialects.
    pub const ALL: [Self; 2] = [Self::S3, Self::Gcs];
}

/// A fault of some requests. The default is no fault.
#[derive(Clone, Debug, Default)]
pub struct CloudFault {
    /// Their method; empty for any.
    pub method: &'static str,
    /// A part of their key.
    pub key: &'static str,
    /// A part of their query.
    pub query: &'static str,
    /// How many of them succeed first.
    pub after: usize,
    /// How many of them fail.
    pub times: usize,
    /// The status of the answer; 0 keeps the usual one.
    pub status: u16,
    /// The code in the document of such an answer; empty for one that no cloud has.
    pub code: &'static str,
    /// The body of an answer with `status`, or else 200, that takes the place of the usual one, as a proxy's page does.
    pub document: Option<&'static str>,
    /// How much later they are answered.
    pub delay: Duration,
    /// The connection breaks after so many bytes of the answer's body.
    pub cut_after: Option<usize>,
    /// The answer's body ends cleanly after so many bytes, with a matching length.
    pub ends_after: Option<usize>,
    /// Nothing more comes after so many bytes of the answer's body.
    pub stall_after: Option<usize>,
    /// The request is carried out first, and then answered with `delay` and `status`.
    pub apply_then_fail: bool,
}

/// How fast each connection is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// Before the first byte of every answer.
    pub latency: Duration,
    /// Each way; 0 is unlimited.
    pub bytes_per_second: u64,
}

/// The shared state.
pub(super) struct Shared {
    pub(super) dialect: Dialect,
    pub(super) bucket: Mutex<Bucket>,
    pub(super) faults: Mutex<Vec<CloudFault>>,
    pub(super) requests: Mutex<Vec<String>>,
    pub(super) pace: Mutex<Pace>,
    /// Bytes that uploads may share.
    pub(super) pattern: Mutex<Bytes>,
    pub(super) in_flight: InFlight,
}

/// How many requests are in flight.
#[derive(Default)]
pub(super) struct InFlight {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// A request in flight, until it is dropped.
pub(super) struct Counted<'a>(&'a InFlight);

impl InFlight {
    pub(super) fn count(&self) -> Counted<'_> {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        Counted(self)
    }

    /// The most at once since the last call.
    pub(super) fn take_most(&self) -> usize {
        self.most.swap(0, Ordering::Relaxed)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    /// The fault of this request.
    pub(super) fn meet(&self, method: &str, key: &str, query: &str) -> Option<CloudFault> {
        let mut faults = self.faults.lock().unwrap();
        let fault = faults.iter_mut().find(|fault| {
            fault.times > 0
                && (fault.method.is_empty() || fault.method == method)
                && key.contains(fault.key)
                && query.contains(fault.query)
        })?;
        if fault.after > 0 {
            fault.after -= 1;
            return None;
        }
        fault.times = fault.times.saturating_sub(1);
        Some(fault.clone())
    }
}
