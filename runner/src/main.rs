//! The runner, as a program.

use std::process::ExitCode;

use runner::config::{Cli, Environment};

fn main() -> ExitCode {
    let cli = match Cli::from_arguments(std::env::args_os()) {
        Ok(cli) => cli,
        Err(exit) => return exit,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(runner::run(cli, Environment::read())),
        Err(error) => {
            tracing::error!("the runner cannot start: {error}");
            ExitCode::FAILURE
        }
    }
}
