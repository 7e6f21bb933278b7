//! How many jobs use a file system at once, and the error while all of them hang.
//!
//! Another file system may be mounted somewhere below the root, and hang. So no part of the directory has all places: a
//! part is what is below one directory of the second level, such as `layers/<namespace>`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use object_store::path::Path;
use tokio::runtime::Handle;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

use crate::store::backend::directory::io_threads;

/// The most jobs in the file system at once. A hung job keeps its permit, so a hung file system blocks no more threads
/// than these.
const MAX_JOBS: usize = 64;
/// The most jobs at once in one part of the directory: other parts need the rest.
const MAX_PART_JOBS: usize = MAX_JOBS * 3 / 4;
/// The most jobs at once that read ahead: other callers need the rest.
const MAX_AHEAD: usize = MAX_JOBS / 2;
const MAX_PART_AHEAD: usize = MAX_PART_JOBS / 3;
/// With more parts than these, those without jobs are forgotten.
const MAX_IDLE_PARTS: usize = 1024;
/// If all permits are in use and no job has started or ended for this long, the file system hangs.
const HANG_TIMEOUT: Duration = Duration::from_secs(10);

/// The jobs of one directory.
#[derive(Debug)]
pub(in crate::store) struct Jobs {
    places: Places,
    /// The parts of the directory that have jobs, or had some.
    parts: Mutex<HashMap<String, Arc<Places>>>,
    /// Running jobs whose callers have given up.
    abandoned: AtomicUsize,
    /// When each of the running jobs began for which no caller waits.
    unawaited: Mutex<Vec<Instant>>,
    /// Held while a cleanup runs.
    cleanup: Arc<tokio::sync::Mutex<()>>,
}

/// A part of a directory, with its jobs.
#[derive(Clone, Debug)]
pub(in crate::store) struct Part {
    jobs: Arc<Jobs>,
    places: Arc<Places>,
}

/// Places for jobs: in a whole directory, or in one part of it.
#[derive(Debug)]
struct Places {
    number: usize,
    permits: Arc<Semaphore>,
    ahead: Arc<Semaphore>,
    /// When a job last started or ended.
    last_progress: Mutex<Instant>,
}

/// The permits of one job: of its part, and of the directory.
type Permits = (OwnedSemaphorePermit, OwnedSemaphorePermit);

/// All permits are in use, and none was released for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the file system does not answer: all {0} threads for it are taken, and none came free for {HANG_TIMEOUT:?}"
)]
pub(in crate::store) struct Hung(usize);

/// The state of a job, shared with its caller.
struct Job {
    part: Part,
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

/// A running job and its permits; dropped when it ends, panics or cannot start.
struct Running {
    job: Arc<Job>,
    _permits: Permits,
}

/// Work for which no caller waits, such as a running job; dropped as [`Running`] is.
pub(in crate::store) struct Unawaited {
    jobs: Arc<Jobs>,
    since: Instant,
}

impl Jobs {
    pub(in crate::store) fn new() -> Self {
        Self {
            places: Places::new(MAX_JOBS, MAX_AHEAD),
            parts: Mutex::default(),
            abandoned: AtomicUsize::new(0),
            unawaited: Mutex::default(),
            cleanup: Arc::default(),
        }
    }

    /// To be held by a cleanup. Fails while another one runs: over a file system that hangs, each would block one more
    /// thread.
    pub(in crate::store) fn start_cleanup(&self) -> io::Result<OwnedMutexGuard<()>> {
        let hung = "the previous cleanup has not ended: its file system may hang";
        Arc::clone(&self.cleanup).try_lock_owned().map_err(|_| io::Error::other(hung))
    }

