//! The last check before an apply. Another runner with the same order may have applied the plan or the run since the
//! records were first read, or may apply another order of the same module and workspace.
//!
//! On one machine such runners wait for each other. Runners on several machines do not: there the lease of the layer,
//! or without leases the tool's state lock, keeps two applies from overlapping, and the second check finds the record
//! of the first one. The tool's lock is not enough on one machine: an apply whose state was refused releases it, and the
//! tool that has waited for it would apply without that state. Runs of other names, and of a bundle instead of its
//! repository, share the lock of the state.

pub(in crate::run) mod file;

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use datastore_api::{ClientError, RunKey, Sha256};
use fs_err as fs;

use crate::order::job::Apply;
use crate::report::AppliedRecord;
use crate::run::Run;
use crate::run::apply::lock::file::{is_current, named, open};
use crate::run::artifacts::Artifacts;
use crate::run::error::RunError;
use crate::run::unsent;
use crate::source::checkout::Workspace;
use crate::source::checkout::source_id::SourceId;
use crate::source::scratch::KilledApply;

/// The lock files below the state home.
const PLANS: &str = "plancha/applying-plans";
const RUNS: &str = "plancha/applying";
const ORDERS: &str = "plancha/applying-orders";
const MODULES: &str = "plancha/applying-modules";
const DIRECTORIES: &str = "plancha/applying-directories";
const STATES: &str = "plancha/applying-states";
/// The directories of lock files.
const TOPS: [&str; 6] = [PLANS, RUNS, ORDERS, MODULES, DIRECTORIES, STATES];
/// Those whose holders have the same state. Who gets one waits for the tool of a killed holder, and finds what it left.
const OF_STATE: [&str; 3] = [MODULES, DIRECTORIES, STATES];
/// No lock file is larger.
const MAX_LEN: u64 = 64 << 10;
/// Between two attempts to get the lock.
const PAUSE: Duration = Duration::from_millis(100);
/// How often a run says that it waits.
const REMINDER: Duration = Duration::from_secs(5);
/// So long a run waits for the tool of a killed one.
const MAX_WAIT_FOR_TOOL: Duration = Duration::from_mins(10);

/// The lock of a plan, a run, an order, a module, a directory or a state. Its file is removed when the apply ends, and stays when the runner is killed.
#[derive(Debug)]
pub(super) struct RunLock {
    file: File,
    path: PathBuf,
    /// The killed apply that the file names.
    killed: Option<KilledApply>,
    /// Whether the file names this apply instead.
    is_ours: AtomicBool,
}

impl RunLock {
    fn new(file: File, path: PathBuf) -> Self {
        let killed = read_killed(&file).unwrap_or_else(|error| {
            tracing::warn!(
                "{} does not say which apply was killed, so a state that it may have left is not found: {error}",
                path.display()
            );
            None
        });
        Self { file, path, killed, is_ours: AtomicBool::new(false) }
    }
}

/// Writes this apply into the lock files that a later apply of the same state gets. What killed applies had left refuses
/// nothing by then.
pub(super) fn record_apply(locks: &[RunLock], apply: &KilledApply) {
    for lock in locks.iter().filter(|lock| OF_STATE.iter().any(|top| is_below(&lock.path, top))) {
        lock.is_ours.store(true, Ordering::Relaxed);
        if let Err(error) = write_apply(&lock.file, apply) {
            // A part of it would not be understood.
            let _emptied = lock.file.set_len(0);
            tracing::warn!(
                "{} cannot be written, so a later apply may not find the state of this one if the runner is killed: \
                 {error}",
                lock.path.display()
            );
        }
    }
}

fn write_apply(mut file: &File, apply: &KilledApply) -> io::Result<()> {
    let text = serde_json::to_vec(apply)?;
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&text)?;
    file.sync_all()
}

/// The apply that a lock file names. One that others can write counts as empty.
fn read_killed(file: &File) -> io::Result<Option<KilledApply>> {
    let metadata = file.metadata()?;
    let is_private =
        metadata.mode() & 0o777 == 0o600 && metadata.uid() == nix::unistd::geteuid().as_raw();
    if metadata.len() == 0 || !is_private {
        return Ok(None);
    }
    let mut text = Vec::new();
    file.take(MAX_LEN).read_to_end(&mut text)?;
    Ok(Some(serde_json::from_slice(&text)?))
}

fn is_below(path: &Path, top: &str) -> bool {
    path.ancestors().any(|dir| dir.ends_with(top))
}

