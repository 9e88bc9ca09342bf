//! What is built adds up, and names what it can.

use std::collections::HashMap;

use opfs_probe_common::call::{CallTally, Op};
use opfs_probe_common::histogram::{Histogram, bucket};
use proptest::prelude::*;

use super::{ImageName, Losses, completeness, totals};
use crate::attribution::totals::{CallKey, FileRef, Totals};
use crate::report::model::{self, ResolvedBy};
use crate::report::sample::{self, Names, identity};

/// A few names, some of them for two inodes, some for none.
fn names() -> Names {
    let mut names = Names { images: HashMap::new(), ..sample::names() };
    for process in 0..3 {
        names.images.insert(process, ImageName { pid: process + 100, ..ImageName::default() });
    }
    names
}

fn file() -> impl Strategy<Value = FileRef> {
    prop_oneof![
        4 => (9_u64..16).prop_map(|inode| FileRef::Known(identity(inode))),
        1 => Just(FileRef::None),
        1 => Just(FileRef::Unseen),
        1 => Just(FileRef::Lost),
    ]
}

fn counts() -> impl Strategy<Value = Totals> {
    let call = (
        0_usize..6,
        prop::option::of(0_u32..5),
        file(),
        prop::sample::select(vec![0, 0, 5, 28, 999]),
        1_u64..50,
        0_u64..1 << 30,
        any::<bool>(),
    );
    prop::collection::vec(call, 0..60).prop_map(|calls| {
        let mut totals = Totals::default();
        for (op, process, file, errno, count, ns, timed) in calls {
            let key = CallKey { op: Op::ALL[op], process, file, errno };
            if timed {
                totals.add_call(key, CallTally { count, total_ns: count * ns, max_ns: ns, untimed: 0 });
                totals.histograms.entry(key.op).or_insert(Histogram::ZERO).buckets[bucket(ns)] += count;
            } else {
                totals.add_call(key, CallTally { count, total_ns: 0, max_ns: 0, untimed: count });
            }
        }
        totals
    })
}

fn sum<T>(items: impl IntoIterator<Item = T>, field: impl Fn(T) -> u64) -> u64 {
    items.into_iter().map(field).sum()
}

proptest! {
    #[test]
    fn every_view_of_the_calls_adds_up(counts in counts()) {
        let built = totals(&counts, &names());
        prop_assert_eq!(built.sync_calls, counts.sync_calls());
        prop_assert_eq!(sum(built.ops.values(), |op| op.count), built.sync_calls);
        prop_assert_eq!(sum(&built.processes, |process| process.count), built.sync_calls);
        prop_assert_eq!(sum(&built.files, |file| file.count) + built.no_file + built.detail_lost, built.sync_calls);

        prop_assert_eq!(built.sync_ns.unwrap_or(0), counts.sync_ns());
        prop_assert_eq!(sum(built.ops.values(), |op| op.total_ns.unwrap_or(0)), counts.sync_ns());
        prop_assert_eq!(sum(&built.processes, |process| process.total_ns.unwrap_or(0)), counts.sync_ns());

        prop_assert_eq!(sum(built.ops.values(), |op| op.errors), built.errors);
        for op in built.ops.values() {
            prop_assert!(op.count > 0);
            prop_assert_eq!(sum(op.error_codes.values(), |count| *count), op.errors);
            let timed = op.count - op.untimed;
            prop_assert_eq!(op.total_ns.is_some(), timed > 0);
            prop_assert_eq!(op.p99_ns.is_some(), timed > 0);
            if let Some(histogram) = &op.histogram {
                prop_assert_eq!(sum(histogram, |bucket| bucket.1), timed);
                prop_assert_eq!(histogram.last().unwrap().0, None);
                prop_assert!(op.p50_ns <= op.p90_ns && op.p90_ns <= op.p99_ns && op.p99_ns <= op.max_ns);
            }
        }
        for file in &built.files {
            prop_assert_eq!(sum(file.ops.values(), |op| op.count), file.count);
            prop_assert_eq!(sum(file.ops.values(), |op| op.errors), file.errors);
        }
    }

    #[test]
    fn lists_are_in_order_and_paths_appear_once(counts in counts()) {
        let built = totals(&counts, &names());
        let in_order = |a: (u64, Option<u64>), b: (u64, Option<u64>)| a >= b;
        prop_assert!(built.files.is_sorted_by(|a, b| in_order((a.count, a.total_ns), (b.count, b.total_ns))));
        prop_assert!(built.processes.is_sorted_by(|a, b| in_order((a.count, a.total_ns), (b.count, b.total_ns))));
        let mut paths: Vec<_> = built.files.iter().map(|file| file.path.clone()).collect();
        paths.sort();
        paths.dedup();
        prop_assert_eq!(paths.len(), built.files.len());
        // The order does not hang on that of a hash map.
        prop_assert_eq!(totals(&counts.clone(), &names()), built);
    }

    #[test]
    fn json_gives_back_what_it_was_given(counts in counts()) {
        let built = totals(&counts, &names());
        let text = serde_json::to_string(&built).unwrap();
        prop_assert_eq!(serde_json::from_str::<model::Totals>(&text).unwrap(), built);
    }
}

