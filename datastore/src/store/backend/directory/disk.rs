//! Objects as files of a `file://` storage: opened, staged, published and deleted, each in one blocking job.
//!
//! A new version is staged beside its file as `<name>#<number>`, which no object may be named, and published by
//! `publish.rs`. Every change of an object or its record holds the lock of its directory (`flock`), which other processes
//! over the same directory respect. Where the file system has no locks, only jobs of this process exclude each other.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path as FsPath;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use object_store::path::Path;
use object_store::{Error, ObjectMeta, PutPayload, Result};

use crate::store::backend::directory::beneath::{OpenRoot, check_beneath, open_beneath};
use crate::store::backend::directory::dirs::{lock, name_directory, sync_parent};
use crate::store::backend::directory::files::{MAX_TRIES, is_absent};
use crate::store::backend::directory::files::{SMALL, etag, open_file, remove};
use crate::store::backend::directory::jobs::{Hung, JobFile, Jobs, Part, fail_if_abandoned};
use crate::store::backend::directory::links::Links;
use crate::store::backend::directory::publish::{
    is_lost, publish, record_file_path, record_left, record_name, record_of, renew_copy,
    rewrite_record,
};
use crate::store::backend::directory::root::{Root, RootLost};
use crate::store::backend::directory::staged::{Replaces, Staged, is_staged};
use crate::store::backend::metered::{Calls, IDLE_TIMEOUT, put_timeout};
use crate::store::backend::storage::MIB;
use crate::store::digest_record::{Record, Version, bare};
use crate::store::key::Key;
use crate::store::object::Object;

/// A large file is synced each time this many bytes were written, so that little remains to sync at its end.
const SYNC_EVERY: usize = 8 * MIB;

/// A directory with objects. Clones share it.
#[derive(Clone, Debug)]
pub(in crate::store) struct Disk {
    root: Arc<Root>,
    links: Arc<Links>,
    calls: Calls,
    jobs: Arc<Jobs>,
}

/// Whether an object and its record are read consistently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Locking {
    /// They may not be: one may be replaced between the two reads.
    None,
    /// They are: the lock of the directory excludes writers, also of other processes.
    Directory,
}

/// An open object and its record.
#[derive(Debug)]
pub(in crate::store) struct Opened {
    pub(in crate::store) content: Content,
    pub(in crate::store) meta: ObjectMeta,
    pub(in crate::store) record: Option<Record>,
}

/// The bytes of a file.
#[derive(Debug)]
pub(in crate::store) enum Content {
    /// An open file that has not been read.
    File(Arc<JobFile>),
    /// All bytes of a small file, if the caller reads.
    Bytes(Bytes),
}

impl Disk {
    pub(in crate::store) fn new(root: &FsPath, calls: Calls) -> Self {
        let (root, links) = (Arc::new(Root::new(root)), Arc::default());
        Self { root, links, calls, jobs: Arc::new(Jobs::new()) }
    }

    /// The same directory with separate counters.
    pub(in crate::store) fn uncounted(&self) -> Self {
        Self { calls: Calls::default(), ..self.clone() }
    }

    /// Creates the directory of the storage if it is missing and was never there, accessible to its owner only.
    pub(in crate::store) async fn make_root(&self) -> io::Result<()> {
        let root = Arc::clone(&self.root);
        self.jobs.part(&Path::default()).run(move || root.create()).await
    }

    /// The directory of the storage.
    pub(in crate::store) fn root(&self) -> &Arc<Root> {
        &self.root
    }

    /// The symbolic links that listings have met.
    pub(in crate::store) fn links(&self) -> &Arc<Links> {
        &self.links
    }

    /// The jobs in its file system.
    pub(in crate::store) fn jobs(&self) -> &Arc<Jobs> {
        &self.jobs
    }

    /// Opens an object and its record, and reads a small object if `reads`.
    pub(in crate::store) async fn open(
        &self,
        path: &Path,
        reads: bool,
        locking: Locking,
    ) -> Result<Opened> {
        let call = if reads { "get" } else { "head" };
        let location = path.clone();
        let open = move |root: &OpenRoot| open(root, &location, reads, locking);
        // It opens nothing outside of the root, so the path need not be checked before.
        self.run_in(&self.jobs.part(path), call, IDLE_TIMEOUT, path, open).await
    }

    /// Reads a range into one piece.
    pub(in crate::store) async fn read(
        &self,
        file: Arc<JobFile>,
        range: Range<u64>,
    ) -> Result<Bytes> {
        let mut pieces = self.read_pieces(file, range, usize::MAX, None::<()>).await?;
        Ok(pieces.pop().unwrap_or_default())
    }

