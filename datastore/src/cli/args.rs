//! Subcommands and flags, as `--help` shows them.

pub(crate) mod state;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser};

use crate::cli::args::state::{STATE, StateSubcommand, number};

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Stores plans, logs, git bundles and other files of Terraform, OpenTofu and Terragrunt runs, and serves them over
/// HTTP.
#[derive(Debug, Parser)]
#[command(name = "datastore", version = VERSION, max_term_width = 100)]
struct Datastore {
    #[command(subcommand)]
    command: Subcommand,
}

/// The datastore under the name `burrito`, for Burrito's charts.
#[derive(Debug, Parser)]
#[command(name = "burrito", version = VERSION, max_term_width = 100)]
struct Burrito {
    #[command(subcommand)]
    command: BurritoSubcommand,
}

#[derive(Debug, clap::Subcommand)]
enum BurritoSubcommand {
    /// Store the files of runs, and serve them over HTTP
    #[command(subcommand)]
    Datastore(Box<Subcommand>),
    /// Print the version
    Version,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Subcommand {
    /// Serve until SIGTERM or SIGINT
    #[command(alias = "start", after_help = SERVE)]
    Serve(Box<ServeFlags>),
    /// Validate the configuration and probe the storage
    #[command(after_help = CHECK)]
    Check(Box<ServeFlags>),
    /// Ask the datastore in this container or on this machine whether it is ready
    #[command(after_help = HEALTH)]
    Health(HealthFlags),
    /// List stored objects, in the order of their keys
    #[command(after_help = LS)]
    Ls(Ls),
    /// Print a stored object, and verify its digest
    #[command(after_help = CAT)]
    Cat(Cat),
    /// Compare stored objects with their recorded digests
    #[command(after_help = VERIFY)]
    Verify(Verify),
    /// Delete expired artifacts and old versions of states
    #[command(after_help = GC)]
    Gc(Gc),
    /// List, show, read, write, restore, unlock and delete terraform states
    #[command(subcommand, after_help = STATE)]
    State(Box<StateSubcommand>),
    /// Rebuild the index of runs, after a restore or after writes by other programs
    Reindex(StorageFlags),
    /// Create a token for a caller, and the rule with its permissions
    #[command(after_help = TOKEN)]
    Token(NewTokenFlags),
    /// Print the version
    Version,
}

impl Subcommand {
    pub(crate) fn parse(args: &[OsString], as_burrito: bool) -> Result<Self, clap::Error> {
        if !as_burrito {
            return Ok(Datastore::try_parse_from(args)?.command);
        }
        let program = Burrito::command().mut_subcommand("datastore", with_exit_codes_of_burrito);
        let matches = program.try_get_matches_from(args)?;
        match Burrito::from_arg_matches(&matches)?.command {
            BurritoSubcommand::Datastore(command) => Ok(*command),
            BurritoSubcommand::Version => Ok(Self::Version),
        }
    }
}

/// As `burrito`, wrong usage and an invalid setting have the exit code 1.
fn with_exit_codes_of_burrito(command: clap::Command) -> clap::Command {
    let text =
        command.get_after_help().map(|text| text.to_string().replace("\n  64  ", "\n  1   "));
    let command = text.into_iter().fold(command, clap::Command::after_help);
    command.mut_subcommands(with_exit_codes_of_burrito)
}

// The closing texts have one line for each paragraph: clap wraps them at the width of the terminal.

const SERVE: &str = "\
Examples:
  datastore serve
  datastore serve --storage file:///srv/plancha --listen 127.0.0.1:9000
  datastore serve --storage memory:// --listen 127.0.0.1:0    # a free port; the log shows it
  datastore serve --max-size bin=1GiB --max-size log=64MiB
  datastore serve --listen :8080 --auth tokens=tokens.yaml

