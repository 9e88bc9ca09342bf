//! Calls by process image.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::Naming;
use super::totals::Sum;
use crate::attribution::totals::Totals;
use crate::report::escape::{lossless, text_and_bytes};
use crate::report::model::Process;

/// The images that made the calls, and one entry without a pid for calls whose image is not known.
pub fn processes(counts: &Totals, naming: &impl Naming) -> Vec<Process> {
    let mut by_image: HashMap<Option<u32>, (Option<Process>, Sum)> = HashMap::new();
    for (key, tally) in counts.calls.iter().filter(|(_, tally)| tally.count > 0) {
        let process = key.process.and_then(|image| named(image, naming));
        let image = process.as_ref().and(key.process);
        by_image.entry(image).or_insert_with(|| (process, Sum::default())).1.add(key, tally);
    }
    let mut processes: Vec<_> = by_image
        .into_values()
        .map(|(process, sum)| Process {
            count: sum.count,
            total_ns: sum.total_ns(),
            ..process.unwrap_or_default()
        })
        .collect();
    processes.sort_by(|a, b| {
        let key = |process: &Process| (Reverse(process.count), Reverse(process.total_ns));
        let name =
            |process: &Process| (process.comm.clone(), process.pid, process.started_at, process.exe.clone());
        key(a).cmp(&key(b)).then_with(|| name(a).cmp(&name(b)))
    });
    processes
}

fn named(image: u32, naming: &impl Naming) -> Option<Process> {
    let image = naming.image(image)?;
    let (exe, exe_bytes) = image.exe.as_deref().map(text_and_bytes).unzip();
    Some(Process {
        pid: Some(image.pid),
        ns_pid: image.ns_pid,
        started_at: image.started_at,
        comm: Some(lossless(&image.comm)),
        exe,
        exe_bytes: exe_bytes.flatten(),
        role: image.role,
        cgroup: image.cgroup,
        compat_32_bit: image.compat_32_bit,
        ..Process::default()
    })
}
