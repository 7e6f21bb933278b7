//! The steps of terraform, tofu and terragrunt as argument vectors.
//!
//! Nothing here starts a program; [`crate::process`] does. `-input=false` and `TF_IN_AUTOMATION`
//! everywhere, and never `-upgrade`: the lock file in the code decides which providers run.

use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::cli::Variable;
use crate::process::Program;
use crate::release::Installed;
use crate::tool::cli_args::uses_json;
use crate::version::{ToolName, Version};

/// An installed tool in the directory where it works.
// Without `Debug`: variables may be secrets.
#[derive(Clone, Copy)]
pub(crate) struct Tool<'a> {
    /// The tool that plans and applies.
    pub(crate) installed: &'a Installed,
    /// The terragrunt that runs it, if any.
    pub(crate) terragrunt: Option<&'a Installed>,
    pub(crate) dir: &'a Path,
    /// Whether its output may have escape codes: stdout is a terminal.
    pub(crate) color: bool,
    /// Variables on top of the runner's own.
    pub(crate) env: &'a [(String, OsString)],
    /// Whether init must not change the lock file.
    pub(crate) readonly_lock_file: bool,
    /// Where tofu writes its messages as JSON, beside its output, from 1.12.0 on.
    pub(crate) messages: Option<&'a Path>,
    /// The file of the state, instead of that of the backend, which is `local`.
    pub(crate) state: Option<&'a Path>,
}

/// The caller's options for the tool's plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlanOptions {
    /// The last value of a variable wins.
    pub(crate) variables: Vec<Variable>,
    pub(crate) targets: Vec<String>,
    pub(crate) replaces: Vec<String>,
    pub(crate) args: Vec<String>,
    /// Whether the plan destroys everything.
    pub(crate) destroy: bool,
    /// Whether the plan does not take the lock of the state.
    pub(crate) no_lock: bool,
}

/// Whether an argument limits a plan to a part of the module, to what is in the state, or to actions.
pub(crate) fn limits_plan(arg: &str) -> bool {
    let option = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')).unwrap_or_default();
    let limiting = ["target", "exclude", "destroy", "refresh-only", "invoke"];
    limiting.iter().any(|name| option.starts_with(name))
}

impl PlanOptions {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether they limit the plan to a part of the module.
    pub(crate) fn limit_plan(&self) -> bool {
        self.destroy || !self.targets.is_empty() || self.args.iter().any(|arg| limits_plan(arg))
    }

    /// The arguments as text, without the values of variables, which may be secret.
    pub(crate) fn shown(&self) -> Vec<String> {
        let mut args = Vec::new();
        self.append_to(&mut args);
        let mut is_value = false;
        let shown = args.into_iter().map(|arg| {
            let arg = arg.to_string_lossy().into_owned();
            let is_variable = std::mem::replace(&mut is_value, matches!(&*arg, "-var" | "--var"));
            let flag = ["-var=", "--var="].into_iter().find(|flag| arg.starts_with(flag));
            match (flag, is_variable) {
                (None, false) => arg,
                (flag, _) => {
                    let name = arg.trim_start_matches(flag.unwrap_or_default());
                    let name = name.split('=').next().unwrap_or_default();
                    format!("{}{name}=***", flag.unwrap_or_default())
                }
            }
        });
        shown.collect()
    }

    fn append_to(&self, args: &mut Vec<OsString>) {
        args.extend(self.destroy.then(|| "-destroy".into()));
        args.extend(self.no_lock.then(|| "-lock=false".into()));
        args.extend(self.variables.iter().map(|variable| match variable {
            Variable::File(file) => joined("-var-file=", file.as_ref()),
            Variable::Value(value) => joined("-var=", value.as_ref()),
        }));
        args.extend(self.targets.iter().map(|target| joined("-target=", target.as_ref())));
        args.extend(self.replaces.iter().map(|address| joined("-replace=", address.as_ref())));
        args.extend(self.args.iter().map(OsString::from));
    }
}

/// Joins bytes: a file name need not be UTF-8.
fn joined(option: &str, value: &OsStr) -> OsString {
    let mut arg = OsString::from(option);
    arg.push(value);
    arg
}

