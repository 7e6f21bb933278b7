//! A step that runs beside other work, before it is needed.

use std::path::Path;

use fs_err as fs;

use crate::process::{self, ExitReport, Log, Output, Program};
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::step::limits;
use crate::run::step::messages::Messages;

/// How a step has ended that was run ahead. `None`: it is still to be run. That is so, too, if anything was unusual, so that
/// errors and warnings are those of a step of its own; but not if it has hung until a limit of time. The text is what it has
/// printed to standard error.
pub(in crate::run) type Ahead = Option<(ExitReport, String)>;

/// What has reached a limit of time has hung if it used less than this part of a CPU: 1 / 10. Else it may only have had too
/// little of the machine, beside other programs.
const HUNG: u32 = 10;

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
            let is_silent = fs::metadata(log.path()).is_ok_and(|log| log.len() == 0);
            let is_whole = exit.status.success() && exit.incomplete.is_none();
            let is_good = is_whole && is_silent && exit.stop.is_none();
            let is_idle = exit.used.cpu.is_some_and(|cpu| cpu < exit.took / HUNG);
            let is_final = is_good || exit.limit.is_some() && is_idle;
            Some((exit, log.since(0).ok()?)).filter(|_| is_final)
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
        let Some((exit, errors)) = ahead else { return self.step_into(step, program, to).await };
        self.report.add_step(step, exit.took, exit.code(), &exit.used);
        if exit.limit.is_none() {
            return Ok(());
        }
        let tool = program.path.file_name().unwrap_or_default().to_string_lossy();
        let before = fs::metadata(self.log.path())?.len();
        for line in errors.lines() {
            self.log.line(line)?;
        }
        let messages = (&Messages::of(program), before);
        self.check_exit((&tool, &program.dir), step, &exit, messages)
    }
}
