//! A panic of a storage's client, as an error.
//!
//! `object_store` panics if it cannot build a request, such as from a token with a line break. Credentials change while
//! the service runs, so that must not end it.

use std::any::Any;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;

use futures::FutureExt as _;

use crate::panics::{CaughtPanic, catching, last_caught};

/// The client panicked instead of returning an error.
#[derive(Debug, thiserror::Error)]
#[error("{text} (the client of the storage panicked at {}: {})", .panic.location, .panic.message, text = self.text())]
pub(in crate::store) struct Panicked {
    panic: CaughtPanic,
    is_invalid_header: bool,
}

impl Panicked {
    /// `panic` is the payload. Its message may contain a secret; only the safe part of it is kept.
    fn new(panic: &(dyn Any + Send)) -> Self {
        let message = panic.downcast_ref::<String>();
        let is_invalid_header = message.is_some_and(|text| text.contains("InvalidHeaderValue"));
        Self { panic: last_caught(), is_invalid_header }
    }

    /// What happened, in words that any caller may read.
    pub(in crate::store) fn text(&self) -> &'static str {
        if self.is_invalid_header {
            "its credentials cannot be sent: a token or key, or the file that has it, contains a line break or another \
             control character"
        } else {
            "no request can be made with its settings; the datastore's log has the details"
        }
    }
}

impl From<Panicked> for object_store::Error {
    fn from(panicked: Panicked) -> Self {
        Self::Generic { store: "storage", source: panicked.into() }
    }
}

/// Runs `work`; a panic becomes an error. The state that a panic leaves is the client's, which repeats a request from
/// its beginning.
pub(in crate::store) async fn caught<T, E: From<Panicked>>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let mut work = pin!(AssertUnwindSafe(work).catch_unwind());
    let done = poll_fn(|cx| catching(|| work.as_mut().poll(cx))).await;
    done.unwrap_or_else(|panic| Err(Panicked::new(&*panic).into()))
}
