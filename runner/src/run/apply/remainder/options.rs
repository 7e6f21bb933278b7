//! Whether an apply may be tried again, and the options of the plan for its rest.

use crate::basis::plan_file;
use crate::report::{PlanReport, StateLock};
use crate::run::Run;
use crate::run::apply::remainder::done::Done;
use crate::run::prepare::Prepared;
use crate::tool::argv::PlanOptions;
use crate::tool::cli_args::other_state_in;

/// Options of the tool's plan that a plan for the rest does not repeat: they change more than a plan, or the runner sets them.
/// A runner records none of the latter, but the record need not be signed.
const UNREPEATABLE: [&str; 11] = [
    "refresh-only",
    "generate-config-out",
    "out",
    "json",
    "json-into",
    "chdir",
    "detailed-exitcode",
    "input",
    "help",
    "h",
    "version",
];

impl Run<'_> {
    /// The options of the plan for the rest, or of the next apply without a stored plan. `Err`: why an apply that failed is
    /// not tried again.
    pub(super) fn options_of_rest(
        &self,
        prepared: &Prepared,
        done: &Done,
    ) -> Result<PlanOptions, String> {
        if prepared.terragrunt.is_some() {
            return Err("terragrunt's output does not show which module was applied".to_owned());
        }
        if self.has_cut_output {
            return Err("its output is incomplete".to_owned());
        }
        if done.has_masked {
            return Err("an address in its output contains a secret, and is masked".to_owned());
        }
        if self.report.state_lock != StateLock::Free {
            return Err("the state may be locked".to_owned());
        }
        if self.report.plan.is_none() {
            return Ok(without_done(self.job.options.clone(), done));
        }
        if self.artifacts.as_ref().is_some_and(|artifacts| !artifacts.takes_other_files()) {
            return Err("Burrito's datastore cannot store the plan for the rest".to_owned());
        }
        let args = match &self.binding {
            _ if self.job.action.plan_in_file().is_some() => self
                .arguments_beside()
                .ok_or_else(|| "the options of the plan are not recorded beside it".to_owned())?,
            Some(binding) => binding.arguments().to_vec(),
            // Its controllers give all runners the same.
            None if self.job.pod => Vec::new(),
            None => return Err("the options of the plan are not recorded".to_owned()),
        };
        check(&args)?;
        Ok(without_done(PlanOptions { args, ..PlanOptions::default() }, done))
    }
}

impl Run<'_> {
    /// The arguments of the plan in a file, by the record beside it.
    pub(in crate::run) fn arguments_beside(&self) -> Option<Vec<String>> {
        let record = plan_file::record(self.job.action.plan_in_file()?).ok()??;
        let is_of = |plan: &PlanReport| {
            self.report.plan.as_ref().is_some_and(|applied| applied.sha256 == plan.sha256)
        };
        record.arguments.filter(|_| record.plan.as_ref().is_some_and(is_of))
    }
}

/// Refuses recorded arguments that cannot be repeated.
fn check(args: &[String]) -> Result<(), String> {
    for arg in args {
        let name = arg.trim_start_matches('-').split('=').next().unwrap_or_default();
        let is_unrepeatable = arg.starts_with('-') && UNREPEATABLE.contains(&name);
        if is_unrepeatable || arg.contains('\u{fffd}') {
            return Err(format!("the option `{arg}` of the plan cannot be repeated"));
        }
    }
    match other_state_in(args) {
        Some(option) => Err(format!("the option `{option}` of the plan cannot be repeated")),
        None => Ok(()),
    }
}

/// The options without the replacements that were made: another plan would make them again.
fn without_done(options: PlanOptions, done: &Done) -> PlanOptions {
    let PlanOptions { variables, targets, mut replaces, args, destroy, no_lock } = options;
    replaces.retain(|address| !done.created.contains(address));
    let (mut left, mut given) = (Vec::new(), args.into_iter());
    while let Some(arg) = given.next() {
        let address = ["-replace=", "--replace="].iter().find_map(|flag| arg.strip_prefix(flag));
        let is_flag = matches!(&*arg, "-replace" | "--replace");
        let next = if is_flag { given.next() } else { None };
        let is_done = address.or(next.as_deref()).is_some_and(|of| done.created.contains(of));
        if !is_done {
            left.push(arg);
            left.extend(next);
        }
    }
    PlanOptions { variables, targets, replaces, args: left, destroy, no_lock }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_cannot_be_repeated_are_refused() {
        let is_refused = |arg: &str| check(&[arg.to_owned(), "x".to_owned()]).is_err();
        for arg in [
            "-refresh-only",
            "-refresh-only=true",
            "--out=/etc/x",
            "-out",
            "-chdir=/",
            "-state=x",
            "-var-file=\u{fffd}",
        ] {
            assert!(is_refused(arg), "{arg}");
        }
        for arg in [
            "-var=a=***",
            "-var-file=v.tfvars",
            "-target=a.b",
            "-destroy",
            "-lock-timeout=1s",
            "-refresh=false",
        ] {
            assert!(!is_refused(arg), "{arg}");
        }
    }

    #[test]
    fn replacements_that_were_made_are_left_out() {
        let mut done = Done::default();
        let line = "a.b[\"x\"]: Creation complete after 0s [id=1]\n";
        done.add(line.as_bytes(), false).unwrap();
        let words = |text: &[&str]| text.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let args = [
            "-replace=a.b[\"x\"]",
            "-replace=a.c",
            "-replace",
            "a.b[\"x\"]",
            "-target",
            "a.b[\"x\"]",
        ];
        let replaces = words(&["a.b[\"x\"]", "a.c"]);
        let options = PlanOptions { replaces, args: words(&args), ..PlanOptions::default() };
        let left = without_done(options, &done);
        assert_eq!(left.replaces, words(&["a.c"]));
        assert_eq!(left.args, words(&["-replace=a.c", "-target", "a.b[\"x\"]"]));
    }
}
