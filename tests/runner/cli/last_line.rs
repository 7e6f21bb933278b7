//! The last line of a run that failed, and the output of a job of GitHub Actions.

#![expect(clippy::disallowed_types, reason = "a test starts the runner itself")]

use std::process::Command;

use support::{Ended, Sandbox, TestDatastore, eventually};

use crate::stored_run::StoredRun;
use crate::{RUNNER, json};

/// A run in a job of GitHub whose repository is the working directory.
fn in_github<'a>(command: &'a mut Command, sandbox: &Sandbox) -> &'a mut Command {
    command.env("GITHUB_ACTIONS", "true").env("GITHUB_WORKSPACE", sandbox.work())
}

/// What GitHub does with an output: the commands that it runs, and the lines that it shows.
fn read_by_github(output: &str) -> (Vec<&str>, Vec<&str>) {
    let (mut commands, mut shown, mut stopped) = (Vec::new(), Vec::new(), None);
    for line in output.split(['\n', '\r']) {
        let Some(command) = line.trim_start().strip_prefix("::") else {
            shown.push(line);
            continue;
        };
        match stopped {
            Some(token) if command.strip_suffix("::") == Some(token) => stopped = None,
            Some(_) => shown.push(line),
            None => match command.strip_prefix("stop-commands::") {
                Some(token) => stopped = Some(token),
                None => commands.push(line),
            },
        }
    }
    assert!(stopped.is_none(), "commands stay stopped: {output}");
    (commands, shown)
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_run_ends_with_one_line_which_github_shows_in_its_file() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("live/vpc/main.tf", "variable \"a\" {\n  type = strin\n}\n");
    sandbox.write("live/vpc/more.tf", "terraform {\n  x = 1\n}\n");
    let mut plan = sandbox.command(&["plan", "live/vpc", "--run", "p", "--name", "vpc"]);
    plan.args(["--result", "r.json", "--datastore", datastore.url.as_str()]);
    let ended = Ended::from(in_github(&mut plan, &sandbox).output().unwrap());
    assert_eq!(ended.code, 8, "{}", ended.stderr);

    let last = ended.stderr.lines().last().unwrap();
    let result = json(sandbox.read("r.json").as_bytes());
    let (message, next) = (result["message"].as_str().unwrap(), result["next"].as_str().unwrap());
    let text = format!("{}. next: {next}", message.trim_end_matches('.'));
    assert!(last.ends_with(&format!("ERROR {text}")), "{last}");
    let also = "  also: Unsupported argument (more.tf:2, in terraform)";
    assert!(ended.stderr.contains(also), "{}", ended.stderr);

    let (commands, shown) = read_by_github(&ended.stdout);
    let title = "title=plan default/vpc/p";
    let error = format!("::error file=live/vpc/main.tf,line=2,{title}::{text}");
    assert_eq!(commands, [error]);
    assert!(shown.iter().any(|line| line.contains("Invalid type specification")), "{shown:?}");
    let log = StoredRun::new(&datastore, "default", "vpc", "p").log(0).await;
    for text in ["stop-commands", "::error"] {
        assert!(!log.contains(text), "{log}");
    }
}

/// Lines of others: in a plan, of a tool that is killed in the middle of a line, and of an argument.
#[test]
fn text_of_others_is_no_command_of_github() {
    let sandbox = Sandbox::new(RUNNER);
    let value = "<<-EOT\n    a\n    ::add-mask::a\n    ::stop-commands::b\n    ::b::\n  EOT";
    sandbox.write("main.tf", &format!("output \"x\" {{\n  value = {value}\n}}\n"));
    let mut plan = sandbox.command(&["plan"]);
    let ended = Ended::from(in_github(&mut plan, &sandbox).output().unwrap());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let (commands, shown) = read_by_github(&ended.stdout);
    assert_eq!(commands, [""; 0]);
    assert!(shown.iter().any(|line| line.trim_start() == "::add-mask::a"), "{shown:?}");
    let tokens = ended.stdout.lines().filter_map(|line| line.strip_prefix("::stop-commands::"));
    assert_eq!(tokens.count(), 1);

    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(
        "if [ $STEP = plan ]; then printf '::add-mask::a\\nhalf'; kill -9 $$; fi
         if [ $STEP = init ]; then echo '::warning::init' >&2; fi",
    );
    let mut plan = sandbox.command(&["plan"]);
    let ended = Ended::from(in_github(&mut plan, &sandbox).output().unwrap());
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let (commands, _) = read_by_github(&ended.stdout);
    let [error] = commands[..] else { panic!("{commands:?}") };
    assert!(error.starts_with("::error title=plan ") && error.contains("SIGKILL"), "{error}");

    let mut plan = sandbox.command(&["plan", "--path", "a\n::error::b ##[error]c"]);
    let ended = Ended::from(in_github(&mut plan, &sandbox).output().unwrap());
    assert_eq!(ended.code, 8, "{}", ended.stderr);
    assert!(!ended.stderr.contains("##["), "{}", ended.stderr);
    assert_eq!(read_by_github(&ended.stderr).0, [""; 0]);
    let (commands, _) = read_by_github(&ended.stdout);
    assert!(
        matches!(&commands[..], [error] if error.starts_with("::error title=plan")),
        "{commands:?}"
    );
}

