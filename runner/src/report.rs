//! The outcome of a run as data: `run.json`, `--result`, the termination log, and the record of an apply. How errors
//! become exit codes and classes is not known here.

mod applied_record;
mod apply_tries;
mod check;
pub(crate) mod inputs;
pub(crate) mod ledger;
mod masked;
mod migration;
mod plan_record;
mod plan_times;
mod state;
mod tries;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use datastore_api::{Attempt, Sha256};
use fs_err as fs;
use jiff::Timestamp;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use serde::{Deserialize, Serialize};

pub(crate) use applied_record::{AppliedRecord, later_version};
pub(crate) use apply_tries::{ApplyTry, Retried};
pub(crate) use check::{CheckReport, UsedApproval};
pub(crate) use migration::{MigrationReport, MigrationResult};
pub(crate) use plan_record::{AbsolutePaths, PlanRecord, ToolRecord};
pub(crate) use plan_times::PlanTimes;
pub(crate) use state::StateReport;

use crate::basis::backend::Backend;
use crate::basis::modules::Modules;
use crate::basis::named_files::NamedFiles;
use crate::basis::outside_files::OutsideFiles;
use crate::basis::place::PlanPlace;
use crate::process::private_file;
use crate::report::inputs::InputsReport;
use crate::source::path::resolve;
use crate::source::references::installed::Called;
use crate::tool::diagnostics::Diagnostic;

/// Kubernetes takes no more than this (container `terminationMessagePath`).
const TERMINATION_LIMIT: usize = 4096;
/// A pipe is given up if nothing reads it for this time.
const UNREAD_LIMIT: Duration = Duration::from_secs(5);

/// The version of `run.json`.
pub(crate) const VERSION: u32 = 1;
/// The action of a plan.
pub(crate) const PLAN: &str = "plan";
/// The action of a plan that destroys, and of its apply.
pub(crate) const DESTROY: &str = "destroy";
/// The action of a plan that is only compared with a policy.
pub(crate) const CHECK: &str = "check";
/// The action of a plan that is applied if the policy allows it, and of its apply.
pub(crate) const CONVERGE: &str = "converge";

/// The class of an apply after which a required output has no value.
pub(crate) const OUTPUT_BROKEN: &str = "output_broken";

