//! The sync calls that were entered and have not returned, by thread.

use opfs_probe_common::call::InFlightCall;

use crate::maps::IN_FLIGHT;

/// The sync call that the current thread is in; `thread` is its `bpf_get_current_pid_tgid`.
#[inline(always)]
pub fn current(thread: u64) -> Option<&'static InFlightCall> {
    // SAFETY: a valid map value that only its own thread writes, which runs this program.
    IN_FLIGHT.get_ptr(thread).map(|call| unsafe { &*call })
}

/// Keeps a call that begins; says whether there was room.
#[inline(always)]
pub fn begin(thread: u64, call: &InFlightCall) -> bool {
    IN_FLIGHT.insert(thread, call, 0).is_ok()
}

/// The thread's call has returned and is counted.
#[inline(always)]
pub fn end(thread: u64) {
    let _ = IN_FLIGHT.remove(thread);
}
