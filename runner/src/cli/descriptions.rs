//! Shared arguments that some commands describe in another way.

use clap::{ArgAction, Command};

/// The help of `--datastore`, for commands that only read.
const ONLY_READ: &str =
    "URL of the datastore. The token comes from --token-file or the variable `PLANCHA_TOKEN`";
/// The help of `--datastore` of `upload`.
const UPLOAD: &str = "The datastore to send the files to. The token comes from --token-file or the variable `PLANCHA_TOKEN`";

/// Describes the arguments of each command as it uses them. `bin_dir`: where `start` installs tools.
pub(super) fn of_commands(program: Command, bin_dir: &str) -> Command {
    let bin_dir = format!("Where tools are installed [default: {bin_dir}]");
    let program = program
        .mut_subcommand("start", |start| start.mut_arg("bin_dir", |arg| arg.help(bin_dir)))
        .mut_subcommand("upload", |upload| datastore(upload, UPLOAD))
        .mut_subcommand("policy", |policy| {
            policy.mut_subcommand("test", |test| datastore(test, ONLY_READ))
        });
    let program = ["runs", "show", "logs"].into_iter().fold(program, |program, name| {
        program.mut_subcommand(name, |command| datastore(command, ONLY_READ))
    });
    ["plan", "apply"]
        .into_iter()
        .fold(program, |program, name| program.mut_subcommand(name, for_one_directory))
}

fn datastore(command: Command, help: &'static str) -> Command {
    command.mut_arg("datastore", |arg| arg.help(help))
}

/// A command that takes one directory, and no layers.
fn for_one_directory(command: Command) -> Command {
    const HELP: &str = "The code: a directory, an archive (tar, tar.gz, tar.zst), a git bundle or a git URL [default: the current \
                        directory]";
    // A changed argument loses its place.
    let command = command.mut_arg("args", |arg| arg.index(2));
    command.mut_arg("targets", |arg| {
        arg.num_args(1).action(ArgAction::Set).index(1).value_name("DIR").help(HELP)
    })
}
