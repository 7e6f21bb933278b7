//! What the system says of this process, under the names that every Prometheus client library uses.

use crate::observe::metrics::Page;

/// What the system says of this process; what it does not say is none.
pub(super) struct Process {
    cpu_seconds: Option<f64>,
    started: Option<f64>,
    resident: Option<u64>,
    virtual_bytes: Option<u64>,
    open_files: Option<u64>,
    max_files: Option<u64>,
    threads: Option<u64>,
}

/// Ticks in a second: a constant of Linux towards programs.
const TICKS: f64 = 100.0;

impl Process {
    /// Reads `/proc`.
    pub(super) fn read() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let (status, stat) = (read("/proc/self/status"), read("/proc/self/stat"));
        // The name before it may have spaces.
        let fields = stat.rsplit(") ").next().unwrap_or_default();
        let fields = fields.split(' ').collect::<Vec<_>>();
        let ticks = |place: usize| fields.get(place)?.parse::<f64>().ok();
        let boot = read("/proc/stat");
        let boot = boot.lines().find_map(|line| line.strip_prefix("btime ")?.parse::<f64>().ok());
        let limits = read("/proc/self/limits");
        let files = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
        let open = std::fs::read_dir("/proc/self/fd");
        Self {
            cpu_seconds: ticks(11).zip(ticks(12)).map(|(user, system)| (user + system) / TICKS),
            started: boot.zip(ticks(19)).map(|(boot, started)| boot + started / TICKS),
            resident: kib(&status, "VmRSS:").map(|kib| kib << 10),
            virtual_bytes: kib(&status, "VmSize:").map(|kib| kib << 10),
            open_files: open.ok().map(|files| files.count() as u64),
            max_files: files.and_then(|files| files.split_whitespace().next()?.parse().ok()),
            threads: kib(&status, "Threads:"),
        }
    }
}

/// A number in a process's status.
fn kib(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

impl Page {
    pub(super) fn process(&mut self, process: &Process) {
        if let Some(seconds) = process.cpu_seconds {
            let name = "process_cpu_seconds_total";
            self.family(name, "counter", "CPU time, of users and of the system, in seconds.");
            self.line(name, &[], seconds);
        }
        if let Some(started) = process.started {
            let name = "process_start_time_seconds";
            self.family(name, "gauge", "When the process started, in seconds since 1970.");
            self.line(name, &[], started);
        }
        for (name, help, value) in [
            ("process_resident_memory_bytes", "Memory in use.", process.resident),
            ("process_virtual_memory_bytes", "Addresses in use.", process.virtual_bytes),
            ("process_open_fds", "Open file descriptors.", process.open_files),
            ("process_max_fds", "File descriptors that may be open.", process.max_files),
            ("process_threads", "Threads.", process.threads),
        ] {
            if let Some(value) = value {
                self.one(name, "gauge", help, value);
            }
        }
    }
}