impl Tool<'_> {
    pub(crate) fn init(&self) -> Program {
        let mut program = self.program("init", self.color, &["-input=false"]);
        if self.readonly_lock_file && !is_before(&self.installed.version, READONLY_LOCK_FILE) {
            program.args.push("-lockfile=readonly".into());
        }
        program.args.extend(self.json_into(&[]));
        program
    }

    /// Whether it reads `import` blocks.
    pub(crate) fn reads_import_blocks(&self) -> bool {
        self.installed.tool == ToolName::Tofu || !is_before(&self.installed.version, IMPORT_BLOCKS)
    }

    /// Prints the state.
    pub(crate) fn state_pull(&self) -> Program {
        self.words(&["state".as_ref(), "pull".as_ref()])
    }

    /// Writes a state to the backend, if lineage and serial allow it.
    pub(crate) fn state_push(&self, state: &Path) -> Program {
        self.words(&["state".as_ref(), "push".as_ref(), state.as_os_str()])
    }

    /// Adds the hashes of the providers for a platform to the lock file.
    pub(crate) fn lock_providers(&self, platform: &str) -> Program {
        let platform = joined("-platform=", platform.as_ref());
        self.words(&["providers".as_ref(), "lock".as_ref(), &platform])
    }

    /// Frees the lock with this ID.
    pub(crate) fn force_unlock(&self, id: &str) -> Program {
        self.words(&["force-unlock".as_ref(), "-force".as_ref(), id.as_ref()])
    }

    /// A command without the flags that the steps share: `-no-color` is none of its flags.
    fn words(&self, words: &[&OsStr]) -> Program {
        let mut program = self.own("", &[]);
        program.args = words.iter().map(OsString::from).collect();
        if let Some(terragrunt) = self.terragrunt {
            // Variables, because the flags of a command with two words have other places.
            let [tool, quiet] = if is_prefixed(&terragrunt.version) {
                ["TERRAGRUNT_TFPATH", "TERRAGRUNT_NON_INTERACTIVE"]
            } else {
                ["TG_TF_PATH", "TG_NON_INTERACTIVE"]
            };
            program.env.push((tool.to_owned(), self.installed.path.clone().into()));
            program.env.push((quiet.to_owned(), "true".into()));
        }
        program
    }

    /// Takes the lock of the state and frees it: there is no such resource. No provider is needed, and nothing is written.
    pub(crate) fn lock_probe(&self) -> Program {
        let options = ["-allow-missing", "-lock-timeout=0s", "terraform_data.plancha_probe"];
        if self.terragrunt.is_none_or(|terragrunt| is_before(&terragrunt.version, RUN)) {
            let mut program = self.own("untaint", &options[..2]);
            program.args.extend(self.other_state());
            program.args.push(options[2].into());
            return program;
        }
        let run = self.program("run", true, &["--", "untaint", "-no-color"]);
        let mut program = Program { without: COMMON_ARGS, ..run };
        program.args.extend(options.map(OsString::from));
        program
    }

    /// Imports an object into the state. Of the options of a plan only those of variables are options of it, too.
    pub(crate) fn import(&self, address: &str, id: &str, options: &PlanOptions) -> Program {
        let mut program = self.program("import", self.color, &["-input=false"]);
        let variables = PlanOptions {
            variables: options.variables.clone(),
            args: variable_args(&options.args),
            ..PlanOptions::default()
        };
        variables.append_to(&mut program.args);
        program.args.extend(self.other_state());
        program.args.extend([address.into(), id.into()]);
        program
    }

    /// Makes the state forget an object.
    pub(crate) fn state_rm(&self, address: &str) -> Program {
        let mut program = self.own("state", &[]);
        program.args = vec!["state".into(), "rm".into()];
        program.args.extend(self.other_state());
        program.args.push(address.into());
        program
    }

    /// Makes terragrunt print where it runs the tool; `None` without terragrunt.
    pub(crate) fn terragrunt_info(&self) -> Option<Program> {
        let version = &self.terragrunt?.version;
        let words: &[_] =
            if is_before(version, INFO_PRINT) { &["terragrunt-info"] } else { &["info", "print"] };
        let mut program = self.program("", false, &[]);
        let words = words.iter().map(OsString::from);
        program.args = words.chain(self.terragrunt_options(version)).collect();
        Some(program)
    }

    /// Writes the plan to `out`, which should be a file of mode 0600: the tool keeps the mode.
    pub(crate) fn plan(&self, out: &Path, options: &PlanOptions) -> Program {
        let mut program = self.program("plan", self.color, &["-input=false"]);
        program.args.push(joined("-out=", out.as_os_str()));
        program.args.extend(self.json_into(&options.args));
        program.args.extend(self.other_state());
        options.append_to(&mut program.args);
        program
    }

    /// Prints the outputs of the state as JSON, sensitive ones as well.
    pub(crate) fn outputs(&self) -> Program {
        let mut program = self.own("output", &["-json"]);
        program.args.extend(self.other_state());
        program
    }

    pub(crate) fn show_json(&self, plan: &Path) -> Program {
        let mut program = self.own("show", &["-json"]);
        program.args.push(plan.into());
        program
    }

    pub(crate) fn show(&self, plan: &Path) -> Program {
        let mut program = self.own("show", &[]);
        program.args.push(plan.into());
        program
    }

    pub(crate) fn apply(&self, plan: &Path) -> Program {
        let mut program = self.program("apply", self.color, &["-input=false", "-auto-approve"]);
        program.args.extend(self.json_into(&[]));
        program.args.extend(self.other_state());
        program.args.push(plan.into());
        if let Some(terragrunt) = self.terragrunt {
            program.env.extend(no_second_start(&terragrunt.version));
        }
        program
    }

    /// Plans and applies in one.
    pub(crate) fn apply_unplanned(&self, options: &PlanOptions) -> Program {
        let mut program = self.program("apply", self.color, &["-input=false", "-auto-approve"]);
        program.args.extend(self.json_into(&options.args));
        program.args.extend(self.other_state());
        options.append_to(&mut program.args);
        program
    }

    /// The option that has the backend `local` use another file. It is deprecated, and the tool warns of it: the setting that
    /// the tool names instead would change the configuration, and a plan would contain the private path.
    fn other_state(&self) -> Option<OsString> {
        self.state.map(|state| joined("-state=", state.as_os_str()))
    }

    /// The option that has tofu write its messages as JSON as well, if it has that option and `args` do not use it or `-json`.
    fn json_into(&self, args: &[String]) -> Option<OsString> {
        let Installed { tool, version, .. } = self.installed;
        let has_it = *tool == ToolName::Tofu && !is_before(version, JSON_INTO);
        let file = self.messages.filter(|_| has_it && self.terragrunt.is_none())?;
        (!uses_json(args)).then(|| joined(MESSAGES, file.as_os_str()))
    }

    fn program(&self, step: &str, color: bool, options: &[&str]) -> Program {
        let mut args = vec![OsString::from(step)];
        let path = match self.terragrunt {
            None => &self.installed.path,
            Some(terragrunt) => {
                args.extend(self.terragrunt_options(&terragrunt.version));
                &terragrunt.path
            }
        };
        args.extend((!color).then(|| "-no-color".into()));
        args.extend(options.iter().map(OsString::from));
        // An unattended run cannot answer a question.
        let own = [("TF_IN_AUTOMATION", "1"), ("TF_INPUT", "0")];
        let mut env = own.map(|(name, value)| (name.to_owned(), value.into())).to_vec();
        if let Some(terragrunt) = self.terragrunt {
            env.extend(plain_output(&terragrunt.version, color));
        }
        env.extend_from_slice(self.env);
        Program {
            path: path.clone(),
            args,
            dir: self.dir.to_owned(),
            env,
            without: &[],
            lock: None,
            forwards: self.terragrunt.is_some(),
        }
    }

    /// Another program with the tool's directory and variables.
    pub(crate) fn beside(&self, path: &Path) -> Program {
        let (path, args) = (path.to_owned(), Vec::new());
        Program { path, args, forwards: false, ..self.program("", false, &[]) }
    }

    /// A command without color that the runner needs, and the user has not asked for: what the user adds to each command may be
    /// none of its flags.
    fn own(&self, step: &str, options: &[&str]) -> Program {
        Program { without: COMMON_ARGS, ..self.program(step, false, options) }
    }

    /// The flags for the tool's binary and the directory: they lost their prefix with 0.73.0.
    fn terragrunt_options(&self, version: &Version) -> [OsString; 5] {
        let (tool, dir, quiet) = if is_prefixed(version) {
            ("--terragrunt-tfpath", "--terragrunt-working-dir", "--terragrunt-non-interactive")
        } else {
            ("--tf-path", "--working-dir", "--non-interactive")
        };
        let (path, work) = (self.installed.path.clone(), self.dir);
        [tool.into(), path.into(), dir.into(), work.into(), quiet.into()]
    }
}

