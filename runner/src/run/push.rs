//! States that their backend did not accept: the errors, and the commands that push the states.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::process::quoted;
use crate::source::scratch::MissingCode;
use crate::source::states::{self, KeptState, PushRecord};

/// How a state gets into its backend: the tool's commands, and where to run them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Push {
    /// The tool, or terragrunt, if it is known.
    pub(crate) program: Option<String>,
    /// The workspace of the state, if it is known.
    pub(crate) workspace: Option<String>,
    /// The module inside the source.
    pub(crate) path: PathBuf,
    /// The directory of the module, unless it is removed with the run.
    pub(crate) dir: Option<PathBuf>,
}

impl Push {
    /// How a kept state gets into its backend, by its record.
    pub(crate) fn recorded(record: PushRecord) -> Self {
        let dir = record.existing_dir().map(Path::to_owned);
        let PushRecord { program, workspace, path, .. } = record;
        Self { program: Some(program), workspace, path, dir }
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
        place
    }

    /// A command of the tool in the workspace of the state. The default one is named as well: the checkout may have
    /// selected another.
    fn command(&self, args: &str) -> String {
        let program = quoted(self.program.as_deref().unwrap_or("terraform"));
        match &self.workspace {
            Some(name) => format!("`TF_WORKSPACE={} {program} {args}`", quoted(name)),
            None => format!("`{program} {args}`"),
        }
    }

    fn init(&self) -> String {
        self.command("init")
    }

    /// The pushes of these states. For those that are not whole there is one push, of a file STATE.
    fn all(&self, states: &Sorted<'_>) -> String {
        let whole = states.whole.iter().map(|file| quoted(&file.to_string_lossy()));
        let copied = (!states.broken.is_empty()).then(|| "STATE".to_owned());
        let pushes = whole.chain(copied).map(|file| self.command(&format!("state push {file}")));
        pushes.collect::<Vec<_>>().join(", ")
    }
}

/// States that are whole, and others.
#[derive(Default)]
struct Sorted<'a> {
    whole: Vec<&'a Path>,
    /// Empty or incomplete.
    broken: Vec<&'a Path>,
}

impl<'a> Sorted<'a> {
    fn new(files: impl IntoIterator<Item = &'a PathBuf>) -> Self {
        let files = files.into_iter().map(PathBuf::as_path);
        let (whole, broken) = files.partition(|file| states::is_whole(file));
        Self { whole, broken }
    }

    /// Those that are not whole.
    fn problem(&self) -> Option<String> {
        let verb = if let [_] = *self.broken { "is" } else { "are" };
        (!self.broken.is_empty())
            .then(|| format!("{} {verb} empty or incomplete", listed(&self.broken)))
    }
}

fn listed<P: AsRef<Path>>(files: &[P]) -> String {
    let files = files.iter().map(|file| file.as_ref().display().to_string());
    files.collect::<Vec<_>>().join(", ")
}

/// The absolute form of a path, for commands that run in another directory.
pub(super) fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// How the state that the tool printed gets into a file. The log is masked, which may change the state.
fn copy_printed(stdout: &str, log: Option<&str>) -> String {
    let log = log.map(|log| format!(" Use {log} only if it contains no `***`."));
    format!("copy that JSON document from {stdout} into a file STATE.{}", log.unwrap_or_default())
}

/// State files that the tool could not write to the backend (`errored.tfstate`).
#[derive(Debug)]
pub(crate) struct ErroredState {
    /// Where they are now.
    pub(crate) files: Vec<PathBuf>,
    /// The runner's copies of those that stay where the tool wrote them.
    pub(crate) copies: Vec<PathBuf>,
    /// How they get into the backend.
    pub(crate) push: Box<Push>,
    /// Where the tool's output is, if it is stored.
    pub(crate) log: Option<String>,
    /// Whether the datastore has a copy; `None` outside of a pod.
    pub(crate) stored: Option<bool>,
}

impl ErroredState {
    /// Where the states are, and whether they are whole.
    pub(crate) fn whereabouts(&self) -> String {
        let states = Sorted::new(&self.files);
        let whole =
            (!states.whole.is_empty()).then(|| format!("which is in {}", listed(&states.whole)));
        let broken = states.problem().map(|problem| format!("and the copy in {problem}"));
        whole.into_iter().chain(broken).collect::<Vec<_>>().join(", ")
    }

