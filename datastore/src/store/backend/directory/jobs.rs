//! How many jobs use a file system at once, and the error while all of them hang.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

use crate::store::backend::directory::io_threads;

/// The most jobs in the file system at once. A hung job keeps its permit, so a hung file system blocks no more threads
/// than these.
const MAX_JOBS: usize = 64;
/// The most jobs at once that read ahead: other callers need the rest.
const MAX_AHEAD: usize = MAX_JOBS / 2;
/// If all permits are in use and no job has started or ended for this long, the file system hangs.
const HANG_TIMEOUT: Duration = Duration::from_secs(10);

/// The jobs of one directory.
#[derive(Debug)]
pub(in crate::store) struct Jobs {
    permits: Arc<Semaphore>,
    ahead: Arc<Semaphore>,
    /// When a job last started or ended.
    last_progress: Mutex<Instant>,
    /// Running jobs whose callers have given up.
    abandoned: AtomicUsize,
    /// When each of the running jobs began for which no caller waits.
    unawaited: Mutex<Vec<Instant>>,
}

/// All permits are in use, and none was released for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the file system does not answer: all {MAX_JOBS} threads for it are taken, and none came free for {HANG_TIMEOUT:?}"
)]
pub(in crate::store) struct Hung;

/// The state of a job, shared with its caller.
struct Job {
    jobs: Arc<Jobs>,
    state: AtomicU8,
}

const RUNNING: u8 = 0;
const ENDED: u8 = 1;
const ABANDONED: u8 = 2;

thread_local! {
    /// The job that this thread runs.
    static CURRENT: RefCell<Option<Arc<Job>>> = const { RefCell::new(None) };
}

/// Fails if the caller of this thread's job has given up. The caller has reported an error, so the job must not
/// overwrite what others have stored since.
pub(in crate::store) fn fail_if_abandoned() -> io::Result<()> {
    let is_abandoned = |job: &Arc<Job>| job.state.load(Ordering::Relaxed) == ABANDONED;
    if CURRENT.with_borrow(|job| job.as_ref().is_some_and(is_abandoned)) {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "its caller has given up"));
    }
    Ok(())
}

/// The waiting caller of a job; dropped when it gives up or has the result.
struct Caller(Arc<Job>);

/// A running job and its permit; dropped when it ends, panics or cannot start.
struct Running {
    job: Arc<Job>,
    _permit: OwnedSemaphorePermit,
}

/// A running job for which no caller waits; dropped as [`Running`] is.
struct Unawaited {
    jobs: Arc<Jobs>,
    since: Instant,
}

impl Jobs {
    pub(in crate::store) fn new() -> Self {
        Self {
            permits: Arc::new(Semaphore::new(MAX_JOBS)),
            ahead: Arc::new(Semaphore::new(MAX_AHEAD)),
            last_progress: Mutex::new(Instant::now()),
            abandoned: AtomicUsize::new(0),
            unawaited: Mutex::default(),
        }
    }

