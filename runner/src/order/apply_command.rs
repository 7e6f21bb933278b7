//! The command that applies the plan of a job, to be shown to the user: `apply`, or `destroy --approve`.

use std::fmt;
use std::path::{Path, PathBuf};

use datastore_api::Sha256;
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use crate::cli::RunArgs;
use crate::process::{quoted, url_secrets};
use crate::report::DESTROY;
use crate::source::checkout::Source;
use crate::source::regular;

/// The command that applies a plan.
#[derive(Clone, Debug)]
pub(crate) struct ApplyCommand {
    /// The workspace, if the environment selects it (`TF_WORKSPACE`).
    workspace: Option<String>,
    /// The words, without the plan.
    words: Vec<String>,
    /// Whether the command needs no `--plan`, because it names a plan file.
    finds_plan: bool,
    /// Where the command is in the words.
    command: usize,
}

impl ApplyCommand {
    pub(super) fn new(
        args: &RunArgs,
        source: &Source,
        workspace: Option<String>,
        burrito: bool,
    ) -> Self {
        let program: &[&str] = if burrito { &["burrito", "runner"] } else { &["runner"] };
        let mut words = program.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let command = words.len();
        words.push("apply".to_owned());
        match source {
            Source::Directory(dir) if args.dir().is_some() || args.source.is_some() => {
                words.push(argument(dir));
            }
            Source::Packed(packed) => words.push(argument(&packed.path)),
            // The URL without a password, or the file of a bundle.
            Source::Git(git) => words.push(regular::in_command(Path::new(git.url()))),
            Source::Directory(_) | Source::Bundle(_) => {}
        }
        let text = |value: &dyn fmt::Display| value.to_string();
        let revision = match source {
            Source::Git(git) => git.revision().map(str::to_owned),
            _ => None,
        };
        let path = |path: &PathBuf| regular::in_command(path);
        let state = &args.state_files;
        // A plan needs none.
        let state_out = state.state_out.as_ref().or(state.state_in.as_ref());
        for (flag, value) in [
            ("--revision", revision),
            ("--unflatten", args.unflatten.as_ref().map(|separator| text(separator))),
            ("--path", args.path.as_ref().map(path)),
            ("--work-dir", args.work_dir.as_ref().map(path)),
            ("--bin-dir", args.tools.bin_dir.as_ref().map(path)),
            ("--layer", args.identity.layer.as_ref().map(path)),
            ("--namespace", args.identity.namespace.as_ref().map(|name| text(name))),
            ("--name", args.identity.name.as_ref().map(|name| text(name))),
            ("--inputs-dir", args.inputs.inputs_dir.as_ref().map(path)),
            ("--plan-file", args.plan_file.as_ref().map(path)),
            ("--state-in", state.state_in.as_ref().map(path)),
            ("--state-out", state_out.map(path)),
            ("--datastore", args.datastore.datastore.as_ref().and_then(without_secrets)),
            ("--token-file", args.datastore.token_file.as_ref().map(path)),
            ("--ca-file", args.tools.ca_file.as_ref().map(path)),
        ] {
            words.extend(value.into_iter().flat_map(|value| option(flag, value)));
        }
        if args.state.state.is_some() {
            words.extend(["--state", "datastore"].map(str::to_owned));
        }
        words.extend(args.state.rebind.then(|| "--rebind".to_owned()));
        Self { workspace, words, finds_plan: args.plan_file.is_some(), command }
    }

    /// The same command, which works in the source, also if `PLANCHA_SNAPSHOT` is set.
    pub(crate) fn without_snapshot(mut self) -> Self {
        self.words.push("--snapshot=never".to_owned());
        self
    }

    /// The line for this plan, `RUN/ATTEMPT`, unless it is in a plan file. `strict`: it refuses every difference.
    pub(crate) fn line(&self, plan: &str, strict: bool) -> String {
        let plan = (!self.finds_plan).then(|| option("--plan", plan.to_owned()));
        let strict = strict.then(|| "--strict".to_owned());
        let plan = plan.into_iter().flatten().chain(strict);
        self.shown(&plan.collect::<Vec<_>>())
    }

    /// The line that approves a plan of `runner destroy`.
    pub(crate) fn approve(mut self, sha256: Sha256) -> String {
        if let Some(command) = self.words.get_mut(self.command) {
            DESTROY.clone_into(command);
        }
        self.shown(&["--approve".to_owned(), sha256.to_string()])
    }

    fn shown(&self, plan: &[String]) -> String {
        let words = self.words.iter().chain(plan);
        let command = words.map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
        match &self.workspace {
            Some(name) => format!("TF_WORKSPACE={} {command}", quoted(name)),
            None => command,
        }
    }
}

/// A flag and its value, in one word if the value would be taken for another flag.
fn option(flag: &str, value: String) -> Vec<String> {
    if value.starts_with('-') {
        return vec![format!("{flag}={value}")];
    }
    vec![flag.to_owned(), value]
}

/// A path that no program takes for a flag.
fn argument(path: &Path) -> String {
    let path = regular::in_command(path);
    if path.starts_with('-') { format!("./{path}") } else { path }
}

/// A URL without what may be a credential.
fn without_secrets(url: &SecretString) -> Option<String> {
    let url = Url::parse(url.expose_secret()).ok()?;
    Some(url_secrets::without_secrets(&url).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another process cannot open what this one has open.
    #[test]
    fn pipe_is_a_file_to_be_named() {
        for (path, shown) in
            [("/proc/self/fd/7", "FILE"), ("/dev/stdin", "FILE"), ("a/b.tar", "a/b.tar")]
        {
            assert_eq!(regular::in_command(Path::new(path)), shown);
        }
    }

    #[test]
    fn only_without_a_plan_file_the_plan_is_named() {
        let words = vec!["runner".to_owned(), "apply".to_owned()];
        let command = ApplyCommand { workspace: None, words, finds_plan: false, command: 1 };
        assert_eq!(command.line("p/0", false), "runner apply --plan p/0");
        assert_eq!(command.line("-p/0", true), "runner apply --plan=-p/0 --strict");
        let command = ApplyCommand { finds_plan: true, ..command };
        assert_eq!(command.line("p/0", true), "runner apply --strict");
        let command = ApplyCommand { workspace: Some("prod".to_owned()), ..command };
        assert_eq!(command.line("p/0", false), "TF_WORKSPACE=prod runner apply");
        let sha256 = Sha256::of(b"plan");
        let expected = format!("TF_WORKSPACE=prod runner destroy --approve {sha256}");
        assert_eq!(command.approve(sha256), expected);
    }
}
