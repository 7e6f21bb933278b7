//! Command words and flags, as `--help` shows them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

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
    Datastore(Box<Word>),
    /// Print the version
    Version,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Word {
    /// Serve until SIGTERM or SIGINT
    #[command(alias = "start", after_help = SERVE)]
    Serve(Box<Flags>),
    /// Say what `serve` would do with the same flags and environment, and try the storage
    #[command(after_help = CHECK)]
    Check(Box<Flags>),
    /// List what is stored: size, time and key, in the order of the keys
    #[command(after_help = LS)]
    Ls(Ls),
    /// Write one stored object to standard output, verified
    #[command(after_help = CAT)]
    Cat(Cat),
    /// Compare stored objects with the digests that they were stored with
    #[command(after_help = VERIFY)]
    Verify(Verify),
    /// Delete what is past its time
    #[command(after_help = GC)]
    Gc(Gc),
    /// Write the index of runs anew, for what other programs have stored or a backup has brought back
    Reindex(At),
    /// Make a token for a caller, and the rule that says what it may do
    #[command(after_help = TOKEN)]
    Token(NewTokenFlags),
    /// Print the version
    Version,
}

impl Word {
    pub(crate) fn parse(args: &[OsString], as_burrito: bool) -> Result<Self, clap::Error> {
        if !as_burrito {
            return Ok(Datastore::try_parse_from(args)?.word);
        }
        match Burrito::try_parse_from(args)?.word {
            BurritoWord::Datastore(word) => Ok(*word),
            BurritoWord::Version => Ok(Self::Version),
        }
    }
}

const SERVE: &str = "\
Examples:
  datastore serve
  datastore serve --storage file:///srv/plancha --listen 127.0.0.1:9000
  datastore serve --storage memory:// --listen 127.0.0.1:0    # a free port; the log names it
  datastore serve --max-size bin=1GiB --max-size log=64MiB
  datastore serve --listen :8080 --auth tokens=tokens.yaml

  run='namespace=default&layer=network&run=r1'
  curl -T plan.bin \"http://127.0.0.1:8080/api/plans?$run&attempt=0&format=bin\"
  curl \"http://127.0.0.1:8080/api/attempts?$run\"

Burrito's config.yaml is read, too, from /etc/burrito, ~/.burrito or the working directory, and its variables
(BURRITO_...) over it; flags go over both. `datastore check` shows what came of them.";

const TOKEN: &str = "\
The token is printed, and kept nowhere else: the rule has only its sha256. Without --rules the rule is
printed after it.

Examples:
  datastore token ci --namespace team-a --rules tokens.yaml > ci.token
  datastore token dashboard --namespace '*' --kind log,short --verb read,list --rules tokens.yaml
  datastore serve --auth tokens=tokens.yaml

To take a token back, remove its rules and start anew.";

const CHECK: &str = "\
Every setting is a line: its name, its value, and where that comes from. Secrets are shown as `set`.
The exit code is 0 if the storage does what is needed of it, 10 if not, and 8 if the certificate or the
cluster's configuration cannot be read. A directory that is missing is not created.";

const LS: &str = "\
Examples:
  datastore ls
  datastore ls layers/default/network/
  datastore ls .plancha/              # what the datastore keeps for itself: digests, the index of runs

A line has the size in bytes, the time of the last change (UTC) and the key, with a tab between.";

const CAT: &str = "\
Examples:
  datastore cat layers/default/network/r1/0/run.log
  datastore cat layers/default/network/r1/0/plan.bin > plan.bin && terraform show plan.bin

The exit code is 8 if there is no such key, 64 if the text cannot be a key, and 9 if the bytes are not those that were stored: then what
was written so far must not be used. Where no digest is recorded, standard error says `unverified`.";

const VERIFY: &str = "\
Every object is read. A line is printed for each that is not as it was stored:

  healed      the bytes are those that were stored, under another time or inode, as after a restore: the digest
              record is renewed
  copy written
              intact; the copy of its digest that backups without extended attributes need was written again
  changed     other bytes than were stored; they are never served
  unverified  no digest is recorded: another program stored it

Examples:
  datastore verify
  datastore verify layers/default/network/
  datastore verify --accept layers/default/network/r1/0/run.log   # you have looked at it, and it is right

The exit code is 9 if an object has changed, 10 if one could not be read, 8 if no key begins so.";

const GC: &str = "\
Each rule deletes by itself: with both, a log is gone once its run is past the last 20 or it is older than
30 days.

Examples:
  datastore gc --keep-runs 20 --dry-run
  datastore gc --keep-runs 20 --max-age log=30d --max-age bundle=14d

Never deleted: the newest plan.bin of each layer and the run.json beside it, since apply needs both; the
newest bundle of each ref; whatever is younger than --min-age, by the clock of the storage, and every
other file of its run. It may run while the datastore serves.";

/// Where the storage is: for every word that needs nothing else of it.
#[derive(Debug, Args)]
#[expect(clippy::doc_markdown, reason = "clap shows these as they stand")]
pub(crate) struct At {
    /// Where artifacts lie: file:///directory, s3://bucket[/prefix], gs://bucket[/prefix],
    /// az://container[/prefix] or memory://
    /// [env: PLANCHA_STORAGE] [default: plancha/datastore in your data directory]
    #[arg(long, value_name = "URL")]
    pub(crate) storage: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Only keys that begin so
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
pub(crate) struct Cat {
    /// The key, as `ls` shows it
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// Only keys that begin so
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,

