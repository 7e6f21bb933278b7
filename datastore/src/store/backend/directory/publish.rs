//! How a new version of an object in a directory gets its name and its digest, so that a power failure at any moment
//! leaves the old version or the new one, each with its own digest.
//!
//! The digest is an extended attribute of the file itself (`attribute.rs`). The file is synced with its attribute, then
//! renamed, then its directory is synced, and only then the upload is answered:
//!
//! | Power fails | Object | Digest |
//! |---|---|---|
//! | before the rename is on the disk | the old file, or none | the old file's attribute |
//! | after it | the new file, which was synced before | the new file's attribute |
//! | after the answer | the new file: its directory was synced | the new file's attribute |
//!
//! The record beside the object (`digest_record.rs`) is a copy for backups that lose attributes, and for earlier releases. It
//! is written after the rename and without a sync, and it may fail: a copy that is missing, old or cut off is not read,
//! because the attribute describes the file. `datastore verify` writes one that differs from the attribute again.
//!
//! Where the file system has no such attributes, or the version to be replaced has none yet, the record is the only
//! place of the digest. Then it is replaced and synced before the object is renamed, and describes the version before
//! as well:
//!
//! | Power fails | Object | Digest |
//! |---|---|---|
//! | before the rename of the record is on the disk | the old file, or none | the old record |
//! | after it, before that of the object | the old file, or none | the new record's second part |
//! | after both | the new file | the new record's first part |
//!
//! File systems may reorder the two renames. With the object's first the old record does not describe the new file,
//! which therefore is not served until its bytes were compared; an encrypted object is not renamed before its record
//! is on the disk.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path as FsPath, PathBuf};
use std::time::{Duration, SystemTime};

use object_store::path::Path;

use crate::store::backend::directory::attribute;
use crate::store::backend::directory::dirs::{lock, make_parents, run_both, sync_parent};
use crate::store::backend::directory::files::{
    MAX_TRIES, SMALL, etag, is_absent, is_regular, open_file, remove,
};
use crate::store::backend::directory::jobs::{JobFile, fail_if_abandoned};
use crate::store::backend::directory::staged::{Replaces, Staged};
use crate::store::backend::storage::MIB;
use crate::store::digest_record::{Record, Version, bare};

/// Publishes a staged file with its digest, and fills in the `ETag` of `version`. Fails with
/// [`ErrorKind::AlreadyExists`] if it may not replace what exists. Returns the file that it has replaced, if that is large:
/// freeing its pages takes a while, and is left to the job that closes it.
pub(in crate::store) fn publish(
    root: &FsPath,
    location: &Path,
    staged: &Staged,
    mut version: Version,
    replaces: &Replaces,
) -> io::Result<Option<JobFile>> {
    let (file_path, record) = (root.join(location.as_ref()), record_file_path(root, location));
    let file = staged.file.get()?;
    if let Replaces::SameContent(_) = replaces
        && let Ok(there) = fs::metadata(&file_path)
    {
        // Before the `ETag`, which names it. Should another version be there by now, this one is not published.
        file.set_modified(there.modified()?)?;
    }
    version.etag = etag(&file.metadata()?);
    let has_attribute = attribute::write(file, &version);
    if has_attribute || version.size > SMALL as u64 {
        // Synced before the lock, so that others need not wait for it.
        file.sync_all()?;
    }
    let _lock = lock(&file_path)?;
    fail_if_abandoned()?;
    let there = match fs::metadata(&file_path) {
        Ok(meta) if meta.is_dir() => return Err(ErrorKind::IsADirectory.into()),
        Ok(meta) if !may_replace(replaces, &meta) => {
            return Err(ErrorKind::AlreadyExists.into());
        }
        Ok(meta) => Some(meta),
        Err(error) if error.kind() == ErrorKind::NotFound => match replaces {
            // That version is gone.
            Replaces::Version(_) | Replaces::SameContent(_) => {
                return Err(ErrorKind::AlreadyExists.into());
            }
            Replaces::Any | Replaces::Nothing => None,
        },
        Err(error) => return Err(error),
    };
    let is_new = there.is_none();
    let is_large = there.as_ref().is_some_and(|meta| meta.len() > MIB as u64);
    let old = is_large.then(|| open_file(&file_path, File::options().read(true)).ok());
    let old = old.flatten().map(|(file, _)| JobFile::new(file));
    let create_only = is_new && *replaces != Replaces::Any;
    let described = there.as_ref().filter(|meta| meta.is_file()).and_then(|meta| {
        attribute::read_at(&file_path).filter(|version| version.is(&etag(meta), meta.len()))
    });
    let published = if has_attribute && (is_new || described.is_some()) {
        staged.rename(&file_path, create_only).and_then(|()| {
            // After the file: a process that is killed between them leaves no record without its file.
            if let Err(error) = write_copy(root, &record, &Record { version, before: None }) {
                tracing::warn!(
                    object = %location, %error, "the copy of its digest is not written: run `datastore verify` when it can be"
                );
                // That of the file before would belie this one, should it lose its attribute.
                if let Err(error) = remove(&record) {
                    tracing::warn!(object = %location, %error, "nor is the copy of its former digest removed");
                }
            }
            sync_parent(&file_path)
        })
    } else {
        let before = match there {
            Some(meta) => Some(before(read_record(&record)?, etag(&meta), meta.len())),
            None => None,
        };
        let record = (&*record, &Record { version, before });
        publish_with_record(root, &file_path, staged, record, create_only)
    };
    if published.is_err() && is_new && !staged.is_published() {
        // The record describes no object.
        remove(&record)?;
    }
    published.map(|()| old)
}

