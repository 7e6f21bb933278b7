//! What is packed unpacks to the same files.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use fs_err as fs;

use super::*;
use crate::source::archive::{Limits, unpack};

fn packed(root: &Path) -> Vec<u8> {
    let selected = select(root, &SourceFiles::default()).unwrap();
    let mut archive = Vec::new();
    pack(root, &selected, &mut archive).unwrap();
    archive
}

#[test]
fn an_unpacked_snapshot_has_the_same_files_links_and_modes() {
    let dir = tempfile::tempdir().unwrap();
    let (root, to) = (dir.path().join("root"), dir.path().join("to"));
    let long = "l".repeat(120);
    for (path, mode) in [("main.tf", 0o644), ("bin/hook.sh", 0o755), ("a/b/c/d.json", 0o600)] {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, path.to_string_lossy().repeat(1000)).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    }
    fs::create_dir_all(root.join("empty").join(&long)).unwrap();
    fs::write(root.join("a").join(&long), "long").unwrap();
    symlink("../main.tf", root.join("a/link")).unwrap();
    symlink(format!("a/{long}"), root.join("long link")).unwrap();
    fs::set_permissions(root.join("a/b"), PermissionsExt::from_mode(0o750)).unwrap();
    let archive = packed(&root);
    unpack(&archive[..], &to, Limits::default()).unwrap();
    assert_eq!(packed(&to), archive);
    assert_eq!(fs::read_link(to.join("a/link")).unwrap(), Path::new("../main.tf"));
    let mode = |path| fs::metadata(to.join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("bin/hook.sh"), mode("a/b"), mode("a/b/c/d.json")), (0o755, 0o750, 0o600));
    assert!(to.join("empty").join(&long).is_dir());
}

#[test]
fn what_is_packed_can_be_unpacked_and_what_cannot_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (root, to) = (dir.path().join("root"), dir.path().join("to"));
    let deep = root.join("d/".repeat(99));
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("main.tf"), "12345").unwrap();
    let archive = packed(&root);
    unpack(&archive[..], &to, Limits::default()).unwrap();
    fs::create_dir(deep.join("d")).unwrap();
    let selected = select(&root, &SourceFiles::default()).unwrap();
    pack(&root, &selected, std::io::sink()).unwrap();
    fs::write(deep.join("d/more.tf"), "").unwrap();
    let selected = select(&root, &SourceFiles::default()).unwrap();
    let error = pack(&root, &selected, std::io::sink()).unwrap_err();
    assert!(error.to_string().contains("more than 100 parts"), "{error}");

    // 100 directories and a file.
    fs::remove_file(deep.join("d/more.tf")).unwrap();
    let archive = packed(&root);
    let selected = select(&root, &SourceFiles::default()).unwrap();
    for (entries, bytes, fits) in [(101, 5, true), (100, 5, false), (101, 4, false)] {
        let limits = || Limits { entries, bytes, ..Limits::default() };
        let to = dir.path().join("within");
        let packed = pack::pack_within(limits(), &root, &selected, std::io::sink());
        let unpacked = unpack(&archive[..], &to, limits());
        assert_eq!((packed.is_ok(), unpacked.is_ok()), (fits, fits), "{entries} {bytes}");
        if fits {
            fs::remove_dir_all(&to).unwrap();
        }
    }
}

#[test]
fn the_same_tree_gives_the_same_bytes_whenever_it_was_made() {
    let trees = [0, 1].map(|round| {
        let dir = tempfile::tempdir().unwrap();
        let mut names = ["b.tf", "a.tf", "sub/x.tf", "sub.tf"];
        names.rotate_left(round);
        for name in names {
            fs::create_dir_all(dir.path().join("sub")).unwrap();
            fs::write(dir.path().join(name), name).unwrap();
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(round as u64);
            fs::File::open(dir.path().join(name)).unwrap().into_file().set_modified(time).unwrap();
        }
        packed(dir.path())
    });
    assert_eq!(trees[0], trees[1]);
}

#[test]
fn a_file_that_disappears_before_it_is_packed_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), "12345").unwrap();
    let selected = select(dir.path(), &SourceFiles::default()).unwrap();
    fs::remove_file(dir.path().join("a")).unwrap();
    let changed = pack(dir.path(), &selected, std::io::sink()).unwrap_err();
    assert!(matches!(changed, SnapshotError::Changed(_)), "{changed}");
}

#[test]
fn a_file_above_the_limit_is_refused_with_the_limit_and_its_name() {
    let dir = tempfile::tempdir().unwrap();
    fs::File::create(dir.path().join("small")).unwrap().set_len(1).unwrap();
    fs::File::create(dir.path().join("sparse")).unwrap().set_len(17 << 30).unwrap();
    let selected = select(dir.path(), &SourceFiles::default()).unwrap();
    let error = pack(dir.path(), &selected, std::io::sink()).unwrap_err();
    let expected = "it would have more than 16 GiB of files (the largest of them is sparse)";
    assert!(error.to_string().starts_with(expected), "{error}");
}

/// A disk without room.
struct Full;

impl std::io::Write for Full {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_disk_that_is_full_before_the_end_of_a_file_is_no_change_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    fs::File::create(dir.path().join("a")).unwrap().set_len(256 << 20).unwrap();
    let selected = select(dir.path(), &SourceFiles::default()).unwrap();
    let error = pack(dir.path(), &selected, Full).unwrap_err();
    assert!(matches!(error, SnapshotError::Archive(_)), "{error}");
}

/// Empties a file when the first bytes are written.
struct Emptying(fs::File);

impl std::io::Write for Emptying {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.set_len(0)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_packed_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = fs::File::create(dir.path().join("a")).unwrap();
    // The compression returns the first bytes long before it has them all.
    file.set_len(256 << 20).unwrap();
    let selected = select(dir.path(), &SourceFiles::default()).unwrap();
    let changed = pack(dir.path(), &selected, Emptying(file)).unwrap_err();
    assert!(matches!(changed, SnapshotError::Changed(_)), "{changed}");
}