/// `run.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    version: u32,
    pub(crate) action: String,
    pub(crate) outcome: Outcome,
    /// The runner's exit code.
    pub(crate) exit: u8,
    /// The class of the failure, in one word.
    pub(crate) class: Option<String>,
    pub(crate) message: Option<String>,
    /// What the tool reported, the most specific error first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) errors: Vec<Diagnostic>,
    /// What to do about the failure.
    #[serde(rename = "next")]
    pub(crate) hint: Option<String>,
    pub(crate) tool: Option<ToolReport>,
    /// Terragrunt, if it ran the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) terragrunt: Option<ToolReport>,
    pub(crate) revision: Option<String>,
    /// The branch or tag that the order of a plan named; a commit if it named that.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub(crate) named_revision: Option<String>,
    pub(crate) plan: Option<PlanReport>,
    /// The digest of `.terraform.lock.hcl`, after init.
    pub(crate) lock_file_sha256: Option<Sha256>,
    /// The versions in `.terraform.lock.hcl`, by the providers' addresses.
    #[serde(default)]
    pub(crate) providers: Option<BTreeMap<String, String>>,
    /// The place that the plan was made for.
    #[serde(default)]
    pub(crate) place: Option<PlanPlace>,
    /// The source directory of code that is in no known repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) directory: Option<String>,
    /// The backend of the state, after init.
    #[serde(default)]
    pub(crate) backend: Option<Backend>,
    /// The file of a local state that the plan names by its absolute path, if it was removed with the directory of the
    /// run that planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) removed_state: Option<PathBuf>,
    /// The digest of the root module's configuration files, after init.
    #[serde(default)]
    pub(crate) configuration_sha256: Option<Sha256>,
    /// The digest of the code that was unpacked, or copied from a directory that is dirty or without git, before init.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) source_sha256: Option<Sha256>,
    /// One digest of the files that the module of a plan reads of its source, before init.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) code_sha256: Option<Sha256>,
    /// The files that the configuration of a directory in place names, where no commit records what they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) named_files: Option<NamedFiles>,
    /// Files outside of the source of a plan that its configuration names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) outside_files: Option<OutsideFiles>,
    /// The directory in which a plan was made, if values of the plan contain it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) absolute_paths: Option<AbsolutePaths>,
    /// The directories of the modules that the code calls by a path which is not literal, after init.
    #[serde(default, skip_serializing_if = "Called::is_empty")]
    pub(crate) called_modules: Called,
    /// The modules that init had downloaded for a plan.
    #[serde(default, skip_serializing_if = "Modules::is_empty")]
    pub(crate) modules: Modules,
    /// The dependencies for which terragrunt used mock outputs, by their configuration files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) mocks: Vec<String>,
    /// The arguments of a plan in a file, without the values of variables. Other plans have them in their binding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) arguments: Option<Vec<String>>,
    /// Whether the arguments of a plan had `-destroy`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) destroy_mode: bool,
    /// Whether the plan has a `binding.json` beside it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) bound: bool,
    /// The layer's `apply-sum`, where the plan changes nothing and it became the layer's `plan-sum`. Such a plan is never
    /// given to the tool. Also set by the apply of such a plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kept_sum: Option<String>,
    /// The sha256 of the plan that was applied, or `unplanned`; set as soon as the apply succeeded.
    pub(crate) applied: Option<String>,
    /// The attempt that had applied this before. This one applied nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) applied_before: Option<EarlierApply>,
    /// The state of a layer that is destroyed: before its plan, or after its apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<StateReport>,
    /// How the layer differs from its code, and what the policy says of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) check: Option<CheckReport>,
    /// The outputs of other layers with which the run has worked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) inputs: Option<InputsReport>,
    /// The layer's own outputs that its plan changes.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) changed_outputs: BTreeSet<String>,
    /// The migration to another tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) migration: Option<MigrationReport>,
    #[serde(flatten)]
    pub(crate) retried: Retried,
    pub(crate) started: Timestamp,
    /// When the plan was made: its files were stored, and its binding and this report not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) planned: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) steps: Vec<Step>,
    pub(crate) state_lock: StateLock,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// Planned; there is something to apply.
    Changes,
    /// Planned; there is nothing to apply.
    NoChanges,
    Applied,
    Failed,
    Interrupted,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ToolReport {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) sha256: Sha256,
    pub(crate) source: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PlanReport {
    pub(crate) sha256: Sha256,
    /// The run that made the plan; none for a plan in a file.
    pub(crate) run: Option<String>,
    pub(crate) attempt: Option<Attempt>,
    pub(crate) counts: Option<Counts>,
}

impl PlanReport {
    /// The name of a stored plan, as `--plan` takes it.
    pub(crate) fn name(&self) -> Option<String> {
        Some(format!("{}/{}", self.run.as_ref()?, self.attempt?))
    }
}

/// The attempt of a run that applied something.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EarlierApply {
    pub(crate) run: String,
    pub(crate) attempt: Attempt,
}

impl fmt::Display for EarlierApply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.run, self.attempt)
    }
}

/// The counts of a plan, as Burrito counts them: a replacement is both a creation and a deletion,
/// outputs do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) create: u64,
    pub(crate) update: u64,
    pub(crate) delete: u64,
}

impl fmt::Display for Counts {
    /// The line that Burrito's server and metrics compare, character by character.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { create, update, delete } = self;
        write!(f, "Plan: {create} to create, {update} to update, {delete} to delete")
    }
}

/// One program that was run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Step {
    name: String,
    seconds: f64,
    exit: i32,
    attempts: u32,
    /// The largest memory that the program and its processes had together, in bytes, as far as it was measured.
    rss_peak: Option<u64>,
    /// Their CPU time.
    cpu_seconds: Option<f64>,
}

/// Whether the state's lock is held after the run, as far as the runner knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StateLock {
    /// Not by this run: the tool released it, or never ran.
    Free,
    /// By another process, as the tool reported.
    Held,
    /// The tool was killed.
    Unknown,
}

