//! What to do after a step of the tool has failed, by the errors that it reported.

use std::path::Path;

use crate::process::{Killed, Stop};
use crate::run::step::found_lock::{FoundLock, takes_lock};
use crate::run::step::limits::TimedOut;
use crate::source::states::name::StateName;
use crate::tool::diagnosis::Class;
use crate::tool::diagnostics::lock_info::{
    has_own_info, is_held, is_lock_error, lock_id, lock_info,
};
use crate::tool::diagnostics::{Diagnostic, Diagnostics};

/// Commands about the state.
pub(super) struct Command<'a> {
    tool: &'a str,
    state: &'a StateName,
}

impl<'a> Command<'a> {
    pub(super) fn new(tool: &'a str, state: &'a StateName) -> Self {
        Self { tool, state }
    }

    fn force_unlock(&self, id: &str) -> String {
        self.state.unlock(self.tool, id)
    }
}

const EXISTS: &str =
    "import the object, or remove it (`runner classify --explain` prints an import block); ";

/// What to do about it. `dir` is where the tool ran; `stored` says whether the log goes into a datastore.
pub(super) fn after(
    tool: &Command<'_>,
    errors: &Diagnostics,
    (step, class): (&str, Class),
    (dir, stored): (&Path, bool),
) -> String {
    let find = |text: &str| {
        errors.iter().find(|error| error.summary.contains(text) || error.detail.contains(text))
    };
    if let Some(error) = errors.iter().find(|error| is_lock_error(error)) {
        return locked(tool, errors, error);
    }
    if let Some(error) = find("Error releasing the state lock") {
        return unreleased(tool, error);
    }
    if find("Saved plan is stale").is_some() || find("Saved plan does not match").is_some() {
        return "the state has changed since the plan was made: plan again, and apply the new plan"
            .to_owned();
    }
    if find("No configuration files").is_some() {
        return format!(
            "{} has no configuration: name the module's directory as DIR, or inside the source with --path or \
             the layer's spec.path",
            dir.display()
        );
    }
    if let Some(name) = errors.iter().find_map(ephemeral) {
        return format!(
            "set the same value as for the plan in the environment variable TF_VAR_{name}: a plan contains no values of \
             ephemeral variables"
        );
    }
    if errors
        .first()
        .is_some_and(|error| error.to_string().contains("No value for required variable"))
    {
        return "set the variable's value with --var NAME=VALUE, --var-file FILE or the environment variable \
                TF_VAR_NAME"
            .to_owned();
    }
    let place = if stored { "above, and in the stored log" } else { "above" };
    if step == "apply" {
        let first = match class {
            Class::Transient => "every error is transient: ",
            Class::Auth => "renew or extend the credentials that the error is about; ",
            Class::Quota => "raise the limit, or free something; ",
            Class::AlreadyExists => EXISTS,
            _ => "",
        };
        return format!("{first}{AFTER_APPLY}; read the tool's output {place}");
    }
    let first = match class {
        Class::Transient => "run again later: every error is transient; ",
        Class::Auth => "renew or extend the credentials that the error is about, and run again; ",
        Class::Quota => "raise the limit, or free something, and run again; ",
        Class::AlreadyExists => EXISTS,
        _ => "",
    };
    format!("{first}read the tool's output {place}")
}

/// The ephemeral variable that the apply of a plan lacks.
fn ephemeral(error: &Diagnostic) -> Option<&str> {
    let (_, name) = error.detail.split_once("ephemeral input variable \"")?;
    let (name, rest) = name.split_once('"')?;
    // The tool wraps lines.
    rest.split_whitespace().take(2).eq(["was", "set"]).then_some(name)
}

/// Who holds the state's lock, since when, for what and under which ID, as far as the tool prints it. `None`: no other
/// process holds it.
pub(super) fn held_lock(errors: &Diagnostics) -> Option<String> {
    let text = errors.iter().find(|error| is_held(error))?.text();
    if !text.contains("Lock Info:") {
        return Some(String::new());
    }
    let id = lock_id(&text).map(|id| format!("(lock ID {id})"));
    let mut facts = Vec::new();
    if has_own_info(&text) {
        facts.push("held by another process".to_owned());
    } else {
        let of = |label: &str| lock_info(&text, label);
        facts.push(format!("held by {}", of("Who:").unwrap_or("another process")));
        facts.extend(of("Created:").map(|created| format!("since {created}")));
        facts.extend(of("Operation:").map(|operation| format!("for {operation}")));
    }
    facts.extend(id);
    Some(facts.join(" "))
}

/// What to do about a state that could not be locked.
fn locked(tool: &Command<'_>, errors: &Diagnostics, error: &Diagnostic) -> String {
    if held_lock(errors).is_none() {
        return "the state could not be locked, for the reason above; the runner never releases a lock that is \
                not its own"
            .to_owned();
    }
    let text = error.text();
    let unlock = lock_id(&text).map_or_else(
        || format!("find the ID of its lock in the backend, then {}", tool.force_unlock("ID")),
        |id| tool.force_unlock(id),
    );
    format!(
        "run again when the other run has ended; the runner never releases the lock of another run (if that run \
         is dead: {unlock})"
    )
}

