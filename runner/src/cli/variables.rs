//! Values of the tool's variables. The tool takes the last of several values, so their order matters.

use std::fmt;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args, Command, FromArgMatches};

/// One argument with values of variables.
#[derive(Clone, PartialEq, Eq)]
pub enum Variable {
    /// `--var NAME=VALUE`
    Value(String),
    /// `--var-file FILE`
    File(PathBuf),
}

impl Variable {
    /// Whether it is a `--var` of this variable. What files set is not known here.
    pub(crate) fn sets(&self, variable: &str) -> bool {
        let Self::Value(text) = self else { return false };
        text.split_once('=').is_some_and(|(name, _)| name.trim() == variable)
    }
}

/// Without the value, which may be a secret.
impl fmt::Debug for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(text) => {
                let name = text.split_once('=').map_or("", |(name, _)| name.trim());
                write!(f, "Value({name}=..)")
            }
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// `--var` and `--var-file`, in the order of the command line.
#[derive(Clone, Debug, Default)]
pub struct VariableArgs(pub Vec<Variable>);

impl VariableArgs {
    /// The files.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().filter_map(|variable| match variable {
            Variable::File(file) => Some(&**file),
            Variable::Value(_) => None,
        })
    }
}

/// How the command line declares them.
#[derive(Args)]
struct Declared {
    /// File with values of variables, for the tool. Its path is relative to the current directory. Can be repeated and
    /// mixed with --var: the last value of a variable wins
    #[arg(long, help_heading = "For the tool", value_name = "FILE")]
    var_file: Vec<PathBuf>,
    /// Value of a variable, for the tool. Can be repeated and mixed with --var-file: the last value wins
    #[arg(long, help_heading = "For the tool", value_name = "NAME=VALUE")]
    var: Vec<String>,
}

impl Args for VariableArgs {
    fn augment_args(command: Command) -> Command {
        Declared::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Declared::augment_args_for_update(command)
    }
}

impl FromArgMatches for VariableArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let Declared { var_file, var } = Declared::from_arg_matches(matches)?;
        let places = |id| matches.indices_of(id).into_iter().flatten();
        let files = places("var_file").zip(var_file.into_iter().map(Variable::File));
        let values = places("var").zip(var.into_iter().map(Variable::Value));
        let mut all = files.chain(values).collect::<Vec<_>>();
        all.sort_by_key(|(place, _)| *place);
        Ok(Self(all.into_iter().map(|(_, variable)| variable).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_not_in_the_debug_form() {
        let variables = VariableArgs(vec![
            Variable::Value("password=hunter2".to_owned()),
            Variable::File("x.tfvars".into()),
        ]);
        let shown = format!("{variables:?}");
        assert_eq!(shown, "VariableArgs([Value(password=..), File(\"x.tfvars\")])");
    }
}
