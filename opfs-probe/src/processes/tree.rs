//! The process tree as `/proc` shows it.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use procfs::process::{Process as ProcProcess, all_processes};

use crate::files::PathBytes;
use crate::files::proc::undecorate;

/// How often a scan looks again before it gives up on a tree that never stops growing.
const MAX_ROUNDS: usize = 32;

/// A process in a snapshot. Its id and start time together are unique while the system runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its parent's; 0 for none.
    pub parent: u32,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
}

impl Process {
    /// A process by its id, if there is one.
    pub fn of(pid: u32) -> Option<Self> {
        Self::from_stat(&ProcProcess::new(i32::try_from(pid).ok()?).ok()?)
    }

    /// The process that a thread's id belongs to, which is that process's own id for its first thread.
    pub fn of_thread(tid: u32) -> Option<u32> {
        let status = ProcProcess::new(i32::try_from(tid).ok()?).ok()?.status().ok()?;
        u32::try_from(status.tgid).ok()
    }

    fn from_stat(process: &ProcProcess) -> Option<Self> {
        let stat = process.stat().ok()?;
        Some(Self {
            pid: u32::try_from(stat.pid).ok()?,
            parent: u32::try_from(stat.ppid).unwrap_or(0),
            start_ticks: stat.starttime,
        })
    }
}

/// All processes at about one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    processes: BTreeMap<u32, Process>,
}

impl Snapshot {
    /// Takes one. Processes that come or go meanwhile may be in it or not.
    pub fn read() -> Self {
        let processes = all_processes().into_iter().flatten().flatten();
        processes.filter_map(|process| Process::from_stat(&process)).collect()
    }

    /// The processes, by id.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.processes.values()
    }

    /// A process and all its descendants, parents before their children. Those whose parent ended
    /// belong to another parent by now and are not among them.
    pub fn tree(&self, root: u32) -> Vec<Process> {
        let mut children: BTreeMap<u32, Vec<Process>> = BTreeMap::new();
        for process in self.processes.values() {
            children.entry(process.parent).or_default().push(*process);
        }
        let mut tree: Vec<Process> = self.processes.get(&root).copied().into_iter().collect();
        let mut next = 0;
        while let Some(process) = tree.get(next) {
            // Taken out, so that parents which a racing snapshot shows in a circle end the walk.
            tree.extend(children.remove(&process.pid).unwrap_or_default());
            next += 1;
        }
        tree
    }

    /// The first process of the browser (or any program that starts copies of itself) that `pid`
    /// belongs to: climbs while the parent runs the same executable.
    pub fn browser_root(&self, pid: u32) -> u32 {
        let Some(program) = exe(pid) else { return pid };
        let mut root = pid;
        let mut climbed = HashSet::new();
        while let Some(parent) = self.processes.get(&root).map(|process| process.parent)
            && climbed.insert(parent)
            && exe(parent).as_ref() == Some(&program)
        {
            root = parent;
        }
        root
    }
}

impl FromIterator<Process> for Snapshot {
    fn from_iter<T: IntoIterator<Item = Process>>(processes: T) -> Self {
        Self { processes: processes.into_iter().map(|process| (process.pid, process)).collect() }
    }
}

/// How a scan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Processes that were found.
    pub found: usize,
    /// The last look found nothing new.
    pub complete: bool,
}

/// Calls `bind` for a process and each of its descendants, and looks again until nothing new appears:
/// a child that was forked before its parent was bound is in nobody's books.
pub fn scan_tree<E>(root: u32, bind: impl FnMut(&Process) -> Result<(), E>) -> Result<Scan, E> {
    scan(|| Snapshot::read().tree(root), bind)
}

/// Calls `bind` once for each process that `look` finds, until it finds nothing new.
pub fn scan<E>(
    mut look: impl FnMut() -> Vec<Process>,
    mut bind: impl FnMut(&Process) -> Result<(), E>,
) -> Result<Scan, E> {
    let mut found = HashSet::new();
    for _ in 0..MAX_ROUNDS {
        let before = found.len();
        for process in look() {
            // The parent may change: a process is its id and its start.
            if found.insert((process.pid, process.start_ticks)) {
                bind(&process)?;
            }
        }
        if found.len() == before {
            return Ok(Scan { found: before, complete: true });
        }
    }
    Ok(Scan { found: found.len(), complete: false })
}

/// The executable of a process, undecorated; none for kernel threads and whatever may not be seen.
pub fn exe(pid: u32) -> Option<PathBytes> {
    thread_directories(pid).find_map(|thread| {
        let link = thread.join("exe");
        let path = fs::read_link(&link).ok()?.into_os_string().into_vec();
        Some(match fs::metadata(&link) {
            Ok(metadata) => undecorate(path, &metadata).0,
            Err(_) => path,
        })
    })
}

/// Whether a process is a thread of the kernel's own: it makes no system calls.
pub fn is_kernel_thread(pid: u32) -> bool {
    // PF_KTHREAD of include/linux/sched.h.
    const KERNEL_THREAD: u32 = 0x0020_0000;
    let stat = i32::try_from(pid).ok().and_then(|pid| ProcProcess::new(pid).ok()?.stat().ok());
    stat.is_some_and(|stat| stat.flags & KERNEL_THREAD != 0)
}

