//! Arguments that say where the state is.

use clap::{Args, ValueEnum};

/// Where the state is.
#[derive(Clone, Debug, Args)]
pub struct StateArgs {
    /// Keep the state in the datastore, with its history and its locks. For a root module without a `backend` or `cloud`
    /// block; the tool works in a copy of the source. Needs --datastore
    #[arg(long, env = "PLANCHA_STATE", help_heading = "State", value_name = "WHERE", conflicts_with_all = ["state_in", "state_out"])]
    pub state: Option<StatePlace>,
    /// Move the local state of the module into the datastore, if that has none
    #[arg(long, help_heading = "State")]
    pub migrate_state: bool,
    /// Use the state in the datastore although it was written for code of another place (repository and path), and record
    /// this place
    #[arg(long, help_heading = "State")]
    pub rebind: bool,
    /// Plan although there is no state and this layer was applied before: everything is created again
    #[arg(long, help_heading = "State")]
    pub new_state: bool,
}

/// A place for states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatePlace {
    /// The datastore.
    Datastore,
}
