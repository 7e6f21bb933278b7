//! Every knob of the datastore: command words, flags, and the environment, which only this room
//! reads.
//!
//! A flag wins over its variable, and an empty variable is no variable. A value is text until its own
//! type parses it; what is wrong with it is said together with the place that it came from.

#![expect(clippy::disallowed_methods, reason = "this is the room for the environment")]

use std::env;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use url::Url;

use crate::auth::Auth;
use crate::store::Storage;

/// What the program was told to do.
#[derive(Debug)]
pub enum Command {
    /// To serve.
    Serve(Serve),
    /// To tell its version: this one.
    Version(&'static str),
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
}

/// How the service behaves, wherever it listens.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where artifacts lie.
    pub storage: Storage,
    /// How callers are told apart.
    pub auth: Auth,
    /// How it ends.
    pub drain: Drain,
}

/// How the service ends.
#[derive(Clone, Copy, Debug)]
pub struct Drain {
    /// So long it still accepts connections, while `/readyz` says no.
    pub delay: Duration,
    /// So long, after that, what runs may take to finish.
    pub timeout: Duration,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");
const USAGE: u8 = 64;

/// Keeps plans, logs, git bundles and the other files of Terraform, OpenTofu and Terragrunt runs, and
/// hands them out over HTTP.
#[derive(Debug, Parser)]
#[command(name = "datastore", version = VERSION, max_term_width = 100)]
struct Datastore {
    #[command(subcommand)]
    word: Word,
}

/// The datastore under its other name, for Burrito's charts.
#[derive(Debug, Parser)]
#[command(name = "burrito", version = VERSION, max_term_width = 100)]
struct Burrito {
    #[command(subcommand)]
    word: BurritoWord,
}

#[derive(Debug, Subcommand)]
enum BurritoWord {
    /// Keep the files of runs, and hand them out over HTTP
    #[command(subcommand)]
    Datastore(Word),
    /// Print the version
    Version,
}

#[derive(Debug, Subcommand)]
enum Word {
    /// Serve until SIGTERM or SIGINT
    #[command(alias = "start", after_help = EXAMPLES)]
    Serve(Flags),
    /// Print the version
    Version,
}

const EXAMPLES: &str = "\
Examples:
  datastore serve
  datastore serve --storage file:///srv/plancha --listen 127.0.0.1:9000
  datastore serve --storage memory:// --listen 127.0.0.1:0    # a free port; the log names it

  run='namespace=default&layer=network&run=r1'
  curl -T plan.bin \"http://127.0.0.1:8080/api/plans?$run&attempt=0&format=bin\"
  curl \"http://127.0.0.1:8080/api/attempts?$run\"";

#[derive(Debug, Args)]
#[expect(clippy::doc_markdown, reason = "clap shows these as they stand")]
struct Flags {
    /// Where to listen; `:8080` is any address, port 0 a free one
    /// [env: PLANCHA_LISTEN, BURRITO_DATASTORE_ADDR] [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", alias = "addr")]
    listen: Option<String>,

    /// Where artifacts lie: file:///directory (made if missing) or memory:// (gone at the end)
    /// [env: PLANCHA_STORAGE] [default: plancha/datastore in your data directory]
    #[arg(long, value_name = "URL")]
    storage: Option<String>,

    /// How callers are told apart; so far only `none`: not at all
    /// [env: PLANCHA_AUTH] [default: none, on a loopback address only]
    #[arg(long, value_name = "WAY")]
    auth: Vec<String>,

    /// Listen without authentication on an address that others can reach
    #[arg(long)]
    insecure_no_auth: bool,

    /// On SIGTERM, still accept connections for so long, while /readyz says no
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    drain_delay: Duration,

    /// After that, wait so long for what still runs
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    drain_timeout: Duration,

