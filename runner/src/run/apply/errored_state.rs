//! State that the tool could not write to its backend. The tool writes it to `errored.tfstate` in its working
//! directory. Nothing else records what the apply created, so the file is kept when the run's directories are
//! removed.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fs_err as fs;

use crate::process::Log;
use crate::run::Run;
use crate::run::error::RunError;
use crate::run::prepare::Prepared;
use crate::run::push::{Delivery, ErroredState, Push, absolute};
use crate::source::checkout::Workspace;
use crate::source::regular::{self, unless_missing};
use crate::source::states::{self, PushRecord};
use crate::tool::diagnostics::{ApplyEnd, Refusal};
use crate::tool::terragrunt;

/// Where the tool may leave a state, and the states that are there before it starts: some may come from the repository or
/// an earlier apply.
pub(super) struct Places {
    module: PathBuf,
    /// The runner's checkout, which is searched completely.
    own: Option<PathBuf>,
    /// Where terragrunt works elsewhere.
    downloads: Vec<PathBuf>,
    /// The same directories. The tool stays in them when they are moved, and writes there.
    opened: Vec<(PathBuf, File)>,
    before: BTreeSet<FileId>,
}

/// A version of a file. It stays the same when the file is moved.
type FileId = (u64, u64, Option<SystemTime>);

fn file_id(file: &Path) -> io::Result<FileId> {
    let metadata = fs::metadata(file)?;
    Ok((metadata.dev(), metadata.ino(), metadata.modified().ok()))
}

impl Places {
    /// `downloads` are relative to the module's directory. A directory that cannot be read is an error.
    pub(super) fn new(workspace: &Workspace, downloads: &[PathBuf]) -> io::Result<Self> {
        let module = absolute(workspace.dir.clone());
        let downloads = downloads.iter().map(|dir| module.join(dir)).collect::<Vec<_>>();
        let dirs = std::iter::once(&module).chain(downloads.iter().filter(|dir| dir.is_dir()));
        let opened = dirs.map(|dir| Ok((dir.clone(), fs::File::open(dir)?.into())));
        let opened = opened.collect::<io::Result<_>>()?;
        let own = workspace.own.clone();
        let mut places = Self { module, own, downloads, opened, before: BTreeSet::new() };
        let (found, unread) = places.find();
        unread.map_or(Ok(()), Err)?;
        places.before = found.into_iter().map(|(id, _)| id).collect();
        Ok(places)
    }

    /// The states that were written since, and the error for what could not be read.
    fn new_states(&self) -> (Vec<PathBuf>, Option<io::Error>) {
        let (found, unread) = self.find();
        let new = found.into_iter().filter(|(id, _)| !self.before.contains(id));
        (new.map(|(_, file)| file).collect(), unread)
    }

    fn find(&self) -> (Vec<(FileId, PathBuf)>, Option<io::Error>) {
        let mut searched = vec![match &self.own {
            Some(root) => states::errored(root),
            None => states::errored_in_place(&self.module),
        }];
        for dir in &self.downloads {
            match unless_missing(fs::canonicalize(dir)) {
                Ok(dir) => searched.extend(dir.map(|dir| states::errored(&dir))),
                Err(error) => searched.push(Err(error)),
            }
        }
        searched.extend(self.moved().map(|dir| states::errored_in_place(&dir)));
        let (mut found, mut ids, mut unread) = (Vec::new(), BTreeSet::new(), None);
        for result in searched {
            let files = result.unwrap_or_else(|error| {
                unread.get_or_insert(error);
                Vec::new()
            });
            for file in files {
                match unless_missing(file_id(&file)) {
                    // One of these directories may contain another.
                    Ok(id) => found.extend(id.filter(|id| ids.insert(*id)).map(|id| (id, file))),
                    Err(error) => drop(unread.get_or_insert(error)),
                }
            }
        }
        (found, unread)
    }

    /// Where the directories are now that have been moved since. One that was removed holds nothing.
    fn moved(&self) -> impl Iterator<Item = PathBuf> {
        let id = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        let moved = self.opened.iter().filter(move |(path, dir)| {
            let (ours, now) = (dir.metadata().map(id), fs::metadata(path).map(id));
            !matches!((ours, now), (Ok(ours), Ok(now)) if ours == now)
        });
        moved.filter_map(|(_, dir)| {
            fs::canonicalize(format!("/proc/self/fd/{}", dir.as_raw_fd())).ok()
        })
    }
}

