//! What the steps of a run use, and steps for which memory runs out.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use support::{Ended, Sandbox, executable};

use crate::{RUNNER, json};

fn step(sandbox: &Sandbox, name: &str) -> Value {
    let report = json(sandbox.read("result.json").as_bytes());
    let mut steps = report["steps"].as_array().unwrap().iter();
    steps.find(|step| step["name"] == name).unwrap().clone()
}

/// Two processes below the tool hold 120 MB each at the same time, and one computes.
#[test]
fn memory_and_cpu_time_of_a_step_are_those_of_all_its_processes() {
    let sandbox = Sandbox::new(RUNNER);
    let hold = "(head -c 120000000 /dev/zero; sleep 2) | tail > /dev/null &";
    let compute = "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done";
    sandbox.write(
        "main.tf",
        &format!(
            "resource \"terraform_data\" \"a\" {{\n  provisioner \"local-exec\" {{\n    \
             command = \"{hold} setsid sh -c '{hold} wait'& {compute}; wait\"\n  }}\n}}\n"
        ),
    );
    let ended = sandbox.run(&["apply", "--no-plan", "--result", "result.json"]);
    assert_eq!(ended.code, 0, "{}{}", ended.stdout, ended.stderr);
    let (init, apply) = (step(&sandbox, "init"), step(&sandbox, "apply"));
    assert!(apply["rss_peak"].as_u64().unwrap() > 240_000_000, "{apply}");
    // A step of 0.2 s may be measured only near its beginning.
    assert!(init["rss_peak"].as_u64().unwrap() > 1_000_000, "{init}");
    let cpu = |step: &Value| step["cpu_seconds"].as_f64().unwrap();
    assert!(cpu(&init) > 0.0 && cpu(&init) < 30.0, "{init}");
    assert!(cpu(&apply) > cpu(&init), "{init} {apply}");
}

