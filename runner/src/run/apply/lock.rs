//! The last check before an apply. Another runner with the same order may have applied the plan or the run since the
//! records were first read.
//!
//! On one machine such runners wait for each other. Runners on several machines do not: there the tool's state
//! lock keeps two applies from overlapping, and the second check finds the record of the first one.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use datastore_api::{RunKey, Sha256};

use crate::order::job::Apply;
use crate::process::private_file;
use crate::report::AppliedRecord;
use crate::run::Run;
use crate::run::error::RunError;

/// Between two attempts to get the lock.
const PAUSE: Duration = Duration::from_millis(100);

impl Run<'_> {
    /// Waits until no other runner on this machine applies the same plan, or the run of this name. The lock is held
    /// until the returned file is dropped.
    pub(super) async fn lock_run(&self, from: &Apply) -> Result<Option<File>, RunError> {
        let job = self.job;
        // A pod shares its disk with no other runner.
        let plan = self.report.plan.as_ref().map(|plan| plan.sha256).filter(|_| !job.pod);
        let is_unplanned = matches!(from, Apply::Unplanned(_));
        let shares_run = is_unplanned && job.named.run && !job.again && self.artifacts.is_some();
        if plan.is_none() && !shares_run {
            return Ok(None);
        }
        let what = match plan {
            Some(plan) => format!("the plan with the sha256 {plan}"),
            None => format!("the run {}", job.run),
        };
        let locked = async {
            let (file, path) = self.lock_file(plan)?;
            let mut waits = false;
            loop {
                match file.try_lock() {
                    Ok(()) => return Ok(file),
                    Err(TryLockError::WouldBlock) if !waits => {
                        waits = true;
                        tracing::info!("another runner is applying {what}: waiting for it");
                    }
                    Err(TryLockError::WouldBlock) => {}
                    Err(TryLockError::Error(error)) => return Err(named(&path, &error)),
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        let locked = self.signals.or(locked).await.map_err(RunError::Stopped)?;
        Ok(locked
            .inspect_err(|error| {
                tracing::warn!(
                    "cannot lock {what}, so another runner may apply it at the same time: {error}"
                );
            })
            .ok())
    }

    /// The lock file of a plan, else that of the run, with its path.
    fn lock_file(&self, plan: Option<Sha256>) -> io::Result<(File, PathBuf)> {
        let home = self.environment.state_home.as_deref();
        let home = home.ok_or_else(|| io::Error::other("there is no home directory"))?;
        // A name is one segment of a path, and neither `.` nor `..`.
        let RunKey { namespace, layer, run } = &self.job.run;
        let (dir, name) = if let Some(plan) = plan {
            (home.join("plancha/applying-plans"), plan.to_string())
        } else {
            let dir = home.join("plancha/applying").join(namespace.as_ref());
            (dir.join(layer.as_ref()), run.to_string())
        };
        let mut builder = std::fs::DirBuilder::new();
        let created = builder.mode(0o700).recursive(true).create(&dir);
        created.map_err(|error| named(&dir, &error))?;
        let path = dir.join(name);
        Ok((private_file(&path)?, path))
    }

    /// The record of an apply that was made since the records were first read.
    pub(super) async fn recorded_since(
        &self,
        from: &Apply,
    ) -> Result<Option<AppliedRecord>, RunError> {
        let Some(artifacts) = &self.artifacts else { return Ok(None) };
        let plan = self.report.plan.as_ref().map(|plan| plan.sha256);
        let found = async {
            if let Some(plan) = plan {
                return artifacts.applied_record_of(plan).await;
            }
            if !self.job.pod && (!matches!(from, Apply::Unplanned(_)) || self.job.again) {
                return Ok(None);
            }
            let mut records = artifacts.refreshed().await?.applied_records().await?;
            Ok(if records.is_empty() { None } else { Some(records.swap_remove(0)) })
        };
        let record = self.signals.or(found).await.map_err(RunError::Stopped)??;
        if record.is_some() || self.job.again {
            return Ok(record);
        }
        Ok(self.unsent_record(plan))
    }
}

/// The error with the path of its file.
fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