    /// The commands that write the state to its backend.
    pub(crate) fn hint(&self) -> String {
        let Self { push, stored, files, copies, .. } = self;
        let states = Sorted::new(files);
        let (place, init, pushes) = (push.place(), push.init(), push.all(&states));
        let copy = match stored {
            Some(true) => {
                "; the file is deleted with this pod: the datastore has it as errored.tfstate of the attempt"
            }
            Some(false) => {
                "; the file is deleted with this pod, and is not stored: copy it before the pod ends"
            }
            None => "",
        };
        if !states.broken.is_empty() {
            let printed = copy_printed("the output above (stdout)", self.log.as_deref());
            return format!(
                "resources may exist that the backend does not know. Check whether the disk is full. The tool also \
                 prints a state that it cannot save: {printed} Before anything else plans or applies, run {init} \
                 and then {pushes} {place}, and remove {}{copy}",
                listed(&[&files[..], copies].concat())
            );
        }
        let (only, all) = match **files {
            [_] => ("this file records", "the file"),
            _ => ("these files record", "the files"),
        };
        let all = match &**copies {
            [] => all.to_owned(),
            [one] => format!("{all} and the copy {}", one.display()),
            copies => format!("{all} and the copies {}", listed(copies)),
        };
        format!(
            "resources may exist that only {only}: before anything else plans or applies, run \
             {init} and then {pushes} {place}, and remove {all}{copy}"
        )
    }
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
                "an apply was killed, and may have left a state in {state}, which is or was missing or empty since"
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

/// State files that an earlier apply could not write to its backend.
#[derive(Debug, Default)]
pub(crate) struct Unpushed {
    /// At least one, each with how it gets into its backend.
    pub(crate) states: Vec<(PathBuf, Push)>,
    /// Other files of the same states, which are removed as well.
    pub(crate) others: Vec<PathBuf>,
    /// Whether they are part of the commit, so that every checkout brings them back.
    pub(crate) in_commit: bool,
    /// Where the code of one of them is, if it is not known to be that of the run.
    pub(crate) other_source: Option<String>,
    /// What the backend has instead, for each that was compared with it.
    pub(crate) differences: Vec<String>,
}

impl fmt::Display for Unpushed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", listed(&self.files()))?;
        f.write_str(if let [_] = *self.states { " is a state" } else { " are states" })?;
        f.write_str(" that an earlier apply could not write to its backend")?;
        f.write_str(if self.in_commit { ", and part of the commit" } else { "" })?;
        self.differences.iter().try_for_each(|difference| write!(f, "; {difference}"))
    }
}

impl Unpushed {
    /// Kept states that are in no commit.
    pub(crate) fn kept(states: impl IntoIterator<Item = KeptState>) -> Self {
        let unknown = || Push { program: None, workspace: None, path: PathBuf::new(), dir: None };
        let (mut kept, mut others) = (Vec::new(), Vec::new());
        for state in states {
            kept.push((state.file, state.record.map_or_else(unknown, Push::recorded)));
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
        if self.in_commit {
            return self.in_commit_hint();
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
            let pushes = push.all(&Sorted::new(files));
            format!("{} run {} and then {pushes}", push.place(), push.init())
        });
        let steps = steps.collect::<Vec<_>>().join("; ");
        let (copy, files) = match Sorted::new(self.states.iter().map(|(file, _)| file)).problem() {
            Some(problem) => {
                let log = Some("run.log of that attempt");
                let printed = copy_printed("the stdout of that run", log);
                let copy =
                    format!("{problem}, but the tool also printed the state: {printed} Then ");
                (copy, listed(&self.all_files()))
            }
            None if !self.others.is_empty() => (String::new(), listed(&self.all_files())),
            None if self.states.len() == 1 => (String::new(), "the file".to_owned()),
            None => (String::new(), "the files".to_owned()),
        };
        format!("{copy}{steps}, then remove {files}")
    }

    fn in_commit_hint(&self) -> String {
        let steps = self.states.first().map(|(_, push)| {
            let unknown = if push.workspace.is_none() {
                ", with TF_WORKSPACE set to the workspace of that apply,"
            } else {
                ""
            };
            format!(
                "{unknown} run {} and then {}",
                push.init(),
                push.command("state push errored.tfstate")
            )
        });
        format!(
            "in that directory of a checkout of the commit{}, unless that was done before; then remove the file \
             from the repository (`git rm`), commit that, and plan again",
            steps.unwrap_or_default()
        )
    }
}
