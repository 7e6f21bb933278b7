//! Archives are unpacked; hostile ones are refused.

mod other_programs;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use datastore_api::Sha256;
use fs_err as fs;
use proptest::prelude::*;
use tar::{Builder, EntryType, Header};

use super::*;
use crate::process::{Signals, Stop};

/// What a directory holds: paths with modes and contents, or targets of links.
type Tree = BTreeMap<PathBuf, (u32, Vec<u8>)>;

fn tree(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(root.join(&directory)).unwrap() {
            let entry = entry.unwrap();
            let (path, metadata) = (directory.join(entry.file_name()), entry.metadata().unwrap());
            let mode = metadata.permissions().mode() & 0o777;
            let content = if metadata.is_symlink() {
                fs::read_link(entry.path()).unwrap().into_os_string().into_encoded_bytes()
            } else if metadata.is_dir() {
                directories.push(path.clone());
                b"directory".to_vec()
            } else {
                fs::read(entry.path()).unwrap()
            };
            tree.insert(path, (mode, content));
        }
    }
    tree
}

/// An archive of a directory, as the library of the unpacker writes it.
fn packed(root: &Path) -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    tar.follow_symlinks(false);
    for entry in fs::read_dir(root).unwrap() {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        if path.is_dir() && !path.is_symlink() {
            tar.append_dir_all(name, path).unwrap();
        } else {
            tar.append_path_with_name(path, name).unwrap();
        }
    }
    compressed(&tar.into_inner().unwrap())
}

/// Unpacks into a new directory beside a file that must not change.
fn unpacked(archive: &[u8], limits: Limits) -> Result<Tree, ArchiveError> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("outside"), "unchanged").unwrap();
    let to = dir.path().join("to");
    let result = unpack(archive, &to, limits);
    let found = tree(dir.path());
    let outside = found.keys().filter(|path| !path.starts_with("to")).collect::<Vec<_>>();
    assert_eq!(outside, [Path::new("outside")]);
    assert_eq!(found[Path::new("outside")].1, b"unchanged");
    assert_eq!(result.is_ok(), to.exists(), "after an error nothing is left");
    result.map(|_| tree(&to))
}

fn compressed(tar: &[u8]) -> Vec<u8> {
    zstd::encode_all(tar, 1).unwrap()
}

/// An archive of entries: kind, path, target, content.
fn archive(entries: &[(EntryType, &str, &str, &[u8])]) -> Vec<u8> {
    compressed(&tar_of(entries))
}

fn tar_of(entries: &[(EntryType, &str, &str, &[u8])]) -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    for (kind, path, target, content) in entries {
        let mut header = Header::new_gnu();
        // Not by `set_path`, which refuses what is tried here.
        let fields = header.as_gnu_mut().unwrap();
        fields.name[..path.len()].copy_from_slice(path.as_bytes());
        fields.linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        header.set_cksum();
        tar.append(&header, *content).unwrap();
    }
    tar.into_inner().unwrap()
}

fn error(archive: &[u8]) -> String {
    unpacked(archive, Limits::default()).unwrap_err().to_string()
}

const FILE: EntryType = EntryType::Regular;
const LINK: EntryType = EntryType::Symlink;
const DIRECTORY: EntryType = EntryType::Directory;

#[test]
fn an_unpacked_archive_has_the_same_files_links_and_modes() {
    let dir = tempfile::tempdir().unwrap();
    let long = "l".repeat(120);
    for (path, mode) in [("main.tf", 0o644), ("bin/hook.sh", 0o755), ("a/b/c/d.json", 0o600)] {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, path.to_string_lossy().repeat(1000)).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    }
    fs::create_dir_all(dir.path().join("empty").join(&long)).unwrap();
    fs::write(dir.path().join("a").join(&long), "long").unwrap();
    symlink("../main.tf", dir.path().join("a/link")).unwrap();
    symlink(format!("a/{long}"), dir.path().join("long link")).unwrap();
    fs::set_permissions(dir.path().join("a/b"), PermissionsExt::from_mode(0o750)).unwrap();
    let found = unpacked(&packed(dir.path()), Limits::default()).unwrap();
    assert_eq!(found, tree(dir.path()));
}

