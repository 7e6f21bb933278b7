//! What to do after a step of the tool has failed, by the errors that it reported.

use std::path::Path;

use crate::tool::diagnostics::{Diagnostic, Diagnostics};

/// What to do about it. `dir` is where the tool ran; `stored` says whether the log goes into a datastore.
pub(super) fn after(tool: &str, errors: &Diagnostics, dir: &Path, stored: bool) -> String {
    let find = |text: &str| {
        errors.iter().find(|error| error.summary.contains(text) || error.detail.contains(text))
    };
    if let Some(error) = errors.iter().find(|error| is_lock_error(error)) {
        return locked(tool, errors, error);
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
    if errors
        .first()
        .is_some_and(|error| error.to_string().contains("No value for required variable"))
    {
        return "give the variable's value with --var NAME=VALUE, --var-file FILE or the environment variable \
                TF_VAR_NAME"
            .to_owned();
    }
    let place = if stored { "above, and in the stored log" } else { "above" };
    format!("read the tool's output {place}")
}

/// Who holds the state's lock, since when, for what and under which ID, as far as the tool prints it. `None`: no other
/// process holds it.
pub(super) fn held_lock(errors: &Diagnostics) -> Option<String> {
    let error = errors.iter().find(|error| is_lock_error(error))?;
    let text = format!("{}\n{}", error.summary, error.detail);
    let of = |label: &str| lock_info(&text, label);
    if !text.contains("Lock Info:") {
        return text.contains("already locked").then(String::new);
    }
    let mut facts = vec![format!("held by {}", of("Who:").unwrap_or("another process"))];
    facts.extend(of("Created:").map(|created| format!("since {created}")));
    facts.extend(of("Operation:").map(|operation| format!("for {operation}")));
    facts.extend(of("ID:").map(|id| format!("(lock ID {id})")));
    Some(facts.join(" "))
}

fn is_lock_error(error: &Diagnostic) -> bool {
    const TEXT: &str = "Error acquiring the state lock";
    error.summary.contains(TEXT) || error.detail.contains(TEXT)
}

/// What to do about a state that could not be locked.
fn locked(tool: &str, errors: &Diagnostics, error: &Diagnostic) -> String {
    if held_lock(errors).is_none() {
        return "the state could not be locked, for the reason above; the runner never releases a lock that is \
                not its own"
            .to_owned();
    }
    let text = format!("{}\n{}", error.summary, error.detail);
    format!(
        "run again when the other run has ended; the runner never releases the lock of another run (if that run \
         is dead: {tool} force-unlock {})",
        lock_info(&text, "ID:").unwrap_or("ID")
    )
}

/// What to do after the tool was killed in this step.
pub(super) fn after_kill(step: &str) -> &'static str {
    if step == "apply" {
        "resources may exist that the state does not record, and the state may still be locked: compare both, then \
         unlock it with the tool's `force-unlock`, and plan again"
    } else {
        "the state may still be locked: check that nothing else uses it, unlock it with the tool's `force-unlock`, \
         and run again"
    }
}

/// The value of a label in the tool's `Lock Info`. The labels may share one line.
fn lock_info<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    const LABELS: [&str; 7] =
        ["ID:", "Path:", "Operation:", "Who:", "Version:", "Created:", "Info:"];
    let (_, info) = text.split_once("Lock Info:")?;
    let (_, value) = info.split_once(label)?;
    let line = value.lines().next()?;
    let end = LABELS.iter().filter_map(|label| line.find(label)).min().unwrap_or(line.len());
    Some(line[..end].trim()).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(output: &str) -> String {
        let errors = Diagnostics::read(output.as_bytes()).unwrap();
        after("terraform", &errors, Path::new("/code/live/vpc"), false)
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
        let stored = after("terraform", &Diagnostics::default(), Path::new("/code"), true);
        assert_eq!(stored, "read the tool's output above, and in the stored log");
    }
}
