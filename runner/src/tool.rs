//! What terraform and tofu are told: their steps as argument vectors.
//!
//! Nothing here starts a program; [`crate::process`] does. `-input=false` and `TF_IN_AUTOMATION`
//! everywhere, and never `-upgrade`: the lock file in the code decides which providers run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::config::Environment;
use crate::process::Program;
use crate::release::Installed;

/// An installed tool in the directory where it works.
#[derive(Debug)]
pub(crate) struct Tool<'a> {
    installed: &'a Installed,
    dir: &'a Path,
    /// Whether its output may have escape codes: our stdout is a terminal.
    color: bool,
    checkpoint_disabled: bool,
}

/// What the caller hands to the tool's plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlanOptions {
    pub(crate) var_files: Vec<PathBuf>,
    pub(crate) vars: Vec<String>,
    pub(crate) targets: Vec<String>,
    pub(crate) replaces: Vec<String>,
    pub(crate) args: Vec<String>,
}

impl PlanOptions {
    /// Whether nothing was handed.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn append_to(&self, args: &mut Vec<OsString>) {
        // A file's name is bytes, not text: it is never formatted.
        let joined = |option: &str, value: &std::ffi::OsStr| {
            let mut arg = OsString::from(option);
            arg.push(value);
            arg
        };
        args.extend(self.var_files.iter().map(|file| joined("-var-file=", file.as_ref())));
        args.extend(self.vars.iter().map(|var| joined("-var=", var.as_ref())));
        args.extend(self.targets.iter().map(|target| joined("-target=", target.as_ref())));
        args.extend(self.replaces.iter().map(|address| joined("-replace=", address.as_ref())));
        args.extend(self.args.iter().map(OsString::from));
    }
}

impl<'a> Tool<'a> {
    pub(crate) fn new(
        installed: &'a Installed,
        dir: &'a Path,
        color: bool,
        environment: &Environment,
    ) -> Self {
        Self { installed, dir, color, checkpoint_disabled: environment.checkpoint_disable }
    }

    pub(crate) fn init(&self) -> Program {
        self.program("init", &["-input=false"])
    }

    /// Writes the plan to `out`, which should be a file of mode 0600: the tool keeps the mode.
    pub(crate) fn plan(&self, out: &Path, options: &PlanOptions) -> Program {
        let mut program = self.program("plan", &["-input=false"]);
        let mut arg = OsString::from("-out=");
        arg.push(out);
        program.args.push(arg);
        options.append_to(&mut program.args);
        program
    }

    pub(crate) fn show_json(&self, plan: &Path) -> Program {
        let mut program = self.colorless("show", &["-json"]);
        program.args.push(plan.into());
        program
    }

    pub(crate) fn show(&self, plan: &Path) -> Program {
        let mut program = self.colorless("show", &[]);
        program.args.push(plan.into());
        program
    }

    pub(crate) fn apply(&self, plan: &Path) -> Program {
        let mut program = self.program("apply", &["-input=false", "-auto-approve"]);
        program.args.push(plan.into());
        program
    }

    /// Plans and applies in one.
    pub(crate) fn apply_unplanned(&self, options: &PlanOptions) -> Program {
        let mut program = self.program("apply", &["-input=false", "-auto-approve"]);
        options.append_to(&mut program.args);
        program
    }

    fn program(&self, step: &str, args: &[&str]) -> Program {
        if !self.color {
            return self.colorless(step, args);
        }
        let args = std::iter::once(step).chain(args.iter().copied()).map(OsString::from).collect();
        let mut env = vec![("TF_IN_AUTOMATION".to_owned(), OsString::from("1"))];
        if !self.checkpoint_disabled {
            // Nobody reads "a newer version is available" in a log, and the question costs time.
            env.push(("CHECKPOINT_DISABLE".to_owned(), OsString::from("1")));
        }
        let (path, dir) = (self.installed.path.clone(), self.dir.to_owned());
        Program { path, args, dir, env, without: &[] }
    }

    fn colorless(&self, step: &str, args: &[&str]) -> Program {
        let args = std::iter::once("-no-color").chain(args.iter().copied()).collect::<Vec<_>>();
        Self { color: true, ..*self }.program(step, &args)
    }
}
