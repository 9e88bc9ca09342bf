//! All processes of a browser, and how to end them: the first process's end is not everyone's.
//!
//! A process is (pid, start time): a pid alone may be somebody else's by the time of the signal.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use procfs::process::{Process, all_processes};

/// Time for a browser to write its profile down after it was asked to end.
const GRACE: Duration = Duration::from_secs(5);
/// Time for the kernel to do away with killed processes.
const KILL_TIME: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(25);

/// A browser's processes.
#[derive(Debug)]
pub struct Tree {
    child: Child,
    /// Everything the browser is told to use lies below this path; no other process's does.
    mark: Vec<u8>,
    /// The first process only watches: its tracees must end before it does.
    traced: bool,
    status: Option<ExitStatus>,
    /// All have ended, and the first one's id is free for others.
    over: bool,
}

impl Tree {
    /// Takes charge of a started browser, whose `HOME` is below `mark`. Dropping it ends them all.
    pub fn new(child: Child, mark: &Path, traced: bool) -> Self {
        Self { child, mark: mark.as_os_str().as_bytes().to_vec(), traced, status: None, over: false }
    }

    /// The first process's status, once it has ended. It stays a zombie until the others have
    /// ended too, so that its id, and its group's, can't become somebody else's.
    pub fn status(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
            self.status = match waitid(Id::Pid(Pid::from_raw(self.child.id() as i32)), flags) {
                Ok(WaitStatus::Exited(_, code)) => Some(ExitStatus::from_raw(code << 8)),
                Ok(WaitStatus::Signaled(_, signal, _)) => Some(ExitStatus::from_raw(signal as i32)),
                Ok(_) => None,
                // Somebody else has waited for it: it has ended all the same.
                Err(_) => Some(ExitStatus::default()),
            };
        }
        self.status
    }

    /// Waits until the first process ends by itself.
    pub fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + patience;
        while self.status().is_none() && Instant::now() < deadline {
            std::thread::sleep(POLL);
        }
        self.status
    }

    /// Ends every process: asks first, then kills what is left. Gives how many had to be killed.
    pub fn end(&mut self) -> usize {
        if !self.over && self.status().is_none() {
            for process in self.leaders() {
                signal(&process, Signal::SIGTERM);
            }
            self.wait(GRACE);
        }
        self.kill_rest()
    }

    /// The browser's first process; under a tracer, that is the tracer's child.
    fn leaders(&self) -> Vec<Process> {
        let root = self.child.id() as i32;
        let is_leader = |process: &Process| {
            process.stat().is_ok_and(|stat| if self.traced { stat.ppid == root } else { stat.pid == root })
        };
        members(root, &self.mark).into_iter().filter(is_leader).collect()
    }

    fn kill_rest(&mut self) -> usize {
        if self.over {
            return 0;
        }
        let root = self.child.id() as i32;
        let deadline = Instant::now() + KILL_TIME;
        let mut killed = 0;
        loop {
            // Again and again: one may fork while its siblings are being killed.
            let rest: Vec<Process> =
                members(root, &self.mark).into_iter().filter(|process| process.pid != root).collect();
            killed += rest.iter().filter(|process| signal(process, Signal::SIGKILL)).count();
            if self.status().is_none() && (!self.traced || (rest.is_empty() && Instant::now() > deadline)) {
                killed += 1;
                let _ = self.child.kill();
            }
            if rest.is_empty() && self.status().is_some() {
                // An error can only mean that there is nothing to wait for.
                let _ = self.child.wait();
                self.over = true;
                return killed;
            }
            if Instant::now() > deadline + KILL_TIME {
                return killed;
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.kill_rest();
    }
}

/// The living processes that descend from `root`, are in its process group, or carry the mark in
/// their environment or arguments. None of the three finds all: orphans lose their parent, a
/// daemon its group, and a sandboxed process's environment is its own.
fn members(root: i32, mark: &[u8]) -> Vec<Process> {
    let Ok(all) = all_processes() else { return Vec::new() };
    let mut found: HashMap<i32, (Process, i32, bool)> = HashMap::new();
    for process in all.flatten() {
        let Ok(stat) = process.stat() else { continue };
        if matches!(stat.state, 'Z' | 'X') {
            continue;
        }
        let mine =
            process.pid == root || stat.pgrp == root || (process.pid != own_pid() && carries(&process, mark));
        found.insert(process.pid, (process, stat.ppid, mine));
    }
    loop {
        let more: Vec<i32> = found
            .values()
            .filter(|(_, parent, mine)| !mine && found.get(parent).is_some_and(|(_, _, mine)| *mine))
            .map(|(process, ..)| process.pid)
            .collect();
        if more.is_empty() {
            break;
        }
        for pid in more {
            if let Some((_, _, mine)) = found.get_mut(&pid) {
                *mine = true;
            }
        }
    }
    found.into_values().filter(|(_, _, mine)| *mine).map(|(process, ..)| process).collect()
}

fn own_pid() -> i32 {
    std::process::id() as i32
}

fn carries(process: &Process, mark: &[u8]) -> bool {
    let home = process.environ().ok().and_then(|environment| {
        environment.into_iter().find(|(name, _)| name == "HOME").map(|(_, value)| value)
    });
    home.is_some_and(|home| home.as_bytes().starts_with(mark))
        || process.cmdline().is_ok_and(|words| words.iter().any(|word| contains(word.as_bytes(), mark)))
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && text.windows(part.len()).any(|window| window == part)
}

/// Signals a process if it is still the same one.
fn signal(process: &Process, signal: Signal) -> bool {
    // procfs holds the /proc directory open: it answers only while this very process lives.
    process.stat().is_ok_and(|stat| !matches!(stat.state, 'Z' | 'X'))
        && kill(Pid::from_raw(process.pid), signal).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    fn shell(script: &str, home: &Path) -> Tree {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).env("HOME", home.join("home")).process_group(0);
        Tree::new(command.spawn().unwrap(), home, false)
    }

    fn living(home: &Path) -> usize {
        members(-1, home.as_os_str().as_bytes()).len()
    }

    fn wait_for(mut condition: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !condition() {
            assert!(Instant::now() < deadline, "it never happened");
            std::thread::sleep(POLL);
        }
    }

    #[test]
    fn those_who_left_the_group_and_the_family_end_too() {
        let home = tempfile::tempdir().unwrap();
        let mut tree = shell("setsid sleep 100 & (setsid sleep 100 &) ; wait", home.path());
        wait_for(|| living(home.path()) == 3);
        tree.end();
        assert_eq!(living(home.path()), 0);
    }

    #[test]
    fn those_who_ignore_the_request_are_killed_when_it_is_dropped() {
        let home = tempfile::tempdir().unwrap();
        let tree = shell("trap '' TERM; sleep 100; sleep 100", home.path());
        wait_for(|| living(home.path()) == 2);
        drop(tree);
        assert_eq!(living(home.path()), 0);
    }

    #[test]
    fn a_tracer_ends_after_what_it_traces_and_keeps_its_log() {
        let home = tempfile::tempdir().unwrap();
        let log = home.path().join("log");
        let words = crate::strace::command::Strace::find().unwrap().over_command(&log);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args([
            "/bin/sh",
            "-c",
            "trap '' TERM; sync -f /; setsid sleep 100 & sleep 100; sleep 100",
        ]);
        command.env("HOME", home.path().join("home")).process_group(0);
        let mut tree = Tree::new(command.spawn().unwrap(), home.path(), true);
        wait_for(|| living(home.path()) == 4);
        tree.end();
        assert_eq!(living(home.path()), 0);
        assert_eq!(
            tree.status().map(|status| status.signal()),
            Some(Some(Signal::SIGKILL as i32)),
            "as its tracee"
        );
        assert!(std::fs::read_to_string(log).unwrap().contains("syncfs("));
    }

    #[test]
    fn nobody_else_is_touched() {
        let (mine, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut neighbour = shell("sleep 100", other.path());
        let mut tree = shell("exit 3", mine.path());
        assert_eq!(tree.wait(Duration::from_secs(10)).and_then(|status| status.code()), Some(3));
        assert_eq!(tree.end(), 0);
        assert_eq!(neighbour.status(), None);
        neighbour.end();
    }
}
