//! What a running program uses: the CPU time and the memory of all its processes, and whether the kernel has killed one of
//! them because memory ran out.
//!
//! The kernel counts only for programs that have ended, and of their memory it keeps only the largest process. So the
//! processes are looked at again and again: soon at first, since a program may be short, and then every half second.

mod out_of_memory;
mod tree;

use std::cell::RefCell;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use nix::unistd::Pid;

use crate::process::resources::out_of_memory::{Counts, MemoryGroup, OutOfMemory, free_memory};
use crate::process::resources::tree::{Sums, Tree};

/// The interval before the second sample. It doubles after each sample, up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(25);
const LONGEST: Duration = Duration::from_millis(500);
/// On a machine with very many processes, samples are less frequent: they take at most 1/200 of the time, but there is one
/// at least every 5 s.
const PART: u32 = 200;
const RAREST: Duration = Duration::from_secs(5);

/// What a program has used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    /// The largest memory that its processes had together, in bytes, as far as it was seen.
    pub(crate) rss_peak: Option<u64>,
    /// The CPU time of its processes.
    pub(crate) cpu: Option<Duration>,
    /// Whether one of them was killed because memory ran out.
    pub(crate) killed: Killed,
}

/// Whether the kernel has killed a process because memory ran out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Killed {
    /// It cannot be known: the kernel's counts cannot be read.
    #[default]
    Unknown,
    No,
    Yes(OutOfMemory),
}

/// Whether programs can take this much memory, in bytes, as far as it can be known.
pub(crate) fn has_free_memory(bytes: u64) -> bool {
    free_memory("/".as_ref()).is_some_and(|free| free >= bytes)
}

/// Measures one program.
pub(super) struct Meter {
    looks: RefCell<Looks>,
    /// What all programs of the runner that had ended before have used.
    before: Option<Ended>,
    memory: Option<(MemoryGroup, Counts)>,
}

/// What was seen of a program until now.
#[derive(Default)]
struct Looks {
    tree: Option<Tree>,
    /// The memory at most, and the CPU time at most: processes that have ended may be missing in that of the last look.
    rss_peak: u64,
    cpu_peak: Option<Duration>,
    cpu: Option<Duration>,
    at: Option<Instant>,
}

/// What programs that have ended have used.
#[derive(Clone, Copy)]
struct Ended {
    cpu: Duration,
    /// The peak memory of the largest process of them all, in bytes.
    largest: u64,
}

impl Meter {
    /// To be called before the program is started.
    pub(super) fn new() -> Self {
        let memory = MemoryGroup::of_self("/".as_ref()).map(|group| {
            let counts = group.counts();
            (group, counts)
        });
        Self { looks: RefCell::default(), before: Ended::now(), memory }
    }

    /// The program has started.
    pub(super) fn follow(&self, program: Option<Pid>) {
        self.looks.borrow_mut().tree = program.map(Tree::new);
    }

    /// Looks at the program until the future is done.
    pub(super) async fn until<T>(&self, done: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            done = done => done,
            never = self.look_again_and_again() => match never {},
        }
    }

    async fn look_again_and_again(&self) -> Infallible {
        let mut pause = FIRST;
        loop {
            let before = Instant::now();
            self.looks.borrow_mut().look();
            tokio::time::sleep(pause.max((before.elapsed() * PART).min(RAREST))).await;
            pause = LONGEST.min(pause * 2);
        }
    }

    /// The CPU time of all processes, also of those that have ended if their parent has not. `None`: it cannot be read.
    pub(super) fn cpu_time(&self) -> Option<Duration> {
        let mut looks = self.looks.borrow_mut();
        if looks.at.is_none_or(|at| at.elapsed() >= LONGEST) {
            looks.look();
        }
        looks.cpu
    }

    /// What the program has used, after it has ended.
    pub(super) fn used(&self) -> Used {
        let looks = self.looks.borrow();
        let (mut rss_peak, mut cpu) = (looks.rss_peak, looks.cpu_peak);
        if let (Some(before), Some(now)) = (self.before, Ended::now()) {
            // The kernel keeps only the maximum, so it is this program's only if it has grown.
            if now.largest > before.largest {
                rss_peak = rss_peak.max(now.largest);
            }
            // Killed processes without a parent that waits for them are missing.
            cpu = cpu.max(Some(now.cpu.saturating_sub(before.cpu)));
        }
        let killed = self.memory.as_ref().map_or(Killed::Unknown, |(group, before)| {
            group.killed_since(before).map_or(Killed::No, Killed::Yes)
        });
        Used { rss_peak: Some(rss_peak).filter(|peak| *peak > 0), cpu, killed }
    }
}

impl Looks {
    fn look(&mut self) {
        let sums = self.tree.as_mut().and_then(Tree::sums);
        self.at = Some(Instant::now());
        self.cpu = sums.map(|sums| sums.cpu);
        self.cpu_peak = self.cpu_peak.max(self.cpu);
        self.rss_peak = self.rss_peak.max(sums.map_or(0, |Sums { rss, .. }| rss));
    }
}

impl Ended {
    fn now() -> Option<Self> {
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok()?;
        let cpu = usage.user_time() + usage.system_time();
        let cpu = Duration::from_micros(u64::try_from(cpu.num_microseconds()).ok()?);
        let largest = u64::try_from(usage.max_rss()).ok()? << 10;
        Some(Self { cpu, largest })
    }
}
