//! The sync calls that were entered and have not returned, by thread.
//!
//! A call has the slot that its thread's id leads to, or where another thread's call is in that, an entry of
//! a hash map. In a slot only its epoch says when it is over; those in the hash map are counted in and out.

use opfs_probe_common::call::{IN_FLIGHT_SLOTS, InFlightCall, InFlightSlot};
use opfs_probe_common::epoch::NO_EPOCH;

use crate::kernel::{add, compare_exchange, keep_order};
use crate::maps::{CROWDED, EPOCHS, IN_FLIGHT};

/// What became of a call that began.
pub enum Began {
    Kept,
    /// There was no room.
    Unkept,
    /// The thread's last call never returned, as far as could be seen: this one is in its place.
    InPlaceOf(InFlightCall),
}

/// The sync call that the current thread is in; `thread` is its `bpf_get_current_pid_tgid`.
#[inline(always)]
pub fn current(thread: u64) -> Option<&'static InFlightCall> {
    if let Some(slot) = slot(thread) {
        // SAFETY: a valid map value. The thread's own call is written by the thread alone, which runs this.
        let slot = unsafe { &*slot };
        if slot.thread == thread as u32 {
            return Some(&slot.call);
        }
    }
    // SAFETY: as above.
    CROWDED.get_ptr(thread).map(|call| unsafe { &*call })
}

/// Keeps a call of the current thread that begins.
#[inline(always)]
pub fn begin(thread: u64, call: InFlightCall) -> Began {
    let Some(slot) = slot(thread) else { return begin_crowded(thread, &call) };
    // SAFETY: a valid map value.
    match unsafe { compare_exchange(&raw mut (*slot).thread, 0, thread as u32) } {
        0 => {
            put(slot, call);
            Began::Kept
        }
        other if other == thread as u32 => {
            // SAFETY: as in `current`.
            let unreturned = unsafe { (*slot).call };
            put(slot, call);
            Began::InPlaceOf(unreturned)
        }
        _ => begin_crowded(thread, &call),
    }
}

#[inline(always)]
fn put(slot: *mut InFlightSlot, call: InFlightCall) {
    // SAFETY: a valid map value, which is this thread's. Readers look at the epoch first.
    unsafe {
        (*slot).call = InFlightCall { epoch: NO_EPOCH, ..call };
        keep_order();
        (&raw mut (*slot).call.epoch).write_volatile(call.epoch);
    }
}

#[inline(always)]
fn begin_crowded(thread: u64, call: &InFlightCall) -> Began {
    let Some(epoch) = EPOCHS.get_ptr_mut(call.epoch) else { return Began::Unkept };
    if CROWDED.insert(thread, call, 0).is_err() {
        return Began::Unkept;
    }
    // SAFETY: a valid map value.
    unsafe { add(&raw mut (*epoch).entered, 1) };
    Began::Kept
}

/// The current thread's call, of this epoch, has returned and is counted: an epoch whose calls have all
/// ended has all their counts.
#[inline(always)]
pub fn end(thread: u64, epoch: u32) {
    if let Some(slot) = slot(thread) {
        // SAFETY: a valid map value, which the thread gives back if it is its own.
        unsafe {
            if (*slot).thread == thread as u32 {
                keep_order();
                (&raw mut (*slot).call.epoch).write_volatile(NO_EPOCH);
                (&raw mut (*slot).thread).write_volatile(0);
                return;
            }
        }
    }
    if CROWDED.remove(thread).is_ok()
        && let Some(epoch) = EPOCHS.get_ptr_mut(epoch)
    {
        // SAFETY: a valid map value.
        unsafe { add(&raw mut (*epoch).returned, 1) };
    }
}

#[inline(always)]
fn slot(thread: u64) -> Option<*mut InFlightSlot> {
    IN_FLIGHT.get_ptr_mut(thread as u32 & (IN_FLIGHT_SLOTS - 1))
}
