//! Archives as git, GNU tar and bsdtar write them.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

const HARD_LINK: EntryType = EntryType::Link;
const PAX: EntryType = EntryType::XHeader;
const GLOBAL: EntryType = EntryType::XGlobalHeader;

fn any() -> Limits {
    Limits { of_any_program: true, ..Limits::default() }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// The content of a `pax` header.
fn pax(records: &[(&str, &str)]) -> Vec<u8> {
    let mut content = String::new();
    for (key, value) in records {
        let rest = format!(" {key}={value}\n");
        let is_own = |length: &usize| *length == length.to_string().len() + rest.len();
        content += &(1..100_000).find(is_own).unwrap().to_string();
        content += &rest;
    }
    content.into_bytes()
}

fn paths(tree: &Tree) -> Vec<String> {
    tree.keys().map(|path| path.display().to_string()).collect()
}

#[test]
fn compression_is_recognised_by_the_first_bytes() {
    let tar = tar_of(&[(FILE, "main.tf", "", b"x")]);
    let (first, second) = tar.split_at(700);
    let skippable = [b"\x50\x2a\x4d\x18\x02\0\0\0xy", &compressed(&tar)[..]].concat();
    let padded = [&tar[..], &[0; 9000]].concat();
    for (what, archive) in [
        ("plain", tar.clone()),
        ("with more zeros at its end", padded.clone()),
        ("gzip", gzip(&tar)),
        ("several members", [gzip(first), gzip(second)].concat()),
        ("an empty member", [gzip(&tar), gzip(b"")].concat()),
        ("zeros after gzip", [&gzip(&tar)[..], &[0; 5000]].concat()),
        ("zeros in gzip", gzip(&padded)),
        ("zstd", compressed(&tar)),
        ("several frames", [compressed(first), compressed(second)].concat()),
        ("a frame to skip", skippable),
    ] {
        let tree = unpacked(&archive, any()).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(tree[Path::new("main.tf")].1, b"x", "{what}");
    }
    for strict in [tar.clone(), gzip(&tar)] {
        assert!(error(&strict).contains("not compressed with zstd"));
    }
}

#[test]
fn what_is_no_whole_archive_is_refused_with_its_reason() {
    let tar = tar_of(&[(FILE, "main.tf", "", &[7; 5000])]);
    let (gz, zst) = (gzip(&tar), compressed(&tar));
    for (archive, reason) in [
        (&b""[..], "it is empty"),
        (&gzip(b""), "it is empty"),
        (b"resource \"x\" {}\n", "not a tar archive"),
        (&gzip(b"resource"), "not a tar archive"),
        (b"PK\x03\x04rest", "a zip archive"),
        (b"\xfd7zXZ\0rest", "compressed with xz"),
        (b"BZh91AY", "compressed with bzip2"),
        (&tar[..3000], "not complete"),
        (&tar[..tar.len() - 1024], "not complete"),
        (&gz[..gz.len() / 2], "not complete"),
        (&zst[..zst.len() / 2], "not complete"),
        (&[&tar[..], b"more"].concat(), "other data follows its end"),
        (&[&gz[..], b"more"].concat(), "followed by other data"),
        (&[&gz[..], b"\0\0more"].concat(), "other data follows"),
        (&[&tar[..], &tar].concat(), "such as a second archive"),
    ] {
        let found = datastore_api::chain(&unpacked(archive, any()).unwrap_err());
        assert!(found.contains(reason), "{reason}: {found}");
    }
}

#[test]
fn names_and_commit_of_a_pax_archive_are_read() {
    let (long, commit) = ("d/".repeat(90) + "main.tf", "0123456789abcdef0123456789abcdef01234567");
    let target = "e/".repeat(90) + "x";
    let tar = tar_of(&[
        (GLOBAL, "pax_global_header", "", &pax(&[("comment", commit)])),
        (PAX, "x", "", &pax(&[("mtime", "1.5"), ("path", &long), ("SCHILY.xattr.user.a", "b\nc")])),
        (FILE, "short", "", b"x"),
        (PAX, "x", "", &pax(&[("linkpath", &target)])),
        (LINK, "link", "short", b""),
        (FILE, "next", "", b"y"),
    ]);
    let dir = tempfile::tempdir().unwrap();
    let packed = unpack(&tar[..], &dir.path().join("to"), any()).unwrap();
    assert_eq!(packed, Packed { entries: 3, bytes: 2, commit: Some(commit.to_owned()) });
    let found = tree(&dir.path().join("to"));
    assert_eq!(found[Path::new(&long)].1, b"x");
    assert_eq!(found[Path::new("link")].1, target.as_bytes());
    assert_eq!(found[Path::new("next")].1, b"y");
    for comment in ["made by hand", "0123", ""] {
        let tar = tar_of(&[(GLOBAL, "g", "", &pax(&[("comment", comment)]))]);
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(unpack(&tar[..], &dir.path().join("to"), any()).unwrap().commit, None);
    }
}

#[test]
fn a_pax_header_that_misleads_is_refused() {
    for (records, reason) in [
        (pax(&[("path", "../x")]), "leads out"),
        (pax(&[("path", "/x")]), "leads out"),
        (pax(&[("path", "a\0b")]), "NUL"),
        (pax(&[("path", &"a/".repeat(4096))]), "too long"),
        (pax(&[("size", "7")]), "different sizes"),
        (pax(&[("GNU.sparse.major", "1")]), "entry `x` is refused: it is a sparse file"),
        (pax(&[("GNU.sparse.name", "a"), ("path", "b")]), "entry `a` is refused: it is a sparse"),
        (b"30 path=../../x\n".to_vec(), "not valid"),
        (vec![b'x'; (1 << 20) + 1], "not valid"),
    ] {
        let tar = tar_of(&[(PAX, "x", "", &records), (FILE, "x", "", b"x")]);
        let found = unpacked(&tar, any()).unwrap_err().to_string();
        assert!(found.contains(reason), "{reason}: {found}");
    }
}

#[test]
fn names_that_no_file_system_takes_are_refused_with_a_part_of_them() {
    let (part, path) = ("x".repeat(256), "x/".repeat(90) + &"y/".repeat(3000));
    let huge = "z".repeat(20 << 10);
    let long = |name: &str| (EntryType::GNULongName, format!("{name}\0").into_bytes());
    let named = |name: &str| (PAX, pax(&[("path", name)]));
    let linked = |target: &str| (PAX, pax(&[("linkpath", target)]));
    for (what, (header, content), kind) in [
        ("file", named(&part), FILE),
        ("file below", named(&format!("a/{part}/b")), FILE),
        ("directory", named(&part), DIRECTORY),
        ("link", named(&part), LINK),
        ("GNU", long(&part), FILE),
        ("path", named(&path), FILE),
        ("GNU path", long(&path), FILE),
        ("huge", named(&huge), FILE),
        ("huge GNU", long(&huge), FILE),
        ("target", linked(&format!("a{}", "/b".repeat(2100))), LINK),
        ("huge target", linked(&huge), LINK),
    ] {
        let tar = tar_of(&[(header, "h", "", &content), (kind, "x", "t", b"")]);
        let error = unpacked(&tar, any()).unwrap_err();
        let text = error.to_string();
        let is_too_long =
            matches!(error, ArchiveError::Refused { reason: Refusal::TooLong(_), .. });
        assert!(is_too_long && text.len() < 300, "{what}: {text}");
    }
    let longest = "x".repeat(255);
    let (header, content) = named(&longest);
    let tree = unpacked(&tar_of(&[(header, "h", "", &content), (FILE, "x", "", b"")]), any());
    assert_eq!(paths(&tree.unwrap()), [longest]);
}

#[test]
fn a_hard_link_becomes_a_copy_of_an_earlier_file() {
    let tree = unpacked(
        &tar_of(&[
            (FILE, "./a/main.tf", "", b"x"),
            (HARD_LINK, "./b/same.tf", "./a/main.tf", b""),
            (HARD_LINK, "c", "b/same.tf", b""),
        ]),
        any(),
    )
    .unwrap();
    assert_eq!(paths(&tree), ["a", "a/main.tf", "b", "b/same.tf", "c"]);
    assert_eq!(
        (&tree[Path::new("b/same.tf")].1, &tree[Path::new("c")].1),
        (&b"x".to_vec(), &b"x".to_vec())
    );
    for target in ["/etc/passwd", "../outside", "later", "link", "a", "", ".git/config"] {
        let tar = tar_of(&[
            (DIRECTORY, "a", "", b""),
            (LINK, "link", "a", b""),
            (FILE, ".git/config", "", b"x"),
            (HARD_LINK, "hard", target, b""),
            (FILE, "later", "", b""),
        ]);
        let found = unpacked(&tar, any()).unwrap_err().to_string();
        assert!(found.contains("leads to no earlier file"), "{target}: {found}");
    }
    let limits = Limits { bytes: 25, ..any() };
    let bomb = tar_of(&[
        (FILE, "a", "", b"0123456789"),
        (HARD_LINK, "b", "a", b""),
        (HARD_LINK, "c", "b", b""),
    ]);
    assert!(matches!(unpacked(&bomb, limits), Err(ArchiveError::TooLarge(_))));
}

#[test]
fn the_root_and_a_directory_may_occur_again() {
    let tree = unpacked(
        &tar_of(&[
            (DIRECTORY, "./", "", b""),
            (FILE, "./a/b/main.tf", "", b"x"),
            (DIRECTORY, "./a/b/", "", b""),
            (DIRECTORY, "a/", "", b""),
            // As programs wrote it before there was a type for directories.
            (FILE, "old/", "", b""),
            (EntryType::Continuous, "old/file", "", b"y"),
        ]),
        any(),
    )
    .unwrap();
    assert_eq!(paths(&tree), ["a", "a/b", "a/b/main.tf", "old", "old/file"]);
    for entries in [
        [(FILE, "a", "", &b"1"[..]), (FILE, "./a", "", b"2")],
        [(FILE, "a", "", b"1"), (DIRECTORY, "a", "", b"")],
        [(DIRECTORY, "a", "", b""), (FILE, "a", "", b"2")],
        [(LINK, "a", "b", b""), (DIRECTORY, "a", "", b"")],
    ] {
        let found = unpacked(&tar_of(&entries), any()).unwrap_err().to_string();
        assert!(found.contains("twice"), "{entries:?}: {found}");
    }
}

#[test]
fn what_git_and_the_tool_keep_is_left_out() {
    let tree = unpacked(
        &tar_of(&[
            (DIRECTORY, ".git", "", b""),
            (FILE, ".git/hooks/post-checkout", "", b"#!/bin/sh"),
            (FILE, "modules/a/.git", "", b"gitdir: /x"),
            (LINK, "b/.git", "../x", b""),
            (FILE, "b/.terraform/environment", "", b"production"),
            (FILE, "main.tf", "", b"x"),
            (FILE, ".gitignore", "", b"x"),
        ]),
        any(),
    )
    .unwrap();
    assert_eq!(paths(&tree), [".gitignore", "main.tf"]);
}
