//! Reads how long calls took: each CPU's slots, and the histograms behind them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use anyhow::{Context, Result};
use aya::Ebpf;
use aya::maps::{HashMap as KernelHash, MapData};
use opfs_probe_common::call::Op;
use opfs_probe_common::epoch::{HistogramKey, NO_EPOCH};
use opfs_probe_common::histogram::{Histogram, LATENCY_SLOTS, LatencySlot};

use super::shared::Shared;
use crate::attribution::totals::Totals;
use crate::attribution::window::Epoch;

/// The slots of all CPUs.
pub(super) struct LatencySlots(Shared<LatencySlot>);

/// Where the kernel programs keep latencies.
pub(super) struct Latencies {
    slots: Arc<LatencySlots>,
    histograms: KernelHash<MapData, HistogramKey, Histogram>,
}

impl LatencySlots {
    pub fn new(programs: &mut Ebpf) -> Result<Self> {
        Shared::take(programs, "LATENCIES").map(Self)
    }

    /// Number and total time of the calls of an epoch that are in slots so far.
    pub fn counted(&self, epoch: Epoch) -> (u64, u64) {
        let of_ops = Op::ALL.into_iter().flat_map(|op| self.of(epoch, op));
        of_ops.fold((0, 0), |(calls, ns), slot| {
            (calls + slot.buckets.iter().map(|count| u64::from(*count)).sum::<u64>(), ns + slot.total_ns)
        })
    }

    /// The slots of an op in an epoch: at most one a CPU.
    fn of(&self, epoch: Epoch, op: Op) -> impl Iterator<Item = LatencySlot> + '_ {
        let op = op as u32;
        let index = LatencySlot::index(epoch.0, op) as usize;
        (index..self.0.len()).step_by(LATENCY_SLOTS as usize).filter_map(move |index| {
            let slot = self.0.entry(index)?;
            // SAFETY: an entry of the array. A slot that is taken keeps its epoch and op.
            unsafe {
                if (&raw const (*slot).epoch).read_volatile() != epoch.0 {
                    return None;
                }
                fence(Ordering::Acquire);
                Some(slot.read_volatile()).filter(|slot| slot.op == op)
            }
        })
    }

    /// Frees the slots of an epoch that no call can still write to.
    fn free(&self, gone: impl Fn(u32) -> bool) {
        for slot in self.0.iter() {
            // SAFETY: an entry of the array, which the kernel side leaves alone once its epoch is over,
            // until it is free.
            unsafe {
                let epoch = (&raw const (*slot).epoch).read_volatile();
                if epoch != NO_EPOCH && gone(epoch) {
                    slot.write_volatile(LatencySlot { epoch, ..LatencySlot::FREE });
                    fence(Ordering::Release);
                    (&raw mut (*slot).epoch).write_volatile(NO_EPOCH);
                }
            }
        }
    }
}

impl Latencies {
    pub fn new(programs: &mut Ebpf, slots: Arc<LatencySlots>) -> Result<Self> {
        let histograms = programs.take_map("HISTOGRAMS").context("no map HISTOGRAMS")?;
        Ok(Self { slots, histograms: KernelHash::try_from(histograms)? })
    }

    /// Adds the latencies of each of these epochs so far.
    pub fn read(&self, epochs: &mut HashMap<Epoch, Totals>) {
        for (epoch, totals) in epochs {
            for op in Op::ALL {
                let mut buckets = self.histograms.get(&HistogramKey::new(epoch.0, op), 0).ok();
                for slot in self.slots.of(*epoch, op) {
                    let sums = &mut buckets.get_or_insert(Histogram::ZERO).buckets;
                    for (sum, count) in sums.iter_mut().zip(slot.buckets) {
                        *sum += u64::from(count);
                    }
                }
                if let Some(buckets) = buckets {
                    totals.histograms.insert(op, buckets);
                }
            }
        }
    }

    /// Deletes what was read of epochs that no call can still write to.
    pub fn forget(&mut self, epochs: &HashMap<Epoch, Totals>) {
        self.slots.free(|epoch| epochs.contains_key(&Epoch(epoch)));
        for epoch in epochs.keys() {
            for op in Op::ALL {
                // Ops that always found a slot have none.
                let _ = self.histograms.remove(&HistogramKey::new(epoch.0, op));
            }
        }
    }
}
