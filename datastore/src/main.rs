//! The datastore, as a program. It also goes by the name `burrito`.

use std::io::Write as _;
use std::process::ExitCode;

use datastore::config::{Command, Serve};
use datastore::telemetry;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    let done = match Command::parse() {
        Ok(Command::Serve(settings)) => serve(settings),
        Ok(Command::Version(version)) => {
            writeln!(std::io::stdout(), "{version}").map_err(Into::into)
        }
        Err(code) => return code,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn serve(settings: Serve) -> anyhow::Result<()> {
    telemetry::init(settings.log_format);
    let listener = TcpListener::bind(&*settings.listen).await?;
    let shutdown = CancellationToken::new();
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = shutdown.clone();
    tokio::spawn(async move {
        tokio::select! { _ = terminate.recv() => (), _ = interrupt.recv() => () }
        stop.cancel();
    });
    datastore::serve(listener, settings.config, shutdown).await
}
