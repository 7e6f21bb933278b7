//! Arguments that the tool takes from variables: `TF_CLI_ARGS`, and one variable for each command. Only what an apply must
//! refuse is searched, also in arguments of the runner; the tool reads them itself.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use secrecy::{ExposeSecret as _, SecretSlice};

/// The variables `TF_VAR_*` and `TF_CLI_ARGS*`, with their values.
pub(crate) type Inputs = BTreeMap<OsString, SecretSlice<u8>>;

/// The variables of an apply.
const OF_APPLY: [&str; 2] = ["TF_CLI_ARGS", "TF_CLI_ARGS_apply"];
/// The variables of steps that plan.
const OF_PLANS: [&str; 3] = ["TF_CLI_ARGS", "TF_CLI_ARGS_plan", "TF_CLI_ARGS_apply"];
/// The options that have an apply read or write another state file than that of the backend.
const OTHER_STATE: [&str; 3] = ["-state", "-state-out", "-backup"];

/// The variables of the steps of a run.
const OF_RUN: [&str; 6] = [
    "TF_CLI_ARGS",
    "TF_CLI_ARGS_init",
    "TF_CLI_ARGS_plan",
    "TF_CLI_ARGS_show",
    "TF_CLI_ARGS_apply",
    "TF_CLI_ARGS_state_pull",
];
/// The options with which the tool prints its help or its version, does nothing else, and ends with 0.
const PRINTS_ONLY: [&str; 6] = ["-help", "--help", "-h", "-version", "--version", "-v"];

/// The first option with which the tool only prints a text, and its variable.
pub(crate) fn prints_only(variables: &Inputs) -> Option<(&'static str, &'static str)> {
    OF_RUN.into_iter().find_map(|variable| {
        let value = variables.get(OsStr::new(variable))?;
        let words = words(&String::from_utf8_lossy(value.expose_secret()));
        let option = PRINTS_ONLY.into_iter().find(|option| words.iter().any(|word| word == option));
        Some((option?, variable))
    })
}

/// The first option that moves an apply to another state file, and its variable.
pub(crate) fn other_state(variables: &Inputs) -> Option<(&'static str, &'static str)> {
    OF_APPLY.into_iter().find_map(|variable| {
        let value = variables.get(OsStr::new(variable))?;
        let words = words(&String::from_utf8_lossy(value.expose_secret()));
        Some((other_state_in(&words)?, variable))
    })
}

/// The first option with which init configures another backend than that of the code, and its variable.
pub(crate) fn other_backend(variables: &Inputs) -> Option<(&'static str, &'static str)> {
    ["TF_CLI_ARGS", "TF_CLI_ARGS_init"].into_iter().find_map(|variable| {
        let value = variables.get(OsStr::new(variable))?;
        let words = words(&String::from_utf8_lossy(value.expose_secret()));
        let names = words.iter().map(|word| word.split('=').next().unwrap_or_default());
        let names = names.map(|name| {
            name.strip_prefix('-').filter(|rest| rest.starts_with('-')).unwrap_or(name)
        });
        let mut found = names.filter_map(|name| {
            ["-backend", "-backend-config"].into_iter().find(|option| *option == name)
        });
        Some((found.next_back()?, variable))
    })
}

/// What an argument of terragrunt does that the runner cannot work with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfTerragrunt {
    /// It can hide the warning by which mock outputs are found. The variable does the same, and the runner changes it: the
    /// name without its prefix.
    HidesWarnings(&'static str),
    /// It has terragrunt run several units, which would all write the one plan.
    SeveralUnits,
    /// It has terragrunt run another tool than the one that the runner has chosen and verified.
    OtherTool,
}

