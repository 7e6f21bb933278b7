//! The configuration of the datastore: commands, flags, and the environment. No other module reads the environment.
//!
//! A flag overrides its variable, and a variable overrides Burrito's `config.yaml`. An empty variable counts as not
//! set. A setting is text until its own type parses it; an error names the source of the setting.

#![expect(clippy::disallowed_methods, reason = "the module that reads the environment")]

mod burrito;
mod callers;
mod keys;
mod oidc;
mod sessions;
mod settings;
mod sources;
mod states;
mod values;

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use datastore_api::{HumanDuration, entry_point};

use crate::auth::{Auth, NewToken, SessionSettings};
use crate::cli::args::{Cat, Gc, Ls, ServeFlags, Subcommand, VERSION, Verify};
use crate::cli::gc::select::Rules;
pub use crate::config::settings::Setting;
use crate::config::settings::{Settings, parse};
use crate::config::sources::Sources;
pub use crate::config::states::{StateCommand, StateOrder, StatePlace};
use crate::config::values::{Listen, Memory, OnOff, PerKind};
use crate::kind::Kind;
use crate::observe::log::LogFormat;
use crate::store::encryption::AtRest;
use crate::store::{StateSettings, Storage};
use crate::transport::limits::{self, Limits};
use crate::transport::tls::TlsFiles;

/// A parsed command line.
#[derive(Debug)]
pub enum Command {
    /// `serve`.
    Serve(Serve),
    /// `check`: print the settings, and probe the storage.
    Check(Serve),
    /// `health`: ask the datastore that listens on these addresses whether it is ready.
    Health(Vec<SocketAddr>),
    /// A command on the objects of a storage.
    Storage(StorageConfig, StorageCommand),
    /// `state`: a command on terraform states.
    State(Box<StateOrder>),
    /// `token`: create a token, and add its rule to this file.
    Token(NewToken, Option<PathBuf>),
    /// `version`: print this text.
    Version(String),
}

/// Where artifacts are stored, and in which format.
#[derive(Clone, Debug)]
pub struct StorageConfig {
    /// The storage.
    pub storage: Storage,
    /// Whether stored objects are encrypted.
    pub at_rest: AtRest,
}

impl StorageConfig {
    /// A storage without encryption.
    pub fn plain(storage: Storage) -> Self {
        Self { storage, at_rest: AtRest::default() }
    }
}

/// A command on the objects of a storage.
#[derive(Debug)]
pub enum StorageCommand {
    /// List the keys with this prefix.
    Ls(String),
    /// Print the object with this key.
    Cat(String),
    /// Compare the objects whose keys have this prefix with their digests.
    Verify(String),
    /// Record the digest of the object that this key has now.
    Accept(String),
    /// Delete expired artifacts.
    Gc(Rules),
    /// Rebuild the index of runs.
    Reindex,
}

/// The configuration of `serve` and `check`.
#[derive(Debug)]
pub struct Serve {
    /// Addresses to listen on, as [`crate::listen`] does.
    pub listen: Vec<SocketAddr>,
    /// The format of the log.
    pub log_format: LogFormat,
    /// The configuration of the service.
    pub config: Config,
    /// Every setting, as `check` prints it.
    pub settings: Vec<Setting>,
    /// Settings without effect, or with another one than was probably intended.
    pub warnings: Vec<String>,
}

/// The configuration of the service, without its address.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where artifacts are stored.
    pub storage: Storage,
    /// Whether stored objects are encrypted.
    pub at_rest: AtRest,
    /// How callers are authenticated.
    pub auth: Auth,
    /// How people sign in with a browser.
    pub sessions: SessionSettings,
    /// The certificate; none for plain HTTP.
    pub tls: Option<TlsFiles>,
    /// How the service shuts down.
    pub drain: Drain,
    /// Limits of requests and connections.
    pub limits: Limits,
    /// How states are kept.
    pub states: StateSettings,
    /// Whether the page for people is served at `/`.
    pub ui: bool,
}

impl Config {
    /// The defaults for a storage, without authentication and encryption.
    pub fn of(storage: Storage) -> Self {
        let (at_rest, auth, limits) = (AtRest::default(), Auth::None, Limits::default());
        let drain = Drain { delay: Duration::ZERO, timeout: DRAIN_TIMEOUT };
        let states = StateSettings::default();
        let sessions = SessionSettings::default();
        Self { storage, at_rest, auth, sessions, tls: None, drain, limits, states, ui: true }
    }
}