impl Drop for RunLock {
    fn drop(&mut self) {
        if !is_current(&self.file, &self.path) {
            return;
        }
        let is_ours = *self.is_ours.get_mut();
        // A panic is like a kill. What a killed apply has left counts until another one is applied.
        if !is_ours && self.killed.is_some() || is_ours && std::thread::panicking() {
            return;
        }
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!("the lock file stays: {error}");
        }
        // The directories of the run's layer and namespace. One that is not empty is used by others.
        let dirs = self.path.ancestors().skip(1);
        let dirs = dirs.take_while(|dir| !TOPS.iter().any(|top| dir.ends_with(top)));
        for dir in dirs.take(2) {
            if fs::remove_dir(dir).is_err() {
                break;
            }
        }
    }
}

impl Run<'_> {
    /// Waits until no other runner on this machine applies the same order, the same plan, the run of this name, or the same
    /// module in the same workspace. The locks are held until the returned values are dropped.
    pub(super) async fn lock_run(
        &mut self,
        from: &Apply,
        workspace: &Workspace,
    ) -> Result<Vec<RunLock>, RunError> {
        self.lock_all(self.lock_paths(from, workspace)).await
    }

    /// Waits until none applies to the same state, which is known after init.
    pub(super) async fn lock_state(&mut self) -> Result<Vec<RunLock>, RunError> {
        self.lock_all(self.state_lock_path().into_iter().collect()).await
    }

    async fn lock_all(
        &mut self,
        paths: Vec<(String, io::Result<PathBuf>)>,
    ) -> Result<Vec<RunLock>, RunError> {
        let mut locks = Vec::new();
        for (what, path) in paths {
            let locked = async { lock(&path?, &what).await };
            match self.signals.or(locked).await.map_err(RunError::Stopped)? {
                Ok(lock) => locks.push(lock),
                Err(error) => tracing::warn!(
                    "cannot lock {what}, so another runner may apply it at the same time: {error}"
                ),
            }
        }
        for killed in locks.iter().filter_map(|lock| lock.killed.as_ref()) {
            if !self.killed.contains(killed) {
                self.killed.push(killed.clone());
            }
        }
        self.wait_for_orphaned_tool().await?;
        Ok(locks)
    }

    /// Waits for the tool of a killed run of this layer or state: it may still write a state, or leave one.
    async fn wait_for_orphaned_tool(&self) -> Result<(), RunError> {
        let layer = unsent::layer_id(&self.job.run);
        let since = Instant::now();
        let mut waits = false;
        let orphaned = || {
            let of_layer = self.scratch.orphaned(&layer).transpose();
            let of_state = self.killed.iter().filter_map(|killed| killed.orphaned().transpose());
            of_layer.into_iter().chain(of_state).next().transpose()
        };
        while let Some(dir) = orphaned().map_err(RunError::UnreadableDirectory)? {
            if since.elapsed() > MAX_WAIT_FOR_TOOL {
                return Err(RunError::OrphanedTool(dir));
            }
            if !waits {
                waits = true;
                tracing::info!(
                    "the tool of a killed run still works ({}): waiting for it",
                    dir.display()
                );
            }
            let pause = tokio::time::sleep(PAUSE);
            self.signals.or(pause).await.map_err(RunError::Stopped)?;
        }
        Ok(())
    }

    /// What is locked, and its lock files: first that of the order's key, then that of the plan or of the run, then those
    /// of the module and its directory, and last, after init, that of its state, which runs of other names share. The order is the same in every runner,
    /// so no two wait for each other.
    fn lock_paths(&self, from: &Apply, code: &Workspace) -> Vec<(String, io::Result<PathBuf>)> {
        let job = self.job;
        // A pod shares its disk with no other runner.
        if job.pod {
            return Vec::new();
        }
        let home = || self.lock_home();
        // A name is one segment of a path, and neither `.` nor `..`.
        let RunKey { namespace, layer, run } = &job.run;
        let of_layer =
            |home: &Path, dir: &str| home.join(dir).join(namespace.as_ref()).join(layer.as_ref());
        let mut paths = Vec::new();
        if let (Some(key), Some(text)) = (self.order_key, &job.order_key) {
            let file = key.sha256.to_string();
            let path = home().map(|home| of_layer(home, ORDERS).join(file));
            paths.push((format!("the order `{text}`"), path));
        }
        let is_unplanned = matches!(from, Apply::Unplanned(_));
        let shares_run = is_unplanned && job.named.run && !job.again && self.artifacts.is_some();
        if let Some(plan) = &self.report.plan {
            let file = plan.sha256.to_string();
            let path = home().map(|home| home.join(PLANS).join(&file));
            paths.push((format!("the plan with the sha256 {file}"), path));
        } else if shares_run {
            let path = home().map(|home| of_layer(home, RUNS).join(run.as_ref()));
            paths.push((format!("the run {}", job.run), path));
        }
        let file = self.module_key().to_string();
        let path = home().map(|home| of_layer(home, MODULES).join(file));
        paths.push((format!("the layer {namespace}/{layer}"), path));
        if let Some(key) = self.directory_key(code) {
            let path = home().map(|home| home.join(DIRECTORIES).join(key.to_string()));
            paths.push((format!("the code in {}", code.dir.display()), path));
        }
        paths
    }

    /// The lock of the state, which all code with this state shares.
    fn state_lock_path(&self) -> Option<(String, io::Result<PathBuf>)> {
        let (key, backend) = (self.state_key()?, self.report.backend.as_ref()?);
        let path = self.lock_home().map(|home| home.join(STATES).join(key.to_string()));
        Some((format!("to the same state ({backend})"), path)).filter(|_| !self.job.pod)
    }

    /// Not the spool: what a lock says of a killed run is about this machine.
    fn lock_home(&self) -> io::Result<&Path> {
        let home = self.environment.own_state_home();
        home.ok_or_else(|| io::Error::other("there is no home directory"))
    }

    /// The module's directory and the workspace, as a name for a file, if the directory stays when the run ends.
    fn directory_key(&self, code: &Workspace) -> Option<Sha256> {
        let dir = fs::metadata(&code.dir).ok().filter(|_| code.kept)?;
        let workspace = self.job.place.workspace.as_deref().unwrap_or_default();
        Some(Sha256::of(format!("{}\n{}\n{workspace}", dir.dev(), dir.ino()).as_bytes()))
    }

    /// Code and workspace of this run, as a name for a file. Layers of one name may be of several repositories and
    /// workspaces.
    fn module_key(&self) -> Sha256 {
        let root = self.source_id.as_ref().map(SourceId::root).unwrap_or_default();
        let module = Path::new(root).join(self.recorded_path());
        let workspace = self.job.place.workspace.as_deref().unwrap_or_default();
        Sha256::of(format!("{}\n{workspace}", module.display()).as_bytes())
    }

    /// The record of an apply that was made since the records were first read.
    pub(super) async fn recorded_since(
        &mut self,
        from: &Apply,
    ) -> Result<Option<AppliedRecord>, RunError> {
        // Also with `--again`: it sets the key under which this apply is recorded.
        let of_order = self.ordered_record().await?;
        let Some(artifacts) = &self.artifacts else { return Ok(None) };
        if of_order.is_some() {
            return Ok(of_order);
        }
        let plan = self.report.plan.as_ref().map(|plan| plan.sha256);
        let found = self.stored_since(artifacts, from, plan);
        let record = self.signals.or(found).await.map_err(RunError::Stopped)??;
        Ok(record.or_else(|| self.unsent_record(plan).filter(|_| !self.job.again)))
    }

    async fn stored_since(
        &self,
        artifacts: &Artifacts,
        from: &Apply,
        plan: Option<Sha256>,
    ) -> Result<Option<AppliedRecord>, ClientError> {
        if let Some(plan) = plan {
            let earlier = artifacts.applied_record_of(plan).await?;
            // A generated name is that of one run.
            if earlier.is_some() || self.job.pod || !self.job.named.run {
                return Ok(earlier);
            }
        } else if !self.job.pod && (!matches!(from, Apply::Unplanned(_)) || self.job.again) {
            return Ok(None);
        }
        let records = artifacts.refreshed().await?.applied_records().await?;
        Ok(match plan {
            Some(plan) => self.record_of_run(&records, plan),
            None => records.into_iter().next(),
        })
    }
}

/// Waits for the lock of a file.
async fn lock(path: &Path, what: &str) -> io::Result<RunLock> {
    let path = path.to_owned();
    let mut said = None;
    loop {
        let file = open(&path)?;
        match file.try_lock() {
            Ok(()) if is_current(&file, &path) => return Ok(RunLock::new(file, path)),
            // The runner that had the lock has removed the file.
            Ok(()) => continue,
            Err(TryLockError::WouldBlock)
                if said.is_none_or(|said: Instant| said.elapsed() >= REMINDER) =>
            {
                said = Some(Instant::now());
                tracing::info!("another runner is applying {what}: waiting for it");
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(named(&path, &error)),
        }
        tokio::time::sleep(PAUSE).await;
    }
}