#[test]
fn cpu_time_of_all_tries_is_added() {
    let busy = "Error: creating: unexpected status 429, the call can be retried in 1 seconds";
    let compute = "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done";
    let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(&format!(
        "if [ $STEP = plan ]; then {compute}; echo x >> $HOME/tries; cut -d' ' -f14-17 /proc/$$/stat >> $HOME/ticks
         if [ $(wc -l < $HOME/tries) = 1 ]; then echo '{busy}' >&2; exit 1; fi; fi"
    ));
    let ended = sandbox.run(&["plan", "--result", "result.json"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let ticks = std::fs::read_to_string(sandbox.path("home/ticks")).unwrap();
    let ticks = ticks.split_whitespace().map(|n| n.parse::<f64>().unwrap()).sum::<f64>();
    let plan = step(&sandbox, "plan");
    assert_eq!(plan["attempts"], 2);
    assert!(plan["cpu_seconds"].as_f64().unwrap() >= ticks / 100.0 - 0.05, "{ticks}: {plan}");
}

/// A memory control group of the machine, with this limit and without swap.
struct Group(PathBuf);

impl Group {
    /// `None`: this machine has no memory groups that this user may make.
    fn new(mebibytes: u64) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("plancha-test-{}-{number}", std::process::id());
        let limit = (mebibytes << 20).to_string();
        let (one, two) = (Path::new("/sys/fs/cgroup/memory"), Path::new("/sys/fs/cgroup"));
        for (mount, file, swap, most) in [
            (one, "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", &*limit),
            (two, "memory.max", "memory.swap.max", "0"),
        ] {
            let dir = mount.join(&name);
            if !mount.join("cgroup.procs").exists() || std::fs::create_dir(&dir).is_err() {
                continue;
            }
            let group = Self(dir);
            // Without swap there is no limit for it.
            let _absent = std::fs::write(group.0.join(file), &limit)
                .and_then(|()| std::fs::write(group.0.join(swap), most));
            if std::fs::read_to_string(group.0.join(file)).is_ok_and(|set| set.trim() == limit) {
                return Some(group);
            }
        }
        None
    }

    fn run(&self, sandbox: &Sandbox, args: &[&str]) -> Ended {
        let script = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", self.0.display());
        let all = [&["-c", &script, "sh", RUNNER], args].concat();
        sandbox.program(Path::new("/bin/sh"), &all).output().unwrap().into()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let mut tries = 100;
        while std::fs::remove_dir(&self.0).is_err() && tries > 0 {
            tries -= 1;
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

const OUT_OF_MEMORY: &str =
    "memory ran out, and the kernel killed a process: the limit of the control group is 300 MiB";

#[test]
#[ignore = "needs a memory control group"]
fn tool_for_which_memory_runs_out_is_named_with_the_limit() {
    let group = Group::new(300).unwrap();
    let sandbox = Sandbox::new(RUNNER);
    let many =
        "output \"n\" {\n  value = length(setproduct(range(1000), range(1000), range(20)))\n}\n";
    sandbox.write("main.tf", many);
    let ended = group.run(&sandbox, &["plan", "--result", "result.json"]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    for words in [
        &format!("terraform plan was killed by SIGKILL: {OUT_OF_MEMORY}"),
        "next: give the run more memory",
    ] {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
    let peak = step(&sandbox, "plan")["rss_peak"].as_u64().unwrap();
    assert!(peak > 150 << 20 && peak < 400 << 20, "{peak}");
}

/// A plan of 100 MB: two renderings at once could need more than the limit.
#[test]
#[ignore = "needs a memory control group"]
fn plan_is_rendered_twice_one_after_the_other_where_memory_is_limited() {
    let script = r#"
case "$*" in
  plan*) (head -c 100000000 /dev/zero; sleep 0.5) | tail > /dev/null;;
  show*) mkdir "$HOME/shows" || touch "$HOME/overlap"; sleep 0.5; rmdir "$HOME/shows";;
esac
"#;
    let (limited, free) = (Group::new(300).unwrap(), Group::new(2000).unwrap());
    for (group, overlaps) in [(limited, false), (free, true)] {
        let sandbox = Sandbox::new(RUNNER).hello().fake_terraform(script);
        let ended = group.run(&sandbox, &["plan", "--result", "result.json"]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        assert_eq!(sandbox.path("home/overlap").exists(), overlaps);
    }
}

/// The provider's error looks like one that passes.
#[test]
#[ignore = "needs a memory control group"]
fn provider_for_which_memory_runs_out_is_named_with_the_limit_and_not_tried_again() {
    let group = Group::new(300).unwrap();
    let sandbox = Sandbox::new(RUNNER);
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let dir = sandbox.path(&format!("mirror/registry.terraform.io/x/eater/1.0.0/linux_{arch}"));
    std::fs::create_dir_all(&dir).unwrap();
    let starts = sandbox.path("starts");
    let eater = format!("#!/bin/sh\necho x >> {}\nexec tail /dev/zero\n", starts.display());
    executable(&dir.join("terraform-provider-eater_v1.0.0"), &eater);
    let mirror = sandbox.path("mirror");
    let rc = format!(
        "disable_checkpoint = true\nprovider_installation {{\n  filesystem_mirror {{\n    path = \"{}\"\n  }}\n}}\n",
        mirror.display()
    );
    std::fs::write(sandbox.path("terraformrc"), rc).unwrap();
    let source = "terraform {\n  required_providers {\n    eater = { source = \"x/eater\" }\n  }\n}\nresource \"eater_a\" \"a\" {}\n";
    sandbox.write("main.tf", source);
    let ended = group.run(&sandbox, &["plan", "--result", "result.json"]);
    assert_eq!(ended.code, 1, "{}{}", ended.stdout, ended.stderr);
    let report = json(sandbox.read("result.json").as_bytes());
    let message = report["message"].as_str().unwrap();
    assert!(message.starts_with("terraform plan failed with exit code 1: "), "{message}");
    assert!(message.ends_with(&format!("; {OUT_OF_MEMORY}")), "{message}");
    assert_eq!(
        (&report["class"], step(&sandbox, "plan")["attempts"].as_u64()),
        (&"unknown".into(), Some(1))
    );
    assert!(ended.stderr.contains("next: give the run more memory"), "{}", ended.stderr);
    assert!(starts.exists());
}