/// How the service shuts down.
#[derive(Clone, Copy, Debug)]
pub struct Drain {
    /// How long it still accepts connections, while `/readyz` answers 503.
    pub delay: Duration,
    /// How long it then waits for requests in flight.
    pub timeout: Duration,
}

/// The program's own name.
const PROGRAM: &str = "datastore";
const USAGE: u8 = 64;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_MEMORY: Memory = Memory(limits::MEMORY);
const PORT: u16 = 8080;
const LISTEN: [&str; 2] = ["PLANCHA_LISTEN", "BURRITO_DATASTORE_ADDR"];

impl Command {
    /// Parses arguments and environment. Prints help, version and errors itself, and then returns the exit code: 64
    /// for wrong usage; as `burrito`, 2 for an unknown command of `burrito datastore` and otherwise 1.
    pub fn parse() -> Result<Self, ExitCode> {
        let (args, as_burrito) = entry_point::read(env::args_os().collect(), PROGRAM);
        let env = |name: &str| Some(env::var_os(name)?.to_string_lossy().into_owned());
        let file = |path: &Path| std::fs::read_to_string(path);
        Self::read(&args, as_burrito, Sources { env: &env, file: &file }).map_err(|error| {
            match error.print() {
                // A reader that has closed the pipe did not want more.
                Err(cause) if !error.use_stderr() && cause.kind() != io::ErrorKind::BrokenPipe => {
                    // Without stderr, only the exit code is left to report the error.
                    let _printed =
                        writeln!(io::stderr(), "error: cannot write to standard output: {cause}");
                    ExitCode::FAILURE
                }
                _ => ExitCode::from(exit_code(&error, &args, as_burrito)),
            }
        })
    }

    fn read(args: &[OsString], as_burrito: bool, sources: Sources) -> Result<Self, clap::Error> {
        let subcommand = Subcommand::parse(args, as_burrito)?;
        Self::of(subcommand, sources, as_burrito)
            .map_err(|message| clap::Error::raw(ErrorKind::ValueValidation, format!("{message}\n")))
    }

    fn of(subcommand: Subcommand, sources: Sources, as_burrito: bool) -> Result<Self, String> {
        let (flags, command) = match subcommand {
            Subcommand::Version => return Ok(Self::Version(version(as_burrito))),
            Subcommand::Serve(flags) => {
                return Serve::read(*flags, sources, as_burrito).map(Self::Serve);
            }
            Subcommand::Check(flags) => {
                return Serve::read(*flags, sources, as_burrito).map(Self::Check);
            }
            Subcommand::Health(flags) => {
                let mut settings = Settings::new(sources)?;
                return Ok(Self::Health(listen(&mut settings, flags.listen, true)?));
            }
            Subcommand::Token(flags) => {
                return Ok(Self::Token(callers::new_token(&flags)?, flags.rules));
            }
            Subcommand::State(state) => {
                let order = StateOrder::read(*state, sources)?;
                return Ok(Self::State(Box::new(order)));
            }
            Subcommand::Ls(Ls { prefix, storage }) => {
                (storage, StorageCommand::Ls(keys::prefix(prefix)?))
            }
            Subcommand::Cat(Cat { key, storage }) => {
                (storage, StorageCommand::Cat(keys::key(key)?))
            }
            Subcommand::Verify(Verify { accept: Some(key), storage, .. }) => {
                (storage, StorageCommand::Accept(keys::acceptable_key(key)?))
            }
            Subcommand::Verify(Verify { prefix, storage, .. }) => {
                (storage, StorageCommand::Verify(keys::prefix(prefix)?))
            }
            Subcommand::Reindex(storage) => (storage, StorageCommand::Reindex),
            Subcommand::Gc(gc) => {
                let rules = rules(&gc)?;
                (gc.storage, StorageCommand::Gc(rules))
            }
        };
        let mut settings = Settings::new(sources)?;
        let at_rest = settings.at_rest(None)?;
        let storage = settings.storage(flags.storage)?;
        Ok(Self::Storage(StorageConfig { storage, at_rest }, command))
    }
}

/// The version; as `burrito`, in Burrito's format: `<version>-<commit> (<time>)`. The build of the image sets commit
/// and time.
fn version(as_burrito: bool) -> String {
    if !as_burrito {
        return VERSION.to_owned();
    }
    let commit = option_env!("PLANCHA_REVISION").unwrap_or("unknown");
    let time = option_env!("PLANCHA_REVISION_TIME").unwrap_or("unknown");
    format!("{VERSION}-{commit} ({time})")
}

