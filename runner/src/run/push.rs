//! States that their backend did not accept: the errors, and the commands that push the states.

mod errored;
mod files;
mod unpushed;
mod unwritten;

use std::fmt;
use std::path::{Path, PathBuf};

pub(crate) use errored::{Delivery, ErroredState};
pub(crate) use unwritten::UnwrittenState;

use crate::process::quoted;
use crate::run::push::files::{Sorted, copy_printed, kept_outputs, listed};
use crate::source::scratch::MissingCode;
use crate::source::states::name::DatastoreName;
use crate::source::states::{ERRORED, KeptState, PushRecord};

/// How a state gets into its backend: the tool's commands, and where to run them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Push {
    /// The tool, or terragrunt, if it is known.
    pub(crate) program: Option<String>,
    /// The workspace of the state, if it is known.
    pub(crate) workspace: Option<String>,
    /// The module inside the source.
    pub(crate) path: PathBuf,
    /// The directory of the module, unless it is removed with the run.
    pub(crate) dir: Option<PathBuf>,
    /// Where the tool has written the state, if it was not found there.
    pub(crate) lost_in: Option<PathBuf>,
    /// The file of the user to which the state belongs, if it is one.
    pub(crate) state_out: Option<PathBuf>,
    /// Whether another process had written that file since.
    pub(crate) replaced: bool,
    /// The state in the datastore of which it is a version, if the datastore keeps it.
    pub(crate) datastore: Option<DatastoreName>,
    /// The names of the variables that said which backend it is.
    pub(crate) variables: Vec<String>,
    /// Whether the tool's output is incomplete.
    pub(crate) cut: bool,
    /// Whether it is not known if there is a state.
    pub(crate) unknown: bool,
}

/// What is known of an apply whose output is incomplete.
const UNKNOWN: &str = "it is not known whether the backend has its state";

impl Push {
    /// How a kept state gets into its backend, by its record.
    pub(crate) fn recorded(record: PushRecord) -> Self {
        let dir = record.existing_dir().map(Path::to_owned);
        let PushRecord { program, workspace, path, lost_in, state_out, .. } = record;
        let (variables, cut, unknown) = (record.variables, record.cut, record.unknown);
        let (program, replaced, datastore) = (Some(program), record.replaced, record.datastore);
        let of_file =
            Self { lost_in, state_out, replaced, variables, cut, unknown, ..Self::default() };
        Self { program, workspace, path, dir, datastore, ..of_file }
    }

    /// Whether there is a file of the state, which the tool writes to its backend.
    fn is_found(&self) -> bool {
        self.lost_in.is_none() && !self.unknown && self.state_out.is_none()
    }

    /// Whether there is a file of the state, which belongs to a file of the user.
    fn is_copied(&self) -> bool {
        self.lost_in.is_none() && !self.unknown && self.state_out.is_some()
    }

    /// Where the commands run.
    fn place(&self) -> String {
        let mut place = match &self.dir {
            Some(dir) => format!("in {}", dir.display()),
            None if self.path.as_os_str().is_empty() => {
                "in a checkout of the same commit".to_owned()
            }
            None => {
                format!("in the directory {} of a checkout of the same commit", self.path.display())
            }
        };
        if self.program.is_none() {
            place += ", with the tool of that apply";
        }
        if self.workspace.is_none() {
            place += " and with TF_WORKSPACE set to the workspace of that apply";
        }
        if !self.variables.is_empty() {
            place = format!("{place} (with {} set as in that apply)", self.variables.join(", "));
        }
        place
    }

    /// A command of the tool in the workspace of the state. The default one is named as well: the checkout may have
    /// selected another.
    fn command(&self, args: &str) -> String {
        format!("`{}`", self.words(args))
    }

    fn words(&self, args: &str) -> String {
        let program = quoted(self.program.as_deref().unwrap_or("terraform"));
        match &self.workspace {
            Some(name) => format!("TF_WORKSPACE={} {program} {args}", quoted(name)),
            None => format!("{program} {args}"),
        }
    }