  run='namespace=default&layer=network&run=r1'
  curl -T plan.bin \"http://127.0.0.1:8080/api/plans?$run&attempt=0&format=bin\"
  curl \"http://127.0.0.1:8080/api/attempts?$run\"

Burrito's config.yaml is read from /etc/burrito, ~/.burrito or the working directory. Its variables (BURRITO_...) \
override it, and flags override both. `datastore check` prints the result.";

const TOKEN: &str = "\
The token is printed once and stored nowhere: the rule has only its SHA-256 digest. Without --rules, the rule is \
printed after the token.

Examples:
  datastore token ci --namespace team-a --rules tokens.yaml > ci.token
  datastore token dashboard --namespace '*' --kind log,short --verb read,list --rules tokens.yaml
  datastore serve --auth tokens=tokens.yaml

To revoke a token, remove its rules: the datastore reads the file again within seconds.";

const CHECK: &str = "\
Prints each setting on one line: name, value and source. A secret is shown as `set`. A missing directory is not \
created.

Exit codes:
  0   the storage works
  1   the address cannot be listened on, or standard output cannot be written
  8   the directory of the storage does not exist, the limit of open files is too low, or the certificate or the Kubernetes \
configuration cannot be used
  10  the storage does not work
  64  wrong usage, or an invalid setting";

const HEALTH: &str = "\
Sends `GET /readyz` to the address that `datastore serve` listens on, by HTTP and then by HTTPS, without a proxy. The \
address comes from the same variables and files. The certificate is not verified: the datastore asks itself, and sends \
nothing secret.

Exit codes:
  0   it is ready
  1   it is not ready, or does not answer
  64  wrong usage, or an invalid setting";

const LS: &str = "\
Examples:
  datastore ls
  datastore ls layers/default/network/
  datastore ls .plancha/              # the datastore's own files: digests, the index of runs, control objects of states

Each line has the size in bytes, the time of the last change (UTC) and the key, separated by tabs.";

const CAT: &str = "\
Examples:
  datastore cat layers/default/network/r1/0/run.log
  datastore cat layers/default/network/r1/0/plan.bin > plan.bin && terraform show plan.bin

Without a recorded digest, `unverified` is printed on standard error.

Exit codes:
  8   no object has this key
  9   the bytes do not match the recorded digest: discard the output
  10  the storage failed
  64  wrong usage, or an invalid key";

const VERIFY: &str = "\
Reads every object. Prints one line for each that is not intact:

  healed        intact under another time or inode; its digest record is renewed
  copy written  intact; the copy of its digest for backups is restored
  copy not written
                intact; that copy is missing or old, and could not be written, for example on a full disk
  missing       its digest is recorded and its file is gone (directories only)
  changed       other bytes than were stored; such an object is never served. In a bucket: other bytes
                than the digest of this version (ETag) says
  unverified    without a recorded digest: another program stored it. In a bucket also if the record
                is of another version

Examples:
  datastore verify
  datastore verify layers/default/network/
  datastore verify --accept layers/default/network/r1/0/run.log

Use --accept after you have checked the content of a changed object. Documents of states are not accepted: make an intact \
version the state with `datastore state restore`.

Exit codes:
  8   no key has this prefix
  9   an object has changed or is missing
  10  an object could not be read, or the copy of a digest not be written
  64  wrong usage, or an invalid key";

const GC: &str = "\
Each rule deletes independently: with --keep-runs 20 and --max-age log=30d, a log is deleted if its run is not one \
of the last 20, or if it is older than 30 days.

Examples:
  datastore gc --keep-runs 20 --dry-run
  datastore gc --keep-runs 20 --max-age log=30d --max-age bundle=14d
  datastore gc --keep-states 50 --max-age state=180d

Of each state, --keep-states keeps the last N versions that were the state, the last N snapshots and the last N refused \
writes. --max-age state=DURATION deletes versions that were replaced longer ago, and older snapshots and refused writes. \
It also removes states that were deleted longer ago, and at least 30 days ago, completely: they cannot be undeleted any \
more. Until then nothing of a deleted state is deleted. Without --max-age state=DURATION a deleted state stays.

Never deleted: the present version of a state, and its last version and snapshot of a run that has applied \
(applied.json), with that record; the newest plan.bin of each layer and the files beside it that an apply needs; the newest bundle \
of each ref; everything of a run with a file, or a live log, younger than --min-age, by the clock of the storage; and everything of \
a run with an attempt that was claimed within 7 days and has no files yet.

Ages are those that the storage shows. A copy to another bucket, or a restored backup without times, is as old as the \
copy: --max-age counts from then on, and --keep-runs may keep the wrong runs.

gc may run while the datastore serves.";

/// The storage, for commands that have no other setting.
#[derive(Debug, Args)]
#[expect(clippy::doc_markdown, reason = "clap prints these texts")]
pub(crate) struct StorageFlags {
    /// Storage URL: file:///DIRECTORY, s3://BUCKET[/PREFIX], gs://BUCKET[/PREFIX],
    /// az://CONTAINER[/PREFIX] or memory://
    /// [env: PLANCHA_STORAGE] [default: plancha/datastore in your data directory]
    #[arg(long, value_name = "URL")]
    pub(crate) storage: Option<String>,
}

#[derive(Debug, Args)]
#[expect(clippy::doc_markdown, reason = "clap prints these texts")]
pub(crate) struct HealthFlags {
    /// The address that `datastore serve` listens on
    /// [env: PLANCHA_LISTEN, BURRITO_DATASTORE_ADDR] [default: :8080]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Prefix of the keys to list [default: all keys]
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    #[command(flatten)]
    pub(crate) storage: StorageFlags,
}

#[derive(Debug, Args)]
pub(crate) struct Cat {
    /// Key of the object, as `datastore ls` prints it
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) storage: StorageFlags,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// Prefix of the keys to verify [default: all keys]
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,