fn rules(gc: &Gc) -> Result<Rules, String> {
    let Gc { keep_runs, keep_states, max_age, min_age, dry_run, storage: _ } = gc;
    let HumanDuration(min_age) = parse("--min-age", min_age)?;
    let mut rules = Rules {
        keep_runs: *keep_runs,
        keep_states: *keep_states,
        max_age: BTreeMap::new(),
        min_age,
        dry_run: *dry_run,
    };
    for text in max_age {
        let PerKind(kind, HumanDuration(age)) = parse("--max-age", text)?;
        match kind {
            Kind::Lease => {
                return Err(format!(
                    "--max-age: invalid value `{text}`: leases expire by themselves"
                ));
            }
            Kind::Status | Kind::Outputs => {
                return Err(format!(
                    "--max-age: invalid value `{text}`: gc deletes no documents of layers: the next run replaces \
                     them\nhint: DELETE /api/documents deletes one"
                ));
            }
            _ => {}
        }
        if rules.max_age.insert(kind, age).is_some() {
            return Err(format!("--max-age: `{kind}` is set twice\nhint: set each kind once"));
        }
    }
    if rules.keep_runs.is_none() && rules.keep_states.is_none() && rules.max_age.is_empty() {
        return Err(
            "gc: no rule says what expires\nhint: use --keep-runs N, --keep-states N or --max-age KIND=DURATION"
                .to_owned(),
        );
    }
    Ok(rules)
}

fn exit_code(error: &clap::Error, args: &[OsString], as_burrito: bool) -> u8 {
    let of_datastore = args.get(1).is_some_and(|word| word == PROGRAM);
    let unknown_command =
        [ErrorKind::InvalidSubcommand, ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand];
    match as_burrito {
        _ if !error.use_stderr() => 0,
        true if of_datastore && unknown_command.contains(&error.kind()) => 2,
        true => 1,
        false => USAGE,
    }
}

fn listen(
    settings: &mut Settings,
    flag: Option<String>,
    as_burrito: bool,
) -> Result<Vec<SocketAddr>, String> {
    let listen = settings.take(flag, "--listen", &LISTEN, || {
        // Other pods reach Burrito's, and callers are authenticated there.
        if as_burrito {
            let any = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
            Listen(any.map(|ip| SocketAddr::new(ip, PORT)).to_vec())
        } else {
            Listen(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, PORT))])
        }
    })?;
    Ok(listen.0)
}

impl Serve {
    fn read(flags: ServeFlags, sources: Sources, as_burrito: bool) -> Result<Self, String> {
        let mut settings = Settings::new(sources)?;
        let at_rest = settings.at_rest(flags.at_rest)?;
        let listen = listen(&mut settings, flags.listen, as_burrito)?;
        let storage = settings.storage(flags.storage)?;
        let sessions = settings.sessions(flags.public_url, flags.session_key_file)?;
        let auth = settings.auth(flags.auth, as_burrito, &listen)?;
        settings.redirect_uris(&auth, &sessions, &listen)?;
        let tls = settings.tls(flags.tls_cert, flags.tls_key)?;
        let sizes = settings.sizes(&flags.max_size, storage.max_object())?;
        let memory = settings.take(flags.max_memory, "--max-memory", &[], || MAX_MEMORY)?;
        let limits = Limits { sizes, memory: memory.0, ..Limits::default() };
        let drain = Drain {
            delay: settings.duration(flags.drain_delay, "--drain-delay", Duration::ZERO)?,
            timeout: settings.duration(flags.drain_timeout, "--drain-timeout", DRAIN_TIMEOUT)?,
        };
        let text = || LogFormat::Text;
        let log_format =
            settings.take(flags.log_format, "--log-format", &["PLANCHA_LOG_FORMAT"], text)?;
        let single_replica = settings.single_replica(flags.single_replica)?;
        let states = StateSettings { single_replica, ..StateSettings::default() };
        let OnOff(ui) = settings.take(flags.ui, "--ui", &["PLANCHA_UI"], || OnOff(true))?;
        let config = Config { storage, at_rest, auth, sessions, tls, drain, limits, states, ui };
        let Settings { all: settings, warnings, .. } = settings;
        Ok(Self { listen, log_format, config, settings, warnings })
    }
}

#[cfg(test)]
mod tests;
