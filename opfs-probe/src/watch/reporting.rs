//! Reports on what was counted so far.

use std::collections::{HashMap, HashSet};

use anyhow::{Result, anyhow};
use jiff::Timestamp;
use opfs_probe_common::call::InFlightCall;
use opfs_probe_common::record::Losses as KernelLosses;

use super::clock::now;
use super::naming::Known;
use super::state::State;
use super::{Watcher, filesystems};
use crate::attribution::session::Attribution;
use crate::attribution::totals::Totals;
use crate::attribution::window::{Epoch, SessionId, WindowId};
use crate::kernel::performed;
use crate::report::build::{Losses, Measured, Naming, completeness, failures, session};
use crate::report::model::{self, Report, SCHEMA, Tracer, TracerKind};

pub use super::host::host;

impl Watcher {
    /// A report on all sessions.
    pub fn full_report(&self) -> Result<Report> {
        self.report_on(|_| true)
    }

    /// A report on one session, with the whole program's completeness.
    pub fn session_report(&self, session: SessionId) -> Result<Report> {
        self.report_on(|id| id == session)
    }

    /// The session as strace saw it: its calls by epoch, under the same windows.
    pub fn strace_session(
        &self,
        id: SessionId,
        counts: &HashMap<Epoch, Totals>,
        naming: &impl Naming,
    ) -> Result<model::Session> {
        let state = self.state();
        let mut attribution = state.strace.clone().ok_or_else(|| anyhow!("strace was not asked for"))?;
        for (epoch, totals) in counts {
            attribution.absorb(*epoch, totals);
        }
        state.describe(id, &attribution, &[], true, naming).ok_or_else(|| anyhow!("there is no such session"))
    }

    /// The epochs in which a window of the session was open.
    pub fn epochs_of(&self, window: WindowId) -> HashSet<Epoch> {
        self.state().strace.iter().flat_map(|strace| strace.epochs_of(window)).collect()
    }

    /// A report on what strace counted.
    pub fn strace_report(&self, sessions: Vec<model::Session>, losses: &Losses) -> Report {
        Report {
            schema: SCHEMA.to_owned(),
            generated_at: Timestamp::now(),
            host: host(),
            tracer: Tracer {
                kind: TracerKind::Strace,
                version: None,
                probes: Vec::new(),
                run_time_over_ns: None,
            },
            narrowed_to: Vec::new(),
            filesystems: filesystems::of(&sessions),
            completeness: completeness(&sessions, losses),
            sessions,
        }
    }

    fn report_on(&self, chosen: impl Fn(SessionId) -> bool) -> Result<Report> {
        let mut losses = Losses { coverage_gaps: self.coverage_gaps.clone(), ..Losses::default() };
        self.look_for_preloads(&chosen);
        let (mut live, mut in_flight) = (HashMap::new(), Vec::new());
        if let Some(mut collector) = self.collector() {
            live = self.undrained(&mut collector)?;
            in_flight.extend(collector.in_flight());
            let kernel = collector.losses()?;
            add_kernel_losses(&mut losses, &kernel, self.state().unreconciled_calls);
        }
        in_flight.sort_by_key(|call: &InFlightCall| call.start_ns);
        let state = self.state();
        let mut attribution = state.attribution.clone();
        for (epoch, totals) in &live {
            attribution.absorb(*epoch, totals);
        }
        let performed_on = performed::seen(&self.probes);
        let naming = Known { names: &state.names, images: &state.images, performed_on: &performed_on };
        let ids: Vec<SessionId> = state.facts.keys().copied().filter(|id| chosen(*id)).collect();
        let sessions: Vec<model::Session> = ids
            .iter()
            .copied()
            .filter_map(|id| state.describe(id, &attribution, &in_flight, self.tracers.ebpf, &naming))
            .collect();
        let counted = ids.iter().filter_map(|id| attribution.session(*id));
        losses.warnings.extend(counted.flat_map(|session| failures(&session.total, &naming)));
        for facts in state.facts.iter().filter(|(id, _)| chosen(**id)).map(|(_, facts)| facts) {
            losses.warnings.extend(facts.warnings.iter().cloned());
        }
        drop(state);
        losses.warnings.extend(unknown_processes(&sessions));
        let tracer = self.tracer(&mut losses);
        Ok(Report {
            schema: SCHEMA.to_owned(),
            generated_at: Timestamp::now(),
            host: host(),
            tracer,
            narrowed_to: Vec::new(),
            filesystems: filesystems::of(&sessions),
            completeness: completeness(&sessions, &losses),
            sessions,
        })
    }
}

