//! The files that a run writes beside the code.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use fs_err as fs;
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};

use crate::basis::plan_file;
use crate::cli::{Environment, RunArgs, SnapshotMode, StateFileArgs};
use crate::order::datastore::FLAG;
use crate::order::job::{Action, Apply, JobError};
use crate::order::layer::LayerFile;
use crate::source::path::resolve;
use crate::source::regular;
use crate::source::scratch::reason;
use crate::source::states::file::{StateFiles, is_mount_point};
use crate::source::states::is_state;
use crate::tool::cli_args::other_state;
use crate::tool::file_names;

/// The files that the run writes. They do not count as changes of the code.
pub(super) fn ignored_paths(args: &RunArgs, environment: &Environment) -> Vec<PathBuf> {
    let record = args.plan_file.as_deref().map(plan_file::record_path);
    let files = [
        &args.identity.layer,
        &args.result,
        &summary_file(args, environment).unwrap_or_default().cloned(),
        &args.plan_file,
        &record,
        &args.state_files.state_in,
        &args.state_files.state_out,
        &environment.tf_data_dir,
    ];
    let absolute = |path: &PathBuf| {
        let path = std::path::absolute(path).ok()?;
        // git prints paths without symbolic links.
        let parent = path.parent().and_then(|parent| std::fs::canonicalize(parent).ok());
        Some(parent?.join(path.file_name()?))
    };
    files.into_iter().flatten().filter_map(absolute).collect()
}

/// Checks before the run that all files can be read or written that it needs.
pub(super) fn check_outputs(
    args: &RunArgs,
    action: &Action,
    layer: Option<&LayerFile>,
) -> Result<(), JobError> {
    if let Some(layer) = layer.filter(|layer| annotates(action, layer)) {
        layer.check_writable()?;
    }
    check_distinct(args)?;
    if let Some(path) = &args.result {
        check_output("--result", path, true).map_err(JobError::Result)?;
        check_name("--result", path).map_err(JobError::Result)?;
        check_replaced_report(path).map_err(JobError::Result)?;
    }
    if let Some(path) = &args.summary {
        check_name("--summary", path).map_err(JobError::Outputs)?;
    }
    args.variables.files().try_for_each(check_var_file)?;
    check_binding(args, action)?;
    match (&args.plan_file, action) {
        (Some(path), action) if action.plan_in_file().is_some() => check_input("--plan-file", path),
        (Some(path), _) => {
            check_output("--plan-file", path, false).map_err(JobError::Config)?;
            check_replaced(path).map_err(JobError::Config)
        }
        (None, _) => Ok(()),
    }
}

/// Whether annotations are written to the manifest. A check writes none, and a converge needs none: its repetition does not
/// read them.
pub(super) fn annotates(action: &Action, layer: &LayerFile) -> bool {
    !action.is_judged() || !action.is_check() && !layer.is_read_only()
}

/// Checks that the metrics can be written to this file, and replace nothing but metrics.
pub(crate) fn check_metrics_file(path: &Path) -> Result<(), String> {
    const FLAG: &str = "--metrics-file";
    check_output(FLAG, path, false)?;
    check_name(FLAG, path)?;
    let mut first = [0; 2];
    let file = regular::open_followed(path).and_then(|mut file| file.read(&mut first));
    match file {
        Ok(1..) if first != *b"# " => Err(unfit(FLAG, path, "exists and has no metrics")),
        _ => Ok(()),
    }
}

/// Checks that a file can be created or replaced at `path`; the error names the flag. A device or a pipe can only be
/// written to, if `may_be_device`.
fn check_output(flag: &str, path: &Path, may_be_device: bool) -> Result<(), String> {
    let refused = |reason: String| Err(format!("{flag} {reason}"));
    let shown = path.display();
    let existing = std::fs::metadata(path).ok();
    if existing.as_ref().is_some_and(std::fs::Metadata::is_dir) || path.ends_with("..") {
        let example = path.join("FILE");
        return refused(format!(
            "{shown} is a directory: name a file in it, {}",
            example.display()
        ));
    }
    if existing.is_some_and(|existing| !existing.is_file()) {
        if !may_be_device {
            return refused(format!(
                "{shown} is a device or a pipe: name a file, which can be replaced"
            ));
        }
        return access(path, AccessFlags::W_OK)
            .or_else(|error| refused(format!("{shown} cannot be written: {}", error.desc())));
    }
    let target = leads_to(path);
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    if !parent.is_dir() {
        let missing = if path.is_symlink() {
            format!("{shown} is a link to {}, whose directory", target.display())
        } else {
            format!("{shown}: its directory")
        };
        return refused(format!("{missing} does not exist: create it first"));
    }
    if target.is_symlink() {
        return refused(format!("{shown} is a link to itself: name another file"));
    }
    match tempfile::Builder::new().prefix(".plancha-").tempfile_in(parent) {
        Ok(_) => Ok(()),
        Err(error) => refused(format!(
            "{shown}: no file can be created in {}: {}: name a file in a writable directory",
            parent.display(),
            reason(&error)
        )),
    }
}

