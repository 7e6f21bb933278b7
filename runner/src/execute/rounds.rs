//! A command for one root module, or for several layers: once, or again and again (`--every`).
//!
//! Each repetition is a round, which does what the command does without `--every`. When the next one begins, and what ends
//! the process, is decided here.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use datastore_api::HumanDuration;
use datastore_api::status::metrics::MetricPrefix;

use crate::cli::{Environment, MonitoringArgs};
use crate::execute::layers::{self, Each};
use crate::execute::observe::board::Board;
use crate::execute::observe::{listener, metrics_file};
use crate::execute::{Outputs, Shared, execute, execute_job, start_output};
use crate::failure::{Failure, last_line};
use crate::order::job::{JobError, Rejected};
use crate::order::outputs::check_metrics_file;
use crate::order::pipes;
use crate::process::Signals;
use crate::run::error::RunError;

/// The exit code of a wrong command line.
const USAGE: u8 = 64;
/// Without progress for this time, a process is unhealthy, if no flag says otherwise: twice the limit of init and plan.
const UNHEALTHY: Duration = Duration::from_mins(30);

/// Runs a command once, or again and again.
pub(crate) async fn run(mut each: Each, burrito: bool, environment: &Environment) -> u8 {
    let idle = each.run().limits.idle_timeout;
    let Some((periodic, monitoring)) = each.periodic() else {
        let board = Arc::new(Board::new(MetricPrefix::default(), UNHEALTHY));
        let shared = Shared { environment, signals: None, board: &board };
        return round(each, burrito, shared, &mut false).await;
    };
    let monitoring = monitoring.clone();
    let limit = monitoring.unhealthy_after.or(idle.map(|idle| idle.saturating_mul(2)));
    let prefix = monitoring.metrics_prefix.clone();
    let board = Arc::new(Board::new(prefix, limit.unwrap_or(UNHEALTHY)));
    if let Some(file) = &monitoring.metrics_file {
        if let Err(reason) = check_metrics_file(file) {
            return last_line::log(&Failure::from(&JobError::Config(reason)));
        }
        board.remember(metrics_file::read(file));
    }
    let shared = Shared { environment, signals: None, board: &board };
    let Some(every) = periodic.every else {
        let code = round(each, burrito, shared, &mut false).await;
        write_metrics(&monitoring, &board);
        return code;
    };
    let schedule = Schedule::new(Instant::now(), every, periodic.jitter);
    repeat(each, burrito, shared, &monitoring, schedule).await
}

/// Runs the command again and again, until a signal.
async fn repeat(
    mut each: Each,
    burrito: bool,
    shared: Shared<'_>,
    monitoring: &MonitoringArgs,
    mut schedule: Schedule,
) -> u8 {
    let Shared { environment, board, .. } = shared;
    let signals = match start_output(environment).and_then(|()| Signals::listen(None)) {
        Ok(signals) => signals,
        Err(error) => return last_line::log(&Failure::from(&RunError::Io(error))),
    };
    // A pipe can be read only once.
    match signals.or(pipes::read(each.files())).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return last_line::log(&Failure::from(&error)),
        Err(_) => return 0,
    }
    if let Err(error) = listen(monitoring, board) {
        return last_line::log(&Failure::from(&error));
    }
    let known = environment.redaction.known();
    let shared = Shared { signals: Some(&signals), ..shared };
    let (mut is_first, mut named_layers) = (true, false);
    loop {
        environment.redaction.forget_later(&known);
        board.begin_round();
        let ended = round(each.clone(), burrito, shared, &mut named_layers);
        let code = until_stop(ended, &signals, board).await;
        write_metrics(monitoring, board);
        if signals.stopped().is_some() {
            return code;
        }
        // It would be wrong in each round.
        if std::mem::take(&mut is_first) && code == USAGE {
            return code;
        }
        let next = schedule.next(Instant::now(), random());
        board.wait_until(next);
        let pause = next.saturating_duration_since(Instant::now());
        let shown = HumanDuration(Duration::from_secs(pause.as_secs()));
        tracing::info!(
            "{} ended with exit code {code}; the next one begins in {shown}",
            each.name()
        );
        if signals.or(tokio::time::sleep(pause)).await.is_err() {
            tracing::info!("stopped while waiting");
            return 0;
        }
    }
}

