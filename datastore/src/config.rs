//! Every knob of the datastore: command words, flags, and the environment, which only this room
//! reads.
//!
//! A flag wins over its variable, a variable over Burrito's `config.yaml`, and an empty variable is no
//! variable. A value is text until its own type parses it; what is wrong with it is said together with
//! the place that it came from.

#![expect(clippy::disallowed_methods, reason = "this is the room for the environment")]

mod burrito;
mod callers;
mod keys;
mod settings;
mod values;

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;

use crate::auth::{Auth, NewToken};
use crate::cli::args::{Cat, Flags, Gc, Ls, VERSION, Verify, Word};
use crate::cli::gc::select::Rules;
use crate::config::settings::{Outside, Settings, parse};
use crate::config::values::{Listen, Memory, Of, Time};
use crate::observe::log::LogFormat;
use crate::store::Storage;
use crate::store::encryption::AtRest;
use crate::transport::limits::{self, Limits};
use crate::transport::tls::TlsFiles;

/// What the program was told to do.
#[derive(Debug)]
pub enum Command {
    /// To serve.
    Serve(Serve),
    /// To say what it would serve, and whether it could.
    Check(Serve),
    /// To work on a storage.
    Tool(Place, Tool),
    /// To make a token, and to add its rule to this file.
    Token(NewToken, Option<PathBuf>),
    /// To tell its version: this one.
    Version(String),
}

/// Where artifacts lie, and how.
#[derive(Clone, Debug)]
pub struct Place {
    /// Where.
    pub storage: Storage,
    /// How.
    pub at_rest: AtRest,
}

impl Place {
    /// One where nothing is encrypted.
    pub fn plain(storage: Storage) -> Self {
        Self { storage, at_rest: AtRest::default() }
    }
}

/// What is to be done with a storage.
#[derive(Debug)]
pub enum Tool {
    /// To list the keys that begin so.
    Ls(String),
    /// To write out the object at this key.
    Cat(String),
    /// To compare the objects whose keys begin so with their digests.
    Verify(String),
    /// To record the digest of what is stored at this key now.
    Accept(String),
    /// To delete what is past its time.
    Gc(Rules),
    /// To write the index of runs anew.
    Reindex,
}

/// What `serve` was told.
#[derive(Debug)]
pub struct Serve {
    /// Where to listen: the first of these that can be had.
    pub listen: Vec<SocketAddr>,
    /// How the log is written.
    pub log_format: LogFormat,
    /// How the service behaves.
    pub config: Config,
    /// All of that, as `check` shows it.
    pub settings: Vec<Setting>,
    /// What was set and has no effect, or not the one that was meant.
    pub warnings: Vec<String>,
}

/// A setting as it came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its flag.
    pub name: &'static str,
    /// Its value; of a secret only that it is set.
    pub value: String,
    /// The flag or variable that it came from, or `default`.
    pub source: &'static str,
}

/// How the service behaves, wherever it listens.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where artifacts lie.
    pub storage: Storage,
    /// How they lie there.
    pub at_rest: AtRest,
    /// How callers are told apart.
    pub auth: Auth,
    /// By which certificate it speaks TLS; none means in plain.
    pub tls: Option<TlsFiles>,
    /// How it ends.
    pub drain: Drain,
    /// How much of anything a caller may have.
    pub limits: Limits,
}

impl Config {
    /// Nothing but a storage: everybody is let in, and nothing is encrypted.
    pub fn of(storage: Storage) -> Self {
        let (at_rest, auth, limits) = (AtRest::default(), Auth::None, Limits::default());
        let drain = Drain { delay: Duration::ZERO, timeout: DRAIN_TIMEOUT };
        Self { storage, at_rest, auth, tls: None, drain, limits }
    }
}

/// How the service ends.
#[derive(Clone, Copy, Debug)]
pub struct Drain {
    /// So long it still accepts connections, while `/readyz` says no.
    pub delay: Duration,
    /// So long, after that, what runs may take to finish.
    pub timeout: Duration,
}

const USAGE: u8 = 64;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_MEMORY: Memory = Memory(limits::MEMORY);
const LISTEN: [&str; 2] = ["PLANCHA_LISTEN", "BURRITO_DATASTORE_ADDR"];

impl Command {
    /// Reads arguments and environment. Help, version and refusals are printed here, and what is left
    /// is the exit code: 64 for a wrong use, but as `burrito` 2 for an unknown word and else 1.
    pub fn parse() -> Result<Self, ExitCode> {
        let args = env::args_os().collect::<Vec<_>>();
        let env = |name: &str| Some(env::var_os(name)?.to_string_lossy().into_owned());
        let file = |path: &Path| std::fs::read_to_string(path);
        Self::read(&args, Outside { env: &env, file: &file }).map_err(|error| {
            // Nobody is left to tell if this fails.
            let _printed = error.print();
            ExitCode::from(exit_code(&error, is_burrito(&args)))
        })
    }