/// Syncs what gives an object its name, and its digest, for an upload that finds what it would store.
pub(in crate::store) fn sync_published(root: &FsPath, location: &Path) -> io::Result<()> {
    let file_path = root.join(location.as_ref());
    if attribute::read_at(&file_path).is_none() {
        match sync_parent(&record_file_path(root, location)) {
            Err(error) if is_absent(&error) => {}
            synced => synced?,
        }
    }
    sync_parent(&file_path)
}

fn may_replace(replaces: &Replaces, there: &fs::Metadata) -> bool {
    match replaces {
        Replaces::Any => true,
        Replaces::Nothing => false,
        Replaces::Version(version) | Replaces::SameContent(version) => {
            bare(version) == bare(&etag(there))
        }
    }
}

/// Writes the record first, because it is the only place of the digest.
fn publish_with_record(
    root: &FsPath,
    file_path: &FsPath,
    staged: &Staged,
    (record, content): (&FsPath, &Record),
    create_only: bool,
) -> io::Result<()> {
    let file = staged.file.get()?.try_clone()?;
    run_both(move || file.sync_all(), || write_record(root, record, content))?;
    if content.version.format.is_some() {
        // Without its record an encrypted object could be taken for a plain one, so the record must be on the disk
        // first, whatever the file system reorders.
        sync_parent(record)?;
        staged.rename(file_path, create_only)?;
        return sync_parent(file_path);
    }
    staged.rename(file_path, create_only)?;
    let record = record.to_owned();
    run_both(move || sync_parent(&record), || sync_parent(file_path))
}

/// The version that is replaced, according to its record. A record that does not describe it is kept, so that the
/// mismatch remains visible.
fn before(record: Option<Record>, etag: String, size: u64) -> Version {
    let Some(record) = record else { return Version { etag, size, sha256: None, format: None } };
    record.version(&etag, size).cloned().unwrap_or(record.version)
}

/// Records the digest of this file again.
pub(in crate::store) fn rewrite_record(
    root: &FsPath,
    location: &Path,
    file: &File,
    version: Version,
) -> io::Result<()> {
    let record = record_file_path(root, location);
    let has_attribute = attribute::write(file, &version);
    let content = Record { version, before: None };
    if has_attribute {
        file.sync_all()?;
        return write_copy(root, &record, &content);
    }
    write_record(root, &record, &content)?;
    sync_parent(&record)
}