    /// Reads a range ahead, into pieces of this size. Returns none while enough others are read ahead.
    pub(in crate::store) async fn read_ahead(
        &self,
        file: Arc<JobFile>,
        range: Range<u64>,
        size: usize,
    ) -> Result<Vec<Bytes>> {
        match self.part_of(&file).ahead() {
            Some(permits) => self.read_pieces(file, range, size, Some(permits)).await,
            None => Ok(Vec::new()),
        }
    }

    /// Reads a range into pieces of this size. `ahead` is kept until the job ends.
    async fn read_pieces(
        &self,
        file: Arc<JobFile>,
        range: Range<u64>,
        size: usize,
        ahead: Option<impl Send + 'static>,
    ) -> Result<Vec<Bytes>> {
        // Allocated here: an I/O thread that only allocates and never frees would grow.
        let mut pieces = Vec::new();
        let mut left = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        while left > 0 {
            let length = left.min(size);
            pieces.push(BytesMut::zeroed(length));
            left -= length;
        }
        let part = self.part_of(&file);
        let read = move |_: &OpenRoot| {
            let _ahead = ahead;
            let mut at = range.start;
            let mut read = Vec::with_capacity(pieces.len());
            for mut piece in pieces {
                file.get()?.read_exact_at(&mut piece, at)?;
                at += piece.len() as u64;
                read.push(piece.freeze());
            }
            Ok(read)
        };
        self.run_in(&part, "read", IDLE_TIMEOUT, &Path::default(), read).await
    }

    /// A range of an open object.
    pub(in crate::store) async fn part(
        &self,
        content: Content,
        range: Range<u64>,
    ) -> Result<Bytes> {
        match content {
            Content::Bytes(all) => {
                let at = |at: u64| usize::try_from(at).map_or(all.len(), |at| at.min(all.len()));
                Ok(all.slice(at(range.start)..at(range.end)))
            }
            Content::File(file) => self.read(file, range).await,
        }
    }

    /// Stages a new version of an object.
    pub(in crate::store) async fn stage(&self, path: &Path) -> Result<Staged> {
        let location = path.clone();
        let stage = move |root: &FsPath| Staged::create(root, &root.join(location.as_ref()));
        self.run_job("begin", IDLE_TIMEOUT, path, stage).await
    }

    /// Writes a part of a new version.
    pub(in crate::store) async fn write(
        &self,
        staged: Arc<Staged>,
        at: u64,
        part: PutPayload,
    ) -> Result<()> {
        let length = part.content_length();
        let syncs = at / SYNC_EVERY as u64 != (at + length as u64) / SYNC_EVERY as u64;
        let limit = put_timeout(if syncs { 2 * SYNC_EVERY } else { length });
        let of_directory = self.part_of(&staged.file);
        let write = move |_: &OpenRoot| {
            staged.write(at, &part)?;
            // The sync does not need the part.
            drop(part);
            if syncs { staged.file.get()?.sync_data() } else { Ok(()) }
        };
        self.run_in(&of_directory, "part", limit, &Path::default(), write).await
    }

    /// Removes a staged version.
    pub(in crate::store) async fn discard(&self, staged: &Arc<Staged>) -> Result<()> {
        let (part, staged) = (self.part_of(&staged.file), Arc::clone(staged));
        let discard = move |_: &OpenRoot| staged.discard();
        self.run_in(&part, "abort", IDLE_TIMEOUT, &Path::default(), discard).await
    }

    /// Stages and publishes a small object.
    pub(in crate::store) async fn put(
        &self,
        path: &Path,
        bytes: PutPayload,
        version: Version,
        replaces: Replaces,
    ) -> Result<()> {
        let (limit, location) = (put_timeout(bytes.content_length()), path.clone());
        let put = move |root: &FsPath| {
            let staged = Staged::create(root, &root.join(location.as_ref()))?;
            staged.write(0, &bytes)?;
            publish(root, &location, &staged, version, &replaces)
        };
        self.run_job("put", limit, path, put).await.map(drop)
    }

    /// Stores a small internal file, which has no record.
    pub(in crate::store) async fn put_internal(
        &self,
        path: &Path,
        bytes: PutPayload,
        create_only: bool,
    ) -> Result<()> {
        let (limit, location) = (put_timeout(bytes.content_length()), path.clone());
        let put = move |root: &FsPath| {
            let file_path = root.join(location.as_ref());
            let staged = Staged::create(root, &file_path)?;
            staged.write(0, &bytes)?;
            staged.file.get()?.sync_all()?;
            staged.rename(&file_path, create_only)?;
            sync_parent(&file_path)
        };
        self.run_job("put", limit, path, put).await
    }