    fn read(args: &[OsString], outside: Outside) -> Result<Self, clap::Error> {
        let as_burrito = is_burrito(args);
        let word = Word::parse(args, as_burrito)?;
        Self::of(word, outside, as_burrito)
            .map_err(|message| clap::Error::raw(ErrorKind::ValueValidation, format!("{message}\n")))
    }

    fn of(word: Word, outside: Outside, as_burrito: bool) -> Result<Self, String> {
        let (at, tool) = match word {
            Word::Version => return Ok(Self::Version(version(as_burrito))),
            Word::Serve(flags) => return Serve::read(*flags, outside, as_burrito).map(Self::Serve),
            Word::Check(flags) => return Serve::read(*flags, outside, as_burrito).map(Self::Check),
            Word::Token(flags) => {
                return Ok(Self::Token(callers::new_token(&flags)?, flags.rules));
            }
            Word::Ls(Ls { prefix, at }) => (at, Tool::Ls(keys::prefix(prefix)?)),
            Word::Cat(Cat { key, at }) => (at, Tool::Cat(keys::key(key)?)),
            Word::Verify(Verify { accept: Some(key), at, .. }) => {
                (at, Tool::Accept(keys::accepted(key)?))
            }
            Word::Verify(Verify { prefix, at, .. }) => (at, Tool::Verify(keys::prefix(prefix)?)),
            Word::Reindex(at) => (at, Tool::Reindex),
            Word::Gc(gc) => {
                let rules = rules(&gc)?;
                (gc.at, Tool::Gc(rules))
            }
        };
        let mut settings = Settings::new(outside)?;
        let at_rest = settings.at_rest(None)?;
        Ok(Self::Tool(Place { storage: settings.storage(at.storage)?, at_rest }, tool))
    }
}

/// As `burrito`, in upstream's form: `<version>-<commit> (<time>)`. The image's build says both.
fn version(as_burrito: bool) -> String {
    if !as_burrito {
        return VERSION.to_owned();
    }
    let commit = option_env!("PLANCHA_REVISION").unwrap_or("unknown");
    let time = option_env!("PLANCHA_REVISION_TIME").unwrap_or("unknown");
    format!("{VERSION}-{commit} ({time})")
}

fn rules(gc: &Gc) -> Result<Rules, String> {
    let Gc { keep_runs, max_age, min_age, dry_run, at: _ } = gc;
    let mut rules = Rules {
        keep_runs: *keep_runs,
        max_age: BTreeMap::new(),
        min_age: parse::<Time>("--min-age", min_age)?.0,
        dry_run: *dry_run,
    };
    for text in max_age {
        let Of(kind, Time(age)) = parse("--max-age", text)?;
        rules.max_age.insert(kind, age);
    }
    if rules.keep_runs.is_none() && rules.max_age.is_empty() {
        return Err(
            "gc: nothing says what may go: use --keep-runs N, --max-age KIND=DURATION, or both"
                .to_owned(),
        );
    }
    Ok(rules)
}

fn is_burrito(args: &[OsString]) -> bool {
    args.first().and_then(|program| Path::new(program).file_name()).is_some_and(|n| n == "burrito")
}

fn exit_code(error: &clap::Error, as_burrito: bool) -> u8 {
    let unknown_word =
        [ErrorKind::InvalidSubcommand, ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand];
    match as_burrito {
        _ if !error.use_stderr() => 0,
        true if unknown_word.contains(&error.kind()) => 2,
        true => 1,
        false => USAGE,
    }
}

impl Serve {
    fn read(flags: Flags, outside: Outside, as_burrito: bool) -> Result<Self, String> {
        let mut settings = Settings::new(outside)?;
        let at_rest = settings.at_rest(flags.at_rest)?;
        let listen = settings.take(flags.listen, "--listen", &LISTEN, || {
            // Burrito's pods are reached from others, and callers are told apart there.
            let loopback = || Listen(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 8080))]);
            if as_burrito { ":8080".parse() } else { Ok(loopback()) }
        })?;
        let storage = settings.storage(flags.storage)?;
        let auth = settings.auth(flags.auth, as_burrito, &listen.0)?;
        let tls = settings.tls(flags.tls_cert, flags.tls_key)?;
        let sizes = settings.sizes(&flags.max_size, storage.max_object())?;
        let memory = settings.take(flags.max_memory, "--max-memory", &[], || Ok(MAX_MEMORY))?;
        let limits = Limits { sizes, memory: memory.0, ..Limits::default() };
        let drain = Drain {
            delay: settings.time(flags.drain_delay, "--drain-delay", Duration::ZERO)?,
            timeout: settings.time(flags.drain_timeout, "--drain-timeout", DRAIN_TIMEOUT)?,
        };
        let text = || Ok(LogFormat::Text);
        let log_format =
            settings.take(flags.log_format, "--log-format", &["PLANCHA_LOG_FORMAT"], text)?;
        let config = Config { storage, at_rest, auth, tls, drain, limits };
        let Settings { all: settings, warnings, .. } = settings;
        Ok(Self { listen: listen.0, log_format, config, settings, warnings })
    }
}

#[cfg(test)]
mod tests;
