//! Calls by process image.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::Naming;
use super::performed::ByCause;
use super::totals::Sum;
use crate::attribution::totals::Totals;
use crate::report::escape::{lossless, text_and_bytes};
use crate::report::model::Process;

/// What one image did.
#[derive(Default)]
struct Work {
    process: Option<Process>,
    calls: Sum,
    performed: ByCause,
}

/// The images that made the calls, and one entry without a pid for calls whose image is not known.
pub fn processes(counts: &Totals, naming: &impl Naming) -> Vec<Process> {
    let mut by_image: HashMap<Option<u32>, Work> = HashMap::new();
    let mut of = |image: Option<u32>, add: &dyn Fn(&mut Work)| {
        let process = image.and_then(|image| named(image, naming));
        let image = process.as_ref().and(image);
        add(by_image.entry(image).or_insert_with(|| Work { process, ..Work::default() }));
    };
    for (key, tally) in counts.calls.iter().filter(|(_, tally)| tally.count > 0) {
        of(key.process, &|work| work.calls.add(key, tally));
    }
    for (key, count) in counts.performed.iter().flatten() {
        of(key.process, &|work| work.performed.add(key.cause, *count));
    }
    let measured = counts.performed.is_some();
    let mut processes: Vec<_> = by_image
        .into_values()
        .map(|work| Process {
            count: work.calls.count,
            total_ns: work.calls.total_ns(),
            performed: measured.then(|| work.performed.into_model()),
            ..work.process.unwrap_or_default()
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