/// Waits for the end of a round. From a signal on, the process is not ready.
async fn until_stop(round: impl Future<Output = u8>, signals: &Signals, board: &Board) -> u8 {
    let mut round = std::pin::pin!(round);
    tokio::select! {
        biased;
        code = &mut round => return code,
        _ = signals.wait() => board.stop(),
    }
    round.await
}

/// Runs the command once. `named_layers`: whether it has named layers, now or in an earlier round.
async fn round(each: Each, burrito: bool, shared: Shared<'_>, named_layers: &mut bool) -> u8 {
    let of_layers = layers::run(each.clone(), shared, *named_layers);
    if let Some(code) = Box::pin(of_layers).await {
        *named_layers = true;
        return code;
    }
    let environment = shared.environment;
    let mut each = each.with_needs();
    let run = each.run();
    let (outputs, limit) = (Outputs::of(run, environment), run.limits.timeout);
    let (outputs, name) = (outputs.observed(each.observed(shared, None)), each.name());
    let job = async {
        pipes::read(each.files()).await?;
        Ok::<_, Rejected>(each.job(burrito, environment).await?)
    };
    let job = Box::pin(job);
    let Some(signals) = shared.signals else {
        return execute(name, job, environment, outputs, limit).await;
    };
    let signals = signals.child(limit);
    let run = Box::pin(execute_job(name, job, environment, outputs, &signals));
    shared.board.watch("the run", run).await.exit
}

/// Serves metrics and health, if that is wanted.
fn listen(monitoring: &MonitoringArgs, board: &Arc<Board>) -> Result<(), JobError> {
    let Some(address) = monitoring.listen else { return Ok(()) };
    let address = listener::start(address, Arc::clone(board))
        .map_err(|error| JobError::Config(format!("--listen {address}: {error}")))?;
    tracing::info!("metrics and health are at http://{address}");
    Ok(())
}

/// Writes the file of metrics, if one is wanted. That changes nothing about the result.
fn write_metrics(monitoring: &MonitoringArgs, board: &Board) {
    if let Some(path) = &monitoring.metrics_file
        && let Err(error) = metrics_file::write(path, &board.page(), &board.statuses())
    {
        tracing::warn!("--metrics-file {}: {error}", path.display());
    }
}

/// When rounds begin: at the first time and each interval after it, plus a random part of the interval. Times that a round has
/// missed are left out.
#[derive(Debug)]
struct Schedule {
    /// That of the last round, without the random part.
    at: Instant,
    every: Duration,
    /// The largest random part, in percent.
    jitter: u32,
}

impl Schedule {
    fn new(at: Instant, every: Duration, jitter: u32) -> Self {
        Self { at, every, jitter }
    }

    /// The next round. `random` is any number.
    fn next(&mut self, now: Instant, random: u32) -> Instant {
        let passed = now.saturating_duration_since(self.at).as_nanos();
        let since = passed - passed % self.every.as_nanos().max(1);
        self.at += Duration::from_nanos(u64::try_from(since).unwrap_or(u64::MAX)) + self.every;
        let longest = self.every / 100 * self.jitter;
        self.at + longest / 1000 * (random % 1001)
    }
}

/// A random number, of no use for secrets.
fn random() -> u32 {
    let random = RandomState::new().hash_one(std::process::id());
    u32::try_from(random >> 32).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_begin_at_multiples_of_the_interval_and_missed_ones_are_left_out() {
        let start = Instant::now();
        let minutes = |count: u64| Duration::from_mins(count);
        let mut schedule = Schedule::new(start, minutes(60), 0);
        for (now, next) in [(1, 60), (60, 120), (125, 180), (500, 540), (540, 600)] {
            assert_eq!(schedule.next(start + minutes(now), 7) - start, minutes(next), "{now}");
        }
    }

    #[test]
    fn a_jitter_delays_within_its_part_and_does_not_add_up() {
        let start = Instant::now();
        let minutes = |count: u64| Duration::from_mins(count);
        let mut schedule = Schedule::new(start, minutes(100), 10);
        let next = |schedule: &mut Schedule, now, random| {
            schedule.next(start + minutes(now), random) - start
        };
        assert_eq!(next(&mut schedule, 1, 1000), minutes(110));
        assert_eq!(next(&mut schedule, 111, 0), minutes(200));
        assert_eq!(next(&mut schedule, 201, 500), minutes(305));
        let longest = Schedule::new(start, Duration::from_secs(1 << 40), 100);
        let mut longest = longest;
        assert!(longest.next(start, u32::MAX) > start);
    }
}
