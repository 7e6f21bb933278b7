//! The runner, as a program.

use std::process::ExitCode;

use runner::cli::{Cli, Environment};
use runner::{guard, init, policy_worker, reporting_panics};

fn main() -> ExitCode {
    let name = std::env::args_os().next().unwrap_or_default();
    if name == guard::NAME {
        return guard::main();
    }
    if name == policy_worker::NAME {
        return policy_worker::main();
    }
    if let Some(code) = init::run() {
        return code;
    }
    reporting_panics(run)
}

fn run() -> ExitCode {
    let cli = match Cli::from_arguments(std::env::args_os()) {
        Ok(cli) => cli,
        Err(exit) => return exit,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => {
            let code = runtime.block_on(runner::run(cli, Environment::read()));
            // What still waits for a disk that does not answer must not hold up the end.
            runtime.shutdown_background();
            code
        }
        Err(error) => {
            tracing::error!("the runner cannot start: {error}");
            ExitCode::FAILURE
        }
    }
}
