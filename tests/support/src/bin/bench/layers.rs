//! `layers`: one process that checks many layers without changes.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::snapshot::environment;
use super::{MIB, Programs, median, ms, status};

const LAYERS: usize = 200;

/// Rounds of `runner check --every` over the layers, against a script with the same commands of the tool.
pub(super) fn layers(programs: &Programs) {
    let dir = TempDir::new().unwrap();
    prepare(dir.path());
    let script = "set -e; cd \"$1\"; t() { terraform \"$@\"; }; t init -input=false -no-color; \
                  t plan -input=false -no-color -lock=false -out=p; t state pull >s.json; \
                  t show -no-color -json p >p.json; t show -no-color p >p.txt";
    let bare = |layer: usize| {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", &format!("code/{layer}")]).current_dir(dir.path());
        environment(&mut command, dir.path(), 0);
        let started = Instant::now();
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        started.elapsed()
    };
    // The machine may be busy: half of the bare ones are before, half after the round.
    let mut theirs = (0..LAYERS / 2).map(bare).collect::<Vec<_>>();
    let Rounds { took, peak, anonymous } = rounds(programs, dir.path());
    theirs.extend((LAYERS / 2..LAYERS).map(bare));
    let (ours, theirs) = (ms(took) / LAYERS as f64, ms(median(&theirs)));
    println!("layers: a check of {LAYERS} layers without changes in one process");
    println!("  script (init, plan, state pull, 2 show)        {theirs:8.1} ms a layer");
    println!(
        "  runner check                                   {ours:8.1} ms a layer   {:.2} x, {:+.1} ms",
        ours / theirs,
        ours - theirs
    );
    println!(
        "  runner's own memory, peak of two rounds        {:8.1} MiB, {:.1} MiB of it are not of its file",
        peak as f64 / MIB as f64,
        anonymous as f64 / MIB as f64
    );
}

/// The code of the layers, each with its state, and their manifests.
fn prepare(dir: &Path) {
    std::fs::write(dir.join("rc"), "disable_checkpoint = true\n").unwrap();
    let first = dir.join("code/0");
    for layer in 0..LAYERS {
        let code = dir.join(format!("code/{layer}"));
        std::fs::create_dir_all(&code).unwrap();
        std::fs::write(
            code.join("main.tf"),
            "resource \"terraform_data\" \"a\" {\n  input = 1\n}\n",
        )
        .unwrap();
        let manifest = format!(
            "apiVersion: config.terraform.padok.cloud/v1alpha1\nkind: TerraformLayer\nmetadata: {{name: layer-{layer}}}\n\
             spec: {{path: \"{layer}\"}}\n"
        );
        std::fs::create_dir_all(dir.join("layers")).unwrap();
        std::fs::write(dir.join(format!("layers/{layer}.yaml")), manifest).unwrap();
    }
    let script = "terraform init -input=false >/dev/null && terraform apply -input=false -auto-approve >/dev/null";
    let mut command = Command::new("sh");
    environment(command.args(["-c", script]).current_dir(&first), dir, 0);
    assert!(command.status().unwrap().success());
    for layer in 1..LAYERS {
        let state = dir.join(format!("code/{layer}/terraform.tfstate"));
        std::fs::copy(first.join("terraform.tfstate"), state).unwrap();
    }
}

struct Rounds {
    /// How long the second round took.
    took: Duration,
    peak: u64,
    /// The memory that is not of a file, at the end.
    anonymous: u64,
}

/// Two rounds: the first one installs and warms up.
fn rounds(programs: &Programs, dir: &Path) -> Rounds {
    let mut command = Command::new(&programs.runner);
    command.args([
        "check",
        "layers",
        "--source",
        "code",
        "--every",
        "1ms",
        "--listen",
        "127.0.0.1:0",
    ]);
    environment(command.current_dir(dir), dir, 0);
    command.env("HOME", dir).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut runner = command.spawn().unwrap();
    let lines = BufReader::new(runner.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut ends = lines.filter(|line| line.contains("the next one begins in"));
    let first = ends.next().unwrap();
    let started = Instant::now();
    let second = ends.next().unwrap();
    let took = started.elapsed();
    for line in [first, second] {
        assert!(line.contains("ended with exit code 0"), "{line}");
    }
    let of_runner = |name: &str| status(runner.id(), name).unwrap();
    let (peak, anonymous) = (of_runner("VmHWM:"), of_runner("RssAnon:"));
    runner.kill().unwrap();
    runner.wait().unwrap();
    Rounds { took, peak, anonymous }
}
