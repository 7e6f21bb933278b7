//! What others see of the layers while the process lives, and after it: metrics, and whether there is progress.
//!
//! [`board`] keeps it, [`listener`] serves it, and [`metrics_file`] writes it to a file. How a run works, and how a status comes
//! about, is not known here.

pub(crate) mod board;
pub(crate) mod listener;
pub(crate) mod metrics_file;

use std::sync::Arc;

use datastore_api::status::LayerStatus;
use datastore_api::{Name, RunKey};

use crate::execute::observe::board::Board;
use crate::report::Report;
use crate::run::check::status::{self, Recorded};

/// How one run is observed.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) board: Arc<Board>,
    /// The layer, if it is known before the run. Else the run is the only one of its command.
    pub(crate) layer: Option<(Name, Name)>,
    /// How many runs in a row must have failed transiently until the status becomes an error.
    pub(crate) error_after: u32,
}

impl Observed {
    /// The last status of a layer, as this process knows it.
    pub(crate) fn known(&self, key: &RunKey) -> Option<LayerStatus> {
        self.board.known(&key.namespace, &key.layer)
    }

    /// Records the status after a run.
    pub(crate) fn record(&self, key: &RunKey, Recorded { status, is_stored }: Recorded) {
        let layer = (key.namespace.clone(), key.layer.clone());
        if self.layer.is_none() {
            self.board.keep_only(|known| *known == layer);
        }
        if !is_stored {
            self.board.count_error();
        }
        self.board.record(layer, status);
    }

    /// Records a run that could not start.
    pub(crate) fn reject(&self, report: &Report) {
        match &self.layer {
            Some(layer) => {
                let known = self.board.known(&layer.0, &layer.1);
                let status = status::of_rejection(report, known.as_ref(), self.error_after);
                self.board.record(layer.clone(), status);
            }
            None => self.board.count_error(),
        }
    }
}