/// Writes and syncs the copy of a file's attribute if it is missing or differs; returns whether it was. A file without
/// a matching attribute has no copy.
pub(in crate::store) fn renew_copy(root: &FsPath, location: &Path, etag: &str) -> io::Result<bool> {
    let (file_path, record) = (root.join(location.as_ref()), record_file_path(root, location));
    let _lock = lock(&file_path)?;
    let file = File::open(&file_path)?;
    let meta = file.metadata()?;
    let is_it =
        |version: &Version| version.is(etag, meta.len()) && bare(&self::etag(&meta)) == bare(etag);
    let Some(version) = attribute::read(&file).filter(is_it) else { return Ok(false) };
    if read_record(&record)?.is_some_and(|record| record.version == version) {
        return Ok(false);
    }
    write_record(root, &record, &Record { version, before: None })?;
    sync_parent(&record)?;
    Ok(true)
}

/// The record of this file: its attribute or the file beside it, whichever describes it, else the attribute.
pub(in crate::store) fn record_of(
    root: &FsPath,
    location: &Path,
    file: &File,
    etag: &str,
    size: u64,
) -> io::Result<Option<Record>> {
    let carried = attribute::read(file).map(|version| Record { version, before: None });
    if carried.as_ref().is_some_and(|record| record.version(etag, size).is_some()) {
        return Ok(carried);
    }
    let beside = read_record(&record_file_path(root, location))?;
    let describes = |record: &Record| carried.is_none() || record.version(etag, size).is_some();
    Ok(beside.filter(describes).or(carried))
}

pub(in crate::store) fn record_file_path(root: &FsPath, location: &Path) -> PathBuf {
    root.join(record_name(location))
}

/// The path of a record below the root.
pub(in crate::store) fn record_name(location: &Path) -> String {
    format!(".plancha/sha256/{location}")
}

/// Whether an object has a record and no file. Fails if something other than a file has its path.
pub(in crate::store) fn is_lost(root: &FsPath, location: &Path) -> io::Result<bool> {
    is_lost_with(root, location, lock)
}

/// How long no record may have changed to tell without locks that no upload will still make its object.
const UNCHANGED: Duration = Duration::from_mins(5);

fn is_lost_with(
    root: &FsPath,
    location: &Path,
    lock: impl Fn(&FsPath) -> io::Result<Option<File>>,
) -> io::Result<bool> {
    let (file_path, record) = (root.join(location.as_ref()), record_file_path(root, location));
    if fs::metadata(&file_path).is_ok_and(|meta| meta.is_file()) {
        return Ok(false);
    }
    for _ in 0..MAX_TRIES {
        // Uploads and deletions change an object and its record under this lock.
        let (lock, had_directory) = match lock(&file_path) {
            Err(error) if is_absent(&error) => (None, false),
            lock => (lock?, true),
        };
        let (_found, found_meta) = match open_file(&record, File::options().read(true)) {
            Err(error) if is_absent(&error) => return Ok(false),
            found => found?,
        };
        if is_regular(&file_path)? {
            return Ok(false);
        }
        // Without a directory there is no lock. An upload makes the directory before the record, and a deletion removes
        // it after the record: one record that exists before and after the directory was missing has no object. The
        // inode number is not used again while the file is open.
        let is_missing = !file_path.parent().is_some_and(FsPath::is_dir);
        let is_there = || fs::metadata(&record).is_ok_and(|meta| meta.ino() == found_meta.ino());
        if lock.is_some() || (is_missing && is_there()) {
            return Ok(true);
        }
        // The file system has no locks. An upload that is not done yet has changed the record lately.
        if had_directory && !is_missing && is_there() && !is_regular(&file_path)? {
            let age = SystemTime::now().duration_since(found_meta.modified()?);
            if age.is_ok_and(|age| age > UNCHANGED) {
                return Ok(true);
            }
            return Err(io::Error::other(
                "its file is missing, or is still being stored: the file system has no locks that would tell; run this \
                 again after five minutes",
            ));
        }
    }
    Err(io::Error::other("it is replaced again and again"))
}