    /// The part of the directory that has this path.
    pub(in crate::store) fn part(self: &Arc<Self>, path: &Path) -> Part {
        let path = path.as_ref();
        let end = path.match_indices('/').nth(1).map_or(path.len(), |(end, _)| end);
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let jobs = Arc::clone(self);
        if let Some(places) = parts.get(&path[..end]) {
            return Part { jobs, places: Arc::clone(places) };
        }
        if parts.len() >= MAX_IDLE_PARTS {
            parts.retain(|_, places| Arc::strong_count(places) > 1);
        }
        let places = Arc::new(Places::new(MAX_PART_JOBS, MAX_PART_AHEAD));
        parts.insert(path[..end].to_owned(), Arc::clone(&places));
        drop(parts);
        Part { jobs, places }
    }

    /// The number of jobs whose callers have given up, and of closings, removals and checks of the root that have taken 10 s
    /// or more.
    pub(in crate::store) fn hung(&self) -> usize {
        let is_hung = |since: &&Instant| since.elapsed() >= HANG_TIMEOUT;
        let unawaited = self.unawaited().iter().filter(is_hung).count();
        self.abandoned.load(Ordering::Relaxed) + unawaited
    }

    /// Counts work of other threads in the file system, until the result is dropped.
    pub(in crate::store) fn count_unawaited(self: &Arc<Self>) -> Unawaited {
        let since = Instant::now();
        self.unawaited().push(since);
        Unawaited { jobs: Arc::clone(self), since }
    }

    fn unawaited(&self) -> MutexGuard<'_, Vec<Instant>> {
        self.unawaited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error if all jobs hang.
    pub(in crate::store) fn check(&self) -> Result<(), Hung> {
        let is_full = self.places.permits.available_permits() == 0;
        let is_hung = is_full && self.places.last_progress().elapsed() >= HANG_TIMEOUT;
        if is_hung { Err(Hung(MAX_JOBS)) } else { Ok(()) }
    }
}

impl Part {
    /// The permits for a job that reads ahead, to be kept until it ends; `None` if as many as allowed run.
    pub(in crate::store) fn ahead(&self) -> Option<Permits> {
        let of_part = Arc::clone(&self.places.ahead).try_acquire_owned().ok()?;
        Some((of_part, Arc::clone(&self.jobs.places.ahead).try_acquire_owned().ok()?))
    }

    /// Runs `work` on an I/O thread.
    pub(in crate::store) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        // The permit of the part comes first: who waits for it must not keep one that others can use.
        let permits = (self.places.permit().await?, self.jobs.places.permit().await?);
        let running = self.running(permits);
        let _caller = Caller(Arc::clone(&running.job));
        let done = io_threads::run(move || {
            CURRENT.set(Some(Arc::clone(&running.job)));
            let done = work();
            drop(running);
            done
        });
        done.await
    }

    /// Runs `work` on an I/O thread as soon as it has permits. No caller waits for it.
    fn start(self, work: impl FnOnce() + Send + 'static) {
        let of_part = Arc::clone(&self.places.permits);
        let of_all = Arc::clone(&self.jobs.places.permits);
        let permits = Arc::clone(&of_part).try_acquire_owned().ok();
        let permits = permits.zip(Arc::clone(&of_all).try_acquire_owned().ok());
        match (permits, Handle::try_current()) {
            (Some(permits), _) => self.start_now(permits, work),
            // The semaphores are never closed.
            (None, Ok(runtime)) => drop(runtime.spawn(async move {
                let permits = (of_part.acquire_owned().await, of_all.acquire_owned().await);
                if let (Ok(of_part), Ok(of_all)) = permits {
                    self.start_now((of_part, of_all), work);
                }
            })),
            // This thread may block, and cannot wait for permits.
            (None, Err(_)) => work(),
        }
    }

    /// Starts a job that has its permits, and for which no caller waits.
    fn start_now(self, permits: Permits, work: impl FnOnce() + Send + 'static) {
        self.places.record_progress();
        self.jobs.places.record_progress();
        let unawaited = self.jobs.count_unawaited();
        let running = self.running(permits);
        io_threads::start(move || {
            work();
            drop(unawaited);
            drop(running);
        });
    }