/// The first of these arguments that is one for terragrunt with which the runner cannot work. Terragrunt takes one or two
/// dashes, and before 0.73.0 wants a prefix.
pub(crate) fn of_terragrunt(words: &[String]) -> Option<(&str, OfTerragrunt)> {
    words.iter().find_map(|word| {
        let name = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?;
        let name = name.split('=').next().unwrap_or_default();
        let what = match name.strip_prefix("terragrunt-").unwrap_or(name) {
            "log-level" => OfTerragrunt::HidesWarnings("LOG_LEVEL"),
            "log-disable" => OfTerragrunt::HidesWarnings("LOG_DISABLE"),
            "log-custom-format" => OfTerragrunt::HidesWarnings("LOG_CUSTOM_FORMAT"),
            "a" | "all" | "graph" | "filter" | "filter-affected" => OfTerragrunt::SeveralUnits,
            "tf-path" | "tfpath" => OfTerragrunt::OtherTool,
            _ => return None,
        };
        Some((word.as_str(), what))
    })
}

/// The first of these arguments that moves a plan or an apply to another state file.
pub(crate) fn other_state_in(words: &[String]) -> Option<&'static str> {
    words.iter().enumerate().find_map(|(index, word)| {
        let word = word.strip_prefix('-').filter(|rest| rest.starts_with('-')).unwrap_or(word);
        let (name, value) =
            word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        let value = value.or_else(|| words.get(index + 1).map(String::as_str));
        let option = OTHER_STATE.into_iter().find(|option| *option == name)?;
        // `-backup=-` only writes no backup.
        (option != "-backup" || value != Some("-")).then_some(option)
    })
}

/// The files with values of variables that these arguments name.
pub(crate) fn value_files(words: &[String]) -> impl Iterator<Item = &str> {
    words.iter().enumerate().filter_map(|(index, word)| {
        let name = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?;
        match name.strip_prefix("var-file")? {
            "" => words.get(index + 1).map(String::as_str),
            value => value.strip_prefix('='),
        }
    })
}

/// Whether one of the variables of a run asks for JSON.
pub(crate) fn asks_for_json(variables: &Inputs) -> bool {
    OF_RUN.into_iter().any(|variable| {
        let value = variables.get(OsStr::new(variable));
        value
            .is_some_and(|value| uses_json(&words(&String::from_utf8_lossy(value.expose_secret()))))
    })
}

/// Whether arguments have the tool print JSON, or write it into a file.
pub(crate) fn uses_json(args: &[String]) -> bool {
    args.iter().any(|arg| {
        let name = arg.split('=').next().unwrap_or_default();
        matches!(name, "-json" | "--json" | "-json-into" | "--json-into")
    })
}

/// The arguments that plans, and applies without one, take from variables.
pub(crate) fn of_plans(variables: &Inputs) -> Vec<String> {
    let values = OF_PLANS.into_iter().filter_map(|variable| variables.get(OsStr::new(variable)));
    values.flat_map(|value| words(&String::from_utf8_lossy(value.expose_secret()))).collect()
}

/// Whether arguments have a plan destroy everything, those of variables first. The last one counts.
pub(crate) fn destroys(variables: &Inputs, args: &[String]) -> bool {
    let of_plan = ["TF_CLI_ARGS", "TF_CLI_ARGS_plan"].map(|name| variables.get(OsStr::new(name)));
    let of_plan = of_plan.into_iter().flatten();
    let of_plan = of_plan.flat_map(|value| words(&String::from_utf8_lossy(value.expose_secret())));
    let mut found = of_plan.chain(args.iter().cloned()).filter_map(|word| {
        let option = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?;
        match option.strip_prefix("destroy")?.strip_prefix('=') {
            None if option != "destroy" => None,
            None => Some(true),
            // What is no truth value for the tool is an error there.
            Some(value) => Some(!matches!(value, "0" | "f" | "F" | "false" | "FALSE" | "False")),
        }
    });
    found.next_back().unwrap_or_default()
}

