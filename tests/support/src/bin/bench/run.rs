//! `run`: plan and apply of `docs/examples/hello`.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::snapshot::environment;
use super::{MIB, Programs, Server, median, ms, timed};

/// Plan and apply of `hello`, stored, against a shell script with the same commands. Both initialize: an apply may
/// be another job on another machine, and only init shows which backend it would work on.
pub(super) fn run(programs: &Programs) {
    const ROUNDS: usize = 15;
    let server = Server::start(&programs.datastore);
    let dir = TempDir::new().unwrap();
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    for work in [&ours, &theirs] {
        std::fs::create_dir(work).unwrap();
        let hello = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/hello");
        std::fs::copy(hello.join("main.tf"), work.join("main.tf")).unwrap();
    }
    std::fs::write(dir.path().join("rc"), "disable_checkpoint = true\n").unwrap();
    let environment = |command: &mut Command, round: usize| environment(command, dir.path(), round);
    let script = "set -e; t() { terraform \"$@\"; }; t init -input=false -no-color; \
                  t plan -input=false -no-color -out=p; t show -no-color -json p >p.json; \
                  t show -no-color p >p.txt; t init -input=false -no-color; t state pull >state.json; \
                  t apply -input=false -no-color -auto-approve p; t output -no-color -json >out.json";
    let (mut scripts, mut plans, mut applies, mut rss) = (vec![], vec![], vec![], vec![]);
    for round in 0..=ROUNDS {
        let mut command = Command::new("sh");
        environment(command.args(["-c", script]).current_dir(&theirs), round);
        let (script, _) = timed(&mut command);
        let mut ran = |action: &str| {
            let mut command = Command::new(&programs.runner);
            command.args([action, "--name", "hello", "--datastore", &server.url]);
            environment(command.current_dir(&ours), round);
            let (took, peak) = timed(&mut command);
            rss.push(peak);
            took
        };
        let (plan, apply) = (ran("plan"), ran("apply"));
        // The first round installs and warms up.
        if round > 0 {
            scripts.push(script);
            plans.push(plan);
            applies.push(apply);
        }
    }
    let totals = plans.iter().zip(&applies).map(|(plan, apply)| *plan + *apply).collect::<Vec<_>>();
    let (script, total) = (ms(median(&scripts)), ms(median(&totals)));
    println!("run: plan and apply of docs/examples/hello, medians of {ROUNDS} rounds in turn");
    println!("  script (init, plan, 2 show; init, state pull, apply, output) {script:.1} ms");
    println!(
        "  runner plan {:.1} + runner apply {:.1}          {total:8.1} ms   {:.2} x, {:+.1} ms",
        ms(median(&plans)),
        ms(median(&applies)),
        total / script,
        total - script
    );
    println!(
        "  runner's own memory                            {:8.1} MiB",
        rss.iter().max().unwrap_or(&0).to_owned() as f64 / MIB as f64
    );
}