/// The file that is written: that to which a link leads, also where it does not exist yet.
fn leads_to(path: &Path) -> PathBuf {
    let resolved = std::path::absolute(path).and_then(|path| resolve(&path));
    resolved.unwrap_or_else(|_| path.to_owned())
}

/// The file that gets the summary. `Err`: a variable of GitHub names one that `--summary` refuses.
pub(crate) fn summary_file<'a>(
    args: &'a RunArgs,
    environment: &'a Environment,
) -> Result<Option<&'a PathBuf>, String> {
    const VARIABLE: &str = "GITHUB_STEP_SUMMARY";
    let Some(file) = environment.github_step_summary.as_ref().filter(|_| args.summary.is_none())
    else {
        return Ok(args.summary.as_ref());
    };
    check_name(VARIABLE, file)?;
    check_other(VARIABLE, &leads_to(file), &named_files(args))?;
    Ok(Some(file))
}

/// Checks that no two flags name one file.
fn check_distinct(args: &RunArgs) -> Result<(), JobError> {
    let files = named_files(args);
    for (index, (flag, file)) in files.iter().enumerate() {
        check_other(flag, file, &files[..index]).map_err(JobError::Outputs)?;
    }
    Ok(())
}

/// The files that flags name, with what names them.
fn named_files(args: &RunArgs) -> Vec<(&'static str, PathBuf)> {
    let record = args.plan_file.as_deref().map(plan_file::record_path);
    let files = [
        ("--layer", &args.identity.layer),
        ("--plan-file", &args.plan_file),
        ("the record of --plan-file", &record),
        ("--result", &args.result),
        ("--summary", &args.summary),
        ("--state-in", &args.state_files.state_in),
        // It may be the same one.
        ("--state-out", &args.state_files.state_out.clone().filter(|_| !has_same_state_file(args))),
    ];
    let files = files.into_iter().filter_map(|(flag, path)| Some((flag, leads_to(path.as_ref()?))));
    files.collect()
}

/// Whether an apply replaces the state that it reads.
fn has_same_state_file(args: &RunArgs) -> bool {
    let StateFileArgs { state_in, state_out, .. } = &args.state_files;
    state_in.as_deref().map(leads_to) == state_out.as_deref().map(leads_to)
}

/// The files of the state, if flags name them. Whether one can be written is checked before an apply.
pub(super) fn state_files(
    args: &RunArgs,
    action: &Action,
    has_terragrunt: bool,
    environment: &Environment,
) -> Result<Option<StateFiles>, JobError> {
    let StateFileArgs { state_in, state_out, .. } = &args.state_files;
    let is_apply = matches!(action, Action::Apply(_));
    let input = match (state_in, state_out) {
        (None, None) => return Ok(None),
        (None, Some(_)) => {
            return Err(JobError::Usage(
                "--state-out needs --state-in, the state before the apply: it may name the same file, which need not \
                 exist yet".to_owned(),
            ));
        }
        (Some(_), None) if is_apply => {
            return Err(JobError::Usage(
                "--state-in needs --state-out, the file for the state after the apply: it may name the same file"
                    .to_owned(),
            ));
        }
        (Some(input), _) => input,
    };
    if has_terragrunt {
        return Err(JobError::Usage(
            "--state-in is not for terragrunt, whose configuration says where the state is: leave it out".to_owned(),
        ));
    }
    if let Some((option, variable)) = other_state(&environment.inputs) {
        return Err(JobError::Config(format!(
            "`{option}` in {variable} names another state than --state-in: remove it"
        )));
    }
    if let Some(output) = state_out.as_ref().filter(|_| is_apply) {
        check_output("--state-out", output, false).map_err(JobError::Config)?;
        if is_mount_point(output) {
            return Err(JobError::Config(format!(
                "--state-out {} is a mount of its own, and cannot be replaced as a whole: mount its directory",
                output.display()
            )));
        }
    }
    let output = state_out.as_deref().map(in_real_directory);
    Ok(Some(StateFiles { input: in_real_directory(input), output }))
}

/// The absolute path of a file whose directory has no links in its path. The file itself may be a link.
fn in_real_directory(file: &Path) -> PathBuf {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let parent = absolute.parent().and_then(|parent| std::fs::canonicalize(parent).ok());
    match (parent, absolute.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => absolute,
    }
}

/// Checks that a file is none of the others.
fn check_other(flag: &str, file: &Path, others: &[(&str, PathBuf)]) -> Result<(), String> {
    // Several flags may name the terminal or a pipe.
    let same = others.iter().find(|(_, other)| other == file);
    match same.filter(|_| file.is_file() || !file.exists()) {
        Some((other, _)) => {
            Err(format!("{flag} {} is the file of {other} too: name another file", file.display()))
        }
        None => Ok(()),
    }
}