#[test]
fn interrupted_run_lets_github_run_commands_again() {
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(
        "if [ $STEP = plan ]; then trap 'echo ::error::late; exit 1' INT; echo works; while :; do sleep 0.05; done; fi",
    );
    let mut plan = sandbox.command(&["plan"]);
    in_github(&mut plan, &sandbox);
    let runner = support::Started::spawn(plan);
    eventually("the tool works", || runner.said("works"));
    runner.signal("TERM");
    let ended = runner.wait();
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    let (commands, _) = read_by_github(&ended.stdout);
    assert!(
        matches!(&commands[..], [error] if error.contains("terraform plan was stopped by SIGTERM; its last output is")),
        "{commands:?}"
    );
}

#[test]
fn output_that_goes_elsewhere_has_no_commands() {
    let sandbox = Sandbox::new(RUNNER).hello();
    let file = std::fs::File::create(sandbox.work().join("out")).unwrap();
    let mut plan = sandbox.command(&["plan"]);
    let ended = Ended::from(in_github(&mut plan, &sandbox).stdout(file).output().unwrap());
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    for output in [sandbox.read("out"), sandbox.run(&["plan"]).stdout] {
        assert!(output.contains("Plan: ") && !output.contains("::"), "{output}");
    }
}

/// A log, and an error in it, that would be commands.
#[tokio::test(flavor = "multi_thread")]
async fn printed_logs_contain_no_commands_of_github() {
    let datastore = TestDatastore::memory().await;
    let sandbox = Sandbox::new(RUNNER);
    let log = "Error: ::error::a\n\n::add-mask::b\n";
    let stored = StoredRun::new(&datastore, "default", "x", "r");
    stored.put_log(0, log.as_bytes().to_vec()).await;
    sandbox.write("log", log);
    let url = datastore.url.as_str();
    for args in [
        &["logs", "r", "--name", "x", "--datastore", url][..],
        &["show", "r", "--name", "x", "--datastore", url],
        &["runs", "--name", "x", "--datastore", url],
        &["classify", "log", "--explain"],
    ] {
        let ended = Ended::from(in_github(&mut sandbox.command(args), &sandbox).output().unwrap());
        assert_eq!(ended.code, 0, "{args:?}: {}", ended.stderr);
        let (commands, _) = read_by_github(&ended.stdout);
        assert_eq!(commands, [""; 0], "{args:?}");
        assert_eq!(
            ended.stdout.matches("::stop-commands::").count(),
            1,
            "{args:?}: {}",
            ended.stdout
        );
        if args[0] == "classify" {
            assert!(ended.stdout.starts_with("unknown\n"), "{}", ended.stdout);
        }
    }
    let json = ["runs", "--name", "x", "--datastore", url, "--json"];
    let ended = Ended::from(in_github(&mut sandbox.command(&json), &sandbox).output().unwrap());
    assert!(crate::json(ended.stdout.as_bytes()).is_array(), "{}", ended.stdout);
}

/// What clap says of arguments repeats them.
#[test]
fn usage_errors_issue_no_commands() {
    let sandbox = Sandbox::new(RUNNER).hello();
    for args in [
        &["plan", "--retries", "x\n::add-mask::a"][..],
        &["plan", "--name", "x\n::error::a"],
        &["plan", "--x\n::error::a"],
        &["show", "x\n::error::pwn"],
        &["x\r##[error]pwn"],
    ] {
        let mut command = sandbox.command(args);
        let ended = Ended::from(in_github(&mut command, &sandbox).output().unwrap());
        assert_eq!(ended.code, 64, "{args:?}: {}", ended.stderr);
        assert_eq!(read_by_github(&ended.stderr).0, [""; 0], "{args:?}: {}", ended.stderr);
        assert_eq!(read_by_github(&ended.stdout).0, [""; 0], "{args:?}");
    }
    let ended = sandbox.run(&["plan", "--retries", "x\u{1b}]0;a\u{7}"]);
    assert_eq!((ended.code, ended.stderr.contains('\u{1b}')), (64, false), "{}", ended.stderr);
}
