//! What the metrics say, as plain data.

use std::collections::BTreeMap;

use opfs_probe_common::call::Op;
use opfs_probe_common::flushed::DeviceTally;
use opfs_probe_common::histogram::Histogram;
use opfs_probe_common::performed::{Cause, Filesystem};

use crate::attribution::totals::Totals;

/// Everything that is measured, at one moment. `None` means not measured.
///
/// Counts are since the program started: they must not shrink when a session or window is forgotten.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// By session name, in the order they were first seen; equal names are added up.
    pub sessions: Vec<Named>,
    /// By window name, children included, in the order they were first seen.
    pub windows: Vec<Named>,
    /// What each block device flushed, by name, where that is seen.
    pub devices: Option<Vec<Device>>,
    /// Sync calls that have not returned.
    pub in_flight: Option<InFlight>,
    /// Events lost between the kernel and us.
    pub events_lost: Option<u64>,
    /// Calls counted without their file and process.
    pub detail_lost: Option<u64>,
    /// Every probe that was planned.
    pub probes: Vec<Probe>,
    /// Windows open now.
    pub windows_open: Option<u64>,
    /// Windows begun, each once however often it was entered.
    pub windows_total: Option<u64>,
    /// What runs where.
    pub build: Option<Build>,
}

/// Counts of all sessions, or windows, of one name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Named {
    /// The name.
    pub name: String,
    /// What was counted.
    pub counts: Counts,
}

/// A block device, and what it flushed.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Counts and latencies.
    pub flushed: DeviceTally,
}

/// Sync calls, without their files and processes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// By op and errno, 0 for success.
    pub calls: BTreeMap<(Op, u16), Tally>,
    /// Syncs that file systems performed, where that is seen.
    pub performed: BTreeMap<(Filesystem, Cause), u64>,
    /// Latencies by op, where they were measured.
    pub histograms: BTreeMap<Op, Histogram>,
}

/// Calls of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many.
    pub count: u64,
    /// Time inside them.
    pub total_ns: u64,
}

/// Calls under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// How many.
    pub calls: u64,
    /// How long the oldest has taken so far; none if there is none.
    pub oldest_ns: Option<u64>,
}

/// One probe of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Its name.
    pub name: String,
    /// What it looks at: syscall, filesystem, uring, block or process.
    pub layer: String,
    /// Whether it is attached.
    pub attached: bool,
    /// How often it ran, while that was measured.
    pub runs: Option<u64>,
    /// Time it ran then.
    pub run_ns: Option<u64>,
    /// How often the kernel skipped it, where it counts that.
    pub missed: Option<u64>,
}

/// What runs where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// Our version.
    pub version: String,
    /// The kernel's release.
    pub kernel: String,
}

impl Counts {
    /// Adds what was counted somewhere.
    pub fn add_totals(&mut self, totals: &Totals) {
        for (key, tally) in &totals.calls {
            let mine = self.calls.entry((key.op, key.errno)).or_default();
            mine.count += tally.count;
            mine.total_ns += tally.total_ns;
        }
        for (key, count) in totals.performed.iter().flatten() {
            *self.performed.entry((key.filesystem, key.cause)).or_default() += count;
        }
        for (op, histogram) in &totals.histograms {
            self.add_histogram(*op, histogram);
        }
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &Self) {
        for (kind, tally) in &other.calls {
            let mine = self.calls.entry(*kind).or_default();
            mine.count += tally.count;
            mine.total_ns += tally.total_ns;
        }
        for (kind, count) in &other.performed {
            *self.performed.entry(*kind).or_default() += count;
        }
        for (op, histogram) in &other.histograms {
            self.add_histogram(*op, histogram);
        }
    }

    fn add_histogram(&mut self, op: Op, histogram: &Histogram) {
        let mine = self.histograms.entry(op).or_insert(Histogram::ZERO);
        for (sum, count) in mine.buckets.iter_mut().zip(histogram.buckets) {
            *sum += count;
        }
    }
}
