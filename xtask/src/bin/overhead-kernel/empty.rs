//! Programs that do nothing, on given hooks, while a command runs.

use std::io;
use std::os::fd::OwnedFd;

use crate::bpf::{self, ProgramType};
use crate::tracepoint;

/// Attaches one to each hook, `category:event`; they are detached when what this returns is dropped. System
/// calls have the perf event of their tracepoint, as the probe does it, all others the tracepoint itself.
pub fn attach(hooks: &[String]) -> Result<Vec<OwnedFd>, String> {
    let mut held = Vec::new();
    for hook in hooks {
        let (category, event) = hook.split_once(':').ok_or_else(|| format!("{hook:?} is no hook"))?;
        let pair = if category == "syscalls" { traced(category, event) } else { raw(event) };
        held.extend(pair.map_err(|error| format!("attaching to {hook}: {error}"))?);
    }
    Ok(held)
}

fn traced(category: &str, event: &str) -> io::Result<[OwnedFd; 2]> {
    let program = bpf::load_empty(ProgramType::Tracepoint, event)?;
    let perf_event = tracepoint::open(category, event)?;
    tracepoint::attach(&perf_event, &program)?;
    Ok([program, perf_event])
}

fn raw(event: &str) -> io::Result<[OwnedFd; 2]> {
    let program = bpf::load_empty(ProgramType::RawTracepoint, event)?;
    let link = bpf::open_raw_tracepoint(&program, event)?;
    Ok([program, link])
}
