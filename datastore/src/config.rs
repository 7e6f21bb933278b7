//! Every knob of the datastore: command words, flags, and the environment, which only this room
//! reads.
//!
//! A flag wins over its variable, and an empty variable is no variable. A value is text until its own
//! type parses it; what is wrong with it is said together with the place that it came from.

#![expect(clippy::disallowed_methods, reason = "this is the room for the environment")]

mod values;
mod words;

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::error::ErrorKind;

use self::values::{Listen, Memory, Of, Time};
use self::words::{Cat, Flags, Gc, Ls, VERSION, Word};
use crate::auth::Auth;
use crate::gc::Rules;
use crate::kind::Kind;
use crate::limits::{self, Limits, Size, Sizes};
use crate::store::{Cloud, Storage, Variables};

/// What the program was told to do.
#[derive(Debug)]
pub enum Command {
    /// To serve.
    Serve(Serve),
    /// To say what it would serve, and whether it could.
    Check(Serve),
    /// To work on a storage.
    Tool(Storage, Tool),
    /// To tell its version: this one.
    Version(&'static str),
}

/// What is to be done with a storage.
#[derive(Debug)]
pub enum Tool {
    /// To list the keys that begin so.
    Ls(String),
    /// To write out the object at this key.
    Cat(String),
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
    /// How callers are told apart.
    pub auth: Auth,
    /// How it ends.
    pub drain: Drain,
    /// How much of anything a caller may have.
    pub limits: Limits,
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

const USAGE: u8 = 64;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_MEMORY: Memory = Memory(limits::MEMORY);
const LISTEN: [&str; 2] = ["PLANCHA_LISTEN", "BURRITO_DATASTORE_ADDR"];

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
        let word = Word::parse(args, is_burrito(args))?;
        Self::of(word, env)
            .map_err(|message| clap::Error::raw(ErrorKind::ValueValidation, format!("{message}\n")))
    }

    fn of(word: Word, env: Env) -> Result<Self, String> {
        let (at, tool) = match word {
            Word::Version => return Ok(Self::Version(VERSION)),
            Word::Serve(flags) => return Serve::read(*flags, env).map(Self::Serve),
            Word::Check(flags) => return Serve::read(*flags, env).map(Self::Check),
            Word::Ls(Ls { prefix, at }) => (at, Tool::Ls(prefix)),
            Word::Cat(Cat { key, at }) => (at, Tool::Cat(key)),
            Word::Reindex(at) => (at, Tool::Reindex),
            Word::Gc(gc) => {
                let rules = rules(&gc)?;
                (gc.at, Tool::Gc(rules))
            }
        };
        Ok(Self::Tool(Settings::new(env).storage(at.storage)?, tool))
    }
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
    fn read(flags: Flags, env: Env) -> Result<Self, String> {
        let mut settings = Settings::new(env);
        let listen = settings.take(flags.listen, "--listen", &LISTEN, || {
            Ok(Listen(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 8080))]))
        })?;
        if let Some(variable) = set(&PROTECTIONS, env) {
            return Err(format!(
                "{variable} is set, and this version cannot do that yet: unset it to serve without"
            ));
        }
        let storage = settings.storage(flags.storage)?;
        let auth = (!flags.auth.is_empty()).then(|| flags.auth.join(","));
        let auth = settings.take(auth, "--auth", &["PLANCHA_AUTH"], || Ok(Auth::None))?;
        if auth == Auth::None && !flags.insecure_no_auth {
            loopback_only(settings.source("--listen"), &listen.0)?;
        }
        let sizes = settings.sizes(&flags.max_size)?;
        let memory = settings.take(flags.max_memory, "--max-memory", &[], || Ok(MAX_MEMORY))?;
        let limits = Limits { sizes, memory: memory.0, ..Limits::default() };
        let drain = Drain {
            delay: settings.time(flags.drain_delay, "--drain-delay", Duration::ZERO)?,
            timeout: settings.time(flags.drain_timeout, "--drain-timeout", DRAIN_TIMEOUT)?,
        };
        let text = || Ok(LogFormat::Text);
        let log_format =
            settings.take(flags.log_format, "--log-format", &["PLANCHA_LOG_FORMAT"], text)?;
        let config = Config { storage, auth, drain, limits };
        Ok(Self { listen: listen.0, log_format, config, settings: settings.all })
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

/// Reads settings, and notes where each came from.
struct Settings<'a> {
    env: Env<'a>,
    all: Vec<Setting>,
}

impl<'a> Settings<'a> {
    fn new(env: Env<'a>) -> Self {
        Self { env, all: Vec::new() }
    }

