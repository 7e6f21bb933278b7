//! Whether memory ran out, and how much is free: the kernel counts, for each control group, what it uses, and how often it
//! killed one of its processes because no memory was left (cgroups(7), versions 1 and 2).

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// The memory control group of the runner, which its programs are in as well, and those above it.
#[derive(Debug)]
pub(super) struct MemoryGroup {
    files: &'static Files,
    /// Its directory, and those of the groups above it as far as they can be seen.
    dirs: Vec<PathBuf>,
}

/// The files of a group. A count is a line with a name, or the whole file.
#[derive(Debug)]
struct Files {
    kills: (&'static str, &'static str),
    limits: &'static [Limit],
    /// What the group uses, with its page cache.
    used: &'static str,
    /// The part of the page cache that the kernel takes back first, in `memory.stat`.
    cached: &'static str,
}

/// A limit, and how often the group had reached it.
#[derive(Debug)]
struct Limit {
    file: &'static str,
    reached: (&'static str, &'static str),
    /// What the group has used at most, where newer kernels do not count how often it had reached the limit.
    peak: Option<&'static str>,
}

const VERSION_1: Files = Files {
    kills: ("memory.oom_control", "oom_kill"),
    limits: &[
        Limit { file: "memory.limit_in_bytes", reached: ("memory.failcnt", ""), peak: None },
        // Of memory and swap together: it is reached first if it is the same.
        Limit {
            file: "memory.memsw.limit_in_bytes",
            reached: ("memory.memsw.failcnt", ""),
            peak: Some("memory.memsw.max_usage_in_bytes"),
        },
    ],
    used: "memory.usage_in_bytes",
    cached: "total_inactive_file",
};
const VERSION_2: Files = Files {
    kills: ("memory.events", "oom_kill"),
    limits: &[Limit { file: "memory.max", reached: ("memory.events", "oom"), peak: None }],
    used: "memory.current",
    cached: "inactive_file",
};

/// The kernel gives memory to a group in pieces: one that has used all but this much, in bytes, has reached its limit.
const NEAR: u64 = 1 << 20;

/// What the kernel had counted at one time.
#[derive(Debug)]
pub(super) struct Counts {
    kills: u64,
    /// How often the limits of each group had been reached.
    reached: Vec<Option<u64>>,
}

/// Memory ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfMemory {
    /// How many processes were killed.
    pub(crate) kills: u64,
    /// The limit that was reached, in bytes. `None`: that of no group that can be seen.
    pub(crate) limit: Option<u64>,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kills {
            1 => write!(f, "memory ran out, and the kernel killed a process: ")?,
            kills => write!(f, "memory ran out, and the kernel killed {kills} processes: ")?,
        }
        match self.limit {
            Some(limit) if limit >= 10 << 20 => {
                write!(f, "the limit of the control group is {} MiB", limit >> 20)
            }
            Some(limit) => write!(f, "the limit of the control group is {} KiB", limit >> 10),
            None => write!(f, "the limit of the machine or the pod was reached"),
        }
    }
}

impl MemoryGroup {
    /// That of this process. `root` is `/`, except in tests. `None`: there is none, or it has no counts.
    pub(super) fn of_self(root: &Path) -> Option<Self> {
        let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
        let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
        // With both versions mounted, the one that controls memory counts.
        let group = find(root, &groups, &mounts, "memory", &VERSION_1)
            .or_else(|| find(root, &groups, &mounts, "", &VERSION_2))?;
        let (file, name) = group.files.kills;
        count(group.dirs.first()?, file, name)?;
        Some(group)
    }

    /// What is counted now.
    pub(super) fn counts(&self) -> Counts {
        let kills = self.dirs.first().and_then(|dir| {
            let (file, name) = self.files.kills;
            count(dir, file, name)
        });
        let reached = self.limits().map(|(dir, limit)| {
            let (file, name) = limit.reached;
            count(dir, file, name)
        });
        let reached = reached.collect();
        Counts { kills: kills.unwrap_or_default(), reached }
    }

