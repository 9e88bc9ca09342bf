//! How long calls took, and how many there were, by epoch and op.
//!
//! Each CPU has slots of its own, as for calls; what finds its slot taken goes to a histogram that the CPUs
//! share, and is counted in the epoch's totals.

use opfs_probe_common::epoch::{HistogramKey, NO_EPOCH};
use opfs_probe_common::histogram::{BUCKETS, Histogram, LATENCY_SLOTS, LatencySlot, bucket};

use crate::kernel::{add, keep_order};
use crate::maps::{EPOCHS, HISTOGRAMS, LATENCIES, lose};

/// Counts a call that took `ns`.
#[inline(always)]
pub fn observe(cpu: u32, epoch: u32, op: u16, ns: u64) {
    let index = bucket(ns);
    if index < BUCKETS && !observe_in_slot(cpu, epoch, u32::from(op), index, ns) {
        count_shared(epoch, ns);
        observe_shared(HistogramKey { epoch, op: u32::from(op) }, index);
    }
}

/// The same by programs that others may interrupt.
#[inline(always)]
pub fn observe_in_map(epoch: u32, op: u16, ns: u64) {
    let index = bucket(ns);
    if index < BUCKETS {
        count_shared(epoch, ns);
        observe_shared(HistogramKey { epoch, op: u32::from(op) }, index);
    }
}

/// Counts a call whose time is not known.
#[inline(always)]
pub fn count_untimed(epoch: u32) {
    count_shared(epoch, 0);
}

#[inline(always)]
fn observe_in_slot(cpu: u32, epoch: u32, op: u32, bucket: usize, ns: u64) -> bool {
    let index = LatencySlot::index(epoch, op);
    let Some(slot) = LATENCIES.get_ptr_mut(cpu * LATENCY_SLOTS + index) else { return false };
    // SAFETY: a valid map value that only this CPU writes while it is taken, and whose user no other
    // interrupts.
    unsafe {
        let owner = (&raw const (*slot).epoch).read_volatile();
        if owner == NO_EPOCH {
            take(slot, epoch, op);
        } else if owner != epoch || (*slot).op != op {
            return false;
        }
        let count = &raw mut (*slot).buckets[bucket];
        if *count == u32::MAX {
            return false;
        }
        *count += 1;
        (*slot).total_ns += ns;
    }
    true
}

/// Makes a free slot that of an op in an epoch.
///
/// # Safety
/// `slot` must be a map value that is free, and this CPU's.
#[inline(always)]
unsafe fn take(slot: *mut LatencySlot, epoch: u32, op: u32) {
    // SAFETY: the caller's promise. Readers look at the epoch first.
    unsafe {
        (*slot).op = op;
        keep_order();
        (&raw mut (*slot).epoch).write_volatile(epoch);
    }
}

#[inline(always)]
fn count_shared(epoch: u32, ns: u64) {
    let Some(epoch) = EPOCHS.get_ptr_mut(epoch) else { return };
    // SAFETY: a valid map value.
    unsafe {
        add(&raw mut (*epoch).counted, 1);
        add(&raw mut (*epoch).total_ns, ns);
    }
}

#[inline(always)]
fn observe_shared(key: HistogramKey, bucket: usize) {
    let histogram = match HISTOGRAMS.get_ptr_mut(key) {
        Some(histogram) => histogram,
        None => {
            const NO_EXIST: u64 = 1;
            static EMPTY: Histogram = Histogram::ZERO;
            #[expect(clippy::needless_borrows_for_generic_args, reason = "the stack has no room for a copy")]
            let _ = HISTOGRAMS.insert(key, &EMPTY, NO_EXIST);
            match HISTOGRAMS.get_ptr_mut(key) {
                Some(histogram) => histogram,
                None => return lose(|losses| &mut losses.histogram_lost),
            }
        }
    };
    // SAFETY: a bucket of a valid map value.
    unsafe { add(&raw mut (*histogram).buckets[bucket], 1) };
}
