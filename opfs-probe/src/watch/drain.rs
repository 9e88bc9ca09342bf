//! Takes what was counted out of the kernel's maps, once no call can still write to it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use anyhow::Result;
use opfs_probe_common::epoch::EpochTotals;

use super::Watcher;
use super::clock::monotonic_ns;
use super::state::State;
use crate::attribution::totals::{FileRef, Totals};
use crate::attribution::window::{Epoch, SessionId};
use crate::kernel::collector::{Collector, Record, barrier};

/// How long a session stays in one epoch, so that the kernel's maps stay small.
const LONGEST_EPOCH: Duration = Duration::from_secs(10);

impl Watcher {
    /// Takes over the counts of all epochs that ended and have no call in flight.
    pub fn drain(&self) -> Result<()> {
        let Some(mut collector) = self.collector() else { return Ok(()) };
        self.take_records(&mut collector);
        let (ended, slots, moment) = {
            let state = self.state();
            let ended = state.epochs.iter().filter(|(_, epoch)| epoch.ended).map(|(epoch, _)| *epoch);
            (ended.collect::<Vec<_>>(), state.closing_slots.clone(), state.attribution.moment())
        };
        if ended.is_empty() && slots.is_empty() {
            return Ok(());
        }
        barrier()?;
        let in_flight = collector.epochs_in_flight();
        self.take_flushes(&mut collector, moment)?;
        let settled: HashMap<Epoch, EpochTotals> = {
            let mut state = self.state();
            state.free(&slots);
            let totals = |epoch: Epoch| Some((epoch, state.control.as_ref()?.epoch_totals(epoch)?));
            let settled = ended.into_iter().filter(|epoch| !in_flight.contains(epoch)).filter_map(totals);
            settled.filter(|(_, totals)| totals.entered == totals.returned).collect()
        };
        if settled.is_empty() {
            return Ok(());
        }
        let counts = collector.read(&settled)?;
        // The name of a call's file was sent before the call was counted.
        self.take_records(&mut collector);
        let mut state = self.state();
        for (epoch, totals) in &counts {
            state.attribution.absorb(*epoch, totals);
            state.attribution.retire(*epoch);
            state.epochs.remove(epoch);
            if let Some(control) = &mut state.control {
                let counted = control.counted(*epoch).map_or(0, |(calls, _)| calls);
                control.forget_epoch(*epoch);
                state.unreconciled_calls += counted.abs_diff(totals.sync_calls());
            }
            state.look_up_unnamed(totals);
        }
        drop(state);
        collector.forget(&counts)
    }

    /// Takes over what devices flushed before a moment that was the newest before the barrier.
    fn take_flushes(&self, collector: &mut Collector, moment: Epoch) -> Result<()> {
        let mut flushes = collector.flushes()?;
        let mut state = self.state();
        // Later ones may still grow; they are newer, or equal.
        let now = state.attribution.moment().0;
        let age = |epoch: Epoch| now.wrapping_sub(epoch.0);
        flushes.retain(|at, _| age(*at) > age(moment));
        for (at, devices) in &flushes {
            state.attribution.absorb_flushes(*at, devices);
        }
        drop(state);
        collector.forget_flushes(&flushes);
        Ok(())
    }

    /// What the epochs still in the kernel's maps have counted so far, by epoch.
    pub(super) fn undrained(&self, collector: &mut Collector) -> Result<HashMap<Epoch, Totals>> {
        let epochs: HashMap<Epoch, EpochTotals> = {
            let state = self.state();
            let totals = |epoch: Epoch| Some((epoch, state.control.as_ref()?.epoch_totals(epoch)?));
            state.epochs.keys().filter_map(|epoch| totals(*epoch)).collect()
        };
        let mut counts = collector.read(&epochs)?;
        let flushes = collector.flushes()?;
        self.take_records(collector);
        let mut state = self.state();
        for (moment, devices) in flushes {
            let more = Totals { flushes: Some(devices), ..Totals::default() };
            for epoch in state.attribution.during(moment) {
                counts.entry(epoch).and_modify(|totals| totals.add(&more));
            }
        }
        for totals in counts.values() {
            state.look_up_unnamed(totals);
        }
        Ok(counts)
    }

    /// Moves sessions on that have been in one epoch for long.
    pub(super) fn rotate_old_epochs(&self) {
        let mut state = self.state();
        let due = monotonic_ns().saturating_sub(LONGEST_EPOCH.as_nanos() as u64);
        let old: Vec<SessionId> = state
            .facts
            .iter()
            .filter(|(_, facts)| facts.slot.is_some() && facts.epoch_since.monotonic_ns < due)
            .map(|(session, _)| *session)
            .collect();
        for session in old {
            if !state.has_room() {
                break;
            }
            if let Err(error) = state.rotate(session) {
                tracing::error!("starting an epoch: {error:#}");
            }
        }
    }

    fn take_records(&self, collector: &mut Collector) {
        while let Some(record) = collector.next_record() {
            let mut state = self.state();
            match record {
                Record::File { record, components } => state.names.see(&record, &components),
                Record::Process { record, args, executable } => {
                    state.images.see(&record, &args, &executable);
                }
            }
        }
        collector.flush_log();
    }
}

impl State {
    /// Asks `/proc` for what the kernel side did not name: its record was lost.
    fn look_up_unnamed(&mut self, totals: &Totals) {
        let mut asked = HashSet::new();
        let asked_for = totals.calls.keys().map(|key| (key.file, key.process));
        let performed = totals.performed.iter().flatten().map(|(key, _)| (key.file, key.process));
        for (file, process) in asked_for.chain(performed) {
            let (FileRef::Known(file), Some(process)) = (file, process) else { continue };
            if self.names.get(&file).is_some() || !asked.insert(file) {
                continue;
            }
            if let Some(pid) = self.images.get(process).map(|image| image.pid) {
                self.names.resolve_from_proc(&file, pid);
            }
        }
    }
}