    /// The limits of the groups, those of the lowest group first.
    fn limits(&self) -> impl Iterator<Item = (&Path, &'static Limit)> {
        let limits = self.files.limits;
        self.dirs.iter().flat_map(move |dir| limits.iter().map(move |limit| (dir.as_path(), limit)))
    }

    /// What was killed since then.
    pub(super) fn killed_since(&self, before: &Counts) -> Option<OutOfMemory> {
        let now = self.counts();
        let kills = now.kills.checked_sub(before.kills).filter(|kills| *kills > 0)?;
        // The lowest group that has reached its limit: the groups above it may have counted that, too.
        let mut limits = self.limits().zip(before.reached.iter().zip(&now.reached));
        let limit = limits.find_map(|((dir, limit), (before, now))| {
            let bytes = limit_of(dir, limit.file)?;
            let peak = limit.peak.and_then(|file| count(dir, file, ""));
            let is_reached = now > before || peak.is_some_and(|peak| peak + NEAR >= bytes);
            is_reached.then_some(bytes)
        });
        Some(OutOfMemory { kills, limit })
    }

    /// How much memory the limits of these groups leave, in bytes. `Some(u64::MAX)`: there is no limit. `None`: it cannot be
    /// read.
    fn left(&self) -> Option<u64> {
        let Files { limits: [limit, ..], used, cached, .. } = self.files else { return None };
        self.dirs.iter().try_fold(u64::MAX, |least, dir| {
            let Some(limit) = limit_of(dir, limit.file) else { return Some(least) };
            let used = count(dir, used, "")?.saturating_sub(count(dir, "memory.stat", cached)?);
            Some(least.min(limit.saturating_sub(used)))
        })
    }
}

/// How much memory the runner's programs can still take, in bytes: what the machine has, and the limits of the control groups
/// leave. `root` is `/`, except in tests. `None`: it cannot be known.
pub(super) fn free_memory(root: &Path) -> Option<u64> {
    let left = MemoryGroup::of_self(root)?.left()?;
    let machine = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let available = machine.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = available.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(left.min(kib.saturating_mul(1024)))
}

/// A limit of a group in bytes, if it has one: version 1 has a very large number where there is none, version 2 a word.
fn limit_of(dir: &Path, file: &str) -> Option<u64> {
    count(dir, file, "").filter(|bytes| *bytes < 1 << 60)
}

/// The group of a controller; without one, that of version 2.
fn find(
    root: &Path,
    groups: &str,
    mounts: &str,
    controller: &str,
    files: &'static Files,
) -> Option<MemoryGroup> {
    let has = |list: &str| list.split(',').any(|name| name == controller);
    let path = groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        has(controllers).then_some(path)
    })?;
    let (base, mount) = mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (base, mount) = (before.next()?, before.next()?);
        let mut after = after.split(' ');
        let (kind, options) = (after.next()?, after.nth(1)?);
        let is_it = match controller {
            "" => kind == "cgroup2",
            _ => kind == "cgroup" && has(options),
        };
        is_it.then_some((base, mount))
    })?;
    // A container sees only its own group, whose path may be that on the host.
    let inside = Path::new(path).strip_prefix(base).ok()?;
    let mount = root.join(mount.trim_start_matches('/'));
    let dirs = inside.ancestors().map(|path| mount.join(path)).collect();
    Some(MemoryGroup { files, dirs })
}