    /// Lists below a prefix. Errors name no path, because an entry of any directory below may cause them.
    pub(in crate::store) async fn list_job<T: Send + 'static>(
        &self,
        limit: Duration,
        prefix: &str,
        list: impl FnOnce(&FsPath) -> io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let location = Path::parse(prefix).unwrap_or_default();
        let part = self.jobs.part(&location);
        let list = move |root: &OpenRoot| {
            check_beneath(root, location.as_ref())?;
            list(root.path())
        };
        self.run_in(&part, "list", limit, &Path::default(), list).await
    }

    /// Fails if an ancestor of a prefix is a file.
    pub(in crate::store) async fn try_directory(&self, prefix: &Path) -> Result<()> {
        let location = prefix.clone();
        let look = move |root: &FsPath| match fs::metadata(root.join(location.as_ref())) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        self.run_job("list", IDLE_TIMEOUT, prefix, look).await
    }

    /// Publishes a staged version with its record, and fills in the `ETag` of `version`. Fails with
    /// [`Error::AlreadyExists`] if it may not replace what exists.
    pub(in crate::store) async fn publish(
        &self,
        path: &Path,
        staged: Arc<Staged>,
        version: Version,
        replaces: Replaces,
    ) -> Result<()> {
        let limit = put_timeout(usize::try_from(version.size).unwrap_or(usize::MAX));
        let location = path.clone();
        let work = move |root: &FsPath| publish(root, &location, &staged, version, &replaces);
        self.run_job("complete", limit, path, work).await.map(drop)
    }

    /// Replaces the record of an object if the object still has this version; returns whether it had.
    pub(in crate::store) async fn record(&self, path: &Path, version: Version) -> Result<bool> {
        let location = path.clone();
        let work = move |root: &FsPath| {
            let file_path = root.join(location.as_ref());
            let _lock = lock(&file_path)?;
            let (file, meta) = open_file(&file_path, File::options().read(true))?;
            if bare(&etag(&meta)) != bare(&version.etag) {
                return Ok(false);
            }
            rewrite_record(root, &location, &file, version)?;
            Ok(true)
        };
        self.run_job("put", IDLE_TIMEOUT, path, work).await
    }

    /// Writes the copy of an object's attribute again if it differs; returns whether it did.
    pub(in crate::store) async fn renew_copy(&self, path: &Path, etag: &str) -> Result<bool> {
        let (location, etag) = (path.clone(), etag.to_owned());
        let work = move |root: &FsPath| renew_copy(root, &location, &etag);
        self.run_job("put", IDLE_TIMEOUT, path, work).await
    }

    /// Deletes an object and its record if it still is what a listing showed; returns whether it was. A missing object
    /// counts as deleted.
    pub(in crate::store) async fn delete(
        &self,
        path: &Path,
        listed: Option<&Object>,
    ) -> Result<bool> {
        let (location, listed) = (path.clone(), listed.cloned());
        let work = move |root: &FsPath| delete(root, &location, listed.as_ref());
        self.run_job("delete", IDLE_TIMEOUT, path, work).await
    }

    /// Whether an object has a record and no file. Fails if something other than a file has its path.
    pub(in crate::store) async fn is_lost(&self, path: &Path) -> Result<bool> {
        let location = path.clone();
        self.run_job("head", IDLE_TIMEOUT, path, move |root| is_lost(root, &location)).await
    }

    /// The part of the directory that has an open file.
    fn part_of(&self, file: &JobFile) -> Part {
        file.part().map_or_else(|| self.jobs.part(&Path::default()), Clone::clone)
    }

    /// Runs `work` on an I/O thread, and gives up after `limit`. Fails if a link leads from the path of the object, or of
    /// its record, out of the root.
    pub(in crate::store) async fn run_job<T: Send + 'static>(
        &self,
        call: &'static str,
        limit: Duration,
        path: &Path,
        work: impl FnOnce(&FsPath) -> io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let location = path.clone();
        let work = move |root: &OpenRoot| {
            check_beneath(root, location.as_ref())?;
            check_beneath(root, &record_name(&location))?;
            work(root.path())
        };
        self.run_in(&self.jobs.part(path), call, limit, path, work).await
    }

    /// Runs it in a part of the directory, which `path` need not name. Errors are those of `path`.
    async fn run_in<T: Send + 'static>(
        &self,
        part: &Part,
        call: &'static str,
        limit: Duration,
        path: &Path,
        work: impl FnOnce(&OpenRoot) -> io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (root, location) = (Arc::clone(&self.root), path.clone());
        let work = move || {
            let open = root.open()?;
            work(&open).map_err(|error| object_error(root.path(), &location, error))
        };
        let done = async { part.run(work).await.map_err(|error| store_error(path, error)) };
        let done = self.calls.timed_with(limit, call, done).await;
        done.map_err(|error| name_directory(error, self.root.path(), path))
    }
}

