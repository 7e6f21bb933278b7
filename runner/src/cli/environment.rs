//! Environment variables that no flag sets.

#![expect(clippy::disallowed_methods, reason = "only this module reads the environment")]

mod holder;
mod places;
mod secrets;
mod terragrunt;

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use datastore_api::Sha256;
use secrecy::{ExposeSecret as _, SecretString};

use crate::basis::backend;
pub(super) use crate::cli::environment::secrets::variable_name;
use crate::process::redact::Redaction;
use crate::tool::cli_args::Inputs;
use crate::tool::preflight;
use crate::version::{SearchContext, ToolName, variable_names};

/// The values of environment variables that no flag sets.
#[derive(Debug, Default)]
pub struct Environment {
    /// `PATH`.
    pub path: OsString,
    /// `$HOME`.
    pub home: Option<PathBuf>,
    /// `$XDG_CACHE_HOME`, else `~/.cache`, else nothing.
    pub cache_home: Option<PathBuf>,
    /// `$XDG_STATE_HOME`, else `~/.local/state`, else nothing.
    pub state_home: Option<PathBuf>,
    /// Below which tofu looks for its CLI configuration, if the home has none (`XDG_CONFIG_HOME`).
    pub config_home: Option<PathBuf>,
    /// The state home of the user, where `--spool-dir` has replaced it.
    pub replaced_state_home: Option<PathBuf>,
    /// The tool's data directory (`TF_DATA_DIR`).
    pub tf_data_dir: Option<PathBuf>,
    /// The tool's workspace (`TF_WORKSPACE`).
    pub tf_workspace: Option<String>,
    /// Whether `TF_ENCRYPTION` has tofu encrypt its states or plans.
    pub encrypts: bool,
    /// Variables that replace settings of a backend.
    pub backend: BTreeMap<&'static str, SecretString>,
    /// Variables by which providers and backends get credentials.
    pub credentials: BTreeMap<&'static str, SecretString>,
    /// The digest of the variables that select where providers work, such as a region.
    pub places: Option<Sha256>,
    /// Variables that give the tool values of variables (`TF_VAR_*`) and arguments (`TF_CLI_ARGS*`).
    pub inputs: Inputs,
    /// Variables and directories that may request a version.
    pub search_context: SearchContext,
    /// tenv's other variables.
    pub tenv: Tenv,
    /// Variables that Burrito's controllers set in a pod.
    pub pod: Pod,
    /// The user's own configuration of the tool's command line (`TF_CLI_CONFIG_FILE`).
    pub tf_cli_config_file: Option<PathBuf>,
    /// The datastore's token (`PLANCHA_TOKEN`).
    pub token: Option<SecretString>,
    /// Whether the user has set `CHECKPOINT_DISABLE`.
    pub checkpoint_disable: bool,
    /// Variables for terragrunt that make it print its warnings, by which mock outputs are found.
    pub terragrunt_log: Vec<(String, OsString)>,
    /// A variable that makes terragrunt run several units, if one does.
    pub terragrunt_units: Option<&'static str>,
    /// Where terragrunt puts what it downloads and works in, if not beside the configuration (`TG_DOWNLOAD_DIR`,
    /// `TERRAGRUNT_DOWNLOAD`).
    pub terragrunt_downloads: Vec<PathBuf>,
    /// Where GitHub's pages of jobs take summaries from (`GITHUB_STEP_SUMMARY`).
    pub github_step_summary: Option<PathBuf>,
    /// The job of GitHub Actions that runs this, if one does (`GITHUB_ACTIONS`).
    pub github: Option<GitHub>,
    /// The job or user that runs this.
    pub holder: String,
    /// The name of this machine.
    pub host: String,
    /// How output is shown on a terminal.
    pub terminal: Terminal,
    /// The secrets that are masked in everything that people read.
    pub redaction: Redaction,
    /// The number of git settings in the environment (`GIT_CONFIG_COUNT`).
    git_config_count: usize,
}

