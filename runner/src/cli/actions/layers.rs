//! The arguments of a command that works on several layers.

use clap::{Args, value_parser};

/// Several layers.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Several layers")]
pub struct LayersArgs {
    /// A layer runs after those that it needs: LAYER=NEEDED[,NEEDED...], in addition to the manifests' annotation
    /// `plancha/needs`. Can be repeated
    #[arg(long, value_name = "LAYER=NEEDED")]
    pub needs: Vec<String>,
    /// How many layers run at the same time
    #[arg(long, env = "PLANCHA_PARALLEL", value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..))]
    pub parallel: u16,
}
