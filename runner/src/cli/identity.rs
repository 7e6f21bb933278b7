//! Arguments that several commands share: the layer, and the datastore that has its runs.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use datastore_api::Name;
use secrecy::SecretString;

use crate::cli::limits::time_limit;

/// Which layer.
#[derive(Clone, Debug, Args)]
pub struct LayerArgs {
    /// A TerraformLayer manifest (YAML or JSON); plan and apply write annotations back into it
    #[arg(long, env = "PLANCHA_LAYER_FILE", help_heading = "Identity", value_name = "FILE")]
    pub layer: Option<PathBuf>,
    /// Namespace of the layer [default: the manifest's, else `default`]
    #[arg(long, env = "PLANCHA_NAMESPACE", help_heading = "Identity", value_name = "NAME")]
    pub namespace: Option<Name>,
    /// Name of the layer [default: the manifest's, else <repository>.<path>[.<workspace>] with a dot for
    /// each slash, outside of git the directory's]
    #[arg(long, env = "PLANCHA_NAME", help_heading = "Identity", value_name = "NAME")]
    pub name: Option<Name>,
}

/// The datastore of a command that downloads no tools.
#[derive(Clone, Debug, Args)]
pub struct RemoteArgs {
    /// Where artifacts are stored.
    #[command(flatten)]
    pub datastore: DatastoreArgs,
    /// Certificates to trust in addition to the system's (PEM)
    #[arg(long, env = "PLANCHA_CA_FILE", help_heading = "Datastore", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
}

/// Where artifacts are stored.
#[derive(Clone, Debug, Args)]
pub struct DatastoreArgs {
    /// URL of the datastore. Without one nothing is stored. The token comes from --token-file or the
    /// variable `PLANCHA_TOKEN`
    #[arg(long, env = "PLANCHA_DATASTORE_URL", help_heading = "Datastore", value_name = "URL")]
    pub datastore: Option<SecretString>,
    /// File with the token, read again for every request
    #[arg(long, env = "PLANCHA_TOKEN_FILE", help_heading = "Datastore", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Give up if the datastore neither answers nor moves a byte for this time, over all retries (90s, 5m)
    #[arg(long, env = "PLANCHA_DATASTORE_TIMEOUT", help_heading = "Datastore", value_name = "DURATION", default_value = "60s", value_parser = time_limit)]
    pub datastore_timeout: Duration,
}
