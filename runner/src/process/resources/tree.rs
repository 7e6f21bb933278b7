//! The processes of a program: itself, its descendants, and those of its process group, by `/proc/PID/stat` (proc(5)).
//!
//! A provider may have a process group of its own, and a process whose parent has ended has a new one. So a process that
//! was once found stays known.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use nix::unistd::Pid;

/// The length of a clock tick in `/proc`: 1 / 100 s on every machine that Linux runs on today.
const TICK: Duration = Duration::from_millis(10);

/// The size of a page of memory: what the kernel gives every process (`AT_PAGESZ` in getauxval(3)), in bytes.
static PAGE: LazyLock<u64> = LazyLock::new(|| {
    let words = std::fs::read("/proc/self/auxv").unwrap_or_default();
    let mut words = words
        .as_chunks::<{ size_of::<usize>() }>()
        .0
        .iter()
        .map(|word| usize::from_ne_bytes(*word));
    let mut size = None;
    while let (Some(kind), Some(value)) = (words.next(), words.next()) {
        if kind == 6 {
            size = u64::try_from(value).ok();
        }
    }
    size.unwrap_or(4096)
});

/// What the processes of a program use together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sums {
    /// The CPU time, also of processes that have ended if their parent has not.
    pub(super) cpu: Duration,
    /// The resident memory, in bytes.
    pub(super) rss: u64,
}

/// The processes of a program.
pub(super) struct Tree {
    root: i32,
    /// The processes that were found, with the time at which each was started: a number may be used again.
    known: BTreeMap<i32, u64>,
}

/// What `/proc` says about a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    parent: i32,
    group: i32,
    /// When it was started, in ticks since the machine was.
    started: u64,
    /// The CPU time of the process and of its children that have ended, in ticks.
    ticks: u64,
    /// The resident memory, in pages.
    pages: u64,
}

impl Tree {
    pub(super) fn new(root: Pid) -> Self {
        Self { root: root.as_raw(), known: BTreeMap::new() }
    }

    /// What all processes use now. `None`: it cannot be read.
    pub(super) fn sums(&mut self) -> Option<Sums> {
        let found = self.find()?;
        let ticks = found.values().map(|process| process.ticks).sum::<u64>();
        let pages = found.values().map(|process| process.pages).sum::<u64>();
        let cpu = TICK * u32::try_from(ticks).unwrap_or(u32::MAX);
        Some(Sums { cpu, rss: pages.saturating_mul(*PAGE) })
    }

    fn find(&mut self) -> Option<BTreeMap<i32, Process>> {
        let mut all = processes();
        all.get(&self.root)?;
        let mut found = BTreeMap::new();
        loop {
            let before = found.len();
            all.retain(|pid, process| {
                let is_ours = *pid == self.root
                    || process.group == self.root
                    || found.contains_key(&process.parent)
                    || self.known.get(pid) == Some(&process.started);
                if is_ours {
                    found.insert(*pid, *process);
                }
                !is_ours
            });
            if found.len() == before {
                break;
            }
        }
        self.known = found.iter().map(|(pid, process)| (*pid, process.started)).collect();
        Some(found)
    }
}

/// All processes of the machine, as far as they can be seen.
fn processes() -> BTreeMap<i32, Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: i32| {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, parse(&String::from_utf8_lossy(&stat))?))
    })
    .collect()
}

/// Parses a line of `/proc/PID/stat`. The name of the program, in parentheses, may contain anything.
fn parse(stat: &str) -> Option<Process> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields = fields.split_whitespace().collect::<Vec<_>>();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Process {
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        started: number(19)?,
        ticks: (11..=14).map(number).sum::<Option<u64>>()?,
        pages: number(21)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_of_a_process_with_an_odd_name() {
        let stat = "70 (a) b) R 1) S 69 68 67 0 -1 4194560 900 800 0 0 11 12 13 14 20 0 9 0 4711 1234 56 18446744073709551615 1";
        let process = Process { parent: 69, group: 68, started: 4711, ticks: 50, pages: 56 };
        assert_eq!(parse(stat), Some(process));
        assert_eq!(parse(""), None);
        assert_eq!(parse("70 (a) S 69"), None);
    }

    #[test]
    fn own_processes_are_found() {
        let own = Pid::this();
        let mut tree = Tree::new(own);
        assert!(tree.find().unwrap().contains_key(&own.as_raw()));
        assert!(Tree::new(Pid::from_raw(i32::MAX)).sums().is_none());
    }

    #[test]
    fn memory_of_own_processes_is_what_the_kernel_says() {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let of = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kibibytes = of.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
        let rss = Tree::new(Pid::this()).sums().unwrap().rss;
        // Other tests of this process use memory meanwhile.
        assert!(rss > kibibytes << 9, "{rss} {kibibytes}");
    }
}
