//! `redact`: a tool's output of 1 GB through the runner, which masks 50 secrets on the screen and in the log.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use support::executable;
use tempfile::TempDir;

use super::{MIB, Programs, timed};

/// The output: so many copies of one file.
const COPIES: usize = 16;
const SIZE: usize = 1_000_000_000 / COPIES;
const SECRETS: usize = 49;

/// A plan of a tool that prints all this, with and without secrets in the environment. Everything is in memory, if the
/// machine has a file system there. The yardstick is the tool alone, which writes into a file.
pub(super) fn redact(programs: &Programs) {
    const ROUNDS: usize = 3;
    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.unwrap();
    let secrets = secrets();
    std::fs::write(dir.path().join("output"), output(&secrets)).unwrap();
    for name in ["bin", "work", "tmp", "home"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    std::fs::write(dir.path().join("work/main.tf"), "").unwrap();
    let tool = tool(dir.path());
    executable(&dir.path().join("bin/terraform"), &tool);
    let environment = |command: &mut Command| {
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", dir.path().join("bin").display());
        command
            .current_dir(dir.path().join("work"))
            .env_clear()
            .env("PATH", path)
            .env("HOME", dir.path().join("home"))
            .env("TMPDIR", dir.path().join("tmp"))
            .env("XDG_CACHE_HOME", dir.path().join("home"))
            .env("PLANCHA_OFFLINE", "true");
    };
    let (mut alone, mut plain, mut masked) =
        (Duration::MAX, (Duration::MAX, 0), (Duration::MAX, 0));
    for _ in 0..ROUNDS {
        let started = Instant::now();
        let file = std::fs::File::create(dir.path().join("alone")).unwrap();
        let mut command = Command::new(dir.path().join("bin/terraform"));
        command.args(["plan", "-out=/dev/null"]).stdout(file);
        assert!(command.status().unwrap().success());
        alone = alone.min(started.elapsed());
        std::fs::remove_file(dir.path().join("alone")).unwrap();
        for (with_secrets, best) in [(false, &mut plain), (true, &mut masked)] {
            let mut command = Command::new(&programs.runner);
            command.arg("plan");
            environment(&mut command);
            if with_secrets {
                command.envs(secrets.iter().cloned());
            }
            let (took, rss) = timed(&mut command);
            *best = (best.0.min(took), best.1.max(rss));
        }
    }
    let gigabyte = (SIZE * COPIES) as f64 / 1e6;
    println!("redact: 1 GB of output, {} secrets, the best of {ROUNDS} rounds", secrets.len());
    println!("  the tool alone, into a file     {:8.0} MB/s", gigabyte / alone.as_secs_f64());
    for (name, (took, rss)) in [("without secrets", plain), ("with secrets   ", masked)] {
        println!(
            "  runner plan, {name}    {:8.0} MB/s, {:.1} MiB",
            gigabyte / took.as_secs_f64(),
            rss as f64 / MIB as f64
        );
    }
    let more = masked.0.saturating_sub(plain.0).as_secs_f64();
    println!("  masking alone (the difference)  {:8.0} MB/s", gigabyte / more.max(0.001));
}

/// Names and values: tokens, and a key of 30 lines.
fn secrets() -> Vec<(String, String)> {
    let mut random = 7;
    let mut secrets = (0..SECRETS)
        .map(|i| (format!("SERVICE_{i}_TOKEN"), letters(&mut random, 40)))
        .collect::<Vec<_>>();
    let lines = (0..28).map(|_| letters(&mut random, 64)).collect::<Vec<_>>().join("\n");
    let key = format!("-----BEGIN PRIVATE KEY-----\n{lines}\n-----END PRIVATE KEY-----\n");
    secrets.push(("DEPLOY_PRIVATE_KEY".to_owned(), key));
    secrets
}

fn letters(random: &mut u64, count: usize) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let letter = |_| {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        char::from(LETTERS[(*random >> 32) as usize % LETTERS.len()])
    };
    (0..count).map(letter).collect()
}

/// What tools print: mostly attributes; also random text, URLs and documents, and a secret every 100 lines.
fn output(secrets: &[(String, String)]) -> String {
    let (mut text, mut random) = (String::with_capacity(SIZE + 4096), 3);
    for i in 0.. {
        if text.len() >= SIZE {
            break;
        }
        let id = letters(&mut random, 32);
        let line = match i % 100 {
            0 => format!("  + token = \"{}\"", secrets[i / 100 % SECRETS].1),
            1..=5 => format!("  + url = \"https://registry.example.com/v1/{id}?x=1\""),
            6..=10 => format!("      + policy = \"{{\\\"id\\\": \\\"{id}\\\"}}\""),
            11..=20 => format!("      + data = \"{id}{id}\""),
            21..=60 => {
                format!("module.network.aws_subnet.private[{i}]: Still creating... [10s elapsed]")
            }
            _ => format!("      + name                 = \"subnet-private-eu-west-1-{i}\""),
        };
        let _ = writeln!(text, "{line}");
    }
    text.truncate(SIZE);
    text
}

/// Called as terraform is. Without an output file, such as `init`, it prints nothing.
fn tool(dir: &Path) -> String {
    format!(
        "#!/bin/sh\n\
         case \"$*\" in\n  \
         'version -json') echo '{{\"terraform_version\": \"1.9.8\", \"platform\": \"linux_amd64\"}}';;\n  \
         plan*) for i in $(seq {COPIES}); do cat {}/output; done\n         \
         for arg in \"$@\"; do case $arg in -out=*) echo plan > \"${{arg#-out=}}\";; esac; done;;\n  \
         *-json*) echo '{{\"format_version\":\"1.2\",\"resource_changes\":[]}}';;\n\
         esac\n",
        dir.display()
    )
}