/// Those of some arguments that are about variables.
fn variable_args(args: &[String]) -> Vec<String> {
    let (mut found, mut args) = (Vec::new(), args.iter());
    while let Some(arg) = args.next() {
        if ["-var=", "--var=", "-var-file=", "--var-file="].iter().any(|flag| arg.starts_with(flag))
        {
            found.push(arg.clone());
        } else if ["-var", "--var", "-var-file", "--var-file"].contains(&&**arg) {
            found.extend([Some(arg), args.next()].into_iter().flatten().cloned());
        }
    }
    found
}

/// The variable with arguments of every command of the tool.
const COMMON_ARGS: &[&str] = &["TF_CLI_ARGS"];

/// The first version of terraform that reads `import` blocks. Every tofu does.
const IMPORT_BLOCKS: &str = "1.5.0";

/// The first version of terraform whose init supports `-lockfile=readonly`. Every tofu does.
const READONLY_LOCK_FILE: &str = "1.0.0";

/// The first version of tofu that writes its messages into a file as well, and the option for it.
const JSON_INTO: &str = "1.12.0";
pub(crate) const MESSAGES: &str = "-json-into=";

/// The first version of terragrunt that is asked by `info print`. The older command works until 1.0.0.
const INFO_PRINT: &str = "0.80.0";