    /// The flag, else the first of these variables, else the default.
    fn take<T: FromStr<Err = String> + Display>(
        &mut self,
        flag: Option<String>,
        name: &'static str,
        variables: &[&'static str],
        default: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        let variable =
            |name: &&'static str| Some((*name, (self.env)(name).filter(|v| !v.is_empty())?));
        let given = flag.map(|text| (name, text)).or_else(|| variables.iter().find_map(variable));
        let (source, value) = match given {
            Some((source, text)) => (source, parse(source, &text)?),
            None => ("default", default()?),
        };
        self.note(name, &value, source);
        Ok(value)
    }

    fn time(
        &mut self,
        flag: Option<String>,
        name: &'static str,
        default: Duration,
    ) -> Result<Duration, String> {
        self.take(flag, name, &[], || Ok(Time(default))).map(|Time(time)| time)
    }

    fn storage(&mut self, flag: Option<String>) -> Result<Storage, String> {
        let env = self.env;
        let storage =
            self.take(flag, "--storage", &["PLANCHA_STORAGE"], || default_storage(env))?;
        let Storage::Cloud(cloud) = storage else { return Ok(storage) };
        // A cloud is reached as its own variables say; most of them are secret.
        let variables = Variables::read(cloud.provider, env);
        for name in variables.names() {
            self.note(name, &"set", name);
        }
        Ok(Storage::Cloud(Cloud { variables, ..cloud }))
    }

    fn sizes(&mut self, given: &[String]) -> Result<Sizes, String> {
        let mut sizes = Sizes::default();
        let mut changed = Vec::new();
        for text in given {
            let Of(kind, Size(bytes)) = parse("--max-size", text)?;
            sizes.set(kind, bytes);
            changed.push(kind);
        }
        for kind in Kind::ALL {
            let source = if changed.contains(&kind) { "--max-size" } else { "default" };
            self.note("--max-size", &format_args!("{kind}={}", Size(sizes.of(kind))), source);
        }
        Ok(sizes)
    }

    fn note(&mut self, name: &'static str, value: &dyn Display, source: &'static str) {
        self.all.push(Setting { name, value: value.to_string(), source });
    }

    /// Where a setting came from; to be named in a refusal.
    fn source(&self, name: &'static str) -> &'static str {
        let setting = self.all.iter().find(|setting| setting.name == name);
        setting
            .map_or(name, |setting| if setting.source == "default" { name } else { setting.source })
    }
}

fn parse<T: FromStr<Err = String>>(source: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|reason| format!("{source}: `{text}` {reason}"))
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
            Ok(other) => panic!("{other:?}"),
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
    fn a_cloud_is_reached_as_its_own_variables_say_which_are_secret() {
        let env = [("AWS_SECRET_ACCESS_KEY", "hush"), ("AWS_REGION", "eu"), ("GOOGLE_X", "y")];
        let serve = read("datastore serve --storage s3://bucket/a/b/", &env).unwrap();
        let Storage::Cloud(cloud) = &serve.config.storage else { panic!("{serve:?}") };
        assert_eq!(cloud.to_string(), "s3://bucket/a/b");
        let names = cloud.variables.names().collect::<Vec<_>>();
        assert_eq!(names, ["AWS_REGION", "AWS_SECRET_ACCESS_KEY"]);
        assert!(!format!("{serve:?}").contains("hush"));
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
        insta::assert_snapshot!(serve("--storage s3://"), @"error: --storage: `s3://` names no bucket: write s3://bucket or s3://bucket/prefix");
        insta::assert_snapshot!(serve("--storage gs://b/a/../c"), @"error: --storage: `gs://b/a/../c` has a prefix that is no path of letters, digits, `-`, `.` and `_`, of at most 60 bytes");
        insta::assert_snapshot!(serve("--storage ftp://b"), @"error: --storage: `ftp://b` is of no known kind: use file:///directory, s3://bucket, gs://bucket, az://container or memory://");
        insta::assert_snapshot!(serve("--storage /srv/x"), @"error: --storage: `/srv/x` is no URL: for a directory write file:///srv/x");
        insta::assert_snapshot!(serve("--storage file://srv/x"), @"error: --storage: `file://srv/x` names no absolute directory: it takes three slashes, as in file:///directory");
        insta::assert_snapshot!(serve("--storage memory://x"), @"error: --storage: `memory://x` has something after memory://, which takes nothing");
        insta::assert_snapshot!(serve("--listen 8080"), @"error: --listen: `8080` is no address and port, like 127.0.0.1:8080, [::1]:8080 or :8080");
        insta::assert_snapshot!(serve("--listen :99999"), @"error: --listen: `:99999` is no address and port, like 127.0.0.1:8080, [::1]:8080 or :8080");
        insta::assert_snapshot!(serve("--listen 0.0.0.0:8080"), @"error: --listen: 0.0.0.0:8080 is refused, since without authentication whoever reaches it could read and replace every plan. Ways out: listen on a loopback address (--listen 127.0.0.1:8080), behind a proxy that authenticates if others are to use it; or, where nobody else can reach it, --insecure-no-auth");
        insta::assert_snapshot!(serve("--auth kubernetes"), @"error: --auth: `kubernetes` cannot be had: this version supports only `none` yet");
        insta::assert_snapshot!(serve("--auth none --auth tokens=/x"), @"error: --auth: `none,tokens=/x` cannot be had: this version supports only `none` yet");
        insta::assert_snapshot!(serve("--auth password"), @"error: --auth: `password` is no way to authenticate: so far there is only `none`");
        insta::assert_snapshot!(serve("--drain-delay 5"), @"error: --drain-delay: `5` is no duration like 500ms, 30s, 5m or 14d");
        insta::assert_snapshot!(serve("--log-format xml"), @"error: --log-format: `xml` is neither `text` nor `json`");
    }

    #[test]
    fn a_variable_that_cannot_be_honoured_is_refused_by_its_name() {
        let with = |name, value| refusal("datastore serve", &[HOME, (name, value)]);
        insta::assert_snapshot!(with("PLANCHA_STORAGE", "gs://a b"), @"error: PLANCHA_STORAGE: `gs://a b` names no bucket: write gs://bucket or gs://bucket/prefix");
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
        assert_eq!(code("datastore serve --storage s3://"), 64);
        assert_eq!(code("datastore serve --help"), 0);
        assert_eq!(code("/usr/bin/burrito datastore sevre"), 2);
        assert_eq!(code("burrito runner"), 2);
        assert_eq!(code("burrito datastore"), 2);
        assert_eq!(code("burrito datastore serve --nope"), 1);
        assert_eq!(code("burrito --help"), 0);
    }
}
