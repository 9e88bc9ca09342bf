//! From strace's calls to totals by epoch.
//!
//! The kernel side knows a call's epoch; strace knows only when it saw the call begin. The stamp is
//! taken by another process, before the kernel enters the call, and announcements are stamped by a
//! third. So a call near the edge of an epoch may belong to its neighbour: such calls are kept apart
//! as [ambiguous](Attributed::ambiguous_in), and a difference no larger than them proves nothing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::RangeInclusive;

use opfs_probe_common::call::{CallTally, FileIdentity, Op};
use opfs_probe_common::histogram::{Histogram, bucket};

use super::parse::{Call, Outcome};
use crate::attribution::totals::{CallKey, FileRef, Totals};
use crate::attribution::window::Epoch;

/// How far strace's stamp may be from the kernel's idea of when a call began.
pub const BOUND_NS: u64 = 2_000_000;

/// When an epoch of a session began; it lasts until the next one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochStart {
    /// Which.
    pub epoch: Epoch,
    /// `CLOCK_REALTIME`
    pub realtime_ns: u64,
}

/// strace's calls by epoch.
#[derive(Clone, Debug, Default)]
pub struct Attributed {
    /// By the epoch in which strace saw them begin.
    pub totals: HashMap<Epoch, Totals>,
    /// Calls before the first epoch.
    pub before: u64,
    /// The files in the totals.
    pub paths: PathTable,
    /// The threads in the totals. (strace tells no process from its threads.)
    pub threads: ThreadTable,
    epochs: Vec<EpochStart>,
    near_edges: Vec<NearEdge>,
}

/// A call that may belong to a neighbouring epoch.
#[derive(Clone, Debug)]
struct NearEdge {
    op: Op,
    /// Positions in `epochs`: where it was put, and where it may belong; 0 is before the first.
    own: usize,
    candidates: RangeInclusive<usize>,
}

/// Puts calls into the epochs of their session. `bound_ns` is usually [`BOUND_NS`].
pub fn attribute(calls: &[Call], epochs: &[EpochStart], bound_ns: u64) -> Attributed {
    let mut sorted = epochs.to_vec();
    sorted.sort_by_key(|start| start.realtime_ns);
    let mut out = Attributed { epochs: sorted, ..Attributed::default() };
    for call in calls {
        out.take(call, bound_ns);
    }
    out
}

impl Attributed {
    fn take(&mut self, call: &Call, bound_ns: u64) {
        // How many epochs had begun by then: the last of them is the call's.
        let begun = |ns: u64| self.epochs.partition_point(|start| start.realtime_ns <= ns);
        let own = begun(call.started_ns);
        let candidates =
            begun(call.started_ns.saturating_sub(bound_ns))..=begun(call.started_ns.saturating_add(bound_ns));
        let straddles = begun(call.started_ns.saturating_add(call.duration_ns.unwrap_or(0))) != own;
        if candidates.start() != candidates.end() && counts(call.outcome) {
            self.near_edges.push(NearEdge { op: call.op, own, candidates });
        }
        let Some(epoch) = own.checked_sub(1).map(|index| self.epochs[index].epoch) else {
            self.before += u64::from(counts(call.outcome));
            return;
        };
        let file = self.file(call);
        let process = Some(self.threads.intern(call.tid));
        let totals = self.totals.entry(epoch).or_default();
        let errno = match call.outcome {
            Outcome::Success => 0,
            Outcome::Error(errno) => errno,
            Outcome::Restarted => {
                totals.restarted += 1;
                return;
            }
            Outcome::Unfinished => {
                totals.in_flight += 1;
                return;
            }
        };
        let time = call.duration_ns.unwrap_or(0);
        let untimed = u64::from(call.duration_ns.is_none());
        let key = CallKey { op: call.op, process, file, errno };
        totals.add_call(key, CallTally { count: 1, total_ns: time, max_ns: time, untimed });
        totals.straddling += u64::from(straddles);
        if let Some(ns) = call.duration_ns {
            totals.histograms.entry(call.op).or_insert(Histogram::ZERO).buckets[bucket(ns)] += 1;
        }
    }

    fn file(&mut self, call: &Call) -> FileRef {
        match &call.path {
            Some(path) => FileRef::Known(self.paths.intern(path, call.deleted)),
            None if call.op == Op::Sync || call.outcome == Outcome::Error(EBADF) => FileRef::None,
            None => FileRef::Unseen,
        }
    }

    /// Calls by op that may be counted in a window with these epochs and belong outside, or the reverse.
    pub fn ambiguous_in(&self, window: &HashSet<Epoch>) -> BTreeMap<Op, u64> {
        let inside = |position: usize| {
            position.checked_sub(1).is_some_and(|index| window.contains(&self.epochs[index].epoch))
        };
        let mut counts = BTreeMap::new();
        for call in &self.near_edges {
            if call.candidates.clone().any(|position| inside(position) != inside(call.own)) {
                *counts.entry(call.op).or_insert(0) += 1;
            }
        }
        counts
    }
}

const EBADF: u16 = nix::errno::Errno::EBADF as u16;

/// Whether the kernel side counts such a call as finished.
fn counts(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Success | Outcome::Error(_))
}

