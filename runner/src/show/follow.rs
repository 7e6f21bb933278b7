//! `runner logs -f`: the log of an attempt as it comes, over connections that may break.

use std::time::Duration;

use datastore_api::client::{Followed, FollowedLog};
use datastore_api::key::{AttemptFiles, Live};
use datastore_api::{ClientError, chain};
use reqwest::StatusCode;
use tokio::time::{Instant, sleep, timeout};

use crate::cli::{Environment, LogsArgs};
use crate::run::artifacts::REPORT;
use crate::show::error::ShowError;
use crate::show::record::has;
use crate::show::target::{self, Target};
use crate::show::terminal::painter::Painter;
use crate::show::terminal::screen::{Screen, with_screen};

/// After this time without text, the datastore is asked whether the run still works.
const SILENCE: Duration = Duration::from_secs(15);
/// Between two tries to read a log.
const PAUSE: Duration = Duration::from_secs(1);

/// Prints a log until it is complete.
pub(super) async fn follow(args: &LogsArgs, environment: &Environment) -> Result<(), ShowError> {
    let target = loop {
        match target::find(&args.target, &args.common, environment).await {
            // The attempt is claimed, and its log comes with the first output.
            Err(ShowError::NothingStored { .. }) => sleep(PAUSE).await,
            found => break found?,
        }
    };
    // A pager would show nothing of what is still to come.
    with_screen(environment, true, async |screen: &mut Screen| {
        let mut painter = Painter::new(screen.colours());
        let mut reader = Reader { target: &target, offset: 0, is_lost: false };
        let followed = reader.follow(screen, &mut painter).await;
        let rest = painter.finish();
        followed.and(screen.write(&rest).await)
    })
    .await
}

struct Reader<'a> {
    target: &'a Target,
    /// How many bytes were read.
    offset: u64,
    is_lost: bool,
}

impl Reader<'_> {
    async fn follow(
        &mut self,
        screen: &mut Screen,
        painter: &mut Painter,
    ) -> Result<(), ShowError> {
        let Target { client, run, files, .. } = self.target;
        let limit = client.settings().timeout;
        let client = client.once(limit);
        let mut answered = Instant::now();
        loop {
            let broken = match client.follow_log(run, files.attempt, self.offset).await {
                Ok(Some(log)) => match self.read(log, screen, painter).await {
                    Ok(true) => return Ok(()),
                    Ok(false) => {
                        answered = Instant::now();
                        sleep(PAUSE).await;
                        continue;
                    }
                    Err(ShowError::Datastore(error)) => {
                        answered = Instant::now();
                        error
                    }
                    Err(error) => return Err(error),
                },
                Err(error) if error.status() == Some(StatusCode::RANGE_NOT_SATISFIABLE) => {
                    self.replaced();
                    return Ok(());
                }
                Ok(None) => {
                    self.check_comes().await?;
                    answered = Instant::now();
                    sleep(PAUSE).await;
                    continue;
                }
                Err(error) => error,
            };
            if !broken.is_transient() || answered.elapsed() > limit {
                return Err(broken.into());
            }
            tracing::debug!(
                "the log is followed again from byte {}: {}",
                self.offset,
                chain(&broken)
            );
            sleep(PAUSE).await;
        }
    }

    /// Prints what comes over one connection. Returns whether the log has ended.
    async fn read(
        &mut self,
        mut log: FollowedLog,
        screen: &mut Screen,
        painter: &mut Painter,
    ) -> Result<bool, ShowError> {
        loop {
            match timeout(SILENCE, log.next()).await {
                Ok(Ok(Followed::Bytes(bytes))) => {
                    self.offset += bytes.len() as u64;
                    self.set_lost(false);
                    screen.write(&painter.push(&bytes)).await?;
                }
                Ok(Ok(Followed::Complete)) => return Ok(true),
                Ok(Ok(Followed::BrokenOff)) => return Ok(false),
                Ok(Ok(Followed::Replaced)) => {
                    self.replaced();
                    return Ok(true);
                }
                Ok(Err(error)) => return Err(error.into()),
                Err(_silent) => {
                    let files = self.files().await?;
                    self.set_lost(files.is_some_and(|files| files.live == Some(Live::Lost)));
                }
            }
        }
    }

    /// Says that another log is stored than what was printed.
    fn replaced(&self) {
        tracing::warn!(
            "the stored log is another one than the text above, for example because secrets were masked: `runner logs {}` \
             prints it",
            self.target.run
        );
    }

    /// Whether a log that does not exist yet may come.
    async fn check_comes(&self) -> Result<(), ShowError> {
        let Target { run, files, .. } = self.target;
        let files = self.files().await?.unwrap_or_else(|| files.clone());
        if !has(&files, REPORT) {
            return Ok(());
        }
        let names = files.artifacts.iter().map(|file| file.name.clone()).collect();
        Err(ShowError::NoLog { run: run.run.clone(), attempt: files.attempt, files: names })
    }

    async fn files(&self) -> Result<Option<AttemptFiles>, ClientError> {
        let Target { client, run, files, .. } = self.target;
        let attempts = client.attempts(run).await?.attempts;
        Ok(attempts.into_iter().find(|listed| listed.attempt == files.attempt))
    }

    /// Says that the run is lost, or that it works again.
    fn set_lost(&mut self, is_lost: bool) {
        if self.is_lost == is_lost {
            return;
        }
        self.is_lost = is_lost;
        let Target { run, files, .. } = self.target;
        if is_lost {
            tracing::warn!(
                "run {}/{} is lost: its runner was not heard of for a minute; its log is still followed",
                run.run,
                files.attempt
            );
        } else {
            tracing::info!("run {}/{} is running again", run.run, files.attempt);
        }
    }
}