fn unfit(flag: &str, path: &Path, reason: &str) -> String {
    format!("{flag} {} {reason}: name another file", path.display())
}

/// Checks that the tool does not use a file of this name.
fn check_name(flag: &str, path: &Path) -> Result<(), String> {
    let target = leads_to(path);
    let names = [path, &target].map(|path| path.file_name().unwrap_or_default());
    if names.iter().any(|name| file_names::is_input(name.as_encoded_bytes())) {
        return Err(unfit(flag, path, "has the name of a configuration file"));
    }
    if is_state(path) || is_state(&target) {
        return Err(unfit(flag, path, "has the name of a state"));
    }
    Ok(())
}

/// Checks that the report replaces nothing but a report.
fn check_replaced_report(path: &Path) -> Result<(), String> {
    #[derive(serde::Deserialize)]
    struct Reported {
        #[serde(rename = "outcome")]
        _outcome: serde::de::IgnoredAny,
    }
    let is_full = |file: &std::fs::Metadata| file.is_file() && file.len() > 0;
    if !fs::metadata(path).is_ok_and(|file| is_full(&file)) {
        return Ok(());
    }
    let file = regular::open_followed(path).map(std::io::BufReader::new);
    let is_report = |file| serde_json::from_reader::<_, Reported>(file).is_ok();
    if file.is_ok_and(is_report) {
        return Ok(());
    }
    Err(unfit("--result", path, "exists and is not a report"))
}

/// Checks that the plan replaces nothing but a plan, and that no tool reads its name as configuration.
fn check_replaced(path: &Path) -> Result<(), String> {
    check_name("--plan-file", path)?;
    let is_empty = fs::metadata(path).map_or(true, |file| file.len() == 0);
    if is_empty || plan_file::is_plan(path) {
        return Ok(());
    }
    Err(unfit("--plan-file", path, "exists and is not a plan"))
}

/// Checks that a plan can be read.
fn check_input(flag: &str, path: &Path) -> Result<(), JobError> {
    let Err(reason) = readable(path) else { return Ok(()) };
    Err(JobError::Config(format!(
        "{flag} {} {reason}: name a file that `runner plan --plan-file` wrote",
        path.display()
    )))
}

/// A plan is bound in a datastore only.
fn check_binding(args: &RunArgs, action: &Action) -> Result<(), JobError> {
    const ALWAYS: &str = "--snapshot=always (PLANCHA_SNAPSHOT)";
    const NEVER: &str = "--snapshot=never";
    let (is_plan, is_stored) = (!action.is_apply(), args.datastore.datastore.is_some());
    let is_unplanned = matches!(action.apply(), Some(Apply::Unplanned(_)));
    let always = args.binding.snapshot == SnapshotMode::Always;
    let reason = match () {
        () if is_plan && !is_stored && args.binding.signing_key.is_some() => {
            format!(
                "--signing-key (PLANCHA_SIGNING_KEY) signs a plan that is stored: name its datastore with {FLAG}, or \
                 leave out the key"
            )
        }
        () if always && is_unplanned => {
            format!(
                "{ALWAYS} is for an apply of a stored plan: leave out --no-plan, or choose {NEVER}"
            )
        }
        () if always && action.plan_in_file().is_some() => {
            format!(
                "{ALWAYS} is for an apply of a stored plan: leave out --plan-file, or choose {NEVER}"
            )
        }
        () if always && !is_stored => {
            format!(
                "{ALWAYS} needs a datastore, which stores the snapshot: name one with {FLAG}, or choose {NEVER}"
            )
        }
        () => return Ok(()),
    };
    Err(JobError::Usage(reason))
}

/// Checks that a file with values can be read. The path is relative to the runner's working directory.
fn check_var_file(path: &Path) -> Result<(), JobError> {
    let Err(reason) = readable(path) else { return Ok(()) };
    let shown = path.display();
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (resolved, next) = if path.is_absolute() {
        (String::new(), String::new())
    } else {
        let next = format!("; a file of the source is named after --: `-- -var-file={shown}`");
        (format!(" ({})", absolute.display()), next)
    };
    Err(JobError::Config(format!(
        "--var-file {shown}{resolved} {reason}: name a file that can be read{next}"
    )))
}

/// Whether a file, or a pipe, can be read; the error is the reason.
fn readable(path: &Path) -> Result<(), String> {
    if path.is_dir() {
        return Err("is a directory".to_owned());
    }
    let of_runner = ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];
    if of_runner.iter().any(|stdin| path == Path::new(stdin)) {
        return Err("is the runner's standard input, which the tool does not get".to_owned());
    }
    if regular::check_named(path).is_err() {
        return Err("is a device or a pipe".to_owned());
    }
    // A pipe may be read once only.
    match access(path, AccessFlags::R_OK) {
        Ok(()) => Ok(()),
        Err(Errno::ENOENT) => Err("does not exist".to_owned()),
        Err(error) => Err(format!("cannot be read: {}", error.desc())),
    }
}
