//! A datastore as a process of its own, over a directory, to be measured and killed.

#![expect(clippy::disallowed_types, reason = "a measurement starts the program")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::Duration;

use tempfile::NamedTempFile;

/// A datastore under way; killed when dropped.
pub struct Served {
    /// Where it answers.
    pub url: String,
    program: PathBuf,
    storage: Vec<(String, String)>,
    child: Child,
}

impl Served {
    /// Starts a program on a free port over a directory.
    pub fn start(program: &Path, root: &Path) -> Self {
        let storage = format!("file://{}", root.display());
        Self::over(program, vec![("PLANCHA_STORAGE".to_owned(), storage)])
    }

    /// Starts a program on a free port over whatever these variables name.
    pub fn over(program: &Path, storage: Vec<(String, String)>) -> Self {
        let (child, url) = start(program, &storage, "127.0.0.1:0");
        Self { url, program: program.to_owned(), storage, child }
    }

    /// Ends it with a signal (`TERM`, `KILL`), and starts it again at the same place.
    pub fn restart(&mut self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
        let status = self.child.wait().unwrap();
        assert!(signal == "KILL" || status.success(), "on SIG{signal} it ended with {status}");
        let address = self.url.strip_prefix("http://").unwrap();
        (self.child, self.url) = start(&self.program, &self.storage, address);
    }

    /// Bytes in memory now (`VmRSS`), or at most so far (`VmHWM`).
    pub fn memory(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        let kib = line.trim_start_matches(':').trim().strip_suffix(" kB").unwrap();
        kib.trim().parse::<u64>().unwrap() << 10
    }

    /// Lets the most memory so far be what it is now.
    pub fn forget_peak(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").unwrap();
    }

    /// Seconds of CPU so far.
    pub fn cpu_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields = stat.rsplit(") ").next().unwrap().split(' ').collect::<Vec<_>>();
        (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
    }
}

fn start(program: &Path, storage: &[(String, String)], address: &str) -> (Child, String) {
    let mut command = Command::new(program);
    command.args(["serve", "--listen", address, "--log-format", "json"]);
    listening(command.envs(storage.iter().cloned()))
}

/// Starts a program that says on standard error where it listens. What it says goes to a file, as a service's
/// log does: reading it from a pipe would wake the reader for each line, on the cores that are measured.
pub fn listening(command: &mut Command) -> (Child, String) {
    let log = NamedTempFile::new().unwrap();
    let mut child = command.stderr(log.reopen().unwrap()).spawn().unwrap();
    let url = loop {
        let said = std::fs::read_to_string(log.path()).unwrap();
        if let Some(at) = said.find("http://127.0.0.1:")
            && let Some(end) = said[at..].find(['"', ' ', '\n'])
        {
            break said[at..at + end].to_owned();
        }
        assert!(child.try_wait().unwrap().is_none(), "it did not start: {said}");
        sleep(Duration::from_millis(2));
    };
    (child, url)
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