impl State {
    fn describe(
        &self,
        id: SessionId,
        attribution: &Attribution,
        in_flight: &[InFlightCall],
        counted: bool,
        naming: &impl Naming,
    ) -> Option<model::Session> {
        let (facts, counts) = (self.facts.get(&id)?, attribution.session(id)?);
        let is_its = |call: &&InFlightCall| attribution.session_of(Epoch(call.epoch)) == Some(id);
        let in_flight: Vec<InFlightCall> = in_flight.iter().filter(is_its).copied().collect();
        let measured = Measured {
            id,
            name: &counts.name,
            kind: facts.kind,
            root_pid: facts.root_pid,
            command: facts.command.as_deref(),
            started_at: counts.started_at,
            ended_at: counts.ended_at.unwrap_or_else(now),
            exit_status: facts.exit_status,
            browser: facts.browser.clone(),
            windows: &counts.windows,
            outside: &counts.outside,
            total: &counts.total,
            in_flight: &in_flight,
            counted,
        };
        Some(session(&measured, naming))
    }
}

fn add_kernel_losses(losses: &mut Losses, kernel: &KernelLosses, unreconciled_calls: u64) {
    let plural = |count: u64, one: &str, many: &str| {
        if count == 1 { one.to_owned() } else { format!("{count} {many}") }
    };
    losses.latencies_lost = kernel.histogram_lost;
    losses.inexact |= kernel.calls_lost > 0 || kernel.members_lost > 0 || kernel.compat_images > 0;
    losses.inexact |= kernel.performed_lost > 0 || kernel.flushes_lost > 0;
    // Counted all the same, but which of them failed is not known.
    losses.inexact |= kernel.enters_lost > 0;
    if kernel.enters_lost > 0 {
        losses.warnings.push(format!(
            "{} counted without time and outcome: the kernel's maps had no room",
            plural(kernel.enters_lost, "one call was", "calls were")
        ));
    }
    if kernel.calls_lost > 0 {
        losses.warnings.push(format!(
            "{} not counted: the kernel's maps had no room",
            plural(kernel.calls_lost, "one call was", "calls were")
        ));
    }
    if kernel.members_lost > 0 {
        losses.warnings.push(format!(
            "{} not watched: the kernel's maps had no room",
            plural(kernel.members_lost, "one process was", "processes were")
        ));
    }
    if kernel.performed_lost > 0 {
        losses.warnings.push(format!(
            "{} not counted: the kernel's maps had no room",
            plural(kernel.performed_lost, "one performed sync was", "performed syncs were")
        ));
    }
    if kernel.flushes_lost > 0 {
        losses.warnings.push(format!(
            "{} not counted: the kernel's maps had no room",
            plural(kernel.flushes_lost, "one flush of a device was", "flushes of devices were")
        ));
    }
    // Those that found no room are missing from one of the counts, and are said above.
    let unreconciled = unreconciled_calls.saturating_sub(kernel.calls_lost);
    if unreconciled > 0 {
        losses.inexact = true;
        losses.warnings.push(format!(
            "the kernel side's two counts of calls, by file and by latency, differ by {unreconciled}: the counts \
             can't be relied on; please report this"
        ));
    }
    if kernel.compat_images > 0 {
        losses.warnings.push(format!(
            "{} run: their system calls are not seen",
            plural(kernel.compat_images, "one 32-bit program was", "32-bit programs were")
        ));
    }
    if kernel.begun_before > 0 {
        losses.warnings.push(format!(
            "{} not counted: begun before the watching did",
            plural(kernel.begun_before, "one call is", "calls are")
        ));
    }
}

/// Calls whose process has no name: its record found no room, and so did each later one.
fn unknown_processes(sessions: &[model::Session]) -> Option<String> {
    let unknown = |total: &model::Totals| {
        let nameless = total.processes.iter().filter(|process| process.pid.is_none());
        nameless.map(|process| process.count).sum::<u64>().saturating_sub(total.detail_lost)
    };
    let calls: u64 = sessions.iter().filter_map(|session| session.total.as_ref()).map(unknown).sum();
    (calls > 0)
        .then(|| format!("{calls} calls are of processes whose names found no room in the kernel's maps"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(kernel: KernelLosses, unreconciled_calls: u64) -> Losses {
        let mut losses = Losses::default();
        add_kernel_losses(&mut losses, &kernel, unreconciled_calls);
        losses
    }

    #[test]
    fn counts_that_differ_are_not_exact() {
        assert_eq!(after(KernelLosses::default(), 0), Losses::default());
        let differ = after(KernelLosses::default(), 2);
        assert!(differ.inexact && differ.warnings.concat().contains("differ by 2"), "{differ:?}");
        let explained = after(KernelLosses { calls_lost: 2, ..KernelLosses::default() }, 2);
        assert!(explained.inexact && !explained.warnings.concat().contains("differ"), "{explained:?}");
    }

    #[test]
    fn flushes_without_room_are_said_to_be_missing() {
        let lost = after(KernelLosses { flushes_lost: 1, ..KernelLosses::default() }, 0);
        assert!(
            lost.inexact && lost.warnings.concat().contains("one flush of a device was not counted"),
            "{lost:?}"
        );
    }
}
