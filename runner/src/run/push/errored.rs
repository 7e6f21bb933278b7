//! States that the apply of this run has left, and what became of them.

use std::path::PathBuf;

use crate::run::push::files::{Sorted, copy_printed, listed};
use crate::run::push::{Push, UNKNOWN};
use crate::source::states::ERRORED;

/// State files that the tool could not write to the backend (`errored.tfstate`).
#[derive(Debug)]
pub(crate) struct ErroredState {
    /// Where they are now.
    pub(crate) files: Vec<PathBuf>,
    /// The runner's copies of those that stay where the tool wrote them.
    pub(crate) copies: Vec<PathBuf>,
    /// Those without a copy.
    pub(crate) uncopied: Vec<PathBuf>,
    /// How they get into the backend.
    pub(crate) push: Box<Push>,
    /// Where the tool's output is, if it is stored.
    pub(crate) log: Option<String>,
    /// The only state, where the tool of the module has left it: it may be pushed to a backend that has none.
    pub(crate) own: Option<PathBuf>,
    pub(crate) delivery: Delivery,
}

/// What became of the states.
#[derive(Debug, Default)]
pub(crate) struct Delivery {
    /// Whether the datastore has them; `None`: it takes none, or there is no datastore.
    pub(crate) stored: Option<bool>,
    /// Whether the backend has them by now.
    pub(crate) pushed: bool,
    /// Why the runner has not pushed them.
    pub(crate) unpushed: Option<String>,
    /// Why the datastore, in which the state is kept, has refused them.
    pub(crate) rejected: Option<String>,
    /// Whether the disk is that of a pod.
    pub(crate) in_pod: bool,
}

impl ErroredState {
    /// What is known of the states.
    pub(crate) fn described(&self) -> String {
        if self.push.unknown {
            return format!("its output is incomplete, so {UNKNOWN}");
        }
        if self.delivery.pushed {
            return "the backend did not accept the state at first: the runner has pushed it, and the backend has it now"
                .to_owned();
        }
        let unpushed = self.delivery.unpushed.as_ref();
        let rejected = self.delivery.rejected.as_ref().map(|reason| format!("; {reason}"));
        let rejected = rejected.unwrap_or_default();
        let unpushed = unpushed.map(|reason| format!("; the runner did not push it: {reason}"));
        let unpushed = unpushed.unwrap_or_default();
        format!("the backend did not accept the state, {}{rejected}{unpushed}", self.whereabouts())
    }

    /// Where the states are, and whether they are whole.
    fn whereabouts(&self) -> String {
        if let Some(dir) = &self.push.lost_in {
            return format!(
                "which it wrote to {}, but that file is missing now",
                dir.join(ERRORED).display()
            );
        }
        let states = Sorted::new(&self.files);
        let whole =
            (!states.whole.is_empty()).then(|| format!("which is in {}", listed(&states.whole)));
        let broken = states.problem().map(|problem| format!("and the copy in {problem}"));
        whole.into_iter().chain(broken).collect::<Vec<_>>().join(", ")
    }

    /// The commands that write the state to its backend.
    pub(crate) fn hint(&self) -> String {
        let Self { push, files, copies, .. } = self;
        if self.delivery.pushed {
            return "everything that was created is in the state: plan again, and apply what is left".to_owned();
        }
        if let Some(dir) = &push.lost_in {
            return self.lost_hint(&push.find_and_push(dir));
        }
        if push.unknown {
            return self.lost_hint(&push.find_unknown(&files.iter().collect::<Vec<_>>()));
        }
        let states = Sorted::new(files);
        let run = push.run_all(&states);
        let copy = self.delivery.copy();
        if !states.broken.is_empty() {
            let log = self.log.as_deref();
            let printed = copy_printed(&states, push.cut, "the output above (stdout)", log);
            return format!(
                "resources may exist that the backend does not know. Check whether the disk is full. The tool also \
                 prints a state that it cannot save: {printed} Before anything else plans or applies, {run}, and remove {}{copy}",
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
        let uncopied = match &*self.uncopied {
            [] => String::new(),
            files => format!(
                "; no copy could be made, so do not move or remove {} before",
                listed(files)
            ),
        };
        format!(
            "resources may exist that only {only}: before anything else plans or applies, {run}, and remove {all}{copy}{uncopied}"
        )
    }

    /// What to do if the file is not where the tool has written it.
    fn lost_hint(&self, find: &str) -> String {
        let then = match &*self.files {
            [] => "until then nothing refuses the next apply, and it would create the same resources again"
                .to_owned(),
            files => format!("then remove {}, which refuses every apply until then", listed(files)),
        };
        format!("resources may exist that the backend does not know: {find}; {then}")
    }
}

impl Delivery {
    /// Where else the files are.
    fn copy(&self) -> &'static str {
        match (self.in_pod, self.stored) {
            (true, Some(true)) => {
                "; the file is deleted with this pod: the datastore has it as errored.tfstate of the attempt"
            }
            (true, _) => {
                "; the file is deleted with this pod, and is not stored: copy it before the pod ends"
            }
            (false, Some(true)) => {
                "; the datastore has it as well, as errored.tfstate of the attempt"
            }
            (false, _) => "",
        }
    }
}
