//! Variables of terragrunt.

use std::ffi::OsString;

/// Variables with which terragrunt prints its warnings, if the user has turned them off. `text` reads a variable.
pub(super) fn log(text: impl Fn(&str) -> Option<String>) -> Vec<(String, OsString)> {
    let mut variables = Vec::new();
    for prefix in ["TG", "TERRAGRUNT"] {
        let level = format!("{prefix}_LOG_LEVEL");
        let is_quiet =
            |level: &String| matches!(&*level.to_lowercase(), "error" | "stderr" | "stdout");
        if text(&level).is_some_and(|level| is_quiet(&level)) {
            variables.push((level, OsString::from("warn")));
        }
        // The user's format may omit or cut the message.
        let custom = format!("{prefix}_LOG_CUSTOM_FORMAT");
        if text(&custom).is_some() {
            variables.push((custom, OsString::from("%level %msg\n")));
        }
        let disable = format!("{prefix}_LOG_DISABLE");
        if text(&disable).is_some() {
            // In 0.72 any value disables the log, also `false`.
            variables.push((disable, OsString::new()));
        }
    }
    variables
}

/// The first variable that makes terragrunt run several units, or others than that of its directory.
pub(super) fn several_units(is_on: impl Fn(&str) -> bool) -> Option<&'static str> {
    ["TG_ALL", "TG_GRAPH", "TG_FILTER", "TG_FILTER_AFFECTED"].into_iter().find(|name| is_on(name))
}
