//! The arguments of the commands that show runs: `runs`, `show` and `logs`.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use datastore_api::{Attempt, Name};

use crate::cli::{LayerArgs, RemoteArgs};

/// `runner runs`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  runner runs --datastore URL            the runs of the module in this directory
  runner runs live/vpc --limit 100       those of another one
  runner runs --name infra.live.vpc      those of a layer by its name
  runner runs --json | jq -r '.[] | select(.outcome == \"failed\") | .run'")]
pub struct RunsArgs {
    /// The code: a directory or a git URL [default: the current directory]
    #[arg(value_name = "DIR")]
    pub dir: Option<String>,
    /// Print at most this many runs
    #[arg(long, value_name = "N", default_value = "20", value_parser = limit)]
    pub limit: NonZeroUsize,
    /// Print a JSON list
    #[arg(long)]
    pub json: bool,
    /// How to find and print the runs.
    #[command(flatten)]
    pub common: ShowCommon,
}

/// `runner show`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  runner show --datastore URL            the newest run of the module in this directory
  runner show --source live/vpc          that of another one
  runner show vpc-plan-x4k2q live/vpc    a run of another one, its latest attempt
  runner show vpc-plan-x4k2q/0 --json    the files of an attempt, and its run.json
  runner show default/vpc/vpc-plan-x4k2q a run as the runner logs it, from any directory")]
pub struct ShowArgs {
    /// The run.
    #[command(flatten)]
    pub target: RunTarget,
    /// Print the attempt's files, its run.json and the record of its apply, as JSON
    #[arg(long)]
    pub json: bool,
    /// Show only a plan that is signed with this key: the public keys (PEM), or the shared secret
    #[arg(long, env = "PLANCHA_VERIFY_KEY", value_name = "FILE")]
    pub verify_key: Option<PathBuf>,
    /// How to find and print the run.
    #[command(flatten)]
    pub common: ShowCommon,
}

/// `runner logs`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  runner logs --datastore URL            the log of the newest run of the module in this directory
  runner logs --source live/vpc          that of another module
  runner logs vpc-apply-9fk2p/1          that of a run's attempt
  runner logs -f vpc-apply-9fk2p         of a run that works now, as it comes
  runner logs vpc-apply-9fk2p > run.log  to a file: neither pager nor colours")]
pub struct LogsArgs {
    /// The run.
    #[command(flatten)]
    pub target: RunTarget,
    /// Print what comes, until the log is complete; says so if the runner is lost
    #[arg(short, long)]
    pub follow: bool,
    /// How to find and print the log.
    #[command(flatten)]
    pub common: ShowCommon,
}

/// `[RUN[/ATTEMPT]] [DIR]`
#[derive(Debug, Args)]
pub struct RunTarget {
    /// The run, and perhaps its attempt; as the runner logs it, with namespace and layer before it, or without
    /// [default: the layer's newest run, and its latest attempt]
    #[arg(value_name = "RUN[/ATTEMPT]")]
    pub run: Option<RunName>,
    /// The code: a directory or a git URL [default: the current directory]
    #[arg(value_name = "DIR")]
    pub dir: Option<String>,
}

/// What the commands share: which layer, which datastore, and the form of the output.
#[derive(Debug, Args)]
pub struct ShowCommon {
    /// Write to the terminal directly. Otherwise the program of `PLANCHA_PAGER`, else of `PAGER`, else `less` shows the
    /// output
    #[arg(long)]
    pub no_pager: bool,
    /// The code, if DIR is not given
    #[arg(long, env = "PLANCHA_SOURCE", help_heading = "Identity", value_name = "DIR|URL")]
    pub source: Option<String>,
    /// Working directory inside the source [default: the layer's spec.path, else its root]
    #[arg(long, env = "PLANCHA_PATH", help_heading = "Identity", value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// The directory that keeps the clone of a git URL, for the selected workspace
    #[arg(long, env = "PLANCHA_WORK_DIR", help_heading = "Identity", value_name = "DIR")]
    pub work_dir: Option<PathBuf>,
    /// Which layer.
    #[command(flatten)]
    pub identity: LayerArgs,
    /// The datastore, and how it is trusted.
    #[command(flatten)]
    pub remote: RemoteArgs,
}