    /// The words `run COMMANDS`, with the place where they run, for these pushes.
    fn steps(&self, pushes: &str) -> String {
        let unlock = self.unlock();
        if self.datastore.is_some() {
            return format!("run {pushes}{unlock}");
        }
        format!("{} run {} and then {pushes}{unlock}", self.place(), self.command("init"))
    }

    /// The words `run COMMANDS` for all of these states, with the place behind them.
    fn run_all(&self, states: &Sorted<'_>) -> String {
        let pushes = self.all(states);
        if self.datastore.is_some() {
            return self.steps(&pushes);
        }
        let (init, place) = (self.command("init"), self.place());
        format!("run {init} and then {pushes} {place}{}", self.unlock())
    }

    /// The command that writes a state to its backend.
    fn push(&self, file: &str) -> String {
        match &self.datastore {
            Some(name) => format!("`{}`", name.command("push", file)),
            None => self.command(&format!("state push {file}")),
        }
    }

    /// The pushes of these states. For those that are not whole there is one push, of a file STATE.
    fn all(&self, states: &Sorted<'_>) -> String {
        let whole = states.whole.iter().map(|file| quoted(&file.to_string_lossy()));
        let copied = (!states.broken.is_empty()).then(|| "STATE".to_owned());
        let pushes = whole.chain(copied).map(|file| self.push(&file));
        pushes.collect::<Vec<_>>().join(", ")
    }

    /// What to do if the state is still locked: a backend that refuses writes may also refuse to release the lock.
    fn unlock(&self) -> String {
        let unlock = match &self.datastore {
            Some(name) => name.command("unlock", "--id ID"),
            None => self.words("force-unlock ID"),
        };
        format!(
            " (if the state is still locked, wait until the holder that the push names has ended; only if that is this \
             apply, whose tool has ended, run {unlock} first, with the ID that the push prints)"
        )
    }

    /// How to push a state whose file has to be found first.
    fn find_and_push(&self, dir: &Path) -> String {
        format!(
            "the tool has written {ERRORED} into the directory that was {} then: it may have been moved. Find that file, and {}; if it is lost, first import what that apply created; if it was pushed, nothing else is to be done",
            dir.display(),
            self.steps(&self.push("FILE"))
        )
    }

    /// How to push a state that may not exist. `files` are those that record the apply.
    fn find_unknown(&self, files: &[&PathBuf]) -> String {
        let steps = self.steps(&self.push("FILE"));
        let printed = kept_outputs(files).map(|outputs| {
            format!(", and for a JSON document in {outputs}, which the tool printed and which may be cut (a part of a state must not be pushed)")
        });
        format!(
            "look for {ERRORED} in the directory of the module{}. If there is a whole state, {steps}; otherwise compare the state with what exists, and import what that apply created",
            printed.unwrap_or_default()
        )
    }
}

/// How states get into the file of the user.
fn copy_to(out: &Path, files: &[&PathBuf]) -> String {
    let sorted = Sorted::new(files.iter().copied());
    match (&*sorted.whole, &*sorted.broken) {
        ([only], []) => format!("run {}", copy_command(only, out)),
        _ => format!(
            "find out which of {} has the last state of {}, whole, and copy it there",
            listed(files),
            out.display()
        ),
    }
}

/// What to do if the file of the user has another version by now, which another process has written.
fn compare_with(out: &Path, files: &[&PathBuf]) -> String {
    format!(
        "another process has written {0} since, so do not copy over it: compare it with {1} (`terraform show FILE`), and import \
         into {0} what only {1} has",
        out.display(),
        listed(files)
    )
}

/// The command that copies a state to the file of the user.
fn copy_command(file: &Path, out: &Path) -> String {
    let is_compressed = out.extension().is_some_and(|extension| extension == "gz");
    let [file, out] = [file, out].map(|path| quoted(&path.to_string_lossy()));
    if is_compressed { format!("`gzip -c {file} > {out}`") } else { format!("`cp {file} {out}`") }
}