    /// Record the digest of the bytes that this object has now, and verify nothing
    #[arg(long, value_name = "KEY", conflicts_with = "prefix")]
    pub(crate) accept: Option<String>,

    #[command(flatten)]
    pub(crate) storage: StorageFlags,
}

#[derive(Debug, Args)]
pub(crate) struct Gc {
    /// Keep the last N runs of each layer, and delete older ones [default: keep all runs]
    #[arg(long, value_name = "N", value_parser = number)]
    pub(crate) keep_runs: Option<usize>,

    /// Keep the last N versions of each state, and as many snapshots and refused writes
    /// [default: keep all]
    #[arg(long, value_name = "N", value_parser = number)]
    pub(crate) keep_states: Option<usize>,

    /// Delete artifacts of a kind that are older. Kinds: bin, json, pretty, short, log, bundle,
    /// artifact, workspace, state. Documents of layers and leases are not deleted. Durations: 12h, 30d. Repeatable [default: no
    /// limit]
    #[arg(long, value_name = "KIND=DURATION")]
    pub(crate) max_age: Vec<String>,

    /// Keep every run, bundle and version of a state that has changed within this time
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    pub(crate) min_age: String,

    /// Print what would be deleted, and delete nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) storage: StorageFlags,
}

#[derive(Debug, Args)]
#[expect(clippy::doc_markdown, reason = "clap prints these texts")]
pub(crate) struct AuthFlags {
    /// Authenticate callers by `kubernetes` (TokenReview with the audience burrito), by
    /// `tokens=FILE` (a file of rules; see `datastore token --help`), by ID tokens of an issuer
    /// (`oidc=ISSUER,audience=NAME` for programs; with `client-id=ID` people can sign in there with a
    /// browser, and `client-secret-file=FILE` and `scope=NAME` are optional), or not at all (`none`).
    /// Repeatable
    /// [env: PLANCHA_AUTH] [default: kubernetes as `burrito` and in a pod; otherwise none, on
    /// loopback addresses only]
    #[arg(long, value_name = "MODE")]
    pub(crate) auth: Vec<String>,

    /// Allow --listen on a public address without authentication
    #[arg(long)]
    pub(crate) insecure_no_auth: bool,

    /// File of rules that grant callers more than their default permissions
    /// [env: PLANCHA_POLICY]
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<String>,

    /// Default permissions of a ServiceAccount: `namespace` (its own namespace; everything if it is
    /// from controller.mainNamespace) or `burrito` (everything, if datastore.serviceAccounts lists
    /// it)
    /// [env: PLANCHA_ISOLATION] [default: namespace]
    #[arg(long, value_name = "RULE")]
    pub(crate) isolation: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct NewTokenFlags {
    /// Name of the token in rules and in the log
    pub(crate) id: String,

    /// Namespaces that the rule covers, separated by commas; `*` matches any text. Repeatable
    #[arg(long, value_name = "NAMESPACE", required = true, value_delimiter = ',')]
    pub(crate) namespace: Vec<String>,

    /// Kinds that the rule covers, separated by commas: plan, bin, json, pretty, short, log, bundle,
    /// artifact, workspace, state, lease, status, outputs. Repeatable [default: all kinds but state and outputs]
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub(crate) kind: Vec<String>,

    /// Verbs that the rule allows, separated by commas: read, write, append, list, delete, admin.
    /// Repeatable
    #[arg(
        long,
        value_name = "VERB",
        value_delimiter = ',',
        default_values = ["read", "write", "append", "list"]
    )]
    pub(crate) verb: Vec<String>,

    /// File to add the rule to; created if it does not exist
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[expect(clippy::doc_markdown, reason = "clap prints these texts")]
pub(crate) struct ServeFlags {
    /// Address to listen on; `:8080` means all addresses, `localhost:8080` 127.0.0.1 and `::1`, port 0 any free port
    /// [env: PLANCHA_LISTEN, BURRITO_DATASTORE_ADDR] [default: 127.0.0.1:8080; as `burrito`, :8080]
    #[arg(long, value_name = "ADDRESS", alias = "addr")]
    pub(crate) listen: Option<String>,

