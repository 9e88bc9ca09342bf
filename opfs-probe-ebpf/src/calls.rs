//! Finished calls, by epoch, process, file and outcome.
//!
//! Each CPU counts in slots of its own, found by a hash of the key; what finds its slot taken by another key
//! goes to a hash map that the CPUs share, and what finds no room there is counted without process and file.

use aya_ebpf::maps::HashMap;
use opfs_probe_common::call::{
    CALL_SLOTS as PER_CPU, CallKey, CallSlot, CallTally, DETAIL_LOST, FileIdentity,
};
use opfs_probe_common::epoch::NO_EPOCH;

use crate::kernel::{add, cpu, hash, keep_order, raise};
use crate::latencies;
use crate::maps::{CALL_SLOTS, CALLS, OVERFLOW, lose};

/// Counts one call that took `ns`. Only by programs that no other that counts calls can interrupt: those of
/// system calls.
#[inline(always)]
pub fn count(key: CallKey, ns: u64) {
    let cpu = cpu();
    if !count_in_slot(cpu, &key, ns) {
        count_in_map(key, ns, 0);
    }
    latencies::observe(cpu, key.epoch, key.op, ns);
}

/// The same by programs that others may interrupt.
#[inline(always)]
pub fn count_shared(key: CallKey, ns: u64) {
    count_in_map(key, ns, 0);
    latencies::observe_in_map(key.epoch, key.op, ns);
}

/// Counts one call whose time is not known.
#[inline(always)]
pub fn count_untimed(key: CallKey) {
    count_in_map(key, 0, 1);
    latencies::count_untimed(key.epoch);
}

#[inline(always)]
fn count_in_slot(cpu: u32, key: &CallKey, ns: u64) -> bool {
    let Some(slot) = CALL_SLOTS.get_ptr_mut(cpu * PER_CPU + index(key)) else { return false };
    // SAFETY: a valid map value that only this CPU writes while it is taken, and whose user no other
    // interrupts.
    unsafe {
        if (&raw const (*slot).key.epoch).read_volatile() == NO_EPOCH {
            take(slot, key);
        } else if (*slot).key != *key {
            return false;
        }
        (*slot).count += 1;
        (*slot).total_ns += ns;
        if ns > (*slot).max_ns {
            (*slot).max_ns = ns;
        }
    }
    true
}

/// Makes a free slot the key's.
///
/// # Safety
/// `slot` must be a map value that is free, and this CPU's.
#[inline(always)]
unsafe fn take(slot: *mut CallSlot, key: &CallKey) {
    // SAFETY: the caller's promise. Readers look at the epoch first.
    unsafe {
        (*slot).key = CallKey { epoch: NO_EPOCH, ..*key };
        keep_order();
        (&raw mut (*slot).key.epoch).write_volatile(key.epoch);
    }
}

#[inline(always)]
fn index(key: &CallKey) -> u32 {
    let caller = u64::from(key.process) << 32 | u64::from(key.op) << 16 | u64::from(key.errno);
    hash(key.file.inode_address ^ caller ^ u64::from(key.epoch) << 40, PER_CPU)
}

#[inline(always)]
fn count_in_map(key: CallKey, ns: u64, untimed: u64) {
    if tally(&CALLS, &key, ns, untimed) {
        return;
    }
    lose(|losses| &mut losses.detail_lost);
    let overflow = CallKey { file: FileIdentity::NONE, process: 0, flags: DETAIL_LOST, ..key };
    if !tally(&OVERFLOW, &overflow, ns, untimed) {
        lose(|losses| &mut losses.calls_lost);
    }
}

#[inline(always)]
fn tally(map: &HashMap<CallKey, CallTally>, key: &CallKey, ns: u64, untimed: u64) -> bool {
    const NO_EXIST: u64 = 1;
    let tally = match map.get_ptr_mut(*key) {
        Some(tally) => tally,
        None => {
            let first = CallTally { count: 1, total_ns: ns, max_ns: ns, untimed };
            if map.insert(*key, first, NO_EXIST).is_ok() {
                return true;
            }
            // Another CPU may have been first.
            match map.get_ptr_mut(*key) {
                Some(tally) => tally,
                None => return false,
            }
        }
    };
    // SAFETY: a valid map value.
    unsafe {
        if !raise(&raw mut (*tally).max_ns, ns) {
            return false;
        }
        add(&raw mut (*tally).count, 1);
        add(&raw mut (*tally).total_ns, ns);
        if untimed != 0 {
            add(&raw mut (*tally).untimed, untimed);
        }
    }
    true
}