/// The absolute form of a path, for commands that run in another directory.
pub(super) fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// A state that an earlier apply could not write to its backend, or may not have written, and whose directory is
/// missing.
#[derive(Debug)]
pub(crate) struct MissingState {
    /// What records it: a link, or the private directory of a killed run.
    pub(crate) link: PathBuf,
    /// Where it was. After a killed run: the directory of the module.
    pub(crate) state: PathBuf,
    /// The repository of its code, or the path. In an error only if it is not that of the run.
    pub(crate) source: Option<String>,
    /// Whether the apply was killed, so that it is not known whether it left a state.
    pub(crate) is_killed: bool,
}

impl fmt::Display for MissingState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.display();
        if self.is_killed {
            return write!(
                f,
                "an apply was killed, and may have left a state in {state}, which is or was missing, empty or \
                 replaced since"
            );
        }
        write!(
            f,
            "{state} was a state that an earlier apply could not write to its backend, and its directory is missing or empty"
        )
    }
}

impl MissingState {
    /// What a killed apply may have left.
    pub(crate) fn of_code(code: &MissingCode) -> Self {
        let MissingCode { scratch, dir, source } = code;
        let (link, state) = (scratch.clone(), dir.clone());
        Self { link, state, source: source.clone(), is_killed: true }
    }

    /// How to find the state, and what to do if it was pushed.
    pub(crate) fn hint(&self) -> String {
        let known = if self.is_killed {
            "if that apply left none (no errored.tfstate below the directory)"
        } else {
            "if it was pushed"
        };
        format!(
            "mount the directory, or move it back, and run again to see how to push the state; {known}, remove {}, and \
             run again; if it is lost, first import what that apply created{}",
            self.link.display(),
            of_other_code(self.source.as_deref())
        )
    }
}

/// What to do if the state is of other code.
fn of_other_code(source: Option<&str>) -> String {
    let hint = |source| {
        format!("; if this is other code than {source}, give it a name of its own with --name")
    };
    source.map(hint).unwrap_or_default()
}

/// What a state is part of, if every run gets it from there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A commit of a repository.
    Commit,
    /// A commit in a git bundle.
    Bundle,
    /// An archive, with the path of the state in it.
    Archive { file: PathBuf, state: PathBuf },
}

/// State files that an earlier apply could not write to its backend.
#[derive(Debug, Default)]
pub(crate) struct Unpushed {
    /// At least one, each with how it gets into its backend.
    pub(crate) states: Vec<(PathBuf, Push)>,
    /// Other files of the same states, which are removed as well.
    pub(crate) others: Vec<PathBuf>,
    /// What they are part of, so that every run brings them back.
    pub(crate) origin: Option<Box<Origin>>,
    /// Where the code of one of them is, if it is not known to be that of the run.
    pub(crate) other_source: Option<String>,
    /// What the backend has instead, for each that was compared with it.
    pub(crate) differences: Vec<String>,
}

impl fmt::Display for Unpushed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = |is_kind: fn(&Push) -> bool| {
            let files = self.states.iter().filter(|(_, push)| is_kind(push));
            files.map(|(file, _)| file.as_path()).collect::<Vec<_>>()
        };
        let refused = "that an earlier apply could not write to its backend";
        let unwritten = "that an earlier apply could not write to --state-out";
        let lost = format!("{refused}, and whose file was not found");
        let unknown = format!("whose output is incomplete: {UNKNOWN}");
        let mut between = "";
        for (files, one, several, rest) in [
            (files(Push::is_found), "is a state", "are states", refused),
            (files(Push::is_copied), "is a state", "are states", unwritten),
            (files(|push| push.lost_in.is_some()), "records a state", "record states", &lost),
            (files(|push| push.unknown), "records an apply", "record applies", &unknown),
        ] {
            if !files.is_empty() {
                let verb = if let [_] = *files { one } else { several };
                write!(f, "{between}{} {verb} {rest}", listed(&files))?;
                between = "; ";
            }
        }
        f.write_str(match self.origin.as_deref() {
            Some(Origin::Commit | Origin::Bundle) => ", and part of the commit",
            Some(Origin::Archive { .. }) => ", and part of the archive",
            None => "",
        })?;
        self.differences.iter().try_for_each(|difference| write!(f, "; {difference}"))
    }
}

