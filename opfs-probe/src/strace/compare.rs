//! Two tracers' counts of the same run, side by side.

use std::collections::{BTreeMap, BTreeSet};

use opfs_probe_common::call::Op;
use serde::Serialize;

/// Counts by window (its names from the outermost to it) and op.
pub type Counts = BTreeMap<Vec<String>, BTreeMap<Op, u64>>;

/// One window's count of one op.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The window: its names from the outermost to it.
    pub window: Vec<String>,
    /// The op.
    #[serde(serialize_with = "op_name")]
    pub op: Op,
    /// Counted in the kernel.
    pub ebpf: u64,
    /// Counted by strace.
    pub strace: u64,
    /// strace's calls too near the window's edge to be sure of.
    pub ambiguous: u64,
    /// Both counts are the same.
    pub equal: bool,
    /// They differ, by no more than the calls near the edge.
    pub explained_by_boundary: bool,
}

/// Every window and op that either tracer counted.
pub fn compare(ebpf: &Counts, strace: &Counts, ambiguous: &Counts) -> Vec<Row> {
    let keys: BTreeSet<(&Vec<String>, Op)> = [ebpf, strace]
        .into_iter()
        .flatten()
        .flat_map(|(window, ops)| ops.keys().map(move |op| (window, *op)))
        .collect();
    let count = |counts: &Counts, window: &Vec<String>, op: Op| {
        counts.get(window).and_then(|ops| ops.get(&op)).copied().unwrap_or(0)
    };
    keys.into_iter()
        .map(|(window, op)| {
            let (ours, theirs) = (count(ebpf, window, op), count(strace, window, op));
            let ambiguous = count(ambiguous, window, op);
            Row {
                window: window.clone(),
                op,
                ebpf: ours,
                strace: theirs,
                ambiguous,
                equal: ours == theirs,
                explained_by_boundary: ours != theirs && ours.abs_diff(theirs) <= ambiguous,
            }
        })
        .collect()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn op_name<S: serde::Serializer>(op: &Op, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(op.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(rows: &[(&str, Op, u64)]) -> Counts {
        let mut counts = Counts::new();
        for (window, op, count) in rows {
            counts.entry(vec![(*window).to_owned()]).or_default().insert(*op, *count);
        }
        counts
    }

    #[test]
    fn a_difference_is_explained_only_as_far_as_the_edges_go() {
        let ebpf = counts(&[("a", Op::Fsync, 5), ("b", Op::Fsync, 5), ("c", Op::Fsync, 5)]);
        let strace =
            counts(&[("a", Op::Fsync, 5), ("b", Op::Fsync, 6), ("c", Op::Fsync, 7), ("d", Op::Sync, 1)]);
        let rows = compare(
            &ebpf,
            &strace,
            &counts(&[("a", Op::Fsync, 9), ("b", Op::Fsync, 1), ("c", Op::Fsync, 1)]),
        );
        let verdicts: Vec<_> = rows.iter().map(|row| (row.equal, row.explained_by_boundary)).collect();
        assert_eq!(verdicts, [(true, false), (false, true), (false, false), (false, false)]);
        assert_eq!(serde_json::to_value(&rows[3]).unwrap()["op"], "sync");
    }
}