/// A number of runs.
fn limit(text: &str) -> Result<NonZeroUsize, &'static str> {
    text.parse().map_err(|_| "expected a number of runs, 1 or more")
}

impl RunTarget {
    /// The argument on the command line that a run with its layer leaves without effect.
    pub(super) fn useless(&self, matches: &ArgMatches) -> Option<&'static str> {
        const IDENTITY: [(&str, &str); 7] = [
            ("dir", "DIR"),
            ("source", "--source"),
            ("path", "--path"),
            ("work_dir", "--work-dir"),
            ("layer", "--layer"),
            ("namespace", "--namespace"),
            ("name", "--name"),
        ];
        self.run.as_ref()?.layer.as_ref()?;
        let is_given = |id| matches.value_source(id) == Some(ValueSource::CommandLine);
        IDENTITY.into_iter().find_map(|(id, shown)| is_given(id).then_some(shown))
    }
}

/// A run, as messages name it: `RUN[/ATTEMPT]` or `NAMESPACE/LAYER/RUN[/ATTEMPT]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunName {
    /// Namespace and layer, if they are named.
    pub layer: Option<(Name, Name)>,
    /// The run.
    pub run: Name,
    /// Its attempt, the latest by default.
    pub attempt: Option<Attempt>,
}

impl FromStr for RunName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_url = text.contains("://")
            || text.split_once(':').is_some_and(|(host, _)| host.contains('@'));
        // A URL may hold a password.
        let code = if is_url { "URL" } else { text };
        let is_code = is_url || text.starts_with(['.', '/', '~']) || text.ends_with('/');
        let of_code = format!("for the newest run of a directory or git URL use --source {code}");
        if is_code && !text.is_empty() {
            return Err(format!(
                "expected RUN[/ATTEMPT] or NAMESPACE/LAYER/RUN[/ATTEMPT]; {of_code}"
            ));
        }
        let parts = text.split('/').collect::<Vec<_>>();
        let (layer, run, attempt) = match *parts {
            [run] => (None, run, None),
            [run, attempt] => (None, run, Some(attempt)),
            [namespace, layer, run] => (Some((namespace, layer)), run, None),
            [namespace, layer, run, attempt] => (Some((namespace, layer)), run, Some(attempt)),
            _ => return Err("expected RUN[/ATTEMPT] or NAMESPACE/LAYER/RUN[/ATTEMPT]".to_owned()),
        };
        let name = |text: &str| text.parse::<Name>().map_err(|error| error.to_string());
        let layer =
            layer.map(|(namespace, layer)| Ok::<_, String>((name(namespace)?, name(layer)?)));
        let attempt = attempt.map(str::parse).transpose();
        let attempt =
            attempt.map_err(|error: datastore_api::InvalidName| format!("{error}; {of_code}"));
        Ok(Self { layer: layer.transpose()?, run: name(run)?, attempt: attempt? })
    }
}

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((namespace, layer)) = &self.layer {
            write!(f, "{namespace}/{layer}/")?;
        }
        match self.attempt {
            Some(attempt) => write!(f, "{}/{attempt}", self.run),
            None => self.run.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_is_named_with_and_without_its_layer_and_attempt() {
        for text in ["r", "r/3", "ns/layer/r", "ns/layer/r/3"] {
            let name = text.parse::<RunName>().unwrap();
            assert_eq!(name.to_string(), text);
            assert_eq!(name.run.as_ref(), "r");
            assert_eq!(name.attempt.is_some(), text.ends_with("/3"));
            assert_eq!(name.layer.is_some(), text.starts_with("ns/"));
        }
        for text in ["", "/", "r/x", "r/01", "a//r", "a/b/c/d", "a/b/c/1/2", "../r"] {
            text.parse::<RunName>().unwrap_err();
        }
        let error = "live/vpc".parse::<RunName>().unwrap_err();
        assert!(
            error.ends_with("; for the newest run of a directory or git URL use --source live/vpc"),
            "{error}"
        );
        for text in [".", "./e", "/abs/x", "live/vpc/", "https://u:hush@h/x.git", "git@h:a/b.git"] {
            let error = text.parse::<RunName>().unwrap_err();
            assert!(
                error.starts_with("expected RUN[/ATTEMPT]") && !error.contains("hush"),
                "{error}"
            );
        }
    }
}
