//! The datastore, as a program. It also goes by the name `burrito`.

use std::io::{Write as _, stdout};
use std::process::ExitCode;

use anyhow::Context as _;
use datastore::commands::{check, ended, run, token};
use datastore::config::{Command, Serve};
use datastore::telemetry;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Chosen by measurement: `admission.rs` has the table.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Command::parse() {
        Ok(Command::Serve(settings)) => serve(settings).await,
        Ok(Command::Check(settings)) => return ended(check(&settings, &mut stdout()).await),
        Ok(Command::Tool(at, tool)) => return ended(run(&at, tool, &mut stdout()).await),
        Ok(Command::Token(new, rules)) => {
            return ended(token(&new, rules.as_deref(), &mut stdout()));
        }
        Ok(Command::Version(text)) => writeln!(stdout(), "{text}").map_err(Into::into),
        Err(code) => return code,
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    tracing::error!("{error:#}");
    ExitCode::FAILURE
}

async fn serve(settings: Serve) -> anyhow::Result<()> {
    let _log = telemetry::init(settings.log_format)?;
    let listener = TcpListener::bind(&*settings.listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", settings.listen[0]))?;
    let shutdown = CancellationToken::new();
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let (mut signal, stop) = (signal(kind)?, shutdown.clone());
        tokio::spawn(async move { signal.recv().await.inspect(|()| stop.cancel()) });
    }
    datastore::serve(listener, settings.config, shutdown).await
}
