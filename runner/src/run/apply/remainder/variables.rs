//! The values of variables that `--var` has set, for the plan of the rest. Only their names are recorded; their values are in the
//! reviewed plan.

use std::collections::BTreeMap;
use std::io::{self, BufReader};
use std::path::Path;

use fs_err as fs;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::process::private_file;
use crate::tool::argv::PlanOptions;

/// The values, in the private directory of the run.
pub(super) const VALUES: &str = "remainder.tfvars.json";

/// What is read of a plan as JSON.
#[derive(Deserialize)]
struct Plan {
    #[serde(default)]
    variables: BTreeMap<String, Variable>,
}

#[derive(Deserialize)]
struct Variable {
    value: Option<Box<RawValue>>,
}

/// The options with the values that variables have in the reviewed plan. They are in this private file, not in an argument, and come
/// last: they are what the plan was made with, whatever was set before.
pub(super) fn with_values(
    options: &PlanOptions,
    reviewed: &Path,
    file: &Path,
) -> io::Result<PlanOptions> {
    let (names, mut args) = without_variables(&options.args);
    if names.is_empty() {
        return Ok(options.clone());
    }
    let plan = serde_json::from_reader::<_, Plan>(BufReader::new(fs::File::open(reviewed)?))?;
    let value = |name: &String| {
        let value = plan.variables.get(name).map(|variable| variable.value.as_deref());
        let value = value.ok_or_else(|| {
            let text =
                format!("the plan does not contain the value of the variable {name} (--var)");
            io::Error::new(io::ErrorKind::InvalidData, text)
        })?;
        Ok::<_, io::Error>((name.clone(), value))
    };
    let values = names.iter().map(value).collect::<Result<BTreeMap<_, _>, _>>()?;
    serde_json::to_writer(private_file(file)?, &values)?;
    let path = file.to_str().ok_or_else(|| io::Error::other("TMPDIR is not UTF-8"))?;
    args.push(format!("-var-file={path}"));
    Ok(PlanOptions { args, ..options.clone() })
}

/// The names of the variables that recorded arguments set, and the other arguments.
fn without_variables(args: &[String]) -> (Vec<String>, Vec<String>) {
    let (mut names, mut others) = (Vec::new(), Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let joined = ["-var=", "--var="].iter().find_map(|flag| arg.strip_prefix(flag));
        let is_flag = matches!(&**arg, "-var" | "--var");
        let set = if is_flag { args.next().map(String::as_str) } else { joined };
        match set {
            Some(set) => names.push(set.split('=').next().unwrap_or_default().to_owned()),
            None => others.push(arg.clone()),
        }
    }
    (names, others)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(args: &[&str], plan: &str) -> io::Result<(Vec<String>, String)> {
        let dir = tempfile::tempdir().unwrap();
        let reviewed = dir.path().join("reviewed.json");
        fs::write(&reviewed, plan).unwrap();
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        let options = PlanOptions { args, ..PlanOptions::default() };
        let options = with_values(&options, &reviewed, &dir.path().join(VALUES))?;
        let values = fs::read_to_string(dir.path().join(VALUES)).unwrap_or_default();
        let path = dir.path().display().to_string();
        Ok((options.args.iter().map(|arg| arg.replace(&path, "")).collect(), values))
    }

    #[test]
    fn values_come_from_the_reviewed_plan() {
        let plan = r#"{"format_version":"1.2","variables":{"a":{"value":"1"},"b":{"value":{"x":[1.50,null]}},
            "c":{"value":true},"d":{"value":null}},"resource_changes":[{"address":"x"}]}"#;
        let args = ["-var=a=***", "-var-file=f", "--var", "b=***", "-target=t", "-var", "d=***"];
        let (args, values) = given(&args, plan).unwrap();
        assert_eq!(args, ["-var-file=f", "-target=t", "-var-file=/remainder.tfvars.json"]);
        assert_eq!(values, r#"{"a":"1","b":{"x":[1.50,null]},"d":null}"#);
    }

    #[test]
    fn value_that_the_plan_does_not_contain_is_named() {
        let error = given(&["-var=e=***"], "{}").unwrap_err().to_string();
        assert!(error.contains("the variable e (--var)"), "{error}");
        assert_eq!(given(&["-target=t"], "no JSON").unwrap().0, ["-target=t"]);
    }
}