    /// Storage URL: file:///DIRECTORY (created if missing), s3://BUCKET[/PREFIX],
    /// gs://BUCKET[/PREFIX], az://CONTAINER[/PREFIX] or memory:// (lost at exit)
    /// [env: PLANCHA_STORAGE] [default: plancha/datastore in your data directory]
    #[arg(long, value_name = "URL")]
    pub(crate) storage: Option<String>,

    /// Encrypt stored files: `burrito` is Burrito's format (AES-256-CBC, with the key in
    /// BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY)
    /// [env: PLANCHA_AT_REST] [default: burrito if Burrito's storage.encryption.enabled is true;
    /// otherwise unencrypted]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) at_rest: Option<String>,

    #[command(flatten)]
    pub(crate) auth: AuthFlags,

    /// Address that browsers have of the datastore, such as `https://plancha.example.com`: people can
    /// sign in there
    /// [env: PLANCHA_PUBLIC_URL] [default: none; on loopback addresses the one that the browser shows]
    #[arg(long, value_name = "URL")]
    pub(crate) public_url: Option<String>,

    /// File with one or two keys (`openssl rand -base64 32`), one a line, that seal the cookies of
    /// sessions: the first one seals, both open
    /// [env: PLANCHA_SESSION_KEY_FILE] [default: a key that ends with the process]
    #[arg(long, value_name = "FILE")]
    pub(crate) session_key_file: Option<String>,

    /// Certificate for TLS (PEM); reloaded when it changes
    /// [default: /etc/burrito/tls/tls.crt if BURRITO_DATASTORE_TLS is true; otherwise plain HTTP]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Maximum size of an upload, by kind. Repeatable
    /// [default: bin=512MiB json=1GiB pretty=1GiB short=1MiB log=1GiB bundle=4GiB artifact=4GiB
    /// workspace=4GiB state=256MiB status=256KiB outputs=16MiB]
    #[arg(long, value_name = "KIND=SIZE")]
    pub(crate) max_size: Vec<String>,

    /// Memory for all transfers together; a request that finds none waits, and gets 503 after 10 s
    /// [default: 256MiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_memory: Option<String>,

    /// Keep states also where the storage cannot replace one version of an object, or where a directory cannot be locked:
    /// no other process may keep states there
    /// [env: PLANCHA_SINGLE_REPLICA]
    #[arg(long)]
    pub(crate) single_replica: bool,

    /// Whether the page for people, which shows layers, plans and logs, is served at `/`: on or off
    /// [env: PLANCHA_UI] [default: on]
    #[arg(long, value_name = "on|off")]
    pub(crate) ui: Option<String>,

    /// Time after SIGTERM in which connections are still accepted, while /readyz answers 503
    /// [default: 0s]
    #[arg(long, value_name = "DURATION")]
    pub(crate) drain_delay: Option<String>,

    /// Maximum time to wait after that for requests in flight [default: 30s]
    #[arg(long, value_name = "DURATION")]
    pub(crate) drain_timeout: Option<String>,

    /// Format of the log on standard error: text or json
    /// [env: PLANCHA_LOG_FORMAT] [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_shows_the_exit_codes_of_the_name_that_was_called() {
        let help = |words: &str, as_burrito| {
            let words = words.split(' ').map(OsString::from).collect::<Vec<_>>();
            Subcommand::parse(&words, as_burrito).unwrap_err().to_string()
        };
        for command in ["check", "cat"] {
            let own = help(&format!("datastore {command} --help"), false);
            assert!(own.contains("\n  64  wrong usage"), "{own}");
            let of_burrito = help(&format!("burrito datastore {command} --help"), true);
            assert!(of_burrito.contains("\n  1   wrong usage"), "{of_burrito}");
            assert!(!of_burrito.contains("\n  64  "), "{of_burrito}");
        }
    }
}