impl Environment {
    /// Reads the environment. Call it once.
    pub fn read() -> Self {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty());
        let path = |name| set(name).map(PathBuf::from);
        let home = path("HOME");
        let cache_home = path("XDG_CACHE_HOME").filter(|path| path.is_absolute());
        let state_home = path("XDG_STATE_HOME").filter(|path| path.is_absolute());
        let variables = variable_names().filter_map(|name| Some((name, env::var(name).ok()?)));
        let tenv = Tenv::read();
        let search_context = SearchContext {
            home: home.clone(),
            top: None,
            tenv_root: tenv.root.clone().or_else(|| Some(home.as_ref()?.join(".tenv"))),
            variables: variables.collect(),
            ..SearchContext::default()
        };
        Self {
            search_context,
            tenv,
            path: set("PATH").unwrap_or_default(),
            cache_home: cache_home.or_else(|| home.as_ref().map(|home| home.join(".cache"))),
            state_home: state_home.or_else(|| home.as_ref().map(|home| home.join(".local/state"))),
            replaced_state_home: None,
            config_home: path("XDG_CONFIG_HOME"),
            home,
            tf_data_dir: path("TF_DATA_DIR"),
            tf_workspace: text("TF_WORKSPACE"),
            encrypts: text("TF_ENCRYPTION").is_some(),
            backend: backend::variable_names()
                .filter_map(|name| Some((name, text(name)?.into())))
                .collect(),
            credentials: preflight::credentials(|name| {
                Some(env::var(name).ok().filter(|value| !value.is_empty())?.into())
            }),
            places: Some(places::digest()),
            inputs: inputs(),
            pod: Pod::read(),
            tf_cli_config_file: path("TF_CLI_CONFIG_FILE"),
            token: env::var("PLANCHA_TOKEN").ok().filter(|text| !text.is_empty()).map(Into::into),
            checkpoint_disable: set("CHECKPOINT_DISABLE").is_some(),
            terragrunt_log: terragrunt::log(text),
            terragrunt_units: terragrunt::several_units(is_on),
            terragrunt_downloads: ["TG_DOWNLOAD_DIR", "TERRAGRUNT_DOWNLOAD"]
                .into_iter()
                .filter_map(path)
                .collect(),
            github_step_summary: path("GITHUB_STEP_SUMMARY"),
            github: text("GITHUB_ACTIONS")
                .filter(|value| value == "true")
                .map(|_| GitHub { workspace: path("GITHUB_WORKSPACE") }),
            holder: holder::holder(),
            host: holder::host(),
            terminal: Terminal::read(),
            redaction: Redaction::default(),
            git_config_count: env::var("GIT_CONFIG_COUNT").map_or(0, |n| n.parse().unwrap_or(0)),
        }
    }

    /// Keeps files in the directory of `--spool-dir`.
    pub(crate) fn use_spool(&mut self, dir: &Path) {
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        // An empty path: there is none.
        self.replaced_state_home = Some(self.state_home.replace(dir).unwrap_or_default());
    }

    /// The state home of the user, with or without a spool.
    pub(crate) fn own_state_home(&self) -> Option<&Path> {
        let home = self.replaced_state_home.as_ref().or(self.state_home.as_ref());
        home.map(PathBuf::as_path).filter(|home| !home.as_os_str().is_empty())
    }

    /// The directory of `--spool-dir`.
    pub(crate) fn spool(&self) -> Option<&Path> {
        self.replaced_state_home.as_ref().and(self.state_home.as_deref())
    }

    /// Masks the secrets of the environment from now on, also those of the variables that `--redact-env` names.
    pub(crate) fn redact(&self, named: &[String]) {
        secrets::add_secrets(&self.redaction, named);
    }

    /// The variables that add settings of git to those of the user.
    pub fn git_config(&self, settings: &[(&str, &str)]) -> Vec<(String, OsString)> {
        let first = self.git_config_count;
        let count = first + settings.len();
        let mut variables = vec![("GIT_CONFIG_COUNT".to_owned(), count.to_string().into())];
        for (n, (key, value)) in (first..).zip(settings) {
            variables.push((format!("GIT_CONFIG_KEY_{n}"), key.into()));
            variables.push((format!("GIT_CONFIG_VALUE_{n}"), value.into()));
        }
        variables
    }
}

impl Environment {
    /// Where the tool keeps its data, relative to its working directory or absolute.
    pub(crate) fn data_dir(&self) -> &Path {
        self.tf_data_dir.as_deref().unwrap_or(Path::new(".terraform"))
    }

