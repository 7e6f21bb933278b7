//! The files of a policy, and its digest.

use std::path::PathBuf;

use fs_err as fs;

use super::{by_default, load, message, policy_of};
use crate::cli::{PolicyArgs, RegoVersion};
use crate::policy::{Policy, PolicyError, files};

#[test]
fn a_policy_inside_the_source_is_refused() {
    let source = tempfile::tempdir().unwrap();
    let (dir, mut args) = policy_of(&[("rules.yaml", "max_changes: 1")]);
    Policy::load(&args, Some(source.path())).unwrap();
    fs::write(source.path().join("own.yaml"), "max_changes: 9").unwrap();
    fs::write(source.path().join("own.rego"), "package main\ndeny contains \"x\" if false")
        .unwrap();
    // By its name, by a way around, by a link to it, and in a directory that has such a link.
    std::os::unix::fs::symlink(source.path().join("own.yaml"), dir.path().join("link.yaml"))
        .unwrap();
    std::os::unix::fs::symlink(source.path().join("own.rego"), dir.path().join("link.rego"))
        .unwrap();
    let around =
        source.path().join("../").join(source.path().file_name().unwrap()).join("own.yaml");
    let inside = [
        source.path().join("own.yaml"),
        source.path().join("own.rego"),
        around,
        dir.path().join("link.yaml"),
        dir.path().to_owned(),
        source.path().to_owned(),
        source.path().parent().unwrap().to_owned(),
    ];
    for path in inside.iter().take(6) {
        args.policy = vec![path.clone()];
        let error = Policy::load(&args, Some(source.path())).map(drop).unwrap_err();
        assert!(matches!(error, PolicyError::InSource { .. }), "{}: {error}", path.display());
        args.policy_from_source = true;
        Policy::load(&args, Some(source.path())).unwrap();
        args.policy_from_source = false;
    }
    // The data of a policy as well.
    fs::write(source.path().join("data.json"), "{}").unwrap();
    fs::write(dir.path().join("a.rego"), "package main\ndeny contains \"x\" if false").unwrap();
    args.policy = vec![dir.path().join("a.rego")];
    args.options.policy_data = vec![source.path().join("data.json")];
    let error = Policy::load(&args, Some(source.path())).map(drop).unwrap_err();
    assert!(matches!(error, PolicyError::InSource { .. }), "{error}");
}

#[test]
fn files_of_a_policy_must_be_what_they_seem() {
    let (dir, args) = policy_of(&[("policy.txt", "x")]);
    let error = message(Policy::load(&args, None));
    assert!(error.contains("its name does not say what it is"), "{error}");
    let of = |path: PathBuf| {
        message(Policy::load(&PolicyArgs { policy: vec![path], ..PolicyArgs::default() }, None))
    };
    assert!(of(dir.path().join("none.yaml")).contains("cannot be read"));
    assert!(of(dir.path().to_owned()).contains("has no *.rego file"));
    fs::write(dir.path().join("bytes.yaml"), b"\xff").unwrap();
    assert!(of(dir.path().join("bytes.yaml")).contains("not UTF-8"));
    nix::unistd::mkfifo(&dir.path().join("pipe.yaml"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(of(dir.path().join("pipe.yaml")).contains("not a regular file"));
    let (_dir, mut args) = policy_of(&[("rules.yaml", "max_changes: 1")]);
    args.options.policy_data = vec!["data.json".into()];
    assert!(matches!(
        Policy::load(&args, None),
        Err(PolicyError::Read(..) | PolicyError::UnusedData)
    ));
    let error = message(load(&[("rules.yaml", "max_changes: 1\nmax: 2\n")]));
    assert!(error.contains("rules.yaml, line 2:"), "{error}");
    let error = message(load(&[("rules.yaml", "watched_outputs:\n- a\n- b..c\n")]));
    assert!(error.contains("line 3: watched_outputs `b..c`"), "{error}");
}

#[test]
fn mounts_of_kubernetes_are_read_once_and_loops_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let link =
        |to: &str, name: &str| std::os::unix::fs::symlink(to, dir.path().join(name)).unwrap();
    fs::create_dir(dir.path().join("..2026")).unwrap();
    let text = "package main\nmsg := \"x\"\ndeny contains msg if false";
    fs::write(dir.path().join("..2026/a.rego"), text).unwrap();
    link("..2026", "..data");
    link("..data/a.rego", "a.rego");
    let args = PolicyArgs { policy: vec![dir.path().to_owned()], ..PolicyArgs::default() };
    let files = files::read(&args.policy, &[], None).unwrap();
    assert_eq!(files.rego.len(), 1);
    Policy::load(&args, None).unwrap();
    link(".", "loop");
    assert!(message(Policy::load(&args, None)).contains("a link leads back"));
}

#[test]
fn the_digest_of_a_policy_is_that_of_everything_that_decides() {
    let digest = |files: &[(&str, &str)], change: fn(&mut PolicyArgs)| {
        let (_dir, mut args) = policy_of(files);
        change(&mut args);
        Policy::load(&args, None).unwrap().sha256()
    };
    let none: fn(&mut PolicyArgs) = |_| {};
    let rego = ("a.rego", "package main\ndeny contains \"x\" if false");
    let one = digest(&[rego], none);
    assert_eq!(one, digest(&[rego], none), "another directory");
    let mut all = vec![one, by_default().sha256()];
    all.push(digest(&[("a.rego", "package main\ndeny contains \"y\" if false")], none));
    all.push(digest(&[rego, ("a.yaml", "max_changes: 1")], none));
    all.push(digest(&[rego], |args| args.options.destructive_output = vec!["o".to_owned()]));
    all.push(digest(&[("a.rego", "package main\ndeny[\"x\"] { false }")], |args| {
        args.options.rego_version = RegoVersion::V0;
    }));
    all.push(digest(&[rego, ("a.yaml", "max_changes: 1"), ("b.yaml", "max_changes: 1")], none));
    let count = all.len();
    all.sort_by_key(ToString::to_string);
    all.dedup();
    assert_eq!(all.len(), count);
}