/// Identities for files that are known by path only: running inode numbers on no device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathTable {
    numbers: HashMap<(Vec<u8>, bool), u64>,
    paths: Vec<(Vec<u8>, bool)>,
}

impl PathTable {
    /// The identity of a path, and of the deleted file that had it.
    pub fn intern(&mut self, path: &[u8], deleted: bool) -> FileIdentity {
        let next = self.paths.len() as u64 + 1;
        let key = (path.to_vec(), deleted);
        let inode = *self.numbers.entry(key).or_insert_with_key(|key| {
            self.paths.push(key.clone());
            next
        });
        FileIdentity { inode, ..FileIdentity::NONE }
    }

    /// Every file: its identity, its path, whether it was deleted.
    pub fn iter(&self) -> impl Iterator<Item = (FileIdentity, &[u8], bool)> {
        self.paths.iter().zip(1..).map(|((path, deleted), inode)| {
            (FileIdentity { inode, ..FileIdentity::NONE }, path.as_slice(), *deleted)
        })
    }
}

/// Process numbers for threads, from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadTable {
    numbers: HashMap<u32, u32>,
}

impl ThreadTable {
    fn intern(&mut self, tid: u32) -> u32 {
        let next = self.numbers.len() as u32 + 1;
        *self.numbers.entry(tid).or_insert(next)
    }

    /// Every thread: its number in the totals, its id.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.numbers.iter().map(|(tid, number)| (*number, *tid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(started_ns: u64, op: Op) -> Call {
        Call {
            tid: 17,
            started_ns,
            duration_ns: Some(10),
            op,
            path: Some(b"/a".to_vec()),
            deleted: false,
            outcome: Outcome::Success,
        }
    }

    fn starts(at: &[u64]) -> Vec<EpochStart> {
        at.iter().zip(1..).map(|(ns, number)| EpochStart { epoch: Epoch(number), realtime_ns: *ns }).collect()
    }

    #[test]
    fn a_call_counts_where_it_began() {
        let calls = [call(50, Op::Fsync), call(100, Op::Fsync), call(195, Op::Fsync), call(200, Op::Sync)];
        let out = attribute(&calls, &starts(&[100, 200]), 0);
        assert_eq!(out.before, 1);
        assert_eq!(out.totals[&Epoch(1)].sync_calls(), 2);
        assert_eq!(out.totals[&Epoch(1)].straddling, 1);
        assert_eq!(out.totals[&Epoch(2)].sync_ns(), 10);
        assert_eq!(out.totals[&Epoch(1)].histograms[&Op::Fsync].buckets[bucket(10)], 2);
        assert!(out.ambiguous_in(&HashSet::from([Epoch(1)])).is_empty());
    }

    #[test]
    fn calls_near_an_edge_are_ambiguous_to_the_windows_that_it_bounds() {
        let out =
            attribute(&[call(205, Op::Fsync), call(395, Op::Fsync)], &starts(&[100, 200, 300, 400]), 20);
        let count = |epochs: &[u32]| {
            let window = epochs.iter().copied().map(Epoch).collect();
            out.ambiguous_in(&window).get(&Op::Fsync).copied().unwrap_or(0)
        };
        assert_eq!(count(&[2]), 1);
        assert_eq!(count(&[3]), 1);
        // An edge inside of a window, or far from the call, matters nothing to it.
        assert_eq!(count(&[1, 2]), 0);
        assert_eq!(count(&[2, 3]), 2);
        assert_eq!(count(&[1, 2, 3, 4]), 0);
    }

    #[test]
    fn what_did_not_finish_is_no_call() {
        let unfinished = Call { outcome: Outcome::Unfinished, duration_ns: None, ..call(10, Op::Fsync) };
        let restarted = Call { outcome: Outcome::Restarted, ..call(10, Op::Fsync) };
        let failed = Call { outcome: Outcome::Error(EBADF), path: None, ..call(10, Op::Fsync) };
        let out = attribute(&[unfinished, restarted, failed], &starts(&[0]), 0);
        let totals = &out.totals[&Epoch(1)];
        assert_eq!((totals.sync_calls(), totals.restarted, totals.in_flight), (1, 1, 1));
        let key = CallKey { op: Op::Fsync, process: Some(1), file: FileRef::None, errno: EBADF };
        assert!(totals.calls.contains_key(&key), "{totals:?}");
    }

    #[test]
    fn a_deleted_file_is_another_than_its_successor() {
        let mut table = PathTable::default();
        let (old, new) = (table.intern(b"/a", true), table.intern(b"/a", false));
        assert_ne!(old, new);
        assert_eq!(table.intern(b"/a", true), old);
        assert_eq!(table.iter().collect::<Vec<_>>(), [(old, &b"/a"[..], true), (new, &b"/a"[..], false)]);
    }

    proptest::proptest! {
        #[test]
        fn no_call_is_lost(times in proptest::collection::vec(0_u64..1000, 0..50),
                           edges in proptest::collection::vec(0_u64..1000, 0..10), bound in 0_u64..100) {
            let calls: Vec<Call> = times.iter().map(|ns| call(*ns, Op::Fdatasync)).collect();
            let out = attribute(&calls, &starts(&edges), bound);
            let counted: u64 = out.totals.values().map(Totals::sync_calls).sum();
            assert_eq!(counted + out.before, times.len() as u64);
        }
    }
}
