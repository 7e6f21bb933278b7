//! A home, a cache and a working directory for one runner, and nothing of the machine's but PATH.

#![expect(clippy::disallowed_types, reason = "tests start the runner itself")]
#![expect(clippy::disallowed_methods, reason = "tests look for terraform where the shell would")]

use std::io::Read;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use url::Url;

/// A home, a cache and a working directory for one runner.
pub struct Sandbox {
    dir: TempDir,
    runner: &'static str,
}

/// How a runner ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code.
    pub code: i32,
    /// What the tool said.
    pub stdout: String,
    /// What the runner itself said.
    pub stderr: String,
}

impl Sandbox {
    /// One for the runner at this path (`env!("CARGO_BIN_EXE_runner")`).
    pub fn new(runner: &'static str) -> Self {
        let dir = TempDir::new().unwrap();
        for name in ["home", "cache", "tmp", "bin", "work"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        std::fs::write(dir.path().join("terraformrc"), "disable_checkpoint = true\n").unwrap();
        Self { dir, runner }
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Its working directory, where the runner starts.
    pub fn work(&self) -> PathBuf {
        self.path("work")
    }

    /// Writes a file into the working directory.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.work().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A file of the working directory.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.work().join(name)).unwrap()
    }

    /// Puts a copy of `docs/examples/hello` into the working directory.
    pub fn hello(self) -> Self {
        let hello = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/hello");
        for entry in std::fs::read_dir(hello).unwrap() {
            let entry = entry.unwrap();
            if entry.metadata().unwrap().is_file() {
                std::fs::copy(entry.path(), self.work().join(entry.file_name())).unwrap();
            }
        }
        self
    }

    /// Puts a script that replaces terraform 1.9.8 before everything else on PATH. It is called as
    /// terraform is; `$STEP` is its first word and `$OUT` the value of `-out=`. Every call is a line of
    /// the file `calls` in the sandbox. Without further words a plan is made, and shown as one creation.
    pub fn fake_terraform(self, script: &str) -> Self {
        let calls = self.path("calls");
        let script = format!(
            r#"#!/bin/sh
STEP=$1
OUT=
for arg in "$@"; do case $arg in -out=*) OUT=${{arg#-out=}};; esac; done
case "$*" in
  "version -json") echo '{{"terraform_version": "1.9.8", "platform": "linux_amd64"}}'; exit 0;;
esac
echo "$*" >> {calls}
{script}
case "$*" in
  plan*) echo "a plan of $$" > "$OUT"; echo "plan is done";;
  *-json*) echo '{{"format_version":"1.2","resource_changes":[{{"change":{{"actions":["create"]}}}}]}}';;
  show*) echo "shown";;
  apply*) echo "apply is done"; echo "Apply complete! Resources: 0 added, 0 changed, 0 destroyed.";;
  *) echo "$STEP is done";;
esac
"#,
            calls = calls.display()
        );
        self.script("terraform", &script);
        self
    }

    /// Puts an executable script before everything else on PATH.
    pub fn script(&self, name: &str, text: &str) {
        executable(&self.path("bin").join(name), text);
    }

    /// What the fake terraform was called with so far.
    pub fn calls(&self) -> Vec<String> {
        let calls = std::fs::read_to_string(self.path("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }

    /// The runner, in the working directory, with tools from PATH only.
    pub fn command(&self, args: &[&str]) -> Command {
        self.program(Path::new(self.runner), args)
    }

    /// Another program, under the same circumstances.
    pub fn program(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var("PATH").unwrap();
        command
            .args(args)
            .current_dir(self.work())
            .env_clear()
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("HOME", self.path("home"))
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("TMPDIR", self.path("tmp"))
            .env("TF_CLI_CONFIG_FILE", self.path("terraformrc"))
            .env("PLANCHA_OFFLINE", "true")
            // The tools are written in Go. They end before they need their memory again.
            .env("GOGC", "off")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs the runner to its end.
    pub fn run(&self, args: &[&str]) -> Ended {
        self.command(args).output().unwrap().into()
    }

    /// The same with artifacts going to a datastore.
    pub fn run_with(&self, datastore: &Url, args: &[&str]) -> Ended {
        let mut command = self.command(args);
        command.env("PLANCHA_DATASTORE_URL", datastore.as_str()).output().unwrap().into()
    }

    /// Starts the runner.
    pub fn start(&self, datastore: Option<&Url>, args: &[&str]) -> Started {
        let mut command = self.command(args);
        if let Some(url) = datastore {
            command.env("PLANCHA_DATASTORE_URL", url.as_str());
        }
        Started::new(command.spawn().unwrap())
    }

    /// Whether the runner left nothing behind in its directory for temporary files.
    pub fn is_clean(&self) -> bool {
        std::fs::read_dir(self.path("tmp")).unwrap().count() == 0
    }
}

/// A runner under way.
pub struct Started {
    child: Child,
    stdout: Stream,
    /// `None`: it goes elsewhere.
    stderr: Option<Stream>,
}

/// What a runner has written to one of its outputs so far.
struct Stream {
    text: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

impl Stream {
    fn read(mut pipe: impl Read + Send + 'static) -> Self {
        let text = Arc::<Mutex<String>>::default();
        let written = Arc::clone(&text);
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(len @ 1..) = pipe.read(&mut buffer) {
                written.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..len]));
            }
        });
        Self { text, reader }
    }

    fn contains(&self, text: &str) -> bool {
        self.text.lock().unwrap().contains(text)
    }

    fn end(self) -> String {
        self.reader.join().unwrap();
        std::mem::take(&mut *self.text.lock().unwrap())
    }
}