#[test]
fn paths_and_links_out_of_the_directory_are_refused() {
    for (entries, reason) in [
        (vec![(FILE, "../x", "", &b"x"[..])], "leads out"),
        (vec![(FILE, "/x", "", b"x")], "leads out"),
        (vec![(FILE, "a/../../x", "", b"x")], "leads out"),
        (vec![(FILE, "", "", b"x")], "no path"),
        (vec![(DIRECTORY, ".git", "", b"")], "belongs to git"),
        (vec![(FILE, "a/.git/config", "", b"x")], "belongs to git"),
        (vec![(LINK, "a", "/etc", b"")], "link leads out"),
        (vec![(LINK, "a", "..", b"")], "link leads out"),
        (vec![(LINK, "a/b", "../../x", b"")], "link leads out"),
        (vec![(LINK, "a", "", b"")], "link leads out"),
        (vec![(LINK, "a", "b", b""), (FILE, "a/x", "", b"x")], "a parent is not a directory"),
        (vec![(FILE, "a", "", b""), (FILE, "a/x", "", b"x")], "a parent is not a directory"),
        (vec![(FILE, "a", "", b"1"), (FILE, "a", "", b"2")], "twice"),
        (vec![(LINK, "a", "b", b""), (FILE, "a", "", b"2")], "twice"),
        (vec![(FILE, "a", "", b"1"), (FILE, "./a", "", b"2")], "twice"),
        (vec![(EntryType::Link, "a", "/etc/passwd", b"")], "neither a file"),
        (vec![(EntryType::Char, "a", "", b"")], "neither a file"),
        (vec![(EntryType::Fifo, "a", "", b"")], "neither a file"),
        (vec![(EntryType::GNUSparse, "a", "", b"")], "sparse"),
        (vec![(EntryType::XHeader, "a", "", b"30 path=../../x\n")], "neither a file"),
    ] {
        let found = error(&archive(&entries));
        assert!(found.contains(reason), "{entries:?}: {found}");
    }
}

#[test]
fn a_link_before_its_parents_link_never_leads_a_file_outside() {
    // The link is made last, so the file below its name makes a directory there.
    let found = error(&archive(&[(FILE, "a/x", "", b"x"), (LINK, "a", "b", b"")]));
    assert!(found.contains("twice"), "{found}");
}

#[test]
fn more_than_the_limits_is_refused() {
    let limits = Limits { entries: 2, bytes: 10, ..Limits::default() };
    let small = [(FILE, "a", "", &b"12345"[..]), (FILE, "b", "", b"12345")];
    assert_eq!(unpacked(&archive(&small), limits).unwrap().len(), 2);
    let many = [small[0], small[1], (DIRECTORY, "c", "", b"")];
    let large = [(FILE, "a", "", &b"12345678901"[..])];
    for entries in [&many[..], &large] {
        let refused = unpacked(&archive(entries), limits).unwrap_err();
        assert!(matches!(refused, ArchiveError::TooLarge(_)), "{refused}");
    }
    // Directories that only a path names count, too.
    let deep = archive(&[(FILE, "a/b/c", "", b"")]);
    assert!(matches!(unpacked(&deep, limits), Err(ArchiveError::TooLarge(_))));
    // A long name, and zeros after the end, are no way to unpack without a limit.
    let zeros = vec![0; 64 << 20];
    let long_name = archive(&[(EntryType::GNULongName, "././@LongLink", "", &zeros)]);
    unpacked(&long_name, limits).unwrap_err();
    unpacked(&compressed(&zeros), limits).unwrap_err();
}

#[test]
fn paths_of_very_many_parts_are_refused() {
    for (parts, is_accepted) in [(100, true), (101, false)] {
        let name = vec!["d"; parts].join("/");
        let long = (EntryType::GNULongName, "././@LongLink", "", name.as_bytes());
        let found = unpacked(&archive(&[long, (FILE, "x", "", b"")]), Limits::default());
        assert_eq!(found.is_ok(), is_accepted, "{parts}: {found:?}");
    }
}

#[test]
fn truncated_or_continued_archives_are_refused() {
    let tar = tar_of(&[(FILE, "a", "", &[7; 5000]), (FILE, "b", "", b"b")]);
    for end in [0, 100, 512, 3000, 512 + 5120, tar.len() - 1024, tar.len() - 512] {
        unpacked(&compressed(&tar[..end]), Limits::default()).unwrap_err();
    }
    let whole = compressed(&tar);
    for end in [0, 1, whole.len() / 2, whole.len() - 1] {
        unpacked(&whole[..end], Limits::default()).unwrap_err();
    }
    let twice = [&tar[..], &tar].concat();
    assert!(error(&compressed(&twice)).contains("other data follows its end"));
    unpacked(&[&whole[..], &whole].concat(), Limits::default()).unwrap_err();
    unpacked(&[&whole[..], b"more"].concat(), Limits::default()).unwrap_err();
}

/// The zeros of a file are not the end of the archive.
#[test]
fn an_archive_cut_behind_a_file_of_zeros_is_refused() {
    let tar = tar_of(&[(FILE, "a", "", &[0; 2048]), (FILE, "b", "", b"b")]);
    let limits = Limits { of_any_program: true, ..Limits::default() };
    let cut = &tar[..512 + 2048];
    for archive in [cut, &compressed(cut)] {
        let error = unpacked(archive, limits).unwrap_err().to_string();
        assert!(error.contains("not complete"), "{error}");
    }
    assert_eq!(unpacked(&tar, limits).unwrap().len(), 2);
}

/// An archive during which a signal comes.
struct Interrupted {
    archive: io::Cursor<Vec<u8>>,
    stop: tokio::sync::watch::Sender<Option<Stop>>,
    reads_after: usize,
}