/// Whether a process has ended, or all its threads are about to: nothing more is heard of their ends.
pub fn is_ending(process: &Process) -> bool {
    // PF_EXITING of include/linux/sched.h: set before the kernel announces a thread's end.
    const EXITING: u32 = 0x4;
    if Process::of(process.pid).is_none_or(|now| now.start_ticks != process.start_ticks) {
        return true;
    }
    let tasks = i32::try_from(process.pid).ok().and_then(|pid| ProcProcess::new(pid).ok()?.tasks().ok());
    !tasks.into_iter().flatten().flatten().any(|task| task.stat().is_ok_and(|stat| stat.flags & EXITING == 0))
}

/// Where to look for what a process's threads share: in the process's own directory, then, since that
/// shows nothing once the first thread has ended, in those of its other threads.
pub(super) fn thread_directories(pid: u32) -> impl Iterator<Item = PathBuf> {
    let process = Path::new("/proc").join(pid.to_string());
    let task = process.join("task");
    let threads = std::iter::once_with(move || fs::read_dir(task)).flatten().flatten().flatten();
    std::iter::once(process).chain(threads.map(|thread| thread.path()))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A shell with a child and a grandchild, which end when their standard input does.
    fn start_tree() -> (Child, u32, u32) {
        let script = "sh -c 'echo $$; sh -c \"echo \\$\\$; read x; :\"; :'; :";
        let mut shell = Command::new("/bin/sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines();
        let mut pid = || lines.next().unwrap().unwrap().parse().unwrap();
        let (child, grandchild) = (pid(), pid());
        (shell, child, grandchild)
    }

    fn finish(mut shell: Child) {
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }

    #[test]
    fn descendants_are_found_and_roots_climbed_to() {
        let (shell, child, grandchild) = start_tree();
        let snapshot = Snapshot::read();
        let tree: Vec<u32> = snapshot.tree(shell.id()).iter().map(|process| process.pid).collect();
        assert_eq!(tree, [shell.id(), child, grandchild]);
        assert_eq!(snapshot.browser_root(grandchild), shell.id(), "all three run the same shell");
        let us = std::process::id();
        assert_eq!(snapshot.browser_root(us), us);
        assert_eq!(Process::of(child).map(|process| process.parent), Some(shell.id()));
        assert!(exe(child).is_some_and(|exe| exe.starts_with(b"/")));
        let pid = shell.id();
        let process = Process::of(pid).unwrap();
        assert!(!is_ending(&process) && is_ending(&Process { start_ticks: 1, ..process }));
        finish(shell);
        assert!(is_ending(&process));
        assert_eq!((Process::of(pid), exe(pid)), (None, None));
        assert!(Snapshot::read().tree(pid).is_empty());
        assert_eq!(Process::of(u32::MAX), None);
        assert!(!is_kernel_thread(us) && !is_kernel_thread(u32::MAX));
        assert_eq!((Process::of_thread(us), Process::of_thread(u32::MAX)), (Some(us), None));
    }

    #[test]
    fn a_process_that_nobody_waits_for_has_ended() {
        let mut child = Command::new("/bin/true").spawn().unwrap();
        let process = Process::of(child.id()).unwrap();
        let start = std::time::Instant::now();
        while !is_ending(&process) {
            assert!(start.elapsed() < std::time::Duration::from_secs(10), "it ends at once");
            std::thread::yield_now();
        }
        assert_eq!(Process::of(child.id()), Some(process), "and can be seen still");
        child.wait().unwrap();
    }

    #[test]
    fn a_scan_looks_again_until_nothing_is_new() {
        let process = |pid| Process { pid, parent: 1, start_ticks: 5 };
        let mut looks = [vec![process(1)], vec![process(1), process(2)], vec![process(2)]].into_iter();
        let mut bound = Vec::new();
        let scan = scan(
            || looks.next().unwrap_or_default(),
            |process| {
                bound.push(process.pid);
                Ok::<_, ()>(())
            },
        );
        assert_eq!(scan, Ok(Scan { found: 2, complete: true }));
        assert_eq!(bound, [1, 2]);
    }

    #[test]
    fn a_scan_of_a_tree_that_never_stops_growing_says_so() {
        let mut pid = 0;
        let look = || {
            pid += 1;
            vec![Process { pid, parent: 1, start_ticks: 5 }]
        };
        let ended = scan(look, |_| Ok::<_, ()>(()));
        assert_eq!(ended, Ok(Scan { found: MAX_ROUNDS, complete: false }));
        let refused = scan(|| vec![Process { pid: 1, parent: 0, start_ticks: 1 }], |_| Err("full"));
        assert_eq!(refused, Err("full"));
    }

    #[test]
    fn a_scan_finds_a_real_tree() {
        let (shell, child, grandchild) = start_tree();
        let mut bound = Vec::new();
        let scan = scan_tree(shell.id(), |process| {
            bound.push(process.pid);
            Ok::<_, ()>(())
        });
        assert_eq!(scan, Ok(Scan { found: 3, complete: true }));
        assert_eq!(bound, [shell.id(), child, grandchild]);
        finish(shell);
    }

    #[test]
    fn parents_in_a_circle_end_the_walk() {
        let process = |pid, parent| Process { pid, parent, start_ticks: 1 };
        let snapshot: Snapshot = [process(1, 2), process(2, 1), process(3, 3)].into_iter().collect();
        assert_eq!(snapshot.tree(1).iter().map(|process| process.pid).take(5).count(), 3);
        assert_eq!(snapshot.tree(9), []);
        snapshot.browser_root(1);
    }
}