#[test]
fn a_path_with_several_inodes_is_one_file() {
    let mut names = sample::names();
    let mut counts = Totals::default();
    for inode in [11, 12] {
        sample::add(&mut counts, Op::Fsync, 1, FileRef::Known(identity(inode)), 0, 2, 10);
    }
    let journal = |names: &Names| totals(&counts, names).files.remove(0);
    let file = journal(&names);
    assert_eq!((file.count, file.inodes, file.deleted), (4, 2, true));
    assert_eq!(file.inode.as_deref(), Some("12"));

    // The older inode has got the name back: the path is not gone.
    if let Some(name) = names.files.get_mut(&identity(11)) {
        name.deleted = false;
    }
    let file = journal(&names);
    assert_eq!((file.deleted, file.inode.as_deref()), (false, Some("11")));
}

#[test]
fn calls_without_a_path_share_an_entry_and_calls_without_a_file_have_none() {
    let mut counts = Totals::default();
    sample::add(&mut counts, Op::Msync, 1, FileRef::Unseen, 0, 2, 10);
    sample::add(&mut counts, Op::Fsync, 1, FileRef::Known(identity(500)), 0, 3, 10);
    sample::add(&mut counts, Op::Sync, 1, FileRef::None, 0, 4, 10);
    sample::add(&mut counts, Op::Fsync, 1, FileRef::Lost, 0, 5, 10);
    let built = totals(&counts, &sample::names());
    assert_eq!((built.files.len(), built.no_file, built.detail_lost), (1, 4, 5));
    let unknown = &built.files[0];
    assert_eq!((unknown.path.as_ref(), unknown.count, unknown.resolved_by), (None, 5, ResolvedBy::None));
    assert_eq!((unknown.inode.as_deref(), unknown.dev.as_deref()), (Some("500"), Some("254:1")));
}

#[test]
fn nothing_counted_is_zero_and_nothing_timed_is_null() {
    let built = totals(&Totals::default(), &names());
    assert_eq!((built.sync_calls, built.sync_ns), (0, Some(0)));

    let mut counts = Totals::default();
    let key = CallKey { op: Op::Fsync, process: None, file: FileRef::None, errno: 1 };
    counts.add_call(key, CallTally { count: 3, untimed: 3, ..CallTally::default() });
    let built = totals(&counts, &names());
    let op = &built.ops["fsync"];
    assert_eq!((built.sync_ns, op.total_ns, op.max_ns, op.p50_ns), (None, None, None, None));
    assert_eq!((op.histogram.as_ref(), op.percentile_error), (None, None));
}

#[test]
fn completeness_says_what_the_sample_lacks() {
    let completeness = sample::report().completeness;
    assert!(!completeness.is_perfect());
    assert!(completeness.exact_counts);
    assert_eq!((completeness.detail_lost, completeness.in_flight_calls), (1, 1));
    // One call on an inode without a name, and two whose file was never seen.
    assert_eq!((completeness.unresolved_paths, completeness.unresolved_calls), (1, 3));
    assert!(!sample::untraced().completeness.exact_counts);
}

#[test]
fn a_skipped_probe_makes_the_counts_inexact_and_is_named() {
    let mut probes = sample::report().tracer.probes;
    let mut losses = Losses::default();
    losses.add_missed(&probes);
    assert_eq!(losses, Losses::default());
    probes[0].missed = Some(3);
    losses.add_missed(&probes);
    let completeness = completeness(&[], &losses);
    assert!(!completeness.exact_counts && !completeness.is_perfect());
    let [warning] = &completeness.warnings[..] else { panic!("{:?}", completeness.warnings) };
    assert!(warning.starts_with("the kernel skipped syscalls:sys_enter_fsync 3 times"), "{warning}");
}

#[test]
fn straddling_calls_and_gaps_alone_do_not_make_a_report_imperfect() {
    let mut completeness = sample::report().completeness;
    completeness.detail_lost = 0;
    completeness.unresolved_paths = 0;
    completeness.in_flight_calls = 0;
    assert!(completeness.straddling_calls > 0 && !completeness.coverage_gaps.is_empty());
    assert!(completeness.is_perfect());
    completeness.exact_counts = false;
    assert!(!completeness.is_perfect());
}
