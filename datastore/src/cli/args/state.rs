//! `datastore state`, as `--help` shows it.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum StateSubcommand {
    /// List states, or the versions of one state
    #[command(after_help = LS)]
    Ls(Ls),
    /// List the tool of each layer: terraform or tofu, and its version
    #[command(after_help = TOOLS)]
    Tools(Tools),
    /// Show a state: its present version, lock, lease, place and tool
    #[command(after_help = SHOW)]
    Show(Show),
    /// Print a state document
    #[command(after_help = PULL)]
    Pull(Pull),
    /// Write a state document
    #[command(after_help = PUSH)]
    Push(Push),
    /// Make an old version the state again
    #[command(after_help = RESTORE)]
    Restore(Restore),
    /// Remove the lock of a state
    #[command(after_help = UNLOCK)]
    Unlock(Unlock),
    /// Delete a state; its versions stay for at least 30 days
    #[command(after_help = RM)]
    Rm(Changed),
    /// Undo the deletion of a state
    Undelete(Changed),
}

// The closing texts have one line for each paragraph: clap wraps them at the width of the terminal.

pub(super) const STATE: &str = "\
KEY is NAMESPACE/LAYER or NAMESPACE/LAYER/WORKSPACE; without a workspace it is `default`.

Each command works on the storage itself (--storage), or through a datastore that serves it (--url). Over a directory \
one process changes states: while a datastore serves them, `push`, `restore`, `unlock`, `rm` and `undelete` need --url. \
`ls`, `show` and `pull` work beside it.

Exit codes:
  4   another holds the lock of the state, or the lease of its layer
  5   the datastore refuses the caller (401, 403), or the token cannot be used
  8   there is no such state or version, no such storage, or the file cannot be read
  9   what is stored is damaged, or the document is not newer than the state, or of another lineage
  10  the storage or the datastore failed, or another process serves the states of this directory
  64  wrong usage, or a document that is not a state";

const LS: &str = "\
Examples:
  datastore state ls
  datastore state ls team-a/network
  datastore state ls team-a/network/blue --rejected
  datastore state ls team-a/network --json --limit 1000 --url https://plancha.example.com --token-file ops.token

Without KEY it lists the states of the storage; that needs --storage. With KEY it lists the versions that were the \
state, and snapshots, newest first.";

const TOOLS: &str = "\
It is the recorded tool of the layer (`runner migrate`), else the one that wrote its newest state.

Examples:
  datastore state tools
  datastore state tools --prometheus > /var/lib/node_exporter/plancha.prom.new

With --prometheus: `plancha_layer_tool_info` has the value 1 for each layer, with the labels namespace, layer, tool, version and \
source (record or state); `plancha_need_migrate_to_tofu` is 1 for layers of terraform, and 0 for layers of tofu.";

const SHOW: &str = "\
Examples:
  datastore state show team-a/network
  datastore state show team-a/network --version fff9d6c8c0b5cf3e-5d0c1e0f8a7b6c5d --json";

const PULL: &str = "\
A state has secrets.

Examples:
  datastore state pull team-a/network > network.tfstate
  datastore state pull team-a/network --version fff9d6c8c0b5cf3e-5d0c1e0f8a7b6c5d > old.tfstate

With exit code 9, discard the output.";

const PUSH: &str = "\
The document must have the lineage of the state and a higher serial. With --force it may have any: the state then begins a \
new generation, and the id of the replaced version is printed. Use --force only if the document describes the real \
objects, and no other writer works.

Examples:
  datastore state push team-a/network network.tfstate
  terraform state pull | datastore state push team-a/network - --url http://127.0.0.1:8080";

const RESTORE: &str = "\
The old content is written with the next serial. A state that tofu has encrypted cannot be changed: it is \
written as it was, and begins a new generation.

Example:
  datastore state restore team-a/network --version fff9d6c8c0b5cf3e-5d0c1e0f8a7b6c5d";

const UNLOCK: &str = "\
Make sure that the holder of the lock has ended: its writes are refused from then on. `datastore state show` names it.

Example:
  datastore state unlock team-a/network --id 5f2b1c1e-8e53-4b35-9d0c-6d1a5e0f2c11";

const RM: &str = "\
The objects that the state describes stay as they are. `datastore state undelete KEY` undoes it. `datastore gc` with \
--max-age state=DURATION removes a deleted state completely, 30 days after its deletion at the earliest.";

