//! A step that runs beside other work, before it is needed.

use std::path::Path;

use fs_err as fs;

use crate::process::{self, ExitReport, Log, Output, Program};
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::step::limits;

/// How a step has ended that was run ahead. `None`: it is still to be run. That is so, too, if anything was unusual, so that
/// errors and warnings are those of a step of its own.
pub(in crate::run) type Ahead = Option<ExitReport>;

impl Run<'_> {
    /// Runs a program whose standard output is written to a private file.
    pub(in crate::run) fn ahead(
        &self,
        step: &'static str,
        program: Program,
        to: &Path,
    ) -> impl Future<Output = Ahead> + use<> {
        let (to, log) = (to.to_owned(), self.scratch.join(format!("{step}.log")));
        let (signals, redaction) = (self.signals.clone(), self.environment.redaction.clone());
        let (given, grace) = (self.job.limits, self.job.grace);
        async move {
            let log = Log::create(log, &redaction).ok()?;
            let limits = limits::of_step(given, step, step);
            let output = Output::CaptureQuietly(&to, &log);
            let exit = process::run(&program, output, &signals, &limits, grace).await.ok()?;
            let is_stopped = exit.stop.is_some() || exit.limit.is_some();
            let is_silent = fs::metadata(log.path()).is_ok_and(|log| log.len() == 0);
            let is_whole = exit.status.success() && exit.incomplete.is_none();
            (is_whole && is_silent && !is_stopped).then_some(exit)
        }
    }

    /// Records a step that was run ahead, or runs it.
    pub(in crate::run) async fn step_into_unless(
        &mut self,
        ahead: Ahead,
        step: &'static str,
        program: &Program,
        to: &Path,
    ) -> Result<(), RunError> {
        match ahead {
            Some(exit) => {
                self.report.add_step(step, exit.took, exit.code(), &exit.used);
                Ok(())
            }
            None => self.step_into(step, program, to).await,
        }
    }
}
