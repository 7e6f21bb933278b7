//! The arguments of commands that work on one directory.

use clap::{ArgAction, Command};

/// A command that takes one directory, and no layers.
pub(super) fn for_one_directory(command: Command) -> Command {
    const HELP: &str = "The code: a directory, an archive (tar, tar.gz, tar.zst), a git bundle or a git URL [default: the current \
                        directory]";
    // A changed argument loses its place.
    let command = command.mut_arg("args", |arg| arg.index(2));
    command.mut_arg("targets", |arg| {
        arg.num_args(1).action(ArgAction::Set).index(1).value_name("DIR").help(HELP)
    })
}