    fn running(&self, permits: Permits) -> Running {
        let job = Arc::new(Job { part: self.clone(), state: AtomicU8::new(RUNNING) });
        Running { job, _permits: permits }
    }
}

impl Places {
    fn new(number: usize, ahead: usize) -> Self {
        Self {
            number,
            permits: Arc::new(Semaphore::new(number)),
            ahead: Arc::new(Semaphore::new(ahead)),
            last_progress: Mutex::new(Instant::now()),
        }
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
            () = hung => return Err(io::Error::other(Hung(self.number))),
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
    part: Option<Part>,
}

impl JobFile {
    /// A file that the job of this thread has opened.
    pub(in crate::store) fn new(file: File) -> Self {
        let part = CURRENT.with_borrow(|job| job.as_ref().map(|job| job.part.clone()));
        Self { file: Some(file), part }
    }

    /// The open file. It is closed only when this is dropped.
    pub(in crate::store) fn get(&self) -> io::Result<&File> {
        self.file.as_ref().ok_or_else(|| io::Error::other("the file is closed"))
    }

    /// The part of the directory that has it, if a job has opened it.
    pub(in crate::store) fn part(&self) -> Option<&Part> {
        self.part.as_ref()
    }

    /// Runs `work` now if a job runs on this thread, else in a job that no caller waits for.
    pub(in crate::store) fn in_job(&self, work: impl FnOnce() + Send + 'static) {
        match &self.part {
            Some(part) if !CURRENT.with_borrow(Option::is_some) => part.clone().start(work),
            _ => work(),
        }
    }
}

impl Drop for JobFile {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            self.in_job(move || drop(file));
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
        let Job { part: Part { jobs, places }, state } = &*self.job;
        places.record_progress();
        jobs.places.record_progress();
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
        let abandoned = &job.part.jobs.abandoned;
        // Counted before the job can see that it is abandoned.
        abandoned.fetch_add(1, Ordering::Relaxed);
        if job
            .state
            .compare_exchange(RUNNING, ABANDONED, Ordering::Relaxed, Ordering::Relaxed)
            .is_err()
        {
            abandoned.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Jobs that hang until the sender is dropped or sends to each of them.
    fn hanging(
        parts: &[Part],
        number: usize,
    ) -> (mpsc::Sender<()>, Vec<tokio::task::JoinHandle<bool>>) {
        let (ends, waits) = mpsc::channel::<()>();
        let waits = Arc::new(Mutex::new(waits));
        let hanging = (0..number).map(|number| {
            let (part, waits) = (parts[number % parts.len()].clone(), Arc::clone(&waits));
            let work = move || waits.lock().unwrap().recv().map_err(io::Error::other);
            tokio::spawn(async move {
                tokio::time::timeout(Duration::from_secs(1), part.run(work)).await.is_ok()
            })
        });
        (ends, hanging.collect())
    }

    #[tokio::test]
    async fn a_job_that_panics_releases_its_permit() {
        let jobs = Arc::new(Jobs::new());
        let part = jobs.part(&"layers/a/b".into());
        part.run(|| -> io::Result<()> { panic!("on purpose") }).await.unwrap_err();
        assert_eq!((jobs.hung(), jobs.places.permits.available_permits()), (0, MAX_JOBS));
        assert_eq!(part.places.permits.available_permits(), MAX_PART_JOBS);
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_are_refused_while_all_threads_hang_and_accepted_afterwards() {
        let jobs = Arc::new(Jobs::new());
        let parts = ["a/a", "a/b"].map(|path| jobs.part(&path.into()));
        let (ends, hanging) = hanging(&parts, MAX_JOBS);
        while jobs.places.permits.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(jobs.check(), Ok(()), "they have only started");
        let third = jobs.part(&"a/c".into());
        let another = third.clone();
        let refused = tokio::spawn(async move { another.run(|| Ok(())).await });
        tokio::task::yield_now().await;
        // Paused time does not advance by itself while threads work.
        tokio::time::advance(HANG_TIMEOUT).await;
        let refused = refused.await.unwrap().unwrap_err();
        let hung = Hung(MAX_JOBS);
        assert_eq!(refused.get_ref().and_then(|error| error.downcast_ref()), Some(&hung));
        assert_eq!(jobs.check(), Err(hung));
        for caller in hanging {
            assert!(!caller.await.unwrap());
        }
        assert_eq!(jobs.hung(), MAX_JOBS);
        ends.send(()).unwrap();
        // Callers are refused until that job has released its permit.
        while third.run(|| Ok(())).await.is_err() {
            tokio::task::yield_now().await;
        }
        assert_eq!(jobs.check(), Ok(()));
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
        for number in 0..MAX_JOBS {
            let waits = Arc::clone(&waits);
            jobs.part(&format!("layers/{}", number % 2).into()).start(move || {
                let _ended = waits.lock().unwrap().recv();
            });
        }
        assert_eq!(jobs.places.permits.available_permits(), 0);
        assert_eq!((jobs.check(), jobs.hung()), (Ok(()), 0));
        tokio::time::advance(HANG_TIMEOUT).await;
        assert_eq!((jobs.check(), jobs.hung()), (Err(Hung(MAX_JOBS)), MAX_JOBS));
        drop(ends);
        while jobs.hung() > 0 || jobs.check().is_err() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_hangs_leaves_places_to_others() {
        let jobs = Arc::new(Jobs::new());
        let part = jobs.part(&"layers/hung/layer/run".into());
        let (ends, hanging) = hanging(std::slice::from_ref(&part), 2 * MAX_JOBS);
        while part.places.permits.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        for _ in 0..100 {
            jobs.part(&"layers/other/layer/run".into()).run(|| Ok(())).await.unwrap();
        }
        tokio::time::advance(HANG_TIMEOUT).await;
        let refused = jobs.part(&"layers/hung/another".into()).run(|| Ok(())).await.unwrap_err();
        let hung = Hung(MAX_PART_JOBS);
        assert_eq!(refused.get_ref().and_then(|error| error.downcast_ref()), Some(&hung));
        assert_eq!(jobs.check(), Ok(()), "other parts answer");
        jobs.part(&"repositories/a".into()).run(|| Ok(())).await.unwrap();
        drop(ends);
        for caller in hanging {
            caller.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_file_job_without_a_place_runs_on_the_thread_that_drops_the_file() {
        let jobs = Arc::new(Jobs::new());
        let part = jobs.part(&"layers/a".into());
        let permits = MAX_PART_JOBS.try_into().unwrap();
        let _all = Arc::clone(&part.places.permits).try_acquire_many_owned(permits).unwrap();
        let (done, ran) = mpsc::channel();
        // An I/O thread has no runtime.
        let thread = std::thread::spawn(move || part.start(move || done.send(()).unwrap()));
        thread.join().unwrap();
        ran.recv().unwrap();
    }

    #[tokio::test]
    async fn a_cleanup_that_hangs_is_not_started_again() {
        let jobs = Jobs::new();
        let hung = jobs.start_cleanup().unwrap();
        jobs.start_cleanup().unwrap_err();
        drop(hung);
        jobs.start_cleanup().unwrap();
    }

    #[tokio::test]
    async fn idle_parts_are_forgotten() {
        let jobs = Arc::new(Jobs::new());
        let used = jobs.part(&"layers/used/a".into());
        for number in 0..3 * MAX_IDLE_PARTS {
            jobs.part(&format!("layers/{number}/a").into());
        }
        assert!(jobs.parts.lock().unwrap().len() <= MAX_IDLE_PARTS);
        assert!(Arc::ptr_eq(&used.places, &jobs.part(&"layers/used/b/c".into()).places));
    }
}
