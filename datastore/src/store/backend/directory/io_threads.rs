//! Threads for blocking file I/O, with a cheaper hand-over than `tokio`'s blocking pool.
//!
//! To wake a thread costs more than a small read does. So a job that comes after quick ones waits for the thread that runs
//! the previous job. If that thread does not take it within two [`TICK`]s, or if recent jobs were slow, another thread is
//! woken for it.
//!
//! The callers bound how many jobs there are at once ([`crate::store::backend::directory::jobs`]). A job that hangs keeps
//! its thread, and the end of the process waits for none.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use tokio::sync::oneshot;

/// A thread ends after this idle time.
const IDLE: Duration = Duration::from_secs(10);
/// A job that takes longer is slow: it waits for a disk, or copies much.
const SLOW: Duration = Duration::from_micros(100);
/// How many jobs after a slow one have a thread woken for them at once.
const EAGER: usize = 16;
/// How often the supervisor checks that waiting jobs are taken.
const TICK: Duration = Duration::from_millis(2);
/// The supervisor ends after so many ticks without a waiting job.
const CALM_TICKS: usize = 250;
/// With so many waiting jobs, one thread is not enough for them.
const CROWD: usize = 16;

static THREADS: LazyLock<Threads> = LazyLock::new(Threads::default);

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Threads {
    state: Mutex<State>,
    wakes: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// How many jobs were taken from the queue.
    taken: usize,
    /// How many of the next jobs have a thread woken for them at once.
    eager: usize,
    is_supervised: bool,
    /// Whether a thread is about to take the next job; at most one is.
    is_watched: bool,
    /// Sleeping threads.
    asleep: usize,
    /// Sleeping threads that were woken and still have to wake up.
    woken: usize,
    threads: usize,
}

/// Runs `work` on another thread.
pub(in crate::store) async fn run<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (sends, done) = oneshot::channel();
    start(move || {
        // The caller may have given up.
        let _sent = sends.send(work());
    });
    done.await.unwrap_or_else(|_| {
        Err(io::Error::other("a file operation panicked, or the system has no thread for it"))
    })
}

/// Starts `work` on another thread without waiting. It is dropped if the system cannot create a thread.
pub(in crate::store) fn start(work: impl FnOnce() + Send + 'static) {
    THREADS.start(Box::new(work));
}

impl Threads {
    fn start(&'static self, job: Job) {
        let mut state = self.state();
        state.jobs.push_back(job);
        self.provide(state);
    }

    /// Ensures that a thread takes the next job, if there is one: a thread that is woken for it, or, after quick jobs, one
    /// that runs a job now.
    fn provide(&'static self, mut state: MutexGuard<State>) {
        if state.is_watched || state.jobs.is_empty() {
            return;
        }
        if state.eager > 0 || state.threads == state.asleep {
            state.eager = state.eager.saturating_sub(1);
            self.wake(state);
        } else {
            self.supervise(state);
        }
    }

    /// Wakes or starts a thread that takes the next job.
    fn wake(&'static self, mut state: MutexGuard<State>) {
        state.is_watched = true;
        if state.asleep > 0 {
            state.asleep -= 1;
            state.woken += 1;
            drop(state);
            self.wakes.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let thread = thread::Builder::new().name("files".to_owned());
        if let Err(error) = thread.spawn(|| self.work()) {
            tracing::error!(%error, "cannot start a thread for files");
            let mut state = self.state();
            state.threads -= 1;
            state.is_watched = false;
            // Another thread takes the jobs after its own; without any thread they are dropped.
            if state.threads == 0 {
                let _dropped = std::mem::take(&mut state.jobs);
            }
        }
    }

    /// Ensures that the supervisor runs.
    fn supervise(&'static self, mut state: MutexGuard<State>) {
        if state.is_supervised {
            return;
        }
        state.is_supervised = true;
        drop(state);
        let thread = thread::Builder::new().name("files-tick".to_owned());
        if thread.spawn(|| self.watch()).is_err() {
            let mut state = self.state();
            state.is_supervised = false;
            if !state.is_watched {
                self.wake(state);
            }
        }
    }

    /// The loop of the supervisor. Wakes threads for jobs that wait longer than a tick.
    fn watch(&'static self) {
        let (mut calm, mut taken) = (0, None);
        while calm < CALM_TICKS {
            thread::sleep(TICK);
            let mut state = self.state();
            let waiting = state.jobs.len();
            if waiting == 0 || state.is_watched {
                calm += 1;
            } else {
                calm = 0;
                let is_stuck = taken == Some(state.taken);
                taken = Some(state.taken);
                if is_stuck {
                    // Each of these jobs may be slow.
                    state.eager = state.eager.max(waiting - 1);
                }
                if is_stuck || waiting >= CROWD {
                    self.wake(state);
                }
            }
        }
        let mut state = self.state();
        state.is_supervised = false;
        // A job may have come since the last tick.
        self.provide(state);
    }

    /// The loop of a thread.
    fn work(&'static self) {
        while let Some(job) = self.next() {
            let started = Instant::now();
            // A panic drops the sender, so the caller gets an error.
            let _panicked = catch_unwind(AssertUnwindSafe(job));
            let is_slow = started.elapsed() > SLOW;
            let mut state = self.state();
            if is_slow {
                state.eager = EAGER;
            }
            if !state.is_watched {
                state.is_watched = true;
            } else if !self.sleep(state) {
                return;
            }
        }
    }

    /// The next job; `None` if the thread is to end.
    fn next(&'static self) -> Option<Job> {
        loop {
            let mut state = self.state();
            state.is_watched = false;
            if let Some(job) = state.jobs.pop_front() {
                state.taken += 1;
                // This thread may hang in its job.
                self.provide(state);
                return Some(job);
            }
            if !self.sleep(state) {
                return None;
            }
        }
    }

    /// Sleeps until it is woken; `false` if the thread is to end.
    fn sleep(&'static self, mut state: MutexGuard<State>) -> bool {
        state.asleep += 1;
        loop {
            let (woken, timed_out) =
                self.wakes.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if state.woken > 0 {
                state.woken -= 1;
                return true;
            }
            if timed_out.timed_out() {
                state.asleep -= 1;
                state.threads -= 1;
                return false;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::Barrier;

    use super::*;

    #[tokio::test]
    async fn jobs_that_wait_for_each_other_run_in_parallel() {
        let barrier = Arc::new(Barrier::new(20));
        let jobs = (0..20).map(|number| {
            let barrier = Arc::clone(&barrier);
            run(move || {
                barrier.wait();
                Ok(number)
            })
        });
        let done = futures::future::try_join_all(jobs).await.unwrap();
        assert_eq!(done, (0..20).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_job_that_panics_is_an_error_and_the_next_one_runs() {
        for _ in 0..100 {
            run(|| -> io::Result<()> { panic!("on purpose") }).await.unwrap_err();
            assert_eq!(run(|| Ok(1)).await.unwrap(), 1);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn every_job_runs() {
        let jobs = (0..2000).map(|number| async move { run(move || Ok(number)).await.unwrap() });
        let done = futures::future::join_all(jobs.map(tokio::spawn)).await;
        assert!(done.into_iter().map(Result::unwrap).eq(0..2000));
    }
}
