//! What a release costs to install, against the shell's own tools; and four of them at once.

#![expect(clippy::disallowed_types, reason = "a bench starts the programs themselves")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::release_mirror::{ReleaseMirror, identify, platform};
use tempfile::TempDir;

use super::{MIB, Programs, median, ms, timed};

const ROUNDS: usize = 7;
const VERSIONS: [&str; 4] = ["1.9.5", "1.9.6", "1.9.7", "1.9.8"];

/// A cold install of a real tool from loopback, and of four versions on a file system in memory.
pub(super) fn install(programs: &Programs) {
    let real = real_tool();
    let (tool, _) = identify(&real);
    let binary = std::fs::read(&real).unwrap();
    let mirror = ReleaseMirror::start();
    for version in VERSIONS {
        mirror.add(tool, version, &binary);
    }
    let url = |path: String| format!("{}{path}", mirror.address());
    let version = VERSIONS[0];
    let archive = url(mirror.archive_path(tool, version));
    let size = mirror.file(&mirror.archive_path(tool, version)).len();
    let sums = url(mirror.sums_path(tool, version));
    let name = archive.rsplit('/').next().unwrap();
    let program = tool.program();
    let script = format!(
        "set -e; curl -sSf -o {name} {archive}; curl -sSf -o sums {sums}; \
         grep ' {name}$' sums | tail -1 | sha256sum --quiet -c -; \
         unzip -qo {name} {program}; sync {program}"
    );
    let runner = |dir: &Path, version: &str| {
        let mut command = Command::new(&programs.runner);
        command
            .args(["install", &format!("{program}@{version}")])
            .env("XDG_CACHE_HOME", dir)
            .env("TFENV_REMOTE", mirror.address())
            .env("PLANCHA_TOFU_URL", format!("{}/tofu", mirror.address()))
            .env("PLANCHA_KEYRING", mirror.keyring());
        command
    };

    let (mut shell, mut ours, mut rss) = (vec![], vec![], 0);
    for _ in 0..ROUNDS {
        let (theirs, mine) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let mut command = Command::new("sh");
        shell.push(timed(command.args(["-c", &script]).current_dir(theirs.path())).0);
        let (took, peak) = timed(&mut runner(mine.path(), version));
        ours.push(took);
        rss = rss.max(peak);
    }
    let (shell, ours) = (ms(median(&shell)), ms(median(&ours)));
    println!(
        "install: {program} for {}, {:.1} MB archive, {:.1} MB binary, medians of {ROUNDS} rounds in turn",
        platform(),
        size as f64 / 1e6,
        binary.len() as f64 / 1e6
    );
    println!("  yardstick: curl, sha256sum, unzip, sync        {shell:8.1} ms");
    println!(
        "  runner install, cold, signature and fsync      {ours:8.1} ms   {:.2} x",
        ours / shell
    );
    println!(
        "  runner's own memory                            {:8.1} MiB",
        rss as f64 / MIB as f64
    );
    at_once(&runner, &real);
}

/// Four versions one after another, and all at once; and the same of work that has nothing in common, which is
/// what the machine gives at that moment.
fn at_once(runner: &dyn Fn(&Path, &str) -> Command, real: &Path) {
    let memory = PathBuf::from("/dev/shm");
    if !memory.is_dir() {
        println!("  four versions at once: there is no /dev/shm here");
        return;
    }
    let alone = |_: &Path, _: &str| {
        let mut command = Command::new("gzip");
        command.args(["-1", "-c"]).arg(real);
        command
    };
    let (mut one_by_one, mut all) = (vec![], vec![]);
    let (mut alone_one_by_one, mut alone_all) = (vec![], vec![]);
    for round in 0..ROUNDS {
        one_by_one.push(together(runner, &memory, 1));
        all.push(together(runner, &memory, VERSIONS.len()));
        if round < 3 {
            alone_one_by_one.push(together(&alone, &memory, 1));
            alone_all.push(together(&alone, &memory, VERSIONS.len()));
        }
    }
    let (one_by_one, all) = (ms(median(&one_by_one)), ms(median(&all)));
    let machine = ms(median(&alone_one_by_one)) / ms(median(&alone_all));
    println!("  four versions on tmpfs, one after another      {one_by_one:8.1} ms");
    println!(
        "  four versions on tmpfs, all at once            {all:8.1} ms   {:.2} x faster",
        one_by_one / all
    );
    println!(
        "  yardstick: four gzip at once on this machine               {machine:10.2} x faster"
    );
}

/// How long all versions take, so many at once.
fn together(runner: &dyn Fn(&Path, &str) -> Command, memory: &Path, count: usize) -> Duration {
    let dir = TempDir::new_in(memory).unwrap();
    let started = Instant::now();
    for versions in VERSIONS.chunks(count) {
        let children = versions.iter().map(|version| {
            let mut command = runner(dir.path(), version);
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        });
        for mut child in children.collect::<Vec<_>>() {
            assert!(child.wait().unwrap().success());
        }
    }
    started.elapsed()
}

/// The terraform or tofu that is on PATH.
fn real_tool() -> PathBuf {
    #![expect(clippy::disallowed_methods, reason = "the tool is where the shell would find it")]
    let path = std::env::var_os("PATH").unwrap();
    let tools = std::env::split_paths(&path)
        .flat_map(|dir| [dir.join("terraform"), dir.join("tofu")])
        .find(|path| path.is_file());
    tools.expect("terraform or tofu is on PATH, as scripts/bench sees to")
}
