//! Output on a terminal: its pager and its colours.

use std::fs::File;
use std::io::Read as _;
use std::process::Stdio;

use nix::pty::openpty;
use support::{Sandbox, TestDatastore};

use crate::RUNNER;
use crate::stored_run::StoredRun;

/// What a terminal shows of a run's log, and the exit code.
async fn on_terminal(
    log: &str,
    args: &[&str],
    variables: &[(&str, &str)],
) -> (String, i32, String) {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    StoredRun::new(&datastore, "default", "l", "r").put_log(0, log.as_bytes().to_vec()).await;
    let terminal = openpty(None, None).unwrap();
    let mut command = sandbox.command(&["logs", "default/l/r"]);
    command
        .args(args)
        .env("PLANCHA_DATASTORE_URL", datastore.url.as_str())
        .envs(variables.iter().copied())
        .stdout(Stdio::from(terminal.slave));
    let child = command.spawn().unwrap();
    // It holds the terminal's other end.
    drop(command);
    let mut master = File::from(terminal.master);
    let shown = std::thread::spawn(move || {
        let (mut shown, mut buffer) = (Vec::new(), [0; 4096]);
        // At the end there is an error instead of an empty read.
        while let Ok(count @ 1..) = master.read(&mut buffer) {
            shown.extend_from_slice(&buffer[..count]);
        }
        String::from_utf8(shown).unwrap().replace("\r\n", "\n")
    });
    let ended = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
    (shown.join().unwrap(), ended.status.code().unwrap_or(-1), stderr)
}

const COLOURED: &str = "\x1b[31mError:\x1b[0m no\n";

#[tokio::test(flavor = "multi_thread")]
async fn pager_of_the_environment_shows_the_output_in_colours() {
    for (variables, expected) in [
        (&[("PAGER", "sed s/^/A/")][..], format!("A{COLOURED}")),
        (&[("PAGER", "false"), ("PLANCHA_PAGER", "sed s/^/B/ | cat")], format!("B{COLOURED}")),
        (&[("PAGER", "")], COLOURED.to_owned()),
        (&[("PAGER", "sed s/^/A/"), ("PLANCHA_PAGER", "cat")], COLOURED.to_owned()),
        (&[("PAGER", "sed s/^/A/"), ("NO_COLOR", "1")], "AError: no\n".to_owned()),
        (&[("PAGER", "sed s/^/A/"), ("NO_COLOR", "")], format!("A{COLOURED}")),
        (&[("TERM", "dumb")], "Error: no\n".to_owned()),
    ] {
        let (shown, code, stderr) = on_terminal("Error: no\n", &[], variables).await;
        assert_eq!((&*shown, code), (&*expected, 0), "{variables:?}: {stderr}");
    }
    let variables = [("PAGER", "sed s/^/A/")];
    let (shown, code, stderr) = on_terminal("Error: no\n", &["--no-pager"], &variables).await;
    assert_eq!((&*shown, code), (COLOURED, 0), "{stderr}");
}

#[test]
fn log_lines_and_the_tool_have_colours_only_on_a_terminal_that_is_to_show_them() {
    for (variables, has_colours) in [
        (&[][..], true),
        (&[("NO_COLOR", "")], true),
        (&[("NO_COLOR", "1")], false),
        (&[("TERM", "dumb")], false),
    ] {
        let sandbox = Sandbox::new(RUNNER).hello().fake_terraform("");
        let terminal = openpty(None, None).unwrap();
        let output = || Stdio::from(terminal.slave.try_clone().unwrap());
        let mut command = sandbox.command(&["plan"]);
        command.env_remove("NO_COLOR").env("TERM", "xterm").envs(variables.iter().copied());
        let mut child = command.stdout(output()).stderr(output()).spawn().unwrap();
        drop((command, terminal.slave));
        let mut shown = Vec::new();
        // At the end there is an error instead of an empty read.
        drop(File::from(terminal.master).read_to_end(&mut shown));
        assert!(child.wait().unwrap().success());
        let shown = String::from_utf8_lossy(&shown);
        assert!(shown.contains(" INFO"), "{shown}");
        assert_eq!(shown.contains('\x1b'), has_colours, "{variables:?}: {shown}");
        for call in sandbox.calls() {
            let is_plain = call.contains("-no-color") || call.contains("version");
            assert_eq!(is_plain, !has_colours || call.starts_with("show"), "{variables:?}: {call}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pager_gets_the_options_that_show_colours_unless_they_are_set() {
    let pager = ("PAGER", "cat >/dev/null; echo \"$LESS,$LV\"");
    for (variables, expected) in
        [(&[pager][..], "FRX,-c\n"), (&[pager, ("LESS", ""), ("LV", "-Ou8")], ",-Ou8\n")]
    {
        let (shown, code, stderr) = on_terminal("x\n", &[], variables).await;
        assert_eq!((&*shown, code), (expected, 0), "{variables:?}: {stderr}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pager_that_quits_early_is_no_error() {
    let log = "a line\n".repeat(200_000);
    for pager in ["head -n 1", "true", "exit 3"] {
        let (shown, code, stderr) = on_terminal(&log, &[], &[("PAGER", pager)]).await;
        assert_eq!((code, &*stderr), (0, ""), "{pager}");
        assert!(shown.len() < 10, "{pager}: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pager_that_cannot_be_run_is_named() {
    let (_, code, stderr) = on_terminal("x\n", &[], &[("PAGER", "missing-pager -x")]).await;
    assert_eq!(code, 8, "{stderr}");
    assert!(stderr.contains("the pager `missing-pager -x` cannot be run"), "{stderr}");
    assert!(stderr.contains("--no-pager"), "{stderr}");
}