    /// How the log on standard error is written: text or json
    /// [env: PLANCHA_LOG_FORMAT] [default: text]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
}

/// Variables that name a storage this version cannot use. To pass them over would be to keep
/// everything in the wrong place.
const OTHER_STORAGE: [&str; 5] = [
    "BURRITO_DATASTORE_STORAGE_S3_BUCKET",
    "BURRITO_DATASTORE_STORAGE_GCS_BUCKET",
    "BURRITO_DATASTORE_STORAGE_AZURE_CONTAINER",
    "BURRITO_DATASTORE_STORAGE_AZURE_STORAGEACCOUNT",
    "BURRITO_DATASTORE_STORAGE_MOCK",
];

/// Variables that ask for a protection this version cannot give. To pass them over would be worse.
const PROTECTIONS: [&str; 6] = [
    "BURRITO_DATASTORE_STORAGE_ENCRYPTION_ENABLED",
    "BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY",
    "BURRITO_DATASTORE_SERVICEACCOUNTS",
    "BURRITO_DATASTORE_TLS",
    "PLANCHA_POLICY",
    "PLANCHA_ISOLATION",
];

type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Command {
    /// Reads arguments and environment. Help, version and refusals are printed here, and what is left
    /// is the exit code: 64 for a wrong use, but as `burrito` 2 for an unknown word and else 1.
    pub fn parse() -> Result<Self, ExitCode> {
        let args = env::args_os().collect::<Vec<_>>();
        let env = |name: &str| Some(env::var_os(name)?.to_string_lossy().into_owned());
        Self::read(&args, &env).map_err(|error| {
            // Nobody is left to tell if this fails.
            let _printed = error.print();
            ExitCode::from(exit_code(&error, is_burrito(&args)))
        })
    }

    fn read(args: &[OsString], env: Env) -> Result<Self, clap::Error> {
        let word = if is_burrito(args) {
            match Burrito::try_parse_from(args)?.word {
                BurritoWord::Datastore(word) => word,
                BurritoWord::Version => Word::Version,
            }
        } else {
            Datastore::try_parse_from(args)?.word
        };
        match word {
            Word::Version => Ok(Self::Version(VERSION)),
            Word::Serve(flags) => Serve::read(flags, env).map(Self::Serve).map_err(|message| {
                clap::Error::raw(ErrorKind::ValueValidation, format!("{message}\n"))
            }),
        }
    }
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
    fn read(flags: Flags, env: Env) -> Result<Self, String> {
        let given = |text: Option<String>, flag, variables| Given::find(text, flag, variables, env);
        let listen = given(flags.listen, "--listen", &["PLANCHA_LISTEN", "BURRITO_DATASTORE_ADDR"]);
        let place = listen.as_ref().map_or("--listen", |listen| listen.place);
        let Listen(listen) = match &listen {
            Some(listen) => listen.parse()?,
            None => Listen(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 8080))]),
        };
        if let Some(variable) = set(&PROTECTIONS, env) {
            return Err(format!(
                "{variable} is set, and this version cannot do that yet: unset it to serve without"
            ));
        }
        let storage = match given(flags.storage, "--storage", &["PLANCHA_STORAGE"]) {
            Some(storage) => storage.parse()?,
            None => default_storage(env)?,
        };
        let auth = (!flags.auth.is_empty()).then(|| flags.auth.join(","));
        let auth = match given(auth, "--auth", &["PLANCHA_AUTH"]) {
            Some(auth) => auth.parse()?,
            None => Auth::None,
        };
        if auth == Auth::None && !flags.insecure_no_auth {
            loopback_only(place, &listen)?;
        }
        let log_format = given(flags.log_format, "--log-format", &["PLANCHA_LOG_FORMAT"]);
        let log_format = log_format.map_or(Ok(LogFormat::Text), |format| format.parse())?;
        let drain = Drain { delay: flags.drain_delay, timeout: flags.drain_timeout };
        Ok(Self { listen, log_format, config: Config { storage, auth, drain } })
    }
}

fn loopback_only(place: &str, listen: &[SocketAddr]) -> Result<(), String> {
    match listen.iter().find(|address| !address.ip().is_loopback()) {
        None => Ok(()),
        Some(address) => Err(format!(
            "{place}: {address} is refused, since without authentication whoever reaches it could \
             read and replace every plan. Ways out: listen on a loopback address (--listen \
             127.0.0.1:{}), behind a proxy that authenticates if others are to use it; or, where \
             nobody else can reach it, --insecure-no-auth",
            address.port()
        )),
    }
}