impl Run<'_> {
    /// The directories where terragrunt works, if not below the module: those of the environment, and what terragrunt
    /// itself says if its configuration names one.
    pub(super) async fn downloads(
        &mut self,
        prepared: &Prepared,
    ) -> Result<(Vec<PathBuf>, Option<PathBuf>), RunError> {
        let mut downloads = self.environment.terragrunt_downloads.clone();
        let module = absolute(prepared.workspace.dir.clone());
        let program = prepared.tool().terragrunt_info();
        let Some(program) =
            program.filter(|_| !downloads.is_empty() || terragrunt::names_download_dir(&module))
        else {
            return Ok((downloads, None));
        };
        let file = self.scratch.join("terragrunt-info");
        let runs_in = match self.step_into("info", &program, &file).await {
            Ok(()) => terragrunt::working_dir(&fs::read(&file)?),
            Err(stopped) if stopped.is_stop() => return Err(stopped),
            Err(_) => None,
        };
        if runs_in.is_none() {
            tracing::warn!(
                "terragrunt does not say where it runs the tool: a state that the backend refuses is not found if that \
                 is elsewhere than below {}",
                module.display()
            );
        }
        downloads.extend(runs_in.clone());
        Ok((downloads, runs_in.filter(|dir| !dir.starts_with(&module))))
    }

    /// Keeps the `errored.tfstate` files that this apply has written. `has_failed`: the apply has; `logged` is the length of
    /// the log before it.
    pub(super) fn keep_errored_states(
        &self,
        has_failed: bool,
        workspace: &Workspace,
        record: PushRecord,
        (places, logged): (&Places, u64),
    ) -> io::Result<Option<ErroredState>> {
        let (found, unread) = places.new_states();
        if let Some(error) = unread {
            tracing::warn!("cannot find out whether the tool has left a state: {error}");
        }
        let cut = self.has_cut_output && has_failed;
        let record = if cut { record.of_cut() } else { record };
        if !found.is_empty() {
            return Ok(Some(self.keep_found_states(found, workspace, record)));
        }
        let refusal = if has_failed { self.apply_end(logged)?.refusal } else { None };
        let record = match refusal {
            Some(Refusal::Printed) => record,
            Some(Refusal::Written) => {
                record.of_lost(places.downloads.last().unwrap_or(&places.module))
            }
            None if cut => record.of_unknown(),
            None => return Ok(None),
        };
        Ok(Some(self.keep_lost_state(record)))
    }

    fn keep_found_states(
        &self,
        found: Vec<PathBuf>,
        workspace: &Workspace,
        record: PushRecord,
    ) -> ErroredState {
        let (mut files, mut copies, mut uncopied) = (Vec::new(), Vec::new(), Vec::new());
        let own = match &*found {
            [only] => is_in(only, &workspace.dir).then(|| absolute(only.clone())),
            _ => None,
        };
        for file in found {
            if !workspace.kept {
                files.push(self.move_out(&file, &record));
                continue;
            }
            let file = absolute(file);
            match self.copy(&file, &record) {
                Some(copy) => copies.push(copy),
                None => uncopied.push(file.clone()),
            }
            files.push(file);
        }
        let dir = workspace.kept.then(|| absolute(workspace.dir.clone()));
        let push = Box::new(Push { dir, ..Push::recorded(record) });
        let delivery = Delivery { in_pod: self.loses_disk(), ..Delivery::default() };
        ErroredState { files, copies, uncopied, push, log: self.stored_log(), own, delivery }
    }

    /// What the tool has said at the end: in its output, which stays after an apply that failed, else in the log.
    pub(super) fn apply_end(&self, logged: u64) -> io::Result<ApplyEnd> {
        let output = Log::output_of(self.log.path());
        match unless_missing(regular::open(&output))? {
            Some(output) => ApplyEnd::read(io::BufReader::new(output)),
            None => ApplyEnd::read(self.log.reader(logged)?),
        }
    }

    /// Keeps a record of a state that the tool has written or printed, and that is not found, or that it may have left. It
    /// refuses the next apply.
    fn keep_lost_state(&self, record: PushRecord) -> ErroredState {
        let kept = self.keeper().keep_lost_state(&record);
        let files = kept.map_or_else(
            |error| {
                tracing::warn!("it cannot be recorded that a state is lost: {error}");
                Vec::new()
            },
            |file| vec![file],
        );
        let push = Box::new(Push::recorded(record));
        let (copies, uncopied, own) = (Vec::new(), Vec::new(), None);
        let delivery = Delivery { in_pod: self.loses_disk(), ..Delivery::default() };
        ErroredState { files, copies, uncopied, push, log: self.stored_log(), own, delivery }
    }

    /// Where the tool's output is, if it is stored.
    fn stored_log(&self) -> Option<String> {
        let attempt = self.artifacts.as_ref()?.attempt();
        Some(format!("run.log of attempt {attempt} of {}", self.job.run))
    }

    /// Keeps a copy of a state that stays where it is: the file may be moved or removed, and an apply of the same code
    /// elsewhere is refused as well. Returns the path of the copy.
    fn copy(&self, file: &Path, record: &PushRecord) -> Option<PathBuf> {
        let keeper = self.keeper();
        let error = match keeper.copy_of_original(file, record) {
            Ok(copy) => return Some(copy),
            Err(error) => error,
        };
        tracing::warn!("{} is not copied, so keep the file where it is: {error}", file.display());
        if let Err(error) = keeper.link_state(file, record) {
            tracing::warn!(
                "no link leads to {}, so the directory of the run is kept: {error}",
                file.display()
            );
            // It has the record.
            self.scratch.keep_all();
        }
        None
    }

    /// Copies a state file out of the directory that is removed with the run. Returns where it is.
    fn move_out(&self, file: &Path, record: &PushRecord) -> PathBuf {
        match self.keeper().keep_state(file, record) {
            Ok(to) => to,
            Err(error) => {
                tracing::warn!(
                    "{} cannot be copied, so its directory is kept, and this file is the only one: {error}",
                    file.display()
                );
                self.scratch.keep_all();
                file.to_owned()
            }
        }
    }
}

/// Whether a file is directly in a directory.
fn is_in(file: &Path, dir: &Path) -> bool {
    let real = |path: &Path| fs::canonicalize(path).ok();
    file.parent().and_then(real).is_some_and(|parent| Some(parent) == real(dir))
}
