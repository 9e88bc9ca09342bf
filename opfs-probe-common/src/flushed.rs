//! What devices were given to make durable, as the kernel side counts it.

use core::mem::size_of;

use crate::histogram::Histogram;

/// Key of the per-CPU counters of flushes.
///
/// A device is everybody's, so flushes are told apart by time: the moment is the newest epoch of any session
/// when the device was done.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlushKey {
    /// The newest epoch of any session.
    pub moment: u32,
    /// The whole disk, as the kernel encodes device numbers: 12 bits major, 20 bits minor.
    pub dev: u32,
}

/// Flushes and FUA writes that one device was done with.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushTally {
    /// Cache flushes.
    pub flushes: u64,
    /// Forced-unit-access writes.
    pub fua: u64,
    /// Those of either kind that failed.
    pub errors: u64,
    /// Time from issue to completion, of both kinds.
    pub total_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl FlushTally {
    /// Adds what another CPU or epoch counted.
    pub fn add(&mut self, other: &Self) {
        self.flushes += other.flushes;
        self.fua += other.fua;
        self.errors += other.errors;
        self.total_ns += other.total_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

/// All of one device since the probe was loaded.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceTally {
    /// Cache flushes.
    pub flushes: u64,
    /// Forced-unit-access writes.
    pub fua: u64,
    /// Time from issue to completion, of both kinds.
    pub total_ns: u64,
    /// Latencies of both kinds.
    pub latencies: Histogram,
}

impl DeviceTally {
    /// Nothing yet.
    pub const ZERO: Self = Self { flushes: 0, fua: 0, total_ns: 0, latencies: Histogram::ZERO };
}

const _: () = assert!(size_of::<FlushKey>() == 8);
const _: () = assert!(size_of::<FlushTally>() == 40);
const _: () = assert!(size_of::<DeviceTally>() == 24 + size_of::<Histogram>());

crate::pod!(FlushKey, FlushTally, DeviceTally);