fn read_record(file_path: &FsPath) -> io::Result<Option<Record>> {
    match open_file(file_path, File::options().read(true)) {
        Ok((mut file, _)) => {
            let mut json = Vec::new();
            file.read_to_end(&mut json)?;
            Ok(Record::parse(&json))
        }
        Err(error) if is_absent(&error) && !file_path.is_dir() => Ok(None),
        Err(error) if is_absent(&error) => Err(no_file(ErrorKind::IsADirectory.into())),
        Err(error) => Err(no_file(error)),
    }
}

/// The error of a record that could not be removed after its object.
pub(in crate::store) fn record_left(error: &io::Error) -> io::Error {
    let text = "it is deleted, but not its digest record below .plancha/sha256: remove that";
    io::Error::new(error.kind(), format!("{text} ({error})"))
}

/// A directory in the place of a record is a fault of the storage, not a conflict of keys.
fn no_file(error: io::Error) -> io::Error {
    if error.kind() != ErrorKind::IsADirectory {
        return error;
    }
    io::Error::other(
        "a directory has the name of its digest record below .plancha/sha256: remove it, and run `datastore verify`",
    )
}

/// Replaces a record with a rename. The caller syncs its directory.
fn write_record(root: &FsPath, file_path: &FsPath, record: &Record) -> io::Result<()> {
    let staged = Staged::create(root, file_path)?;
    let mut file = staged.file.get()?;
    file.write_all(&serde_json::to_vec(record)?)?;
    file.sync_all()?;
    staged.rename(file_path, false).map_err(no_file)
}

/// Overwrites a record in place, where it is only a copy: a rename over another file would first write its bytes to
/// the disk. Spaces overwrite the rest of a longer record, so that it parses at every moment.
fn write_copy(root: &FsPath, file_path: &FsPath, record: &Record) -> io::Result<()> {
    let open = || open_file(file_path, File::options().write(true).create(true).truncate(false));
    let opened = match open() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            make_parents(root, file_path)?;
            open()
        }
        opened => opened,
    };
    let (file, meta) = opened.map_err(no_file)?;
    let mut json = serde_json::to_vec(record)?;
    let length = usize::try_from(meta.len()).unwrap_or_default();
    json.resize(json.len().max(length), b' ');
    file.write_all_at(&json, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_is_lost_without_locks_if_its_record_is_old() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let location = Path::from("layers/n/l/r/0/run.json");
        let (file, record) = (root.join(location.as_ref()), record_file_path(root, &location));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::create_dir_all(record.parent().unwrap()).unwrap();
        fs::write(&record, "{}").unwrap();
        let is_lost = || is_lost_with(root, &location, |_| Ok(None));
        let error = is_lost().unwrap_err().to_string();
        assert!(error.contains("has no locks"), "{error}");
        let old = SystemTime::now() - UNCHANGED * 2;
        File::options().write(true).open(&record).unwrap().set_modified(old).unwrap();
        assert!(is_lost().unwrap());
        fs::write(&file, "x").unwrap();
        assert!(!is_lost().unwrap());
        fs::remove_dir_all(file.parent().unwrap()).unwrap();
        assert!(is_lost().unwrap(), "without its directory");
        fs::remove_file(&record).unwrap();
        assert!(!is_lost().unwrap());
    }
    #[test]
    fn object_whose_directory_is_made_meanwhile_is_not_lost() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let location = Path::from("layers/n/l/r/0/run.json");
        let (file, record) = (root.join(location.as_ref()), record_file_path(root, &location));
        fs::create_dir_all(record.parent().unwrap()).unwrap();
        fs::write(&record, "{}").unwrap();
        let directory = file.parent().unwrap();
        let lock = |_: &FsPath| {
            if !directory.is_dir() {
                fs::create_dir_all(directory)?;
                return Err(ErrorKind::NotFound.into());
            }
            fs::write(&file, "x")?;
            File::open(directory).map(Some)
        };
        assert!(!is_lost_with(root, &location, lock).unwrap());
    }
}
