//! What the kernel side knows of sessions and windows: a slot's current epoch, and totals by epoch.

use core::mem::size_of;

use crate::call::Op;

/// How many sessions can be counted at once; slot [`SYSTEM_SLOT`] is everything else on the system.
pub const MAX_SESSIONS: u32 = 256;

/// The session of every process that belongs to no narrower one.
pub const SYSTEM_SLOT: u32 = 0;

/// The slot of processes whose calls are never counted: the probe's own.
pub const EXCLUDED_SLOT: u32 = u32::MAX;

/// No epoch: the session in this slot is not being counted.
pub const NO_EPOCH: u32 = 0;

/// One entry of the sessions array, by slot.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionSlot {
    /// The epoch that calls begun now belong to, or [`NO_EPOCH`].
    pub epoch: u32,
    /// The first process forked into this session, in the initial PID namespace; 0 if none yet.
    pub root_tgid: u32,
    /// The first epoch with the windows of now; not `epoch` where that only followed it in time.
    pub windows_epoch: u32,
}

impl SessionSlot {
    /// Whether a call that began in an epoch of the session and returns now straddles two.
    pub const fn straddled_by(windows_epoch: u32, call_epoch: u32) -> bool {
        // Numbers start over after the last.
        windows_epoch == NO_EPOCH || (call_epoch.wrapping_sub(windows_epoch) as i32) < 0
    }
}

/// Totals of one epoch, updated atomically, besides what is in the slots. User space creates the entry before the kernel side can see the epoch.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochTotals {
    /// Sync calls entered that found no slot among those in flight.
    pub entered: u64,
    /// Those of them that returned. The last thing that a call adds to.
    pub returned: u64,
    /// Sync calls counted outside the slots for latencies: those without a time, and those that found
    /// none free.
    pub counted: u64,
    /// Time inside those.
    pub total_ns: u64,
    /// Calls that returned when the session was already in an epoch with other windows.
    pub straddling: u64,
    /// Calls that ended with one of the kernel's restart codes (512 to 516), which count nowhere else.
    pub restarted: u64,
    /// Opens by the session's processes.
    pub opens: OpenTotals,
}

/// Opens that returned in an epoch, and how they were asked for.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenTotals {
    /// All of them: openat, openat2, open, creat.
    pub count: u64,
    /// Those that returned an error.
    pub errors: u64,
    /// With `O_CREAT`
    pub create: u64,
    /// With `O_EXCL`
    pub excl: u64,
    /// With `O_TRUNC`
    pub trunc: u64,
    /// With `O_SYNC` (both of its bits)
    pub sync: u64,
    /// With `O_DSYNC` and not `O_SYNC`
    pub dsync: u64,
    /// With `O_DIRECT`
    pub direct: u64,
}

impl EpochTotals {
    /// An epoch in which nothing happened yet.
    pub const ZERO: Self = Self {
        entered: 0,
        returned: 0,
        counted: 0,
        total_ns: 0,
        straddling: 0,
        restarted: 0,
        opens: OpenTotals { count: 0, errors: 0, create: 0, excl: 0, trunc: 0, sync: 0, dsync: 0, direct: 0 },
    };
}

/// Key of the latency histograms.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HistogramKey {
    /// The epoch in which the calls began.
    pub epoch: u32,
    /// [`Op`] as its discriminant.
    pub op: u32,
}

impl HistogramKey {
    /// The key of one op in one epoch.
    pub const fn new(epoch: u32, op: Op) -> Self {
        Self { epoch, op: op as u32 }
    }
}

const _: () = assert!(size_of::<SessionSlot>() == 12);
const _: () = assert!(size_of::<EpochTotals>() == 6 * 8 + 8 * 8);
const _: () = assert!(size_of::<HistogramKey>() == 8);

crate::pod!(SessionSlot, EpochTotals, OpenTotals, HistogramKey);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_straddles_windows_not_the_passing_of_time() {
        let straddles = SessionSlot::straddled_by;
        assert!(!straddles(7, 7), "the windows that it began under");
        assert!(!straddles(7, 9), "begun in an epoch that followed with the same windows");
        assert!(straddles(7, 6), "other windows since");
        assert!(straddles(NO_EPOCH, 6), "the session is over");
        assert!(straddles(1, u32::MAX), "numbers start over");
    }
}