fn default_storage(env: Env) -> Result<Storage, String> {
    if let Some(variable) = set(&OTHER_STORAGE, env) {
        return Err(format!(
            "{variable} is set, and this version cannot store there yet: name another place with \
             --storage or PLANCHA_STORAGE (file:///directory or memory://)"
        ));
    }
    let absolute = |name| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
    let data = data.ok_or(
        "neither HOME nor XDG_DATA_HOME says where to store: name a directory with --storage or \
         PLANCHA_STORAGE, like file:///var/lib/plancha",
    )?;
    Ok(Storage::File(data.join("plancha/datastore")))
}

/// The first of these variables that is set, and to something else than no.
fn set<'a>(variables: &[&'a str], env: Env) -> Option<&'a str> {
    let no = ["", "0", "f", "false"];
    let is_set = |name: &str| env(name).is_some_and(|text| !no.contains(&&*text.to_lowercase()));
    variables.iter().find(|name| is_set(name)).copied()
}

/// A value, and the flag or variable that it came from.
struct Given {
    place: &'static str,
    text: String,
}

impl Given {
    fn find(
        text: Option<String>,
        flag: &'static str,
        variables: &[&'static str],
        env: Env,
    ) -> Option<Self> {
        if let Some(text) = text {
            return Some(Self { place: flag, text });
        }
        variables.iter().find_map(|&place| {
            let text = env(place).filter(|text| !text.is_empty())?;
            Some(Self { place, text })
        })
    }

    fn parse<T: FromStr<Err = String>>(&self) -> Result<T, String> {
        let Self { place, text } = self;
        text.parse().map_err(|reason| format!("{place}: `{text}` {reason}"))
    }
}

struct Listen(Vec<SocketAddr>);

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (v4, v6): (IpAddr, IpAddr) = match text.rsplit_once(':') {
            // That is how Go writes any address: both kinds where there are both.
            Some(("", _)) => (Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()),
            Some(("localhost", _)) => (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()),
            _ => {
                let address = text.parse().map_err(|_| NO_ADDRESS.to_owned())?;
                return Ok(Self(vec![address]));
            }
        };
        let port = text.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
        let port = port.ok_or(NO_ADDRESS)?;
        Ok(Self(vec![(v4, port).into(), (v6, port).into()]))
    }
}

const NO_ADDRESS: &str = "is no address and port, like 127.0.0.1:8080, [::1]:8080 or :8080";

impl FromStr for Storage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = text.split_once("://") else {
            let path = if text.starts_with('/') { text } else { "/directory" };
            return Err(format!("is no URL: for a directory write file://{path}"));
        };
        match scheme {
            "file" => {
                let url = Url::parse(text).ok();
                let path = url.and_then(|url| url.to_file_path().ok());
                path.map(Self::File).ok_or(
                    "names no absolute directory: it takes three slashes, as in file:///directory"
                        .to_owned(),
                )
            }
            "memory" if rest.is_empty() => Ok(Self::Memory),
            "memory" => Err("has something after memory://, which takes nothing".to_owned()),
            "s3" | "gs" | "az" => Err(format!(
                "cannot be used: {scheme}:// is not supported by this version yet, only \
                 file:///directory and memory:// are"
            )),
            _ => Err("is of no known kind: use file:///directory or memory://".to_owned()),
        }
    }
}