impl Report {
    /// The report of a run that has not started: until it has a result, it counts as failed.
    pub(crate) fn new(action: &str, started: Timestamp) -> Self {
        Self {
            version: VERSION,
            action: action.to_owned(),
            outcome: Outcome::Failed,
            exit: 1,
            class: None,
            message: None,
            errors: Vec::new(),
            hint: None,
            tool: None,
            terragrunt: None,
            revision: None,
            named_revision: None,
            plan: None,
            lock_file_sha256: None,
            providers: None,
            place: None,
            directory: None,
            backend: None,
            removed_state: None,
            configuration_sha256: None,
            source_sha256: None,
            code_sha256: None,
            named_files: None,
            outside_files: None,
            absolute_paths: None,
            called_modules: Called::new(),
            modules: Modules::new(),
            mocks: Vec::new(),
            arguments: None,
            destroy_mode: false,
            bound: false,
            kept_sum: None,
            applied: None,
            applied_before: None,
            state: None,
            check: None,
            inputs: None,
            changed_outputs: BTreeSet::new(),
            migration: None,
            retried: Retried::default(),
            started,
            planned: None,
            steps: Vec::new(),
            state_lock: StateLock::Free,
        }
    }

    /// Takes over the beginning of a command that has made a plan before it applies that.
    pub(crate) fn continue_from(&mut self, plan: Self) {
        (self.started, self.steps, self.check) = (plan.started, plan.steps, plan.check);
    }

    /// Whether it has failed because a required output has no value. Everything is applied.
    pub(crate) fn has_broken_outputs(&self) -> bool {
        self.class.as_deref() == Some(OUTPUT_BROKEN)
    }

    /// Whether a program of this step ran.
    pub(crate) fn has_step(&self, name: &str) -> bool {
        self.steps.iter().any(|step| step.name == name)
    }

    /// The whole document.
    pub(crate) fn to_json(&self) -> String {
        let json = serde_json::to_string_pretty(self);
        let mut json = json.expect("a report has only text keys and finite numbers");
        json.push('\n');
        json
    }

    /// The document without its steps, and with as many errors and as much of the message as the termination log takes.
    fn to_termination_message(&self) -> String {
        let (named_files, outside_files) = (None, None);
        let (steps, retried) = (Vec::new(), Retried::default());
        let mut short = Self { named_files, outside_files, retried, steps, ..self.clone() };
        loop {
            let text = serde_json::to_string(&short).unwrap_or_default();
            if text.len() > TERMINATION_LIMIT && !short.errors.is_empty() {
                short.errors.pop();
                continue;
            }
            let Some(message) = &mut short.message else { return text };
            if text.len() <= TERMINATION_LIMIT {
                return text;
            }
            let half = message.floor_char_boundary(message.len() / 2);
            message.truncate(half);
            if message.is_empty() {
                short.message = None;
            }
        }
    }

    /// Writes `--result`. A plain file is replaced in one step.
    pub(crate) fn write_result(&self, path: &Path) -> io::Result<()> {
        let text = self.to_json();
        if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            return write_special(path, text.as_bytes(), UNREAD_LIMIT);
        }
        // A symbolic link is kept; its target is replaced, or created.
        let path = &resolve(&std::path::absolute(path)?)?;
        let directory = path.parent().unwrap_or(Path::new("/"));
        // A new file is private: what the tool said about an error may contain secrets.
        let mut file = tempfile::Builder::new().prefix(".plancha-").tempfile_in(directory)?;
        if let Ok(existing) = fs::metadata(path) {
            // Only root may change the owner.
            let _refused = fchown(file.as_file(), Some(existing.uid()), Some(existing.gid())).err();
            file.as_file().set_permissions(existing.permissions())?;
        }
        file.write_all(text.as_bytes())?;
        file.persist(path)?;
        Ok(())
    }

    /// Writes the termination log, if the container runtime has created one.
    pub(crate) fn write_termination_log(&self, path: &Path) -> io::Result<()> {
        if !path.exists() {
            return Ok(());
        }
        private_file(path)?.write_all(self.to_termination_message().as_bytes())
    }
}