/// Where the states are.
#[derive(Debug, Args)]
#[expect(clippy::doc_markdown, reason = "clap prints these texts")]
pub(crate) struct PlaceFlags {
    /// Storage URL: file:///DIRECTORY, s3://BUCKET[/PREFIX], gs://BUCKET[/PREFIX] or az://CONTAINER[/PREFIX]
    /// [env: PLANCHA_STORAGE] [default: plancha/datastore in your data directory]
    #[arg(long, value_name = "URL", conflicts_with = "url")]
    pub(crate) storage: Option<String>,

    /// URL of a datastore that serves the states, instead of --storage. The token comes from
    /// --token-file or the variable PLANCHA_TOKEN
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,

    /// File with the token for --url
    /// [env: PLANCHA_TOKEN_FILE]
    #[arg(long, value_name = "FILE", requires = "url")]
    pub(crate) token_file: Option<PathBuf>,

    /// File (PEM) of certificates to trust in addition to the system's, for --url
    /// [env: PLANCHA_CA_FILE]
    #[arg(long, value_name = "FILE", requires = "url")]
    pub(crate) ca_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "they are flags")]
pub(crate) struct Ls {
    /// NAMESPACE/LAYER[/WORKSPACE] [default: list all states]
    pub(crate) key: Option<String>,

    /// List only snapshots: copies of states that runners have made
    #[arg(long, requires = "key")]
    pub(crate) snapshots: bool,

    /// List only writes that were refused, with the reason
    #[arg(long, requires = "key", conflicts_with = "snapshots")]
    pub(crate) rejected: bool,

    /// List at most N versions [default: 50]
    #[arg(long, value_name = "N", requires = "key", value_parser = limit)]
    pub(crate) limit: Option<usize>,

    /// List deleted states as well
    #[arg(long, conflicts_with = "key")]
    pub(crate) deleted: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) place: PlaceFlags,
}

#[derive(Debug, Args)]
pub(crate) struct Tools {
    /// Print metrics in the text format of Prometheus
    #[arg(long, conflicts_with = "json")]
    pub(crate) prometheus: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) place: PlaceFlags,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// NAMESPACE/LAYER[/WORKSPACE]
    pub(crate) key: String,

    /// Show this version, as `ls` lists it
    #[arg(long, value_name = "ID")]
    pub(crate) version: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) place: PlaceFlags,
}

#[derive(Debug, Args)]
pub(crate) struct Pull {
    /// NAMESPACE/LAYER[/WORKSPACE]
    pub(crate) key: String,

    /// Print this version, as `ls` lists it; also a snapshot or a refused write
    #[arg(long, value_name = "ID")]
    pub(crate) version: Option<String>,

    #[command(flatten)]
    pub(crate) place: PlaceFlags,
}

#[derive(Debug, Args)]
pub(crate) struct Push {
    /// NAMESPACE/LAYER[/WORKSPACE]
    pub(crate) key: String,

    /// File with the state document; `-` is standard input
    pub(crate) file: PathBuf,

    /// Write it also with another lineage, or with a serial that is not higher
    #[arg(long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) place: PlaceFlags,
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// NAMESPACE/LAYER[/WORKSPACE]
    pub(crate) key: String,

    /// The version, as `ls` lists it; also a snapshot or a refused write
    #[arg(long, value_name = "ID")]
    pub(crate) version: String,

    #[command(flatten)]
    pub(crate) place: PlaceFlags,
}

#[derive(Debug, Args)]
pub(crate) struct Unlock {
    /// NAMESPACE/LAYER[/WORKSPACE]
    pub(crate) key: String,

    /// ID of the lock, as `show` prints it
    #[arg(long, value_name = "ID")]
    pub(crate) id: String,

    #[command(flatten)]
    pub(crate) place: PlaceFlags,
}

/// A state that is changed.
#[derive(Debug, Args)]
pub(crate) struct Changed {
    /// NAMESPACE/LAYER[/WORKSPACE]
    pub(crate) key: String,

    #[command(flatten)]
    pub(crate) place: PlaceFlags,
}

fn limit(text: &str) -> Result<usize, &'static str> {
    let limit = text.parse::<usize>().ok().filter(|limit| *limit > 0);
    limit.ok_or("expected a number from 1, such as 20")
}

pub(super) fn number(text: &str) -> Result<usize, &'static str> {
    text.parse().map_err(|_| "expected a number, such as 20")
}
