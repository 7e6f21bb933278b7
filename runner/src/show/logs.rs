//! `runner logs`: the log of an attempt, while it arrives.

use datastore_api::{ClientError, File};

use crate::cli::{Environment, LogsArgs};
use crate::process::text::one_line;
use crate::show::error::ShowError;
use crate::show::follow::follow;
use crate::show::log_lines::{LogLines, NotLines};
use crate::show::target::{self, Target};
use crate::show::terminal::screen::{Screen, with_screen};
use crate::show::terminal::spool::{Text, show_text};

/// Prints the log of a run.
pub(crate) async fn logs(args: &LogsArgs, environment: &Environment) -> Result<(), ShowError> {
    if args.follow {
        return Box::pin(follow(args, environment)).await;
    }
    let Target { client, run, files, .. } =
        target::find(&args.target, &args.common, environment).await?;
    let attempt = files.attempt;
    let Some(log) = client.get_file(&run, Some(attempt), &File::Log).await? else {
        let files = files.artifacts.iter().map(|file| one_line(&file.name)).collect();
        return Err(ShowError::NoLog { run: run.run, attempt, files });
    };
    with_screen(environment, args.common.no_pager, async |screen: &mut Screen| {
        let mut lines = LogLines::default();
        let refused = |NotLines| {
            let reason = "it is not a list of lines".to_owned();
            ClientError::Answer { call: format!("the log of {run}/{attempt}"), reason }
        };
        show_text(Text::Arriving(Box::new(log)), screen, |painter, piece| {
            Ok(painter.push(&lines.push(piece).map_err(refused)?))
        })
        .await?;
        lines.finish().map_err(refused)?;
        Ok(())
    })
    .await
}
