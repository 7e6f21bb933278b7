//! Signals below terragrunt: the tool gets exactly one SIGINT. After two, terraform exits without saving its state.

#![expect(clippy::disallowed_methods, reason = "real tools are named by a variable")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use support::{Ended, Sandbox, Started, eventually, executable};

use crate::RUNNER;

/// Terragrunt, as far as it matters here: it has its own process for the tool, in its own group, and passes a signal on
/// after 15 s, or at once when it gets a second one. It has a pause between the two, as the real one has.
const FAKE: &str = r#"#!/usr/bin/env python3
import os, signal, subprocess, sys, threading, time
if sys.argv[1] in ("-version", "--version", "-v", "version"):
    print("terragrunt version v1.0.0")
    sys.exit()
if sys.argv[1] == "info":
    print("{}")
    sys.exit()
args = [arg for arg in sys.argv[1:]]
tool = args[args.index("--tf-path") + 1]
again = threading.Event()
count = 0
def on_signal(number, frame):
    global count
    count += 1
    if count == 1:
        threading.Thread(target=forward, daemon=True).start()
    else:
        again.set()
def forward():
    again.wait(15)
    child.send_signal(signal.SIGINT)
signal.signal(signal.SIGINT, on_signal)
child = subprocess.Popen([tool, args[0]])
sys.exit(child.wait())
"#;

/// A tool that ends 20 s after its first SIGINT: later than terragrunt would send another one. Every SIGINT is a line.
fn tool(heard: &Path, started: &Path, seconds: u32) -> String {
    format!(
        "#!/usr/bin/env python3\n\
         import signal, sys, time\n\
         if sys.argv[1] == 'version':\n    print('{{\"terraform_version\": \"1.9.8\"}}'); sys.exit()\n\
         if sys.argv[1] != 'apply': sys.exit()\n\
         end = []\n\
         def on_signal(number, frame):\n    open('{heard}', 'a').write('INT\\n'); end.append(time.time() + {seconds})\n\
         signal.signal(signal.SIGINT, on_signal)\n\
         open('{started}', 'w').close()\n\
         while not end or time.time() < end[0]: time.sleep(0.05)\n\
         sys.exit(1)\n",
        heard = heard.display(),
        started = started.display()
    )
}

/// A runner whose terragrunt runs this tool, in the middle of its apply, and the file with the signals.
fn applying(seconds: u32) -> (Sandbox, Started, PathBuf) {
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write("main.tf", "");
    sandbox.write("terragrunt.hcl", "");
    let (heard, started) = (sandbox.path("heard"), sandbox.path("started"));
    sandbox.script("terraform", &tool(&heard, &started, seconds));
    sandbox.script("terragrunt", FAKE);
    let args = ["apply", "--no-plan", "--terragrunt=1.0.0", "--tool", "terraform"];
    let runner = sandbox.start(None, &args);
    eventually("the apply runs", || started.exists());
    (sandbox, runner, heard)
}

fn heard(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_default()
}

#[test]
fn tool_below_terragrunt_gets_one_sigint_soon() {
    let (_sandbox, runner, file) = applying(17);
    let asked = Instant::now();
    runner.signal("TERM");
    eventually("the tool has heard", || file.exists());
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    let ended = runner.wait();
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    assert_eq!(heard(&file), "INT\n");
}

#[test]
fn tool_below_terragrunt_gets_one_sigint_if_the_runner_is_killed() {
    let (_sandbox, runner, file) = applying(17);
    let asked = Instant::now();
    runner.signal("KILL");
    eventually("the tool has heard", || file.exists());
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    std::thread::sleep(Duration::from_secs(17));
    assert_eq!(heard(&file), "INT\n");
}

/// Real terragrunts, where `scripts/e2e-tools` has built them, run a real terraform or tofu through a wrapper that counts.
#[test]
#[ignore = "needs real tools"]
fn tool_below_a_real_terragrunt_gets_one_sigint() {
    let tools = std::env::var("PLANCHA_TEST_TOOLS").expect("PLANCHA_TEST_TOOLS names the tools");
    for version in ["0.72.5", "1.0.0"] {
        let terragrunt = Path::new(&tools).join(format!("Terragrunt/{version}/terragrunt"));
        if !terragrunt.exists() {
            continue;
        }
        let ended = stopped_below(&terragrunt, version);
        assert!(ended.stdout.contains("Interrupt received."), "{}", ended.stdout);
        assert!(!ended.stdout.contains("Two interrupts received"), "{}", ended.stdout);
    }
}

/// An apply of a resource that takes 20 s, stopped in its middle.
fn stopped_below(terragrunt: &Path, version: &str) -> Ended {
    let sandbox = Sandbox::new(RUNNER);
    sandbox.write(
        "main.tf",
        "resource \"terraform_data\" \"first\" {}\n\
         resource \"terraform_data\" \"slow\" {\n  depends_on = [terraform_data.first]\n  \
         provisioner \"local-exec\" {\n    command = \"trap '' INT; touch $HOME/started; sleep 20\"\n  }\n}\n",
    );
    sandbox.write("terragrunt.hcl", "");
    executable(
        &sandbox.path("bin/terragrunt"),
        &format!("#!/bin/sh\nexec {} \"$@\"\n", terragrunt.display()),
    );
    let real = support::on_path("terraform").unwrap();
    let heard = sandbox.path("heard");
    let wrapper = format!(
        "#!/usr/bin/env python3\n\
         import signal, subprocess, sys\n\
         child = None\n\
         def on_signal(number, frame):\n    open('{heard}', 'a').write('INT\\n')\n    child and child.send_signal(number)\n\
         signal.signal(signal.SIGINT, on_signal)\n\
         child = subprocess.Popen(['{real}'] + sys.argv[1:], start_new_session=True)\n\
         sys.exit(child.wait())\n",
        heard = heard.display(),
        real = real.display()
    );
    sandbox.script("terraform", &wrapper);
    let terragrunt = format!("--terragrunt={version}");
    let args = ["apply", "--no-plan", &terragrunt, "--tool", "terraform"];
    let runner = sandbox.start(None, &args);
    eventually("the provisioner runs", || sandbox.path("home/started").exists());
    runner.signal("TERM");
    let ended = runner.wait();
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    assert_eq!(std::fs::read_to_string(&heard).unwrap(), "INT\n", "{version}");
    ended
}