/// Since this version at the latest, terragrunt has the command `run`. In 1.0.0 it passes the flags of some commands on only so.
const RUN: &str = "0.80.0";

/// Whether this terragrunt's flags and variables still have the prefix `terragrunt`.
fn is_prefixed(version: &Version) -> bool {
    is_before(version, "0.73.0")
}

fn is_before(version: &Version, other: &str) -> bool {
    let order = other.parse::<Version>().map(|other| version.compare(&other));
    matches!(order, Ok(Ordering::Less))
}

/// Makes terragrunt forward the tool's output unchanged. By default it prefixes every line with the time, `STDOUT` and
/// colours, also of a shown plan. Older versions do neither, and ignore the variables.
fn plain_output(version: &Version, color: bool) -> impl Iterator<Item = (String, OsString)> {
    let [forward, plain] = if is_prefixed(version) {
        ["TERRAGRUNT_FORWARD_TF_STDOUT", "TERRAGRUNT_NO_COLOR"]
    } else {
        ["TG_TF_FORWARD_STDOUT", "TG_NO_COLOR"]
    };
    let names = [Some(forward), (!color).then_some(plain)];
    names.into_iter().flatten().map(|name| (name.to_owned(), OsString::from("true")))
}

/// Keeps terragrunt from starting the tool again after an error: a plan that has changed the state is applied once. Older
/// versions know only the variable without `NO`. In 0.72 they leave `errors { retry }` of a configuration as it is.
fn no_second_start(version: &Version) -> impl Iterator<Item = (String, OsString)> {
    let variables: &[_] = if is_prefixed(version) {
        &[("TERRAGRUNT_NO_AUTO_RETRY", "true"), ("TERRAGRUNT_AUTO_RETRY", "false")]
    } else {
        &[("TG_NO_AUTO_RETRY", "true")]
    };
    variables.iter().map(|(name, value)| ((*name).to_owned(), OsString::from(value)))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use datastore_api::Sha256;

    use super::*;

    fn installed(tool: ToolName, version: &str) -> Installed {
        let (path, sha256) = (PathBuf::from(format!("/bin/{tool}")), Sha256::of(b""));
        let version = version.parse().unwrap();
        Installed { tool, version, path, sha256, source: String::new(), protection: None }
    }

    fn lines(terragrunt: Option<&str>) -> String {
        let terraform = installed(ToolName::Terraform, "1.9.8");
        let terragrunt = terragrunt.map(|version| installed(ToolName::Terragrunt, version));
        let (terragrunt, dir) = (terragrunt.as_ref(), Path::new("/w"));
        let tool = Tool {
            installed: &terraform,
            terragrunt,
            dir,
            color: false,
            env: &[],
            readonly_lock_file: false,
            messages: None,
            state: None,
        };
        let plan = Path::new("/p");
        let programs = [
            tool.init(),
            tool.plan(plan, &PlanOptions::default()),
            tool.show_json(plan),
            tool.show(plan),
            tool.apply(plan),
            tool.apply_unplanned(&PlanOptions::default()),
        ];
        let line = |program: Program| {
            let words = std::iter::once(program.path.into_os_string()).chain(program.args);
            words.map(|word| word.into_string().unwrap()).collect::<Vec<_>>().join(" ")
        };
        programs.map(line).join("\n")
    }

    /// RN02: upstream's subcommands in upstream's order; no `-upgrade`, `-input=false`.
    #[test]
    fn terraform_gets_the_arguments_of_upstream() {
        insta::assert_snapshot!(lines(None), @r"
        /bin/terraform init -no-color -input=false
        /bin/terraform plan -no-color -input=false -out=/p
        /bin/terraform show -no-color -json /p
        /bin/terraform show -no-color /p
        /bin/terraform apply -no-color -input=false -auto-approve /p
        /bin/terraform apply -no-color -input=false -auto-approve
        ");
    }

    #[test]
    fn tofu_writes_its_messages_beside_its_output() {
        let json = |tool, version, args: &[&str]| {
            let (installed, args) =
                (installed(tool, version), args.iter().map(|&arg| arg.to_owned()));
            let options = PlanOptions { args: args.collect(), ..PlanOptions::default() };
            let tool = Tool {
                installed: &installed,
                terragrunt: None,
                dir: Path::new("/w"),
                color: false,
                env: &[],
                readonly_lock_file: false,
                messages: Some(Path::new("/m")),
                state: None,
            };
            let programs = [
                tool.init(),
                tool.plan(Path::new("/p"), &options),
                tool.apply(Path::new("/p")),
                tool.apply_unplanned(&options),
                tool.show(Path::new("/p")),
            ];
            programs
                .map(|program| program.args.iter().filter(|arg| *arg == "-json-into=/m").count())
        };
        assert_eq!(json(ToolName::Tofu, "1.12.0", &[]), [1, 1, 1, 1, 0]);
        assert_eq!(json(ToolName::Tofu, "1.13.2", &["-json-into=/mine"]), [1, 0, 1, 0, 0]);
        assert_eq!(json(ToolName::Tofu, "1.12.6", &["--json"]), [1, 0, 1, 0, 0]);
        assert_eq!(json(ToolName::Tofu, "1.11.14", &[]), [0; 5]);
        assert_eq!(json(ToolName::Terraform, "1.12.0", &[]), [0; 5]);
    }

    /// The tool, run by terragrunt.
    fn below<'a>(terraform: &'a Installed, terragrunt: &'a Installed) -> Tool<'a> {
        Tool {
            installed: terraform,
            terragrunt: Some(terragrunt),
            dir: Path::new("/w"),
            color: false,
            env: &[],
            readonly_lock_file: false,
            messages: None,
            state: None,
        }
    }

    /// It would use another tool on PATH.
    #[test]
    fn terragrunt_pulls_and_pushes_a_state_with_the_resolved_tool() {
        let terraform = installed(ToolName::Terraform, "1.9.8");
        for (version, name) in [("0.72.9", "TERRAGRUNT_TFPATH"), ("0.73.0", "TG_TF_PATH")] {
            let terragrunt = installed(ToolName::Terragrunt, version);
            let tool = below(&terraform, &terragrunt);
            for (program, args) in [
                (tool.state_pull(), &["state", "pull"][..]),
                (tool.state_push(Path::new("/s")), &["state", "push", "/s"]),
                (tool.force_unlock("id"), &["force-unlock", "-force", "id"]),
            ] {
                assert_eq!(program.args, args);
                let variable = (name.to_owned(), "/bin/terraform".into());
                assert!(program.env.contains(&variable), "{version}");
            }
        }
    }

    #[test]
    fn terragrunt_does_not_start_the_apply_of_a_plan_again() {
        let terraform = installed(ToolName::Terraform, "1.9.8");
        for (version, name, value) in [
            ("0.38.0", "TERRAGRUNT_AUTO_RETRY", "false"),
            ("0.72.5", "TERRAGRUNT_NO_AUTO_RETRY", "true"),
            ("1.0.0", "TG_NO_AUTO_RETRY", "true"),
        ] {
            let terragrunt = installed(ToolName::Terragrunt, version);
            let tool = below(&terraform, &terragrunt);
            let variable = (name.to_owned(), value.into());
            assert!(tool.apply(Path::new("/p")).env.contains(&variable), "{version}");
            let options = PlanOptions::default();
            assert!(!tool.apply_unplanned(&options).env.contains(&variable), "{version}");
        }
    }

    /// RN03: the flags change with 0.73.0, and its release candidates are below it.
    #[test]
    fn terragrunt_gets_the_flags_of_its_version() {
        for old in ["0.72.9", "0.73.0-rc1"] {
            insta::allow_duplicates! { insta::assert_snapshot!(lines(Some(old)), @r"
            /bin/terragrunt init --terragrunt-tfpath /bin/terraform --terragrunt-working-dir /w --terragrunt-non-interactive -no-color -input=false
            /bin/terragrunt plan --terragrunt-tfpath /bin/terraform --terragrunt-working-dir /w --terragrunt-non-interactive -no-color -input=false -out=/p
            /bin/terragrunt show --terragrunt-tfpath /bin/terraform --terragrunt-working-dir /w --terragrunt-non-interactive -no-color -json /p
            /bin/terragrunt show --terragrunt-tfpath /bin/terraform --terragrunt-working-dir /w --terragrunt-non-interactive -no-color /p
            /bin/terragrunt apply --terragrunt-tfpath /bin/terraform --terragrunt-working-dir /w --terragrunt-non-interactive -no-color -input=false -auto-approve /p
            /bin/terragrunt apply --terragrunt-tfpath /bin/terraform --terragrunt-working-dir /w --terragrunt-non-interactive -no-color -input=false -auto-approve
            "); }
        }
        for new in ["0.73.0", "1.0.0"] {
            let lines = lines(Some(new));
            let first = lines.lines().next().unwrap();
            insta::allow_duplicates! { insta::assert_snapshot!(first, @"/bin/terragrunt init --tf-path /bin/terraform --working-dir /w --non-interactive -no-color -input=false"); }
        }
    }

    #[test]
    fn import_gets_the_variables_of_the_plan_and_blocks_are_read_since_1_5() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let args =
            words("-target=a.b -var-file=v -var x=1 -refresh=false --var=y=2 -parallelism 3");
        for (tool, version, reads_blocks) in [
            (ToolName::Terraform, "1.4.7", false),
            (ToolName::Terraform, "1.5.0", true),
            (ToolName::Tofu, "1.6.0", true),
        ] {
            let installed = installed(tool, version);
            let tool = Tool {
                installed: &installed,
                terragrunt: None,
                dir: Path::new("/w"),
                color: false,
                env: &[],
                readonly_lock_file: false,
                messages: None,
                state: None,
            };
            assert_eq!(tool.reads_import_blocks(), reads_blocks, "{version}");
            let options = PlanOptions { args: args.clone(), ..PlanOptions::default() };
            let expected =
                "import -no-color -input=false -var-file=v -var x=1 --var=y=2 a_b.c[\"k\"] id";
            let program = tool.import("a_b.c[\"k\"]", "id", &options);
            assert_eq!(program.args.join(OsStr::new(" ")), expected);
            assert_eq!(tool.state_rm("a_b.c").args, ["state", "rm", "a_b.c"]);
        }
    }

    #[test]
    fn each_command_that_uses_the_state_gets_its_file() {
        let installed = installed(ToolName::Terraform, "1.11.4");
        let tool = Tool {
            installed: &installed,
            terragrunt: None,
            dir: Path::new("/w"),
            color: false,
            env: &[],
            readonly_lock_file: false,
            messages: None,
            state: Some(Path::new("/s")),
        };
        let (plan, options) = (Path::new("/p"), PlanOptions::default());
        for (program, expected) in [
            (tool.plan(plan, &options), "plan -no-color -input=false -out=/p -state=/s"),
            (tool.apply(plan), "apply -no-color -input=false -auto-approve -state=/s /p"),
            (
                tool.apply_unplanned(&options),
                "apply -no-color -input=false -auto-approve -state=/s",
            ),
            (tool.import("a.b", "id", &options), "import -no-color -input=false -state=/s a.b id"),
            (tool.state_rm("a.b"), "state rm -state=/s a.b"),
            (
                tool.lock_probe(),
                "untaint -no-color -allow-missing -lock-timeout=0s -state=/s terraform_data.plancha_probe",
            ),
        ] {
            assert_eq!(program.args.join(OsStr::new(" ")), expected);
        }
    }
}