/// What to do about a lock of this run that the tool could not release.
fn unreleased(tool: &Command<'_>, error: &Diagnostic) -> String {
    let text = error.text();
    let unlock = lock_info(&text, "ID:").map_or_else(
        || {
            format!(
                "{}` (the error of the next run or the backend names the ID",
                tool.force_unlock("ID")
            )
        },
        |id| format!("{}` (in the module's directory, after init", tool.force_unlock(id)),
    );
    format!(
        "the step has ended, but its lock of the state may remain: check that no other run uses the state, run \
         `{unlock}), and plan again"
    )
}

/// What to do after the tool was killed in this step.
pub(super) fn after_kill(tool: &Command<'_>, step: &str, lock: &FoundLock) -> String {
    let unlock = match lock {
        FoundLock::Free => None,
        FoundLock::Unknown => Some(format!(
            "`{}` (the error of the next run or the backend names the ID)",
            tool.force_unlock("ID")
        )),
        FoundLock::Held(errors) => {
            let find = |error: &Diagnostic| {
                let text = error.text();
                lock_id(&text).map(|id| format!("`{}`", tool.force_unlock(id)))
            };
            errors.iter().find_map(find).or_else(|| {
                Some(format!("`{}` (the backend names the ID)", tool.force_unlock("ID")))
            })
        }
    };
    let is_held = matches!(lock, FoundLock::Held(_));
    let still = if is_held { "is still locked" } else { "may still be locked" };
    match (step, unlock.filter(|_| takes_lock(step))) {
        ("apply", Some(unlock)) => format!(
            "resources may exist that the state does not record, and the state {still}: compare both, then unlock it with \
             {unlock}, and plan again"
        ),
        ("apply", None) => {
            "resources may exist that the state does not record: compare both, and plan again"
                .to_owned()
        }
        (_, Some(unlock)) => format!(
            "the state {still}: check that nothing else uses it, unlock it with {unlock}, and run again"
        ),
        (_, None) => "run again".to_owned(),
    }
}

/// The same if memory ran out: that comes first.
pub(super) fn after_kills(killed: Killed, hint: String) -> String {
    match killed {
        Killed::Yes(_) => {
            format!(
                "give the run more memory, or let the tool do less at once (-parallelism); {hint}"
            )
        }
        Killed::No | Killed::Unknown => hint,
    }
}

/// What to do after the tool has reached a limit in this step, and has ended in good order.
pub(super) fn after_limit(step: &str, end: &TimedOut) -> String {
    let flag = end.flag();
    if step == "apply" {
        format!(
            "the apply has ended early, and what it completed is in the state: find out what it waited for, or give it \
             more time with {flag}; then plan again, and apply the new plan"
        )
    } else {
        format!(
            "find out what it waited for (credentials, network, the backend's lock), or give it more time with {flag}, \
             and run again"
        )
    }
}

/// What to do after an apply was stopped, which has kept its state.
pub(super) fn after_stopped_apply(stop: Stop) -> String {
    let more = match stop {
        Stop::Timeout(_) => "give the run more time with --timeout; ",
        Stop::LeaseLost => "wait until that run has ended; ",
        Stop::Interrupt | Stop::Terminate | Stop::Hangup => "",
    };
    format!("{more}{AFTER_APPLY}")
}

/// What was applied has changed the state, so a second apply of its plan is refused.
const AFTER_APPLY: &str = "plan again, and apply the new plan: what the apply completed is in the state, and no plan is applied twice";

#[cfg(test)]
mod tests {
    use super::*;

    const TERRAFORM: Command<'_> = Command { tool: "terraform", state: &StateName::Selected };

    fn advice(output: &str) -> String {
        let errors = Diagnostics::read(output.as_bytes()).unwrap();
        after(&TERRAFORM, &errors, ("plan", Class::Unknown), (Path::new("/code/live/vpc"), false))
    }

    #[test]
    fn a_held_lock_has_its_holder_and_the_command_that_unlocks_it() {
        let output = "Error: Error acquiring the state lock\n\nError message: resource temporarily unavailable\n\
            Lock Info:\n  ID:        fb982e0a-8a8c\n  Path:      terraform.tfstate\n  \
            Operation: OperationTypeApply\n  Who:       ann@build-7\n  Version:   1.11.4\n  \
            Created:   2026-11-22 01:57:02.5 +0000 UTC\n  Info:      \n\n\nTerraform acquires a state lock.\n";
        let boxed = format!("│ {}\n", output.trim_end().replace('\n', "\n│ "));
        for output in [output.to_owned(), format!("╷\n{boxed}╵\n")] {
            let errors = Diagnostics::read(output.as_bytes()).unwrap();
            assert_eq!(
                held_lock(&errors).unwrap(),
                "held by ann@build-7 since 2026-11-22 01:57:02.5 +0000 UTC for OperationTypeApply (lock ID \
                 fb982e0a-8a8c)"
            );
            assert_eq!(
                advice(&output),
                "run again when the other run has ended; the runner never releases the lock of another run (if \
                 that run is dead: terraform force-unlock fb982e0a-8a8c)"
            );
        }
        let bare = "Error: Error acquiring the state lock\n\nAccess denied\n";
        assert!(advice(bare).starts_with("the state could not be locked"), "{}", advice(bare));
    }