impl Read for Interrupted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let is_stopped = self.stop.borrow().is_some();
        self.reads_after += usize::from(is_stopped);
        if !is_stopped && self.archive.position() > 100 << 10 {
            self.stop.send(Some(Stop::Terminate)).unwrap();
        }
        self.archive.read(buffer)
    }
}

#[test]
fn unpacking_ends_at_a_signal_and_leaves_nothing() {
    let (stop, signals) = Signals::of_test();
    // It cannot be compressed.
    let content = (0..1_u64 << 15).flat_map(|number| Sha256::of(&number.to_le_bytes()).0);
    let content = content.collect::<Vec<_>>();
    let archive = io::Cursor::new(archive(&[(FILE, "a", "", &content)]));
    let mut archive = Interrupted { archive, stop, reads_after: 0 };
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("to");
    let archive_until_stop = Stoppable::new(&mut archive, signals);
    let error = unpack(archive_until_stop, &to, Limits::default()).unwrap_err();
    assert!(datastore_api::chain(&error).contains("SIGTERM"), "{error:?}");
    assert_eq!((archive.reads_after, to.exists()), (0, false));
}

#[test]
fn after_a_signal_no_directory_is_made_and_nothing_is_removed() {
    let (stop, signals) = Signals::of_test();
    stop.send(Some(Stop::Terminate)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("to");
    let archive = archive(&[(FILE, "a/b/c", "", b"")]);
    let error = unpack_until(Some(&signals), &archive[..], &to, Limits::default()).unwrap_err();
    assert!(datastore_api::chain(&error).contains("SIGTERM"), "{error:?}");
    assert_eq!(fs::read_dir(&to).unwrap().count(), 0);
}

#[test]
fn an_existing_directory_is_never_unpacked_over() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("main.tf"), "mine").unwrap();
    let archive = archive(&[(FILE, "main.tf", "", b"other")]);
    unpack(&archive[..], dir.path(), Limits::default()).unwrap_err();
    assert_eq!(fs::read(dir.path().join("main.tf")).unwrap(), b"mine");
}

fn paths() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "..", ".", "", "c"]), 1..4)
        .prop_map(|parts| parts.join("/"))
}

fn kinds() -> impl Strategy<Value = EntryType> {
    let extended =
        [EntryType::Link, EntryType::GNULongName, EntryType::GNULongLink, EntryType::XHeader];
    prop::sample::select([&[FILE, LINK, DIRECTORY][..], &extended].concat())
}

/// Archives of the runner's own, and of any program.
fn limits() -> impl Strategy<Value = Limits> {
    any::<bool>().prop_map(|of_any_program| Limits { of_any_program, ..Limits::default() })
}

/// Contents of files and of `pax` headers.
fn contents() -> impl Strategy<Value = Vec<u8>> {
    let record =
        ("path|linkpath|size|GNU.sparse.name|comment", paths()).prop_map(|(key, value)| {
            let rest = format!(" {key}={value}\n");
            format!("{}{rest}", rest.len() + 2).into_bytes()
        });
    let zeros = (0..4096_usize).prop_map(|length| vec![0; length]);
    prop_oneof![record, prop::collection::vec(any::<u8>(), 0..20), zeros]
}

proptest! {
    #[test]
    fn no_archive_writes_outside_of_its_directory(
        limits in limits(),
        entries in prop::collection::vec((kinds(), paths(), paths(), prop::collection::vec(any::<u8>(), 0..20)), 0..8),
        flipped in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let entries =
            entries.iter().map(|(kind, path, target, content)| (*kind, &path[..], &target[..], &content[..]));
        let mut tar = tar_of(&entries.collect::<Vec<_>>());
        if let Some(at) = flipped {
            let at = at.index(tar.len());
            tar[at] ^= 0x55;
        }
        // `unpacked` checks that nothing else changed; a link that leads outside would be followed by `exists`.
        if let Ok(tree) = unpacked(&compressed(&tar), limits) {
            for (path, (_, target)) in tree.iter().filter(|(_, (mode, _))| *mode == 0o777) {
                prop_assert!(link::is_inside(path, Path::new(OsStr::from_bytes(target))));
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        limits in limits(),
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
    ) {
        unpacked(&bytes, limits).unwrap_err();
        unpacked(&compressed(&bytes), limits).unwrap_err();
    }

    #[test]
    fn entries_of_any_kind_stay_inside_and_damaged_archives_are_refused(
        form in any::<u8>(),
        at in any::<u16>(),
        entries in prop::collection::vec((any::<u8>(), paths(), paths(), contents()), 0..8),
    ) {
        let entries = entries.iter().map(|(kind, path, target, content)| {
            (*kind, path.as_bytes(), target.as_bytes(), &content[..])
        });
        fuzz::source_archive(&entries.collect::<Vec<_>>(), form, at);
    }
}
