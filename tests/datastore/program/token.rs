//! `token`: its arguments, and the file of rules to which it adds.

use std::path::Path;

use crate::program::commands::ended;
use crate::program::process::program;

#[test]
fn the_rule_of_a_token_that_could_not_be_printed_is_not_added() {
    let directory = tempfile::TempDir::new().unwrap();
    let file = directory.path().join("tokens.yaml");
    for before in [None, Some("rules: []\n")] {
        if let Some(before) = before {
            std::fs::write(&file, before).unwrap();
        }
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let words = ["token", "ci", "--namespace", "a", "--rules", file.to_str().unwrap()];
        let (code, _, message) = ended(&program(&words).stdout(full).output().unwrap());
        assert_eq!(code, 1, "{message}");
        assert!(message.contains("cannot write to standard output"), "{message}");
        assert_eq!(std::fs::read_to_string(&file).ok().as_deref(), before);
        let left = std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(left, usize::from(before.is_some()), "a temporary file");
    }
}

#[test]
fn token_without_a_namespace_or_with_a_space_in_its_id_is_refused() {
    for (words, reason) in [
        (&["token", "ci", "--namespace", ""][..], "--namespace: it is empty"),
        (&["token", "ci", "--namespace", "a,,b"], "--namespace: it is empty"),
        (&["token", "ci", "--namespace", "a/b"], "--namespace: `a/b` must not contain"),
        (&["token", "c i", "--namespace", "a"], "invalid id `c i`: expected one word"),
        (&["token", "", "--namespace", "a"], "invalid id ``"),
        (
            &["token", "ci", "--namespace", "a", "--kind", "foo"],
            "error: --kind: invalid kind `foo`: expected one of bin,",
        ),
        (
            &["token", "ci", "--namespace", "a", "--verb", "foo"],
            "error: --verb: invalid verb `foo`: expected one of read,",
        ),
        (
            &["token", "ci", "--namespace", "*", "--verb", "admin", "--kind", "log"],
            "--verb: `admin` has an effect only in a rule for everything",
        ),
        (
            &["token", "ci", "--namespace", "team-*", "--verb", "read,admin"],
            "--verb: `admin` has an effect only in a rule for everything",
        ),
    ] {
        let (code, shown, reported) = ended(&program(words).output().unwrap());
        assert_eq!((code, shown.as_str()), (64, ""), "{reported}");
        assert!(reported.contains(reason), "{words:?}: {reported}");
    }
    let (code, ..) = ended(&program(&["token", "ci", "--namespace", "team-*,b"]).output().unwrap());
    assert_eq!(code, 0);
}

#[test]
fn token_can_be_written_to_an_empty_policy_file_but_not_to_a_pipe() {
    let directory = tempfile::TempDir::new().unwrap();
    let token = |file: &Path| {
        let rules = file.to_str().unwrap();
        let words = ["token", "ci", "--namespace", "a", "--rules", rules];
        ended(&program(&words).output().unwrap())
    };
    let file = directory.path().join("tokens.yaml");
    for _ in 0..2 {
        std::fs::write(&file, "rules: []\n").unwrap();
        let (code, shown, message) = token(&file);
        assert_eq!((code, &*message), (0, ""));
        assert!(shown.starts_with("plancha_"), "{shown}");
        assert!(std::fs::read_to_string(&file).unwrap().contains("token: ci"));
    }
    let inline = "rules: [{who: {serviceaccount: a/b}, namespaces: [a], verbs: [read]}]";
    std::fs::write(&file, inline).unwrap();
    let (code, shown, message) = token(&file);
    assert_eq!((code, &*shown), (1, ""));
    assert!(message.contains("no token was created") && !message.contains("sha256"), "{message}");
    let pipe = directory.path().join("pipe");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from(0o600));
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    let (code, shown, message) = token(&pipe);
    assert_eq!((code, &*shown), (1, ""));
    assert!(message.contains("not a regular file"), "{message}");
}