/// Writes to a device or a pipe, which is never replaced. A pipe is given up if nothing reads it for `limit`.
fn write_special(path: &Path, mut text: &[u8], limit: Duration) -> io::Result<()> {
    use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
    const PAUSE: Duration = Duration::from_millis(20);
    let (mut until, mut file) = (Instant::now() + limit, None);
    let is_pipe = std::fs::metadata(path)?.file_type().is_fifo();
    // No reader has opened the pipe, or it is full.
    let is_unread = |error: &io::Error| {
        is_pipe
            && (error.raw_os_error() == Some(Errno::ENXIO as i32)
                || error.kind() == io::ErrorKind::WouldBlock)
    };
    while !text.is_empty() {
        let opened = if let Some(file) = &mut file {
            Ok(file)
        } else {
            // Only a pipe is waited for below: a terminal is written to as it reads.
            let flags = if is_pipe { OFlag::O_NONBLOCK } else { OFlag::empty() };
            let mut options = std::fs::OpenOptions::new();
            let opened = options.write(true).custom_flags(flags.bits()).open(path);
            opened.map(|opened| file.insert(opened))
        };
        let written = opened.and_then(|file| file.write(text));
        match written {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                text = &text[count..];
                until = Instant::now() + limit;
            }
            Err(error) if is_unread(&error) && Instant::now() < until => std::thread::sleep(PAUSE),
            Err(error) if is_unread(&error) => {
                let reason =
                    format!("it is a pipe that nothing has read for {} s", limit.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(message: &str) -> Report {
        let mut report = Report::new("plan", "2026-08-01T09:05:03Z".parse().unwrap());
        report.message = Some(message.to_owned());
        report
    }

    #[test]
    fn the_document_reads_back() {
        let json = report("x").to_json();
        let back: Report = serde_json::from_str(&json).unwrap();
        assert_eq!(back.to_json(), json);
        insta::assert_snapshot!(json, @r#"
        {
          "version": 1,
          "action": "plan",
          "outcome": "failed",
          "exit": 1,
          "class": null,
          "message": "x",
          "next": null,
          "tool": null,
          "revision": null,
          "plan": null,
          "lock_file_sha256": null,
          "providers": null,
          "place": null,
          "backend": null,
          "configuration_sha256": null,
          "applied": null,
          "started": "2026-08-01T09:05:03Z",
          "state_lock": "free"
        }
        "#);
    }

    #[test]
    fn a_termination_message_fits_whatever_the_tool_said() {
        for message in ["short".to_owned(), "é\"\n".repeat(10_000)] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("log");
            report(&message).write_termination_log(&path).unwrap();
            assert!(!path.exists());
            fs::write(&path, "before").unwrap();
            report(&message).write_termination_log(&path).unwrap();
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.len() <= TERMINATION_LIMIT);
            let back: Report = serde_json::from_str(&text).unwrap();
            assert!(message.starts_with(&back.message.unwrap()));
        }
    }

    #[test]
    fn a_result_is_private_and_replaces_only_plain_files() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("result.json");
        report("x").write_result(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        report("x").write_result(Path::new("/dev/null")).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn result_reaches_the_reader_of_a_pipe_and_does_not_wait_for_one_forever() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = report("x").write_result(&pipe).unwrap_err();
        assert!(error.to_string().contains("nothing has read"), "{error}");
        let long = report(&"x".repeat(300_000));
        let reader = std::thread::spawn(move || std::fs::read_to_string(pipe).unwrap());
        long.write_result(&dir.path().join("pipe")).unwrap();
        assert_eq!(reader.join().unwrap(), long.to_json());
    }

    #[test]
    fn long_result_reaches_a_terminal() {
        use std::io::Read as _;
        use std::os::fd::AsRawFd as _;
        let terminal = nix::pty::openpty(None, None).unwrap();
        let mut screen = std::fs::File::from(terminal.master);
        let path = PathBuf::from(format!("/proc/self/fd/{}", terminal.slave.as_raw_fd()));
        let long = report(&"x".repeat(300_000));
        let expected = long.to_json().replace('\n', "\r\n");
        let reader = std::thread::spawn({
            let length = expected.len();
            move || {
                let mut shown = vec![0; length];
                screen.read_exact(&mut shown).unwrap();
                String::from_utf8(shown).unwrap()
            }
        });
        long.write_result(&path).unwrap();
        assert!(reader.join().unwrap() == expected);
    }

    #[test]
    fn pipe_is_given_up_only_if_nothing_reads_for_the_whole_time() {
        use std::io::Read as _;
        use std::os::fd::AsRawFd as _;
        const PIECES: u32 = 4;
        let (limit, size) = (Duration::from_secs(3), 64 << 10);
        let (mut reader, writer) = io::pipe().unwrap();
        let path = PathBuf::from(format!("/proc/self/fd/{}", writer.as_raw_fd()));
        let slow = std::thread::spawn(move || {
            for _ in 0..PIECES {
                std::thread::sleep(limit * 5 / (4 * PIECES));
                reader.read_exact(&mut vec![0; size]).unwrap();
            }
        });
        // The pipe holds one more piece.
        write_special(&path, &vec![b'x'; size * PIECES as usize], limit).unwrap();
        slow.join().unwrap();
    }
}