    #[test]
    fn the_command_that_unlocks_a_state_names_its_workspace() {
        for summary in ["acquiring", "releasing"] {
            let output =
                format!("Error: Error {summary} the state lock\n\nLock Info:\n  ID:        a;b\n");
            let errors = Diagnostics::read(output.as_bytes()).unwrap();
            let state = StateName::Workspace("a b".to_owned());
            let tool = Command { tool: "tofu", state: &state };
            let says = after(&tool, &errors, ("plan", Class::Lock), (Path::new("/code"), false));
            let unlock = "TF_WORKSPACE='a b' tofu force-unlock 'a;b'";
            assert!(says.contains(unlock), "{says}");
        }
    }

    /// Output of terraform 1.11.4. The `Lock Info` of its http backend is always that of the refused attempt.
    #[test]
    fn the_id_of_a_held_lock_is_the_one_that_the_backend_names() {
        let output = |error: &str| {
            format!(
                "Error: Error acquiring the state lock\n\nError message: {error}\nLock Info:\n  \
                 ID:        0d1c29b6-afe6\n  Path:      \n  Operation: OperationTypeApply\n  \
                 Who:       root@vm\n  Version:   1.11.4\n  Created:   2026-11-22 06:35:57.8 +0000 UTC\n  \
                 Info:      \n\n\nTerraform acquires a state lock.\n"
            )
        };
        let http = "HTTP remote state already locked";
        for (error, holder, unlock) in [
            (
                format!("{http}:\nID=9db590f1-b6fe"),
                "held by another process (lock ID 9db590f1-b6fe)",
                "(if that run is dead: terraform force-unlock 9db590f1-b6fe)",
            ),
            (
                format!("{http}, failed to unmarshal body"),
                "held by another process",
                "(if that run is dead: find the ID of its lock in the backend, then terraform force-unlock ID)",
            ),
            (
                format!("{http}: ID="),
                "held by another process",
                "(if that run is dead: find the ID of its lock in the backend, then terraform force-unlock ID)",
            ),
            (
                "Workspace is already\nlocked: default".to_owned(),
                "held by another process",
                "(if that run is dead: find the ID of its lock in the backend, then terraform force-unlock ID)",
            ),
        ] {
            let output = output(&error);
            let errors = Diagnostics::read(output.as_bytes()).unwrap();
            assert_eq!(held_lock(&errors).unwrap(), holder, "{error}");
            let advice = advice(&output);
            assert!(advice.ends_with(unlock), "{error}: {advice}");
        }
    }

    /// Output of terraform 1.11.4, too.
    #[test]
    fn a_lock_that_was_not_released_is_named() {
        let output = "Error: Error releasing the state lock\n\nError message: Failed to unlock: UNLOCK \
            http://127.0.0.1:18733/s giving up\nafter 1 attempt(s)\n\nTerraform acquires a lock when \
            accessing your state.\n";
        let says = advice(output);
        assert!(says.contains("its lock of the state may remain"), "{says}");
        assert!(says.contains("`terraform force-unlock ID`"), "{says}");
        let info = "\nLock Info:\n  ID:        0d1c29b6\n  Who:       root@vm\n";
        let says =
            advice(&output.replace("\n\nTerraform acq", &format!("{info}\n\nTerraform acq")));
        assert!(says.contains("`terraform force-unlock 0d1c29b6`"), "{says}");
    }

    #[test]
    fn a_stale_plan_and_an_empty_directory_have_a_next_step() {
        let stale = "Error: Saved plan is stale\n\nThe given plan file can no longer be applied.\n";
        assert!(advice(stale).contains("plan again"), "{}", advice(stale));
        let none = "Error: No configuration files\n\nPlan requires configuration to be present.\n";
        assert!(
            advice(none).starts_with("/code/live/vpc has no configuration"),
            "{}",
            advice(none)
        );
        assert_eq!(advice("Error: x\n\nbecause\n"), "read the tool's output above");
        let of = |step, class| {
            after(&TERRAFORM, &Diagnostics::default(), (step, class), (Path::new("/code"), true))
        };
        assert_eq!(
            of("plan", Class::Unknown),
            "read the tool's output above, and in the stored log"
        );
        let later = of("plan", Class::Transient);
        assert!(later.starts_with("run again later") && later.ends_with("stored log"), "{later}");
        let later = of("apply", Class::Transient);
        assert!(later.starts_with("every error is transient: plan again"), "{later}");
    }
}