/// The words of a value, with quotes and backslashes as in a shell.
fn words(value: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let (mut quote, mut chars) = (None, value.chars());
    while let Some(c) = chars.next() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            ('\\', None | Some('"')) => word.get_or_insert_default().extend(chars.next()),
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_configure_a_backend_are_found() {
        for (value, option) in [
            ("-backend-config=address=http://h", Some("-backend-config")),
            ("-upgrade --backend-config x.hcl", Some("-backend-config")),
            ("-backend=false", Some("-backend")),
            ("-upgrade -var=a=-backend", None),
        ] {
            let variables = [("TF_CLI_ARGS_init".into(), value.as_bytes().to_vec().into())].into();
            assert_eq!(other_backend(&variables).map(|(option, _)| option), option, "{value}");
        }
    }

    #[test]
    fn arguments_for_terragrunt_are_found_however_they_are_written() {
        use OfTerragrunt::{HidesWarnings, OtherTool, SeveralUnits};
        for (words, what) in [
            (&["--log-level=error"][..], Some(HidesWarnings("LOG_LEVEL"))),
            (&["-lock=false", "--terragrunt-log-level", "error"], Some(HidesWarnings("LOG_LEVEL"))),
            (&["-log-disable"], Some(HidesWarnings("LOG_DISABLE"))),
            (&["--terragrunt-log-disable=true"], Some(HidesWarnings("LOG_DISABLE"))),
            (&["--log-custom-format", "x"], Some(HidesWarnings("LOG_CUSTOM_FORMAT"))),
            (&["--all"], Some(SeveralUnits)),
            (&["-a"], Some(SeveralUnits)),
            (&["--graph=true"], Some(SeveralUnits)),
            (&["--filter=./x"], Some(SeveralUnits)),
            (&["--filter-affected"], Some(SeveralUnits)),
            (&["--tf-path=/x"], Some(OtherTool)),
            (&["--terragrunt-tfpath", "/x"], Some(OtherTool)),
            (&["--log-format=json", "-target=a.all", "-var", "all=1", "all", "---all"], None),
        ] {
            let words = words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
            assert_eq!(of_terragrunt(&words).map(|(_, what)| what), what, "{words:?}");
        }
    }

    fn found(variable: &str, value: &str) -> Option<(&'static str, &'static str)> {
        other_state(&[(variable.into(), value.as_bytes().to_vec().into())].into())
    }

    #[test]
    fn last_option_decides_whether_a_plan_destroys() {
        for (variable, value, args, destroys) in [
            ("TF_CLI_ARGS_plan", "-destroy", &[][..], true),
            ("TF_CLI_ARGS", "-lock=false --destroy", &["-no-color"], true),
            ("TF_CLI_ARGS_apply", "-destroy", &[], false),
            ("TF_CLI_ARGS_plan", "-destroy", &["-destroy=false"], false),
            ("TF_CLI_ARGS_plan", "-destroy=0", &["--destroy=true"], true),
            ("TF_VAR_x", "-destroy", &["-destroy-x", "-var=a=-destroy", "destroy"], false),
        ] {
            let variables = [(variable.into(), value.as_bytes().to_vec().into())].into();
            let args = args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>();
            assert_eq!(super::destroys(&variables, &args), destroys, "{variable}={value} {args:?}");
        }
    }

    #[test]
    fn options_for_another_state_are_found_however_they_are_written() {
        for (value, option) in [
            ("-state-out=/x", "-state-out"),
            ("-lock=false --state=/x", "-state"),
            ("-state /x", "-state"),
            ("-st'ate-o'ut=/x", "-state-out"),
            ("'-state=a b'", "-state"),
            (r"\-state=x", "-state"),
            ("-backup=-\t-backup=/x", "-backup"),
            ("-state", "-state"),
        ] {
            assert_eq!(found("TF_CLI_ARGS_apply", value), Some((option, "TF_CLI_ARGS_apply")));
            assert_eq!(found("TF_CLI_ARGS", value), Some((option, "TF_CLI_ARGS")), "{value}");
            assert_eq!(found("TF_CLI_ARGS_plan", value), None, "{value}");
            assert_eq!(found("TF_VAR_x", value), None, "{value}");
        }
        for value in ["", "-backup=-", "-backup -", "-lock=false", "-var 'x=a -state=b'", "-states"]
        {
            assert_eq!(found("TF_CLI_ARGS_apply", value), None, "{value}");
        }
    }
}
