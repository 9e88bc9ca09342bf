//! Sessions of what already runs.

use std::fs;
use std::path::PathBuf;
use std::sync::{MutexGuard, PoisonError};

use anyhow::{Context, Result, bail};
use opfs_probe_common::epoch::{EXCLUDED_SLOT, SYSTEM_SLOT};

use super::announce::kind_of;
use super::{NewSession, Watcher};
use crate::attribution::window::SessionId;
use crate::processes::cgroup;
use crate::processes::tree::{Process, Scan, exe, is_ending, scan_tree};
use crate::report::model::{Browser, SessionKind};

/// What to attach to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A process and all its descendants.
    Tree(u32),
    /// The processes in these cgroups, and what they start.
    Cgroups(Vec<PathBuf>),
}

impl Watcher {
    /// Opens a session on running processes. What they did before is not in it.
    pub fn attach(&self, target: &Target, name: Option<String>) -> Result<SessionId> {
        let _one_at_a_time = self.binding();
        self.attach_locked(target, name)
    }

    /// The same, by whoever holds [`Watcher::binding`].
    pub(super) fn attach_locked(&self, target: &Target, name: Option<String>) -> Result<SessionId> {
        if self.own_tgid.is_some_and(|own| own != std::process::id()) {
            bail!(
                "running processes can't be attached to from inside a PID namespace: the kernel knows \
                 them by other numbers; start opfs-probe outside the namespace, or use `opfs-probe run`"
            );
        }
        let (session, scan) = match target {
            Target::Tree(root) => {
                let program = exe(*root);
                let file_name = program.as_deref().map(file_name);
                let process = Process::of(*root).with_context(|| format!("there is no process {root}"))?;
                let kind = kind_of(file_name);
                let fallback = || {
                    script(*root)
                        .unwrap_or_else(|| file_name.map_or_else(|| format!("process {root}"), lossy))
                };
                let browser = (kind == SessionKind::Browser).then(|| Browser {
                    name: file_name.map(lossy).unwrap_or_default(),
                    version: None,
                    executable: program.as_deref().map(lossy),
                });
                let new = NewSession { name: name.unwrap_or_else(fallback), kind, browser, command: None };
                let session = self.open(new)?;
                self.set_root(session, process.pid);
                let scan = scan_tree(*root, |process| self.bind(session, process, false))?;
                (session, scan)
            }
            Target::Cgroups(directories) => {
                let [first, ..] = directories.as_slice() else { bail!("there is no such cgroup") };
                let fallback =
                    || first.file_name().map_or_else(String::new, |name| lossy(name.as_encoded_bytes()));
                let name = name.unwrap_or_else(fallback);
                let session = self.open(NewSession {
                    name,
                    kind: SessionKind::Attached,
                    browser: None,
                    command: None,
                })?;
                let mut all = Scan { found: 0, complete: true };
                for directory in directories {
                    let scan = cgroup::scan(directory, |process| self.bind(session, process, true))?;
                    all.found += scan.found;
                    all.complete &= scan.complete;
                }
                (session, all)
            }
        };
        // Not before its processes are in it.
        if let Some(facts) = self.state().facts.get_mut(&session) {
            facts.ends_by_itself = true;
        }
        if !scan.complete {
            let warning = "bound_late: processes kept appearing while they were being bound, so some of \
                           their first calls may be missing";
            self.warn(session, warning.to_owned());
        }
        Ok(session)
    }

    /// Takes new processes of a cgroup into its session; those that were forked by a member are in it.
    pub fn rescan(&self, session: SessionId, directories: &[PathBuf]) -> Result<()> {
        for directory in directories {
            cgroup::scan(directory, |process| self.bind(session, process, true))?;
        }
        Ok(())
    }

    pub(super) fn binding(&self) -> MutexGuard<'_, ()> {
        self.spawning.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts one process into a session. A session by cgroup takes only what no narrower one has.
    fn bind(&self, session: SessionId, process: &Process, only_if_free: bool) -> Result<()> {
        if Some(process.pid) == self.own_tgid {
            return Ok(());
        }
        let mut state = self.state();
        let slot = state.facts.get(&session).and_then(|facts| facts.slot);
        let (Some(slot), Some(control)) = (slot, &mut state.control) else { return Ok(()) };
        let current = control.slot_of(process.pid);
        let free = current.is_none_or(|current| current == SYSTEM_SLOT);
        if current == Some(slot) || current == Some(EXCLUDED_SLOT) || (only_if_free && !free) {
            return Ok(());
        }
        let image = control.bind(process.pid, slot, 0)?;
        // If its end was announced before it was bound, nobody else would ever unbind it.
        if is_ending(process) {
            control.unbind(process.pid);
            return Ok(());
        }
        state.images.see_proc(image, slot, process.pid);
        drop(state);
        self.note_preload_in(session, process.pid);
        Ok(())
    }

    fn set_root(&self, session: SessionId, pid: u32) {
        let mut state = self.state();
        let Some(facts) = state.facts.get_mut(&session) else { return };
        facts.root_pid = Some(pid);
        if let Some(slot) = facts.slot {
            state.images.set_root(slot, pid);
        }
    }
}

/// The script that a process runs: the kernel named the process after it, not after its interpreter.
fn script(pid: u32) -> Option<String> {
    /// `TASK_COMM_LEN` of include/linux/sched.h, without the NUL.
    const LONGEST_NAME: usize = 15;
    let comm = fs::read(format!("/proc/{pid}/comm")).ok()?;
    let comm = comm.strip_suffix(b"\n")?;
    let command_line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut names = command_line.split(|byte| *byte == 0).skip(1).map(file_name);
    let is_script = |name: &&[u8]| !name.is_empty() && &name[..name.len().min(LONGEST_NAME)] == comm;
    names.find(is_script).map(lossy)
}

pub(super) fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
