//! Where output goes: to a pager if stdout is a terminal, else to stdout.

use std::env::split_paths;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, IsTerminal as _};

use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::cli::Environment;
use crate::process::{Pager, github};
use crate::show::error::ShowError;
use crate::show::terminal::colours::Colours;

/// Exit codes of a shell that cannot run a program.
const CANNOT_RUN: [i32; 2] = [126, 127];

/// The output, with colours if it is shown on a terminal.
pub(in crate::show) struct Screen {
    to: Box<dyn AsyncWrite + Unpin>,
    colours: Colours,
}

impl fmt::Debug for Screen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Screen").field("colours", &self.colours).finish_non_exhaustive()
    }
}

impl Screen {
    pub(in crate::show) fn colours(&self) -> Colours {
        self.colours
    }

    /// Writes text that is clean.
    pub(in crate::show) async fn write(&mut self, text: &str) -> Result<(), ShowError> {
        if github::is_used() {
            return github::show(text.as_bytes()).map_err(closed);
        }
        self.to.write_all(text.as_bytes()).await.map_err(closed)
    }
}

fn closed(error: io::Error) -> ShowError {
    if error.kind() == io::ErrorKind::BrokenPipe {
        ShowError::Closed
    } else {
        ShowError::Output(error)
    }
}

/// Shows what `work` writes. A pager or a pipe that is closed before the end is no error.
pub(in crate::show) async fn with_screen(
    environment: &Environment,
    no_pager: bool,
    work: impl AsyncFnOnce(&mut Screen) -> Result<(), ShowError>,
) -> Result<(), ShowError> {
    let is_terminal = io::stdout().is_terminal();
    let terminal = &environment.terminal;
    let colours = Colours(terminal.has_colours(&io::stdout()));
    let pager = if is_terminal && !no_pager { pager(environment) } else { None };
    let shown = if let Some(command) = pager {
        page(&command, &terminal.pager_options, colours, work).await
    } else {
        let mut screen = Screen { to: Box::new(tokio::io::stdout()), colours };
        let shown = work(&mut screen).await;
        shown.and(screen.to.flush().await.map_err(closed))
    };
    match shown {
        Err(ShowError::Closed) => Ok(()),
        shown => shown,
    }
}

async fn page(
    command: &OsStr,
    options: &[(&str, &str)],
    colours: Colours,
    work: impl AsyncFnOnce(&mut Screen) -> Result<(), ShowError>,
) -> Result<(), ShowError> {
    let (mut pager, pipe) = Pager::start(command, options)?;
    let shown = {
        let mut screen = Screen { to: Box::new(pipe), colours };
        tokio::select! {
            biased;
            shown = work(&mut screen) => shown,
            // The user has left it, while the rest was still loaded.
            _ = pager.wait() => Err(ShowError::Closed),
        }
    };
    let status = pager.wait().await?;
    match status.code() {
        Some(code) if CANNOT_RUN.contains(&code) => {
            Err(ShowError::Pager { command: command.to_string_lossy().into_owned(), code })
        }
        _ => shown,
    }
}

/// The command of the pager, `less` by default. `None`: there is none, or it is turned off.
fn pager(environment: &Environment) -> Option<OsString> {
    match &environment.terminal.pager {
        Some(command) if command.is_empty() || command == "cat" => None,
        Some(command) => Some(command.clone()),
        None if environment.terminal.is_dumb => None,
        None => {
            let has_less = split_paths(&environment.path).any(|dir| dir.join("less").is_file());
            has_less.then(|| "less".into())
        }
    }
}
