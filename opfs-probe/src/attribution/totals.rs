//! The currency of the program: what was counted in some stretch of time, exact and mergeable.

use std::collections::HashMap;

use opfs_probe_common::call::{CallTally, FileIdentity, Op};
use opfs_probe_common::epoch::OpenTotals;
use opfs_probe_common::flushed::FlushTally;
use opfs_probe_common::histogram::Histogram;
use opfs_probe_common::performed::{Cause, Filesystem};

/// Which file a call was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileRef {
    /// The call has no file: `sync`, a descriptor that is not open.
    None,
    /// The file is known by its identity; its names are kept beside.
    Known(FileIdentity),
    /// The call has a file, but which one was not seen (an `msync` while the mappings change).
    Unseen,
    /// There was no room to keep the file and the process apart.
    Lost,
}

/// What calls are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallKey {
    /// The kind of call.
    pub op: Op,
    /// The process image, a key of [`crate::processes::Images`]; none when that detail was lost.
    pub process: Option<u32>,
    /// The file.
    pub file: FileRef,
    /// 0 for success, else the errno.
    pub errno: u16,
}

/// What performed syncs are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PerformedKey {
    /// Which file system did it.
    pub filesystem: Filesystem,
    /// What made it.
    pub cause: Cause,
    /// The process image behind it; none when that detail was lost.
    pub process: Option<u32>,
    /// The file, as that file system knows it.
    pub file: FileRef,
}

/// Everything counted in an epoch, a window or a session.
///
/// `None` in an optional field means not measured, never zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// Finished sync calls.
    pub calls: HashMap<CallKey, CallTally>,
    /// Latencies of finished sync calls by op. An op that was called but has no entry was not timed.
    pub histograms: HashMap<Op, Histogram>,
    /// Syncs that file systems performed, where that is seen.
    pub performed: Option<HashMap<PerformedKey, u64>>,
    /// What devices flushed meanwhile, by device number in the kernel's encoding, where that is seen.
    pub flushes: Option<HashMap<u32, FlushTally>>,
    /// Opens, where they were watched.
    pub opens: Option<OpenTotals>,
    /// Calls that returned in a later epoch than they began in (they are in `calls` all the same).
    pub straddling: u64,
    /// Calls that the kernel restarted (not in `calls`).
    pub restarted: u64,
    /// Calls entered and not yet returned (not in `calls`).
    pub in_flight: u64,
}

impl Totals {
    /// Adds `other` to these totals.
    pub fn add(&mut self, other: &Self) {
        for (key, tally) in &other.calls {
            self.add_call(*key, *tally);
        }
        for (op, histogram) in &other.histograms {
            let mine = self.histograms.entry(*op).or_insert(Histogram::ZERO);
            for (sum, count) in mine.buckets.iter_mut().zip(histogram.buckets) {
                *sum += count;
            }
        }
        if let Some(theirs) = &other.performed {
            self.performed.get_or_insert_default();
            for (key, count) in theirs {
                self.add_performed(*key, *count);
            }
        }
        if let Some(theirs) = &other.flushes {
            let mine = self.flushes.get_or_insert_default();
            for (dev, tally) in theirs {
                mine.entry(*dev).or_default().add(tally);
            }
        }
        if let Some(theirs) = other.opens {
            let mine = self.opens.get_or_insert_default();
            mine.count += theirs.count;
            mine.errors += theirs.errors;
            mine.create += theirs.create;
            mine.excl += theirs.excl;
            mine.trunc += theirs.trunc;
            mine.sync += theirs.sync;
            mine.dsync += theirs.dsync;
            mine.direct += theirs.direct;
        }
        self.straddling += other.straddling;
        self.restarted += other.restarted;
        self.in_flight += other.in_flight;
    }

    /// Adds finished calls of one kind.
    pub fn add_call(&mut self, key: CallKey, tally: CallTally) {
        let mine = self.calls.entry(key).or_default();
        mine.count += tally.count;
        mine.total_ns += tally.total_ns;
        mine.max_ns = mine.max_ns.max(tally.max_ns);
        mine.untimed += tally.untimed;
    }

    /// Adds performed syncs of one kind.
    pub fn add_performed(&mut self, key: PerformedKey, count: u64) {
        *self.performed.get_or_insert_default().entry(key).or_default() += count;
    }

    /// Number of finished sync calls.
    pub fn sync_calls(&self) -> u64 {
        self.calls.values().map(|tally| tally.count).sum()
    }

    /// Time inside finished sync calls.
    pub fn sync_ns(&self) -> u64 {
        self.calls.values().map(|tally| tally.total_ns).sum()
    }
}
