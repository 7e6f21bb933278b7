//! The program `datastore`, which is also installed as `burrito`.

use std::io::{Write as _, stdout};
use std::process::ExitCode;
use std::time::Duration;

use datastore::cli::commands::{check, report, run, token};
use datastore::cli::health::health;
use datastore::cli::state::state;
use datastore::config::{Command, Serve};
use datastore::observe::log;
use datastore::{StartError, listen, raise_open_files, report_panics};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Chosen by measurement; `transport/admission.rs` has the figures.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How long the exit waits for threads that are in a call to the file system. One that hangs ends with the process.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let command = match Command::parse() {
        Ok(command) => command,
        Err(code) => return code,
    };
    let log_format =
        if let Command::Serve(settings) = &command { Some(settings.log_format) } else { None };
    // Dropped last: requests that end with the runtime are logged, too.
    let _log = log_format.map(log::init);
    report_panics(log_format.is_some());
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(Err(StartError::Process(error).into())),
    };
    let code = runtime.block_on(run_command(command));
    runtime.shutdown_timeout(EXIT_TIMEOUT);
    code
}

async fn run_command(command: Command) -> ExitCode {
    match command {
        Command::Serve(settings) => match serve(settings).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => ExitCode::from(error.exit_code()),
        },
        Command::Check(settings) => report(check(&settings, &mut stdout()).await),
        Command::Health(addresses) => report(health(&addresses).await),
        Command::Storage(config, command) => report(run(&config, command, &mut stdout()).await),
        Command::State(order) => report(state(*order, &mut stdout()).await),
        Command::Token(new, rules) => report(token(&new, rules.as_deref(), &mut stdout())),
        Command::Version(text) => report(writeln!(stdout(), "{text}").map_err(Into::into)),
    }
}

async fn serve(settings: Serve) -> Result<(), StartError> {
    let result = listen_and_serve(settings).await;
    result.inspect_err(|error| tracing::error!("{}", datastore::chain(error)))
}

async fn listen_and_serve(mut settings: Serve) -> Result<(), StartError> {
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    settings.config.limits.fit(raise_open_files()?);
    let listeners = listen(&settings.listen)?;
    let shutdown = CancellationToken::new();
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let (mut signal, stop) = (signal(kind).map_err(StartError::Process)?, shutdown.clone());
        tokio::spawn(async move { signal.recv().await.inspect(|()| stop.cancel()) });
    }
    datastore::serve(listeners, settings.config, shutdown).await
}