    /// Whether variables make init replace the providers of the lock file (`-upgrade`).
    pub fn upgrades_providers(&self) -> bool {
        let of_init = ["TF_CLI_ARGS", "TF_CLI_ARGS_init"].into_iter();
        let mut values = of_init.filter_map(|name| self.inputs.get(OsStr::new(name)));
        values.any(|value| memchr::memmem::find(value.expose_secret(), b"-upgrade").is_some())
    }
}

/// The variables `TF_VAR_*` and `TF_CLI_ARGS*`.
fn inputs() -> Inputs {
    let is_input = |name: &OsStr| {
        let name = name.as_encoded_bytes();
        name.starts_with(b"TF_VAR_") || name.starts_with(b"TF_CLI_ARGS")
    };
    let set = env::vars_os().filter(|(name, _)| is_input(name));
    set.map(|(name, value)| (name, value.into_encoded_bytes().into())).collect()
}

/// Whether this is a job of GitHub Actions.
pub(super) fn is_github_job() -> bool {
    env::var_os("GITHUB_ACTIONS").is_some_and(|value| value == "true")
}

/// The values of the variables of flags.
pub(super) fn values_of_flags() -> impl Iterator<Item = OsString> {
    let of_flags =
        env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"PLANCHA_"));
    of_flags.map(|(_, value)| value)
}

/// A job of GitHub Actions.
#[derive(Clone, Debug, Default)]
pub struct GitHub {
    /// The directory of the repository (`GITHUB_WORKSPACE`).
    pub workspace: Option<PathBuf>,
}

/// Variables that decide how output is shown on a terminal.
#[derive(Clone, Debug, Default)]
pub struct Terminal {
    /// `PLANCHA_PAGER`, else `PAGER`. As for git, an empty one turns the pager off.
    pub pager: Option<OsString>,
    /// Whether `NO_COLOR` is set.
    pub no_color: bool,
    /// Whether `TERM` is `dumb`: the terminal has neither colours nor a screen for a pager.
    pub is_dumb: bool,
    /// The variables that pagers take options from, if they are not set, with the options that show colours. They are
    /// git's: `less` also ends at once if the output fits on one screen, and leaves it there.
    pub pager_options: Vec<(&'static str, &'static str)>,
}

impl Terminal {
    /// Whether an output is a terminal that is to show colours.
    pub(crate) fn has_colours(&self, output: &impl IsTerminal) -> bool {
        output.is_terminal() && !self.no_color && !self.is_dumb
    }

    fn read() -> Self {
        Self {
            pager: env::var_os("PLANCHA_PAGER").or_else(|| env::var_os("PAGER")),
            no_color: env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()),
            is_dumb: env::var_os("TERM").is_some_and(|term| term == "dumb"),
            pager_options: [("LESS", "FRX"), ("LV", "-c")]
                .into_iter()
                .filter(|(name, _)| env::var_os(name).is_none())
                .collect(),
        }
    }
}

/// Variables that Burrito's controllers set in a pod, as text.
#[derive(Clone, Debug, Default)]
pub struct Pod {
    /// `BURRITO_RUNNER_LAYER_NAME`
    pub layer: Option<String>,
    /// `BURRITO_RUNNER_LAYER_NAMESPACE`
    pub namespace: Option<String>,
    /// `BURRITO_RUNNER_RUN`
    pub run: Option<String>,
    /// `BURRITO_RUNNER_ACTION`
    pub action: Option<String>,
    /// `BURRITO_DATASTORE_HOSTNAME`, with an optional port
    pub datastore: Option<String>,
    /// Whether this is a pod (`KUBERNETES_SERVICE_HOST`).
    pub is_kubernetes: bool,
    /// `BURRITO_DATASTORE_TLS`: true or false
    pub datastore_tls: Option<String>,
    /// `BURRITO_HERMITCRAB_URL`, a provider mirror, if `BURRITO_HERMITCRAB_ENABLED` is true
    pub hermitcrab: Option<String>,
    /// The pod's own name (`HOSTNAME`)
    pub name: Option<String>,
}

