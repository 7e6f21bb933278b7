//! `snapshot`: what a plan's snapshot costs: of a large tree against `tar | zstd`, and of a small one, with its apply,
//! against a script with the same commands.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::{MIB, Programs, Server, median, ms, timed};

const FILES: usize = 10_000;
/// The mean size of a file.
const SIZE: usize = 20_000;

pub(super) fn snapshot(programs: &Programs) {
    let server = Server::start(&programs.datastore);
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("rc"), "disable_checkpoint = true\n").unwrap();
    large(programs, &server, dir.path());
    small(programs, &server, dir.path());
}

/// A module that keeps its state outside of the tree.
fn module(tree: &Path, state: &Path) {
    std::fs::create_dir_all(tree).unwrap();
    let state = state.display();
    let main = format!(
        "terraform {{\n  backend \"local\" {{\n    path = \"{state}\"\n  }}\n}}\n\
         variable \"name\" {{}}\nresource \"terraform_data\" \"a\" {{\n  input = var.name\n}}\n"
    );
    std::fs::write(tree.join("main.tf"), main).unwrap();
}

fn runner(
    programs: &Programs,
    server: &Server,
    dir: &Path,
    round: usize,
    args: &[&str],
) -> Command {
    let mut command = Command::new(&programs.runner);
    command.args(args).args(["--name", "bench", "--datastore", &server.url]);
    environment(&mut command, dir, round);
    command
}

/// The variables of a round, whose number makes a change; `dir` has the configuration of the command line.
pub(super) fn environment(command: &mut Command, dir: &Path, round: usize) {
    command
        .env("TF_CLI_CONFIG_FILE", dir.join("rc"))
        .env("CHECKPOINT_DISABLE", "1")
        .env("XDG_CACHE_HOME", dir.join("cache"))
        .env("PLANCHA_OFFLINE", "true")
        .env("TF_VAR_name", round.to_string());
}

fn git(dir: &Path) {
    let script = "git init -q && git add -A && git -c user.name=b -c user.email=b@x commit -q -m b";
    assert!(Command::new("sh").args(["-c", script]).current_dir(dir).status().unwrap().success());
}

/// A snapshot of a large tree. Its cost is the difference between a plan with and without it, storing it included.
fn large(programs: &Programs, server: &Server, dir: &Path) {
    const ROUNDS: usize = 5;
    let tree = dir.join("large");
    module(&tree, &dir.join("large.tfstate"));
    // Text that compresses as code does: to about a quarter.
    let mut random = 1u64;
    let mut total = 0;
    for file in 0..FILES {
        let parent = tree.join(format!("d{:03}", file % 100));
        std::fs::create_dir_all(&parent).unwrap();
        let mut text = String::new();
        while text.len() < SIZE {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let number = random >> 33;
            writeln!(text, "  name_{} = \"value-{}\" # {number}", number % 2000, number % 977)
                .unwrap();
        }
        total += text.len();
        std::fs::write(parent.join(format!("f{file:05}.txt")), text).unwrap();
    }
    git(&tree);
    let (mut yardsticks, mut costs, mut rss) = (vec![], vec![], 0);
    for round in 0..=ROUNDS {
        let mut tar = Command::new("sh");
        tar.args(["-c", "tar --exclude .git -cf - . | zstd -1 -q >../tar.zst"]).current_dir(&tree);
        let (tar, _) = timed(&mut tar);
        let plan = |when: &str| {
            let args = ["plan", tree.to_str().unwrap(), "--snapshot", when];
            timed(&mut runner(programs, server, dir, round, &args))
        };
        let (without, _) = plan("never");
        let (with, peak) = plan("always");
        if round > 0 {
            yardsticks.push(tar);
            costs.push(with.saturating_sub(without));
            rss = rss.max(peak);
        }
    }
    let (tar, cost) = (ms(median(&yardsticks)), ms(median(&costs)));
    println!("snapshot: {FILES} files, {} MiB, medians of {ROUNDS} rounds in turn", total / MIB);
    println!("  tar | zstd -1                                  {tar:8.1} ms");
    println!(
        "  a plan with its snapshot, less one without     {cost:8.1} ms   {:.2} x",
        cost / tar
    );
    println!(
        "  runner's own memory                            {:8.1} MiB",
        rss as f64 / MIB as f64
    );
}

/// Plan of a small tree with a snapshot, and its apply in it, against the commands that they run.
fn small(programs: &Programs, server: &Server, dir: &Path) {
    const ROUNDS: usize = 15;
    let (ours, theirs) = (dir.join("small"), dir.join("script"));
    module(&ours, &dir.join("small.tfstate"));
    module(&theirs, &dir.join("script.tfstate"));
    git(&ours);
    let script = "set -e; t() { terraform \"$@\"; }; t init -input=false -no-color; \
                  t plan -input=false -no-color -out=p; t show -no-color -json p >p.json; \
                  t show -no-color p >p.txt; t init -input=false -no-color; t state pull >state.json; \
                  t apply -input=false -no-color -auto-approve p";
    let (mut scripts, mut totals): (Vec<Duration>, Vec<Duration>) = (vec![], vec![]);
    for round in 0..=ROUNDS {
        let mut command = Command::new("sh");
        environment(command.args(["-c", script]).current_dir(&theirs), dir, round);
        let (script, _) = timed(&mut command);
        let source = ours.to_str().unwrap();
        let plan = ["plan", source, "--snapshot", "always"];
        let (plan, _) = timed(&mut runner(programs, server, dir, round, &plan));
        let apply = ["apply", source, "--snapshot", "always"];
        let (apply, _) = timed(&mut runner(programs, server, dir, round, &apply));
        if round > 0 {
            scripts.push(script);
            totals.push(plan + apply);
        }
    }
    let (script, total) = (ms(median(&scripts)), ms(median(&totals)));
    println!(
        "snapshot: plan of a small tree and apply in its snapshot, medians of {ROUNDS} rounds"
    );
    println!("  script (the same commands, with state pull)    {script:8.1} ms");
    println!(
        "  runner plan + runner apply                     {total:8.1} ms   {:.2} x, {:+.1} ms",
        total / script,
        total - script
    );
}