impl Started {
    /// This one, which [`Sandbox::command`] made.
    pub fn spawn(mut command: Command) -> Self {
        Self::new(command.spawn().unwrap())
    }

    fn new(mut child: Child) -> Self {
        let stdout = Stream::read(child.stdout.take().unwrap());
        let stderr = child.stderr.take().map(Stream::read);
        Self { child, stdout, stderr }
    }

    /// Kills it and all its descendants at once, as the end of a pod does.
    pub fn kill_all(&self) {
        // Between two kills, a descendant would get SIGINT because its parent has died, and save its state. Until it is stopped it
        // may start another one.
        let mut stopped = 0;
        while stopped < self.processes().len() {
            stopped = self.processes().len();
            self.signal_all("STOP");
        }
        // Children first: the kernel continues stopped processes (SIGHUP and SIGCONT) when their group loses its last parent
        // elsewhere.
        let mut pids = self.processes();
        pids.reverse();
        signal(&pids, "KILL");
    }

    /// Sends it and all its descendants a signal, as a service manager does.
    pub fn signal_all(&self, name: &str) {
        signal(&self.processes(), name);
    }

    /// Its number, and those of all its descendants.
    pub fn processes(&self) -> Vec<u32> {
        descendants(self.child.id())
    }

    /// Sends it a signal, by its name without `SIG`.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// Whether this was on its stdout so far.
    pub fn said(&self, text: &str) -> bool {
        self.stdout.contains(text)
    }

    /// Whether this was on its stderr so far: a line of the runner's own.
    pub fn logged(&self, text: &str) -> bool {
        self.stderr.as_ref().is_some_and(|stderr| stderr.contains(text))
    }

    /// What was on its stderr so far.
    pub fn stderr(&self) -> String {
        self.stderr.as_ref().map(|stderr| stderr.text.lock().unwrap().clone()).unwrap_or_default()
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Ended {
        let status = self.child.wait().unwrap();
        // A runner that a signal killed has no code of its own.
        let code = status.code().unwrap_or(-1);
        let stderr = self.stderr.map(Stream::end).unwrap_or_default();
        Ended { code, stdout: self.stdout.end(), stderr }
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self {
            // A runner that a signal killed has no code of its own.
            code: output.status.code().unwrap_or(-1),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

/// Sends processes a signal, by its name without `SIG`.
fn signal(pids: &[u32], name: &str) {
    let mut command = Command::new("kill");
    command.args(["-s", name]).args(pids.iter().map(u32::to_string)).stderr(Stdio::null());
    // It fails if one of them has just ended.
    let _status = command.status().unwrap();
}

/// A process and its descendants, parents first.
fn descendants(pid: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let processes = processes.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse::<u32>().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()?;
        Some((pid, parent))
    });
    let (processes, mut found, mut at) = (processes.collect::<Vec<_>>(), vec![pid], 0);
    while let Some(of) = found.get(at).copied() {
        found.extend(processes.iter().filter(|(_, parent)| *parent == of).map(|(pid, _)| *pid));
        at += 1;
    }
    found
}

/// Whether the process with this number has ended. Nobody may have read its exit status (proc(5)): the first process of a
/// container need not.
pub fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.map_or(true, |stat| stat.contains(") Z "))
}

/// Writes an executable file.
pub fn executable(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// The program of this name on the PATH of the tests.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// Waits until something is so; panics after a minute.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_mins(1), "still not so: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits without a thread until there is a value, and returns it; panics after a minute.
pub async fn wait_for<T>(what: &str, mut find: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = find().await {
            return found;
        }
        assert!(started.elapsed() < Duration::from_mins(1), "still not so: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