impl Pod {
    fn read() -> Self {
        let set = |name| env::var(name).ok().filter(|text: &String| !text.is_empty());
        let hermitcrab = set("BURRITO_HERMITCRAB_ENABLED").and_then(|text| bool_of_go(&text));
        let hermitcrab = hermitcrab == Some(true);
        Self {
            layer: set("BURRITO_RUNNER_LAYER_NAME"),
            namespace: set("BURRITO_RUNNER_LAYER_NAMESPACE"),
            run: set("BURRITO_RUNNER_RUN"),
            action: set("BURRITO_RUNNER_ACTION"),
            datastore: set("BURRITO_DATASTORE_HOSTNAME"),
            datastore_tls: set("BURRITO_DATASTORE_TLS"),
            hermitcrab: set("BURRITO_HERMITCRAB_URL").filter(|_| hermitcrab),
            name: set("HOSTNAME"),
            is_kubernetes: set("KUBERNETES_SERVICE_HOST").is_some(),
        }
    }
}

/// A truth value as Go writes it, and as Burrito reads it.
pub(crate) fn bool_of_go(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// tenv's variables about releases, as text. [`crate::release`] interprets them.
#[derive(Clone, Debug, Default)]
pub struct Tenv {
    /// `TENV_ROOT`, `TOFUENV_ROOT` or `TFENV_ROOT`.
    pub root: Option<PathBuf>,
    /// `TENV_ARCH`, `TOFUENV_ARCH` or `TFENV_ARCH`: the architecture, with Go's name.
    pub arch: Option<String>,
    /// `TENV_FORCE_REMOTE`, `TOFUENV_FORCE_REMOTE` or `TFENV_FORCE_REMOTE`, with the variable's name.
    pub force_remote: Option<(&'static str, String)>,
    /// `TENV_REMOTE_CONF`: settings of mirrors in a file, by default `remote.yaml` in tenv's directory.
    pub remote_conf: Option<PathBuf>,
    /// `TENV_VALIDATION`: which checks tenv does.
    pub validation: Option<String>,
    /// `TENV_GITHUB_TOKEN` or `TOFUENV_GITHUB_TOKEN`.
    pub github_token: Option<SecretString>,
    /// The `TENV_GITHUB_APP_*` variables. A token wins over them.
    pub github_app: Option<GitHubApp>,
    /// Variables with the prefix `TFENV_`.
    pub terraform: MirrorVariables,
    /// Variables with the prefix `TOFUENV_`.
    pub tofu: MirrorVariables,
    /// Variables with the prefix `TG_`.
    pub terragrunt: MirrorVariables,
}

/// A GitHub App, which creates tokens.
#[derive(Clone, Debug, Default)]
pub struct GitHubApp {
    /// `TENV_GITHUB_APP_ID`
    pub id: String,
    /// `TENV_GITHUB_APP_INSTALLATION_ID`
    pub installation: Option<String>,
    /// `TENV_GITHUB_APP_PEM`
    pub pem: Option<SecretString>,
    /// `TENV_GITHUB_APP_PEM_FILE`
    pub pem_file: Option<PathBuf>,
}

impl GitHubApp {
    fn read() -> Option<Self> {
        let of_app = |name: &str| text(&format!("TENV_GITHUB_APP_{name}"));
        Some(Self {
            id: of_app("ID")?.trim().to_owned(),
            installation: of_app("INSTALLATION_ID").map(|id| id.trim().to_owned()),
            pem: of_app("PEM").map(Into::into),
            pem_file: of_app("PEM_FILE").map(PathBuf::from),
        })
    }
}

/// tenv's variables about the mirror of one tool. Each may contain a password.
#[derive(Clone, Debug, Default)]
pub struct MirrorVariables {
    /// The prefix of the names, such as `TFENV_`.
    pub prefix: &'static str,
    /// `_REMOTE`
    pub remote: Option<SecretString>,
    /// `_LIST_URL`
    pub list_url: Option<SecretString>,
    /// `_LIST_MODE`
    pub list_mode: Option<String>,
    /// `_INSTALL_MODE`
    pub install_mode: Option<String>,
    /// `_URL_TEMPLATE`, of OpenTofu only
    pub url_template: Option<SecretString>,
    /// `_REMOTE_USER`
    pub user: Option<String>,
    /// `_REMOTE_PASSWORD`
    pub password: Option<SecretString>,
    /// `TFENV_HASHICORP_PGP_KEY`, `TOFUENV_OPENTOFU_PGP_KEY`
    pub key: Option<String>,
    /// The prefix of URLs, and its replacement; only in tenv's `remote.yaml`.
    pub rewrite: Option<(String, SecretString)>,
    /// The part of an HTML listing that contains the versions; only in tenv's `remote.yaml`.
    pub part: Option<String>,
    /// The file that some of these come from, and their names, such as `REMOTE`.
    pub file: Option<(PathBuf, Vec<&'static str>)>,
}

/// A variable that is set to something.
pub(super) fn text(name: &str) -> Option<String> {
    given(name).filter(|text| !text.trim().is_empty())
}

/// Whether a variable is set to anything but false.
fn is_on(name: &str) -> bool {
    text(name).is_some_and(|value| bool_of_go(&value) != Some(false))
}

/// The value of a variable, also an empty one.
pub(super) fn given(name: &str) -> Option<String> {
    env::var(name).ok()
}

impl Tenv {
    fn read() -> Self {
        const PREFIXES: [&str; 3] = ["TENV_", "TOFUENV_", "TFENV_"];
        let first =
            |name: &str| PREFIXES.iter().find_map(|prefix| text(&format!("{prefix}{name}")));
        let force = ["TENV_FORCE_REMOTE", "TOFUENV_FORCE_REMOTE", "TFENV_FORCE_REMOTE"];
        let token = text("TENV_GITHUB_TOKEN").or_else(|| text("TOFUENV_GITHUB_TOKEN"));
        Self {
            root: first("ROOT").map(PathBuf::from),
            arch: first("ARCH"),
            force_remote: force.into_iter().find_map(|name| Some((name, text(name)?))),
            remote_conf: text("TENV_REMOTE_CONF").map(PathBuf::from),
            validation: text("TENV_VALIDATION"),
            github_token: token.map(|token| token.trim().to_owned().into()),
            github_app: GitHubApp::read(),
            terraform: MirrorVariables::read("TFENV_", Some("TFENV_HASHICORP_PGP_KEY")),
            tofu: MirrorVariables::read("TOFUENV_", Some("TOFUENV_OPENTOFU_PGP_KEY")),
            terragrunt: MirrorVariables::read("TG_", None),
        }
    }

    /// The variables about the mirror of one tool, to be changed.
    pub fn mirror_mut(&mut self, tool: ToolName) -> &mut MirrorVariables {
        match tool {
            ToolName::Terraform => &mut self.terraform,
            ToolName::Tofu => &mut self.tofu,
            ToolName::Terragrunt => &mut self.terragrunt,
        }
    }

    /// The variables about the mirror of one tool.
    pub fn mirror(&self, tool: ToolName) -> &MirrorVariables {
        match tool {
            ToolName::Terraform => &self.terraform,
            ToolName::Tofu => &self.tofu,
            ToolName::Terragrunt => &self.terragrunt,
        }
    }
}

impl MirrorVariables {
    fn read(prefix: &'static str, key: Option<&str>) -> Self {
        let of_tool = |name: &str| text(&format!("{prefix}{name}"));
        Self {
            prefix,
            remote: of_tool("REMOTE").map(Into::into),
            list_url: of_tool("LIST_URL").map(Into::into),
            list_mode: of_tool("LIST_MODE"),
            install_mode: of_tool("INSTALL_MODE"),
            url_template: of_tool("URL_TEMPLATE").map(Into::into),
            user: of_tool("REMOTE_USER"),
            password: of_tool("REMOTE_PASSWORD").map(Into::into),
            key: key.and_then(text),
            ..Self::default()
        }
    }
}

/// Whether a variable is set to a text that is not empty.
pub(super) fn is_set(name: &std::ffi::OsStr) -> bool {
    env::var_os(name).is_some_and(|value| !value.is_empty())
}

/// Whether a variable is set to an empty text.
pub(super) fn is_set_to_nothing(name: &std::ffi::OsStr) -> bool {
    env::var_os(name).is_some_and(|value| value.is_empty())
}