/// A count in a file of a group.
fn count(dir: &Path, file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(dir.join(file)).ok()?;
    let count = match name {
        "" => text.as_str(),
        name => text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?,
    };
    count.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with these groups, as files below a directory.
    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new(cgroup: &str, mountinfo: &str) -> Self {
            let machine = Self(tempfile::tempdir().unwrap());
            machine.write("proc/self/cgroup", cgroup);
            machine.write("proc/self/mountinfo", mountinfo);
            machine
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        /// A group of version 2.
        fn events(&self, dir: &str, oom: u64, kills: u64) {
            let text =
                format!("low 0\nhigh 0\nmax 9\noom {oom}\noom_kill {kills}\noom_group_kill 7\n");
            self.write(&format!("{dir}/memory.events"), &text);
        }

        /// A group of version 1.
        fn control(&self, dir: &str, failures: u64, kills: u64) {
            let text = format!("oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n");
            self.write(&format!("{dir}/memory.oom_control"), &text);
            self.write(&format!("{dir}/memory.failcnt"), &format!("{failures}\n"));
        }

        fn group(&self) -> MemoryGroup {
            MemoryGroup::of_self(self.0.path()).unwrap()
        }
    }

    fn killed(kills: u64, limit: Option<u64>) -> OutOfMemory {
        OutOfMemory { kills, limit }
    }

    const POD: (&str, &str) =
        ("0::/\n", "31 23 0:28 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate\n");

    #[test]
    fn kills_in_a_pod_with_version_2_are_found_with_the_limit() {
        let machine = Machine::new(POD.0, POD.1);
        machine.events("sys/fs/cgroup", 3, 2);
        machine.write("sys/fs/cgroup/memory.max", "536870912\n");
        let group = machine.group();
        let before = group.counts();
        assert_eq!(group.killed_since(&before), None);
        machine.events("sys/fs/cgroup", 4, 4);
        assert_eq!(group.killed_since(&before), Some(killed(2, Some(512 << 20))));
        machine.write("sys/fs/cgroup/memory.max", "max\n");
        assert_eq!(group.killed_since(&before), Some(killed(2, None)));
    }

    #[test]
    fn free_memory_is_what_machine_and_limits_leave_without_the_page_cache() {
        let machine = Machine::new(POD.0, POD.1);
        let free = || free_memory(machine.0.path());
        machine.events("sys/fs/cgroup", 0, 0);
        assert_eq!(free(), None, "the machine's memory is unknown");
        machine.write("proc/meminfo", "MemTotal:  9000 kB\nMemAvailable:    3000 kB\n");
        machine.write("sys/fs/cgroup/memory.max", "max\n");
        assert_eq!(free(), Some(3_072_000), "no limit");
        machine.write("sys/fs/cgroup/memory.max", "2000000\n");
        assert_eq!(free(), None, "what the group uses is unknown");
        machine.write("sys/fs/cgroup/memory.current", "1500000\n");
        machine.write("sys/fs/cgroup/memory.stat", "anon 1\nactive_file 7\ninactive_file 400000\n");
        assert_eq!(free(), Some(900_000));
        machine.write("sys/fs/cgroup/memory.current", "5000000\n");
        assert_eq!(free(), Some(0));
    }

    #[test]
    fn limit_of_a_group_above_counts_with_version_1_as_well() {
        let machine = Machine::new(
            "4:memory:/docker/1\n0::/x\n",
            "31 23 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
        );
        machine.write("proc/meminfo", "MemAvailable: 9000000 kB\n");
        let group = "sys/fs/cgroup/memory/docker";
        for (dir, limit) in [(format!("{group}/1"), "9223372036854771712"), (group.into(), "1000")]
        {
            machine.control(&dir, 0, 0);
            machine.write(&format!("{dir}/memory.limit_in_bytes"), &format!("{limit}\n"));
            machine.write(&format!("{dir}/memory.usage_in_bytes"), "300\n");
            machine
                .write(&format!("{dir}/memory.stat"), "inactive_file 0\ntotal_inactive_file 100\n");
        }
        assert_eq!(free_memory(machine.0.path()), Some(800));
    }

    #[test]
    fn kill_below_its_own_limit_is_one_of_the_pod_or_machine() {
        let machine = Machine::new(POD.0, POD.1);
        machine.events("sys/fs/cgroup", 3, 2);
        machine.write("sys/fs/cgroup/memory.max", "536870912\n");
        let group = machine.group();
        let before = group.counts();
        machine.events("sys/fs/cgroup", 3, 3);
        assert_eq!(group.killed_since(&before), Some(killed(1, None)));
    }

    #[test]
    fn kills_elsewhere_below_the_same_group_are_not_counted() {
        let machine = Machine::new(
            "0::/user.slice/session-1\n",
            "31 23 0:28 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n",
        );
        let [slice, session] = ["sys/fs/cgroup/user.slice", "sys/fs/cgroup/user.slice/session-1"];
        machine.events(slice, 0, 0);
        machine.write(&format!("{slice}/memory.max"), "1073741824\n");
        machine.events(session, 0, 0);
        machine.write(&format!("{session}/memory.max"), "max\n");
        let group = machine.group();
        let before = group.counts();
        machine.events(slice, 1, 1);
        assert_eq!(group.killed_since(&before), None);
        machine.events(slice, 2, 2);
        machine.events(session, 0, 1);
        assert_eq!(group.killed_since(&before), Some(killed(1, Some(1 << 30))));
    }

    #[test]
    fn kill_in_a_group_of_version_1_is_found_with_the_limit_above_it() {
        let machine = Machine::new(
            "9:name=systemd:/\n4:memory:/pod/runner\n0::/\n",
            "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n",
        );
        let [pod, runner] = ["sys/fs/cgroup/memory/pod", "sys/fs/cgroup/memory/pod/runner"];
        machine.control(runner, 0, 0);
        machine.write(&format!("{runner}/memory.limit_in_bytes"), "9223372036854771712\n");
        machine.control(pod, 5, 0);
        machine.write(&format!("{pod}/memory.limit_in_bytes"), "104857600\n");
        let group = machine.group();
        let before = group.counts();
        machine.control(runner, 0, 1);
        machine.control(pod, 8, 0);
        assert_eq!(group.killed_since(&before), Some(killed(1, Some(100 << 20))));
    }

    #[test]
    fn container_that_sees_only_its_own_group_of_version_1() {
        let machine = Machine::new(
            "4:cpu,memory:/kubepods/pod1/abc\n",
            "35 31 0:32 /kubepods/pod1/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,cpu,memory\n",
        );
        machine.control("sys/fs/cgroup/memory", 0, 0);
        machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n");
        let group = machine.group();
        let before = group.counts();
        machine.control("sys/fs/cgroup/memory", 1, 1);
        let found = group.killed_since(&before);
        assert_eq!(found, Some(killed(1, Some(1 << 20))));
        let before = group.counts();
        machine.control("sys/fs/cgroup/memory", 1, 2);
        machine.write("sys/fs/cgroup/memory/memory.memsw.failcnt", "0\n");
        machine.write("sys/fs/cgroup/memory/memory.memsw.max_usage_in_bytes", "2097000\n");
        machine.write("sys/fs/cgroup/memory/memory.memsw.limit_in_bytes", "2097152\n");
        assert_eq!(group.killed_since(&before), Some(killed(1, Some(2 << 20))), "with its swap");
        assert_eq!(
            found.unwrap().to_string(),
            "memory ran out, and the kernel killed a process: the limit of the control group is 1024 KiB"
        );
    }

    #[test]
    fn machine_without_groups_or_counts() {
        let root = |machine: &Machine| MemoryGroup::of_self(machine.0.path()).is_some();
        assert!(!root(&Machine::new("", "")));
        // The root group of version 2 has no counts.
        assert!(!root(&Machine::new(POD.0, POD.1)));
        let old = Machine::new(POD.0, POD.1);
        old.write("sys/fs/cgroup/memory.events", "low 0\nhigh 0\nmax 9\noom 3\n");
        assert!(!root(&old));
    }
}
