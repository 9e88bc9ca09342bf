//! Has the kernel check each program, and attaches it to its hook.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use aya::programs::{BtfTracePoint, Program, ProgramError, RawTracePoint, TracePoint};
use aya::{Btf, Ebpf};
use opfs_probe_common::offsets::{Offsets, UNKNOWN};
use opfs_probe_common::performed::Filesystem;

use super::plan::{DESCRIBING, DESCRIBING_RAW, Hook, PLAN, Planned, UNMATCHED};
use super::tracefs::has_event;

/// What became of each program.
pub(super) struct Outcomes(HashMap<&'static str, Result<()>>);

impl Outcomes {
    /// That of one program.
    pub fn take(&mut self, program: &str) -> Result<()> {
        self.0.remove(program).unwrap_or_else(|| Err(anyhow!("no program {program}")))
    }
}

/// Loads all programs, on several threads: the kernel takes milliseconds to check one.
pub(super) fn load_programs(programs: &mut Ebpf, kernel_types: &Btf, offsets: &Offsets) -> Outcomes {
    const MOST_THREADS: usize = 8;
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    let queue = Mutex::new(programs.programs_mut());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        let mut outcomes = Vec::new();
        while let Some((name, program)) = next() {
            if let Some((name, load)) = loading(name) {
                outcomes.push((name, load(program, kernel_types, offsets)));
            }
        }
        outcomes
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let join = |worker: thread::ScopedJoinHandle<'_, _>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        Outcomes(workers.into_iter().flat_map(join).collect())
    })
}

type Load = Box<dyn Fn(&mut Program, &Btf, &Offsets) -> Result<()>>;

/// How a program of this name is loaded.
fn loading(program: &str) -> Option<(&'static str, Load)> {
    let is_it = |name: &&'static str| *name == program;
    if let Some(planned) = PLAN.iter().find(|planned| planned.program == program) {
        let load = |program: &mut Program, types: &Btf, offsets: &Offsets| {
            load(program, planned.hook, types, offsets)
        };
        return Some((planned.program, Box::new(load)));
    }
    if let Some(name) = DESCRIBING.iter().chain(&UNMATCHED).copied().find(is_it) {
        return Some((name, Box::new(|program, _, _| load_plain(program))));
    }
    let name = DESCRIBING_RAW.iter().copied().find(is_it)?;
    Some((name, Box::new(|program, _, _| load_raw(program))))
}

fn load(program: &mut Program, hook: Hook, kernel_types: &Btf, offsets: &Offsets) -> Result<()> {
    match hook {
        Hook::Syscall(event) if !has_event("syscalls", event) => {
            bail!("this kernel has no such tracepoint");
        }
        Hook::Raw(Filesystem::Xfs, _) if offsets.xfs_inode_vnode == UNKNOWN => {
            bail!("the kernel's BTF does not describe struct xfs_inode");
        }
        Hook::Uring(_) if offsets.uring_result == UNKNOWN => {
            bail!("the kernel has no io_uring, or one from before Linux 5.19");
        }
        Hook::Syscall(_) => load_plain(program),
        Hook::Btf(event) => {
            let program: &mut BtfTracePoint = program.try_into()?;
            Ok(program.load(event, kernel_types)?)
        }
        Hook::Raw(..) | Hook::Uring(_) | Hook::Block(_) => load_raw(program),
    }
}

fn load_plain(program: &mut Program) -> Result<()> {
    let program: &mut TracePoint = program.try_into()?;
    Ok(program.load()?)
}

fn load_raw(program: &mut Program) -> Result<()> {
    let program: &mut RawTracePoint = program.try_into()?;
    Ok(program.load()?)
}

/// Attaches a program that was loaded.
pub(super) fn attach(programs: &mut Ebpf, planned: &Planned) -> Result<()> {
    let program =
        programs.program_mut(planned.program).with_context(|| format!("no program {}", planned.program))?;
    match planned.hook {
        Hook::Syscall(event) => {
            let program: &mut TracePoint = program.try_into()?;
            program.attach("syscalls", event)?;
        }
        Hook::Btf(_) => {
            let program: &mut BtfTracePoint = program.try_into()?;
            program.attach()?;
        }
        Hook::Raw(filesystem, event) => {
            let program: &mut RawTracePoint = program.try_into()?;
            program.attach(event).map_err(|error| match error {
                ProgramError::SyscallError(error) if error.io_error.kind() == ErrorKind::NotFound => {
                    anyhow!("{} is not loaded, or has no such tracepoint", filesystem.name())
                }
                other => other.into(),
            })?;
        }
        Hook::Uring(names) => {
            let program: &mut RawTracePoint = program.try_into()?;
            let mut outcome = Err(anyhow!("a probe without a name"));
            for event in names {
                outcome = program.attach(event).map(|_| ()).map_err(Into::into);
                if outcome.is_ok() {
                    break;
                }
            }
            outcome?;
        }
        Hook::Block(event) => {
            let program: &mut RawTracePoint = program.try_into()?;
            program.attach(event)?;
        }
    }
    Ok(())
}