    /// The permit for a job that reads ahead, to be kept until it ends; `None` if as many as allowed run.
    pub(in crate::store) fn ahead(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.ahead).try_acquire_owned().ok()
    }

    /// Runs `work` on an I/O thread.
    pub(in crate::store) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let permit = self.permit().await?;
        let job = Arc::new(Job { jobs: Arc::clone(self), state: AtomicU8::new(RUNNING) });
        let _caller = Caller(Arc::clone(&job));
        let running = Running { job, _permit: permit };
        let done = io_threads::run(move || {
            CURRENT.set(Some(Arc::clone(&running.job)));
            let done = work();
            drop(running);
            done
        });
        done.await
    }

    /// Runs `work` on an I/O thread as soon as it has a permit. No caller waits for it.
    fn start(self: Arc<Self>, work: impl FnOnce() + Send + 'static) {
        let permits = Arc::clone(&self.permits);
        let start = move |permit| {
            self.record_progress();
            let since = Instant::now();
            self.unawaited().push(since);
            let unawaited = Unawaited { jobs: Arc::clone(&self), since };
            let job = Arc::new(Job { jobs: self, state: AtomicU8::new(RUNNING) });
            let running = Running { job, _permit: permit };
            io_threads::start(move || {
                work();
                drop(unawaited);
                drop(running);
            });
        };
        match (Arc::clone(&permits).try_acquire_owned(), Handle::try_current()) {
            (Ok(permit), _) => start(permit),
            // The semaphore is never closed.
            (Err(_), Ok(runtime)) => {
                drop(runtime.spawn(async move { permits.acquire_owned().await.map(start) }));
            }
            (Err(_), Err(_)) => {}
        }
    }

    /// The number of running jobs whose callers have given up, or for which no caller waits and that run for as long.
    pub(in crate::store) fn hung(&self) -> usize {
        let is_hung = |since: &&Instant| since.elapsed() >= HANG_TIMEOUT;
        let unawaited = self.unawaited().iter().filter(is_hung).count();
        self.abandoned.load(Ordering::Relaxed) + unawaited
    }

    fn unawaited(&self) -> MutexGuard<'_, Vec<Instant>> {
        self.unawaited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all jobs hang.
    pub(in crate::store) fn are_hung(&self) -> bool {
        self.permits.available_permits() == 0 && self.last_progress().elapsed() >= HANG_TIMEOUT
    }

    async fn permit(&self) -> io::Result<OwnedSemaphorePermit> {
        let hung = async {
            while self.last_progress().elapsed() < HANG_TIMEOUT {
                sleep_until(self.last_progress() + HANG_TIMEOUT).await;
            }
        };
        let permit = tokio::select! {
            biased;
            permit = Arc::clone(&self.permits).acquire_owned() => permit.map_err(io::Error::other)?,
            () = hung => return Err(io::Error::other(Hung)),
        };
        self.record_progress();
        Ok(permit)
    }

    fn last_progress(&self) -> Instant {
        *self.last_progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record_progress(&self) {
        *self.last_progress.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

/// A file that a job has opened. It is closed by a job too: closing waits for the server of a network file system,
/// which may hang.
#[derive(Debug)]
pub(in crate::store) struct JobFile {
    file: Option<File>,
    jobs: Option<Arc<Jobs>>,
}

impl JobFile {
    /// A file that the job of this thread has opened.
    pub(in crate::store) fn new(file: File) -> Self {
        let jobs = CURRENT.with_borrow(|job| job.as_ref().map(|job| Arc::clone(&job.jobs)));
        Self { file: Some(file), jobs }
    }

    /// The open file. It is closed only when this is dropped.
    pub(in crate::store) fn get(&self) -> io::Result<&File> {
        self.file.as_ref().ok_or_else(|| io::Error::other("the file is closed"))
    }
}

impl Drop for JobFile {
    fn drop(&mut self) {
        let is_in_job = CURRENT.with_borrow(Option::is_some);
        let jobs = self.jobs.take().filter(|_| !is_in_job);
        if let (Some(jobs), Some(file)) = (jobs, self.file.take()) {
            jobs.start(move || drop(file));
        }
    }
}

impl Drop for Unawaited {
    fn drop(&mut self) {
        let mut unawaited = self.jobs.unawaited();
        if let Some(at) = unawaited.iter().position(|since| *since == self.since) {
            unawaited.swap_remove(at);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        CURRENT.set(None);
        let Job { jobs, state } = &*self.job;
        jobs.record_progress();
        if state.swap(ENDED, Ordering::Relaxed) == ABANDONED {
            jobs.abandoned.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let Self(job) = self;
        if job.state.load(Ordering::Relaxed) == ENDED {
            return;
        }
        // Counted before the job can see that it is abandoned.
        job.jobs.abandoned.fetch_add(1, Ordering::Relaxed);
        if job
            .state
            .compare_exchange(RUNNING, ABANDONED, Ordering::Relaxed, Ordering::Relaxed)
            .is_err()
        {
            job.jobs.abandoned.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_job_that_panics_releases_its_permit() {
        let jobs = Arc::new(Jobs::new());
        jobs.run(|| -> io::Result<()> { panic!("on purpose") }).await.unwrap_err();
        assert_eq!((jobs.hung(), jobs.permits.available_permits()), (0, MAX_JOBS));
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_are_refused_while_all_threads_hang_and_accepted_afterwards() {
        let jobs = Arc::new(Jobs::new());
        let (ends, waits) = mpsc::channel::<()>();
        let waits = Arc::new(Mutex::new(waits));
        let hanging = (0..MAX_JOBS).map(|_| {
            let (jobs, waits) = (Arc::clone(&jobs), Arc::clone(&waits));
            let work = move || waits.lock().unwrap().recv().map_err(io::Error::other);
            tokio::spawn(async move {
                tokio::time::timeout(Duration::from_secs(1), jobs.run(work)).await
            })
        });
        let hanging = hanging.collect::<Vec<_>>();
        while jobs.permits.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(!jobs.are_hung(), "they have only started");
        let another = Arc::clone(&jobs);
        let refused = tokio::spawn(async move { another.run(|| Ok(())).await });
        tokio::task::yield_now().await;
        // Paused time does not advance by itself while threads work.
        tokio::time::advance(HANG_TIMEOUT).await;
        let refused = refused.await.unwrap().unwrap_err();
        assert_eq!(refused.get_ref().and_then(|error| error.downcast_ref()), Some(&Hung));
        assert!(jobs.are_hung());
        for caller in hanging {
            caller.await.unwrap().unwrap_err();
        }
        assert_eq!(jobs.hung(), MAX_JOBS);
        ends.send(()).unwrap();
        // Callers are refused until that job has released its permit.
        while jobs.run(|| Ok(())).await.is_err() {
            tokio::task::yield_now().await;
        }
        assert!(!jobs.are_hung());
        drop(ends);
        while jobs.hung() > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn files_that_are_closed_at_once_are_no_hang_until_they_last() {
        let jobs = Arc::new(Jobs::new());
        let (ends, waits) = mpsc::channel::<()>();
        let waits = Arc::new(Mutex::new(waits));
        // No job has run for a long time.
        tokio::time::advance(2 * HANG_TIMEOUT).await;
        for _ in 0..MAX_JOBS {
            let waits = Arc::clone(&waits);
            Arc::clone(&jobs).start(move || {
                let _ended = waits.lock().unwrap().recv();
            });
        }
        assert_eq!((jobs.permits.available_permits(), jobs.are_hung(), jobs.hung()), (0, false, 0));
        tokio::time::advance(HANG_TIMEOUT).await;
        assert_eq!((jobs.are_hung(), jobs.hung()), (true, MAX_JOBS));
        drop(ends);
        while jobs.hung() > 0 || jobs.are_hung() {
            tokio::task::yield_now().await;
        }
    }
}