impl Unpushed {
    /// Kept states that are in no commit.
    pub(crate) fn kept(states: impl IntoIterator<Item = KeptState>) -> Self {
        let (mut kept, mut others) = (Vec::new(), Vec::new());
        for state in states {
            kept.push((state.file, state.record.map_or_else(Push::default, Push::recorded)));
            others.extend(state.others);
        }
        Self { states: kept, others, ..Self::default() }
    }

    fn files(&self) -> Vec<&Path> {
        self.states.iter().map(|(file, _)| file.as_path()).collect()
    }

    /// The files to remove once the states are pushed.
    fn all_files(&self) -> Vec<&Path> {
        let others = self.others.iter().map(PathBuf::as_path);
        self.files().into_iter().chain(others).collect()
    }

    /// The commands that write the states to their backends, and what to do then.
    pub(crate) fn hint(&self) -> String {
        if let Some(origin) = &self.origin {
            return self.origin_hint(origin);
        }
        let compared = match &*self.differences {
            [] => "",
            _ => "; if it was pushed before, only remove it",
        };
        let other_code = of_other_code(self.other_source.as_deref());
        format!("{}, and run again{compared}{other_code}", self.steps())
    }

    /// The commands, up to the removal of the states, if they are in no commit.
    pub(crate) fn steps(&self) -> String {
        let mut groups = Vec::<(&Push, Vec<&PathBuf>)>::new();
        for (file, push) in &self.states {
            match groups.iter_mut().find(|(other, _)| *other == push) {
                Some((_, files)) => files.push(file),
                None => groups.push((push, vec![file])),
            }
        }
        let steps = groups.into_iter().map(|(push, files)| {
            if let Some(dir) = &push.lost_in {
                return push.find_and_push(dir);
            }
            if push.unknown {
                return push.find_unknown(&files);
            }
            if let Some(out) = &push.state_out {
                return if push.replaced {
                    compare_with(out, &files)
                } else {
                    copy_to(out, &files)
                };
            }
            push.steps(&push.all(&Sorted::new(files)))
        });
        let steps = steps.collect::<Vec<_>>().join("; ");
        let found = self.states.iter().filter(|(_, push)| push.is_found());
        let is_cut = found.clone().any(|(_, push)| push.cut);
        let found = Sorted::new(found.map(|(file, _)| file));
        let (copy, files) = match found.problem() {
            Some(problem) => {
                let log = Some("run.log of that attempt");
                let printed = copy_printed(&found, is_cut, "the stdout of that run", log);
                let copy =
                    format!("{problem}, but the tool also printed the state: {printed} Then ");
                (copy, listed(&self.all_files()))
            }
            None if !self.others.is_empty() => (String::new(), listed(&self.all_files())),
            None if self.states.iter().any(|(_, push)| !push.is_found()) => {
                (String::new(), listed(&self.files()))
            }
            None if self.states.len() == 1 => (String::new(), "the file".to_owned()),
            None => (String::new(), "the files".to_owned()),
        };
        format!("{copy}{steps}, then remove {files}")
    }

    fn origin_hint(&self, origin: &Origin) -> String {
        let steps = self.states.first().map(|(_, push)| {
            let unknown = if push.workspace.is_none() {
                ", with TF_WORKSPACE set to the workspace of that apply,"
            } else {
                ""
            };
            format!(
                "{unknown} run {} and then {}",
                push.command("init"),
                push.command("state push errored.tfstate") + &push.unlock()
            )
        });
        let steps = steps.unwrap_or_default();
        match origin {
            Origin::Archive { file, state } => format!(
                "unpack the archive, and in the directory of that file{steps}, unless that was done before; then make \
                 {} again without {}, and plan again",
                file.display(),
                state.display()
            ),
            Origin::Commit | Origin::Bundle => {
                let bundle = if *origin == Origin::Bundle { ", make the bundle again" } else { "" };
                format!(
                    "in that directory of a checkout of the commit{steps}, unless that was done before; then remove the \
                     file from the repository (`git rm`), commit that{bundle}, and plan again"
                )
            }
        }
    }
}
