//! The commands that this program may run: an image that is given to a job can be limited to what the job needs.

use clap::error::ErrorKind;

use crate::cli::environment::given;

/// The variable that lists the allowed commands, separated by commas.
const VARIABLE: &str = "PLANCHA_ALLOWED_COMMANDS";

/// Refuses a command that the variable does not list, with exit code 64. Without the variable every command is allowed.
pub(super) fn check(command: Option<&str>, program: &clap::Command) -> Result<(), clap::Error> {
    let (Some(allowed), Some(command)) = (given(VARIABLE), command) else { return Ok(()) };
    refusal(&allowed, command, program).map_or(Ok(()), |reason| {
        Err(clap::Error::raw(ErrorKind::InvalidSubcommand, format!("{reason}\n")))
    })
}

/// Why a command is refused. A name in the list that is no command is refused as well: a misspelled one would hide what is
/// allowed.
fn refusal(allowed: &str, command: &str, program: &clap::Command) -> Option<String> {
    let allowed = allowed.split(',').map(str::trim).filter(|name| !name.is_empty());
    let allowed = allowed.collect::<Vec<_>>();
    let is_known = |name: &&&str| program.find_subcommand(name).is_some();
    if let Some(unknown) = allowed.iter().find(|name| !is_known(name)) {
        return Some(format!("{VARIABLE} names `{unknown}`, which is not a command"));
    }
    if allowed.is_empty() {
        return Some(format!(
            "{VARIABLE} names no command, so none is allowed: list some, or remove it"
        ));
    }
    let list = allowed.join(", ");
    (!allowed.contains(&command))
        .then(|| format!("`{command}` is not allowed here: {VARIABLE} allows only: {list}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory as _;

    #[test]
    fn only_listed_commands_are_allowed() {
        let program = Cli::command();
        let refusal = |allowed, command| refusal(allowed, command, &program);
        assert_eq!(refusal("check", "check"), None);
        assert_eq!(refusal("plan, check", "check"), None);
        assert!(refusal("plan,check", "apply").unwrap().contains("plan, check"));
        assert!(refusal("plan,chekc", "plan").unwrap().contains("chekc"));
        for empty in ["", " ", ","] {
            assert!(refusal(empty, "plan").unwrap().contains("none is allowed"), "{empty}");
        }
    }
}