impl FromStr for Auth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        for way in text.split(',') {
            match way.split('=').next() {
                Some("none") if way == "none" => {}
                Some("kubernetes" | "oidc" | "tokens") => {
                    return Err("cannot be had: this version supports only `none` yet".to_owned());
                }
                _ => {
                    return Err("is no way to authenticate: so far there is only `none`".to_owned());
                }
            }
        }
        Ok(Self::None)
    }
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("is neither `text` nor `json`".to_owned()),
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = text.parse::<jiff::SignedDuration>().ok();
    duration
        .and_then(|duration| duration.try_into().ok())
        .ok_or_else(|| "not a duration like 500ms, 30s or 5m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(args: &str, env: &[(&str, &str)]) -> Result<Serve, (u8, String)> {
        let args = args.split_whitespace().map(OsString::from).collect::<Vec<_>>();
        let env = |name: &str| {
            let found = env.iter().find(|(variable, _)| *variable == name)?;
            Some(found.1.to_owned())
        };
        match Command::read(&args, &env) {
            Ok(Command::Serve(serve)) => Ok(serve),
            Ok(Command::Version(version)) => panic!("{version}"),
            Err(error) => Err((exit_code(&error, is_burrito(&args)), error.to_string())),
        }
    }

    const HOME: (&str, &str) = ("HOME", "/home/a");

    fn refusal(args: &str, env: &[(&str, &str)]) -> String {
        let (_, text) = read(args, env).unwrap_err();
        text.lines().next().unwrap_or_default().to_owned()
    }

    #[test]
    fn nothing_said_is_the_data_directory_on_loopback() {
        let serve = read("datastore serve", &[HOME]).unwrap();
        assert_eq!(serve.listen, [SocketAddr::from(([127, 0, 0, 1], 8080))]);
        assert_eq!(serve.log_format, LogFormat::Text);
        let directory = "/home/a/.local/share/plancha/datastore";
        assert_eq!(serve.config.storage, Storage::File(directory.into()));
        assert_eq!(serve.config.drain.timeout, Duration::from_secs(30));
        let serve = read("datastore serve", &[HOME, ("XDG_DATA_HOME", "/data")]).unwrap();
        assert_eq!(serve.config.storage, Storage::File("/data/plancha/datastore".into()));
    }

    #[test]
    fn a_flag_wins_over_its_variable_and_an_empty_variable_is_none() {
        let env = [
            ("PLANCHA_STORAGE", "memory://"),
            ("PLANCHA_LISTEN", ""),
            ("BURRITO_DATASTORE_ADDR", "[::1]:7000"),
            ("PLANCHA_LOG_FORMAT", "json"),
        ];
        let serve = read("datastore serve", &env).unwrap();
        assert_eq!(serve.config.storage, Storage::Memory);
        assert_eq!(serve.listen, ["[::1]:7000".parse().unwrap()]);
        assert_eq!(serve.log_format, LogFormat::Json);
        let serve =
            read("datastore serve --storage file:///a%20b --listen localhost:0", &env).unwrap();
        assert_eq!(serve.config.storage, Storage::File("/a b".into()));
        let both: [SocketAddr; 2] = ["127.0.0.1:0".parse().unwrap(), "[::1]:0".parse().unwrap()];
        assert_eq!(serve.listen, both);
    }

    #[test]
    fn go_writes_any_address_as_a_port() {
        let serve = read("burrito datastore start --addr :8080 --insecure-no-auth", &[HOME]);
        let any: [SocketAddr; 2] = ["[::]:8080".parse().unwrap(), "0.0.0.0:8080".parse().unwrap()];
        assert_eq!(serve.unwrap().listen, any);
    }

    #[test]
    fn a_refusal_names_the_place_and_the_way_out() {
        let serve = |flags: &str| refusal(&format!("datastore serve {flags}"), &[HOME]);
        insta::assert_snapshot!(serve("--storage s3://b"), @"error: --storage: `s3://b` cannot be used: s3:// is not supported by this version yet, only file:///directory and memory:// are");
        insta::assert_snapshot!(serve("--storage ftp://b"), @"error: --storage: `ftp://b` is of no known kind: use file:///directory or memory://");
        insta::assert_snapshot!(serve("--storage /srv/x"), @"error: --storage: `/srv/x` is no URL: for a directory write file:///srv/x");
        insta::assert_snapshot!(serve("--storage file://srv/x"), @"error: --storage: `file://srv/x` names no absolute directory: it takes three slashes, as in file:///directory");
        insta::assert_snapshot!(serve("--storage memory://x"), @"error: --storage: `memory://x` has something after memory://, which takes nothing");
        insta::assert_snapshot!(serve("--listen 8080"), @"error: --listen: `8080` is no address and port, like 127.0.0.1:8080, [::1]:8080 or :8080");
        insta::assert_snapshot!(serve("--listen :99999"), @"error: --listen: `:99999` is no address and port, like 127.0.0.1:8080, [::1]:8080 or :8080");
        insta::assert_snapshot!(serve("--listen 0.0.0.0:8080"), @"error: --listen: 0.0.0.0:8080 is refused, since without authentication whoever reaches it could read and replace every plan. Ways out: listen on a loopback address (--listen 127.0.0.1:8080), behind a proxy that authenticates if others are to use it; or, where nobody else can reach it, --insecure-no-auth");
        insta::assert_snapshot!(serve("--auth kubernetes"), @"error: --auth: `kubernetes` cannot be had: this version supports only `none` yet");
        insta::assert_snapshot!(serve("--auth none --auth tokens=/x"), @"error: --auth: `none,tokens=/x` cannot be had: this version supports only `none` yet");
        insta::assert_snapshot!(serve("--auth password"), @"error: --auth: `password` is no way to authenticate: so far there is only `none`");
        insta::assert_snapshot!(serve("--drain-delay 5"), @"error: invalid value '5' for '--drain-delay <DURATION>': not a duration like 500ms, 30s or 5m");
        insta::assert_snapshot!(serve("--log-format xml"), @"error: --log-format: `xml` is neither `text` nor `json`");
    }

    #[test]
    fn a_variable_that_cannot_be_honoured_is_refused_by_its_name() {
        let with = |name, value| refusal("datastore serve", &[HOME, (name, value)]);
        insta::assert_snapshot!(with("PLANCHA_STORAGE", "gs://b"), @"error: PLANCHA_STORAGE: `gs://b` cannot be used: gs:// is not supported by this version yet, only file:///directory and memory:// are");
        insta::assert_snapshot!(with("BURRITO_DATASTORE_ADDR", ":8080"), @"error: BURRITO_DATASTORE_ADDR: [::]:8080 is refused, since without authentication whoever reaches it could read and replace every plan. Ways out: listen on a loopback address (--listen 127.0.0.1:8080), behind a proxy that authenticates if others are to use it; or, where nobody else can reach it, --insecure-no-auth");
        insta::assert_snapshot!(with("BURRITO_DATASTORE_STORAGE_S3_BUCKET", "b"), @"error: BURRITO_DATASTORE_STORAGE_S3_BUCKET is set, and this version cannot store there yet: name another place with --storage or PLANCHA_STORAGE (file:///directory or memory://)");
        insta::assert_snapshot!(with("BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY", "k"), @"error: BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY is set, and this version cannot do that yet: unset it to serve without");
        insta::assert_snapshot!(refusal("datastore serve", &[]), @"error: neither HOME nor XDG_DATA_HOME says where to store: name a directory with --storage or PLANCHA_STORAGE, like file:///var/lib/plancha");
        assert!(read("datastore serve", &[HOME, ("BURRITO_DATASTORE_TLS", "false")]).is_ok());
    }

    #[test]
    fn usage_exits_64_but_as_burrito_2_for_an_unknown_word_and_else_1() {
        let code = |args| read(args, &[HOME]).unwrap_err().0;
        assert_eq!(code("datastore"), 64);
        assert_eq!(code("datastore sevre"), 64);
        assert_eq!(code("datastore serve --nope"), 64);
        assert_eq!(code("datastore serve --storage s3://b"), 64);
        assert_eq!(code("datastore serve --help"), 0);
        assert_eq!(code("/usr/bin/burrito datastore sevre"), 2);
        assert_eq!(code("burrito runner"), 2);
        assert_eq!(code("burrito datastore"), 2);
        assert_eq!(code("burrito datastore serve --nope"), 1);
        assert_eq!(code("burrito --help"), 0);
    }
}
