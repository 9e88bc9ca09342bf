//! Both clocks at once.

use jiff::Timestamp;
use nix::time::{ClockId, clock_gettime};

use crate::attribution::window::Moment;

/// The present moment.
pub fn now() -> Moment {
    Moment { monotonic_ns: monotonic_ns(), realtime: Timestamp::now() }
}

/// `CLOCK_MONOTONIC`, the clock of the kernel side.
pub fn monotonic_ns() -> u64 {
    // The clock exists on every Linux.
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}
