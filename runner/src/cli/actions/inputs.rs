//! The arguments for outputs that one layer hands on to another.

use std::path::PathBuf;

use clap::Args;

/// Outputs of other layers that this one takes, and its own that others take.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Outputs of layers")]
pub struct InputArgs {
    /// Set a variable to an output of another layer, as the datastore has it: of any type, under the output's name unless VAR
    /// is given. LAYER is in the namespace of this one, or NAMESPACE/NAME. In addition to the manifest's annotation
    /// `plancha/var-from`; --var and --var-file win. Can be repeated
    #[arg(long, value_name = "LAYER:OUTPUT[=VAR]")]
    pub var_from: Vec<String>,
    /// Write an output of another layer into a private file, such as a kubeconfig, and set a variable to its path. The file
    /// exists only while the tool may need it. In addition to the annotation `plancha/file-from`. Can be repeated
    #[arg(long, value_name = "LAYER:OUTPUT=VAR")]
    pub file_from: Vec<String>,
    /// The directory for these files. It must be the same for a plan and its apply, because the plan contains the path
    /// [default: plancha-inputs-UID in TMPDIR]
    #[arg(long, env = "PLANCHA_INPUTS_DIR", value_name = "DIR")]
    pub inputs_dir: Option<PathBuf>,
    /// An output that must have a value after an apply: otherwise the run has failed (class `output_broken`). In addition to the
    /// annotation `plancha/required-outputs`. Can be repeated
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub require_output: Vec<String>,
    /// The needs of the command: `LAYER=NEEDED[,NEEDED...]`.
    #[arg(skip)]
    pub needs: Vec<String>,
    /// The layers of the same command, as `NAMESPACE/NAME`: it has waited for those that are needed.
    #[arg(skip)]
    pub in_command: Vec<String>,
}

impl InputArgs {
    /// Whether a variable is to be set.
    pub(crate) fn sets_variables(&self) -> bool {
        !self.var_from.is_empty() || !self.file_from.is_empty()
    }
}