    /// Record the digest of what is stored at this key now, and check nothing else
    #[arg(long, value_name = "KEY", conflicts_with = "prefix")]
    pub(crate) accept: Option<String>,

    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
pub(crate) struct Gc {
    /// Of each layer, keep the last N runs, and delete those before
    #[arg(long, value_name = "N")]
    pub(crate) keep_runs: Option<usize>,

    /// Delete what is older, by kind: bin, json, pretty, short, log, bundle, artifact; may be repeated
    #[arg(long, value_name = "KIND=DURATION")]
    pub(crate) max_age: Vec<String>,

    /// Delete nothing of a run, and no bundle, that has changed within this time
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    pub(crate) min_age: String,

    /// Only say what would be deleted
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) at: At,
}

#[derive(Debug, Args)]
#[expect(clippy::doc_markdown, reason = "clap shows these as they stand")]
pub(crate) struct AuthFlags {
    /// How callers are told apart: kubernetes (TokenReview, audience burrito), tokens=FILE (a file of
    /// rules; see `datastore token --help`) or none; may be repeated
    /// [env: PLANCHA_AUTH] [default: kubernetes as `burrito` and in a pod, else none, on a loopback
    /// address only]
    #[arg(long, value_name = "WAY")]
    pub(crate) auth: Vec<String>,

    /// Listen without authentication on an address that others can reach
    #[arg(long)]
    pub(crate) insecure_no_auth: bool,

    /// Rules of what callers may do beside what follows from their namespace
    /// [env: PLANCHA_POLICY]
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<String>,

    /// What a ServiceAccount may do: `namespace` (its own; everything if it is from
    /// controller.mainNamespace) or `burrito` (everything, if it is one of datastore.serviceAccounts)
    /// [env: PLANCHA_ISOLATION] [default: namespace]
    #[arg(long, value_name = "RULE")]
    pub(crate) isolation: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct NewTokenFlags {
    /// By what the token is known in rules and in the log
    pub(crate) id: String,

    /// Where it may be used; `*` stands for any text; may be repeated
    #[arg(long, value_name = "NAMESPACE", required = true, value_delimiter = ',')]
    pub(crate) namespace: Vec<String>,

    /// For what: plan, bin, json, pretty, short, log, bundle, artifact; may be repeated
    /// [default: all]
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub(crate) kind: Vec<String>,

    /// To do what: read, write, append, list, delete, admin; may be repeated
    #[arg(
        long,
        value_name = "VERB",
        value_delimiter = ',',
        default_values = ["read", "write", "append", "list"]
    )]
    pub(crate) verb: Vec<String>,

    /// Add the rule to this file, which is made if it is missing
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[expect(clippy::doc_markdown, reason = "clap shows these as they stand")]
pub(crate) struct Flags {
    /// Where to listen; `:8080` is any address, port 0 a free one
    /// [env: PLANCHA_LISTEN, BURRITO_DATASTORE_ADDR] [default: 127.0.0.1:8080, as `burrito` :8080]
    #[arg(long, value_name = "ADDRESS", alias = "addr")]
    pub(crate) listen: Option<String>,

    /// Where artifacts lie: file:///directory (made if missing), s3://bucket[/prefix],
    /// gs://bucket[/prefix], az://container[/prefix] or memory:// (gone at the end)
    /// [env: PLANCHA_STORAGE] [default: plancha/datastore in your data directory]
    #[arg(long, value_name = "URL")]
    pub(crate) storage: Option<String>,

    /// How what is put lies there, if not as it comes: `burrito` encrypts it as upstream does
    /// (AES-256-CBC, the key in BURRITO_DATASTORE_STORAGE_ENCRYPTION_KEY)
    /// [env: PLANCHA_AT_REST] [default: burrito if Burrito's storage.encryption.enabled is true]
    #[arg(long, value_name = "FORM")]
    pub(crate) at_rest: Option<String>,

    #[command(flatten)]
    pub(crate) auth: AuthFlags,

    /// Speak TLS, by this certificate (PEM); read again when it changes
    /// [default: /etc/burrito/tls/tls.crt if BURRITO_DATASTORE_TLS is true]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// The certificate's key (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,

    /// How large an upload may be, by kind; may be repeated
    /// [default: bin=512MiB json=1GiB pretty=1GiB short=1MiB log=1GiB bundle=4GiB artifact=4GiB]
    #[arg(long, value_name = "KIND=SIZE")]
    pub(crate) max_size: Vec<String>,

    /// How much memory all transfers together may hold; who would need more waits in line, and is
    /// answered 503 after 10 s [default: 256MiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_memory: Option<String>,

    /// On SIGTERM, still accept connections for so long, while /readyz says no [default: 0s]
    #[arg(long, value_name = "DURATION")]
    pub(crate) drain_delay: Option<String>,

    /// After that, wait so long for what still runs [default: 30s]
    #[arg(long, value_name = "DURATION")]
    pub(crate) drain_timeout: Option<String>,

    /// How the log on standard error is written: text or json
    /// [env: PLANCHA_LOG_FORMAT] [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<String>,
}