fn open(root: &OpenRoot, location: &Path, reads: bool, locking: Locking) -> io::Result<Opened> {
    let _lock = match locking {
        Locking::None => None,
        Locking::Directory => match lock(&root.path().join(location.as_ref())) {
            // Without a directory no object exists.
            Err(error) if is_absent(&error) => None,
            lock => lock?,
        },
    };
    for _ in 0..MAX_TRIES {
        if let Some(opened) = open_once(root, location, reads)? {
            return Ok(opened);
        }
    }
    Err(io::Error::other("it is replaced again and again"))
}

/// `None` if it was replaced meanwhile.
fn open_once(root: &OpenRoot, location: &Path, reads: bool) -> io::Result<Option<Opened>> {
    if location.filename().is_some_and(is_staged) {
        return Err(ErrorKind::NotFound.into());
    }
    let (path, key) = (root.path(), location.as_ref());
    let (file, meta) = match open_beneath(root, key) {
        Err(error) if clashes(path, location, &error) => return Err(ErrorKind::NotFound.into()),
        file => file?,
    };
    let e_tag = etag(&meta);
    let record = record_of(path, location, &file, &e_tag, meta.len())?;
    if record.is_none() && etag(&fs::metadata(path.join(key))?) != e_tag {
        // It was deleted or replaced after it was opened.
        return Ok(None);
    }
    let size = meta.len();
    let e_tag = Some(e_tag);
    let last_modified = meta.modified()?.into();
    let content = if reads && size <= SMALL as u64 {
        let mut all = vec![0; usize::try_from(size).unwrap_or_default()];
        file.read_exact_at(&mut all, 0)?;
        Content::Bytes(all.into())
    } else {
        Content::File(Arc::new(JobFile::new(file)))
    };
    let location = location.clone();
    let meta = ObjectMeta { location, last_modified, size, e_tag, version: None };
    Ok(Some(Opened { content, meta, record }))
}

fn delete(root: &FsPath, location: &Path, listed: Option<&Object>) -> io::Result<bool> {
    let (file_path, record) = (root.join(location.as_ref()), record_file_path(root, location));
    let _lock = match lock(&file_path) {
        // No object exists. A record that another caller is writing now must stay.
        Err(error) if is_absent(&error) => return Ok(true),
        lock => lock?,
    };
    fail_if_abandoned()?;
    match fs::metadata(&file_path) {
        Ok(meta) if listed.is_some_and(|listed| !is_listed(&meta, listed)) => return Ok(false),
        Ok(_) => remove(&file_path)?,
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    remove(&record).map_err(|error| record_left(&error))?;
    for emptied in [&file_path, &record] {
        for parent in emptied.ancestors().skip(1).take_while(|parent| *parent != root) {
            // A directory that is not empty stays.
            if fs::remove_dir(parent).is_err() {
                break;
            }
        }
    }
    Ok(true)
}

/// Whether a file is what a listing showed, to the millisecond.
fn is_listed(meta: &fs::Metadata, listed: &Object) -> bool {
    let since = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let modified = since.and_then(|since| i64::try_from(since.as_millis()).ok());
    meta.len() == listed.size && modified == Some(listed.modified.as_millisecond())
}

/// Whether an ancestor of the path is the file of another object.
fn clashes(root: &FsPath, location: &Path, error: &io::Error) -> bool {
    let key = location.as_ref();
    let mut parents = key.match_indices('/').map(|(end, _)| &key[..end]);
    error.kind() == ErrorKind::NotADirectory
        && parents.any(|parent| Key::from_path(parent).is_some() && root.join(parent).is_file())
}

/// Translates an error of the file system: a conflict of keys becomes `IsADirectory`, and a storage directory that has
/// just vanished is not a missing object.
fn object_error(root: &FsPath, location: &Path, error: io::Error) -> io::Error {
    if clashes(root, location, &error) {
        return ErrorKind::IsADirectory.into();
    }
    if error.kind() == ErrorKind::NotFound && !root.is_dir() {
        return io::Error::other(RootLost::Missing(root.to_owned()));
    }
    error
}

fn store_error(path: &Path, source: io::Error) -> Error {
    let (path, kind) = (path.to_string(), source.kind());
    match kind {
        ErrorKind::NotFound => Error::NotFound { path, source: source.into() },
        ErrorKind::AlreadyExists => Error::AlreadyExists { path, source: source.into() },
        // `Hung` was wrapped into an I/O error, and is recognised by its type.
        _ => {
            let source = match source.downcast::<Hung>() {
                Ok(hung) => hung.into(),
                Err(source) => source.into(),
            };
            Error::Generic { store: "file", source }
        }
    }
}
