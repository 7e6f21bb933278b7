//! Metrics of this process from `/proc`, under the names that every Prometheus client library uses.

use crate::observe::metrics::page::Page;

/// Metrics of this process; `None` if the system does not show the value.
pub(super) struct Process {
    cpu_seconds: Option<f64>,
    started: Option<f64>,
    resident: Option<u64>,
    virtual_bytes: Option<u64>,
    open_files: Option<u64>,
    max_files: Option<u64>,
    threads: Option<u64>,
}

/// Ticks in a second, in the files of `/proc`: the same on every Linux.
const TICKS: f64 = 100.0;

impl Process {
    /// Reads `/proc`.
    pub(super) fn read() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let (status, stat) = (read("/proc/self/status"), read("/proc/self/stat"));
        // The fields follow the name of the program, which may contain spaces.
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

    pub(super) fn write(&self, page: &mut Page) {
        if let Some(seconds) = self.cpu_seconds {
            let name = "process_cpu_seconds_total";
            page.family(name, "counter", "User and system CPU time in seconds.");
            page.line(name, &[], seconds);
        }
        if let Some(started) = self.started {
            let name = "process_start_time_seconds";
            page.family(name, "gauge", "When the process started, in seconds since 1970.");
            page.line(name, &[], started);
        }
        for (name, help, value) in [
            ("process_resident_memory_bytes", "Resident memory in bytes.", self.resident),
            ("process_virtual_memory_bytes", "Virtual memory in bytes.", self.virtual_bytes),
            ("process_open_fds", "Open file descriptors.", self.open_files),
            ("process_max_fds", "Maximum of open file descriptors.", self.max_files),
            ("process_threads", "Threads.", self.threads),
        ] {
            if let Some(value) = value {
                page.one(name, "gauge", help, value);
            }
        }
    }
}

/// The number in a line of `/proc/self/status`.
fn kib(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}
