//! Maps that are made too small on purpose: what is lost is said, and totals stay exact.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use opfs_probe::report::model::{Report, ResolvedBy};

use crate::session::{assert_exact, loaded, open, run_on, spawn, total, watcher};
use crate::truth::Truth;

fn run(sizes: &[(&str, u32)], cases: &[&str]) -> (Truth, Report) {
    let (truth, report, _) = run_on(loaded(sizes), cases);
    (truth, report)
}

#[test]
fn counters_without_room_lose_detail_alone() {
    let (truth, report) =
        run(&[("CALL_SLOTS", 1), ("CALLS", 32)], &["many-files", "threads", "short-lived", "closed"]);
    let total = total(&report);
    assert_exact(&truth, total, true);
    assert!(total.detail_lost > 1000, "{} of {} calls", total.detail_lost, total.sync_calls);
    let completeness = &report.completeness;
    assert!(completeness.exact_counts && !completeness.is_perfect(), "{completeness:?}");
    assert_eq!(completeness.detail_lost, total.detail_lost);
    assert_eq!(completeness.latencies_lost, 0);
}

/// What finds its slot taken goes to a map: half of the slots here are missing, and the others are few.
#[test]
fn slots_without_room_lose_nothing() {
    let sizes = [("IN_FLIGHT", 7), ("CALL_SLOTS", 100), ("LATENCIES", 2)];
    let (truth, report) = run(&sizes, &["many-files", "threads", "threads-one-descriptor", "closed", "sync"]);
    let total = total(&report);
    assert_exact(&truth, total, true);
    assert_eq!(total.detail_lost, 0);
    for (op, totals) in &total.ops {
        let buckets = totals.histogram.as_ref().expect("latencies were measured");
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), totals.count, "{op}");
    }
    let completeness = &report.completeness;
    assert!(completeness.exact_counts && completeness.in_flight_calls == 0, "{completeness:?}");
}

#[test]
fn names_without_room_are_said_to_be_missing() {
    let (truth, report) = run(&[("RECORDS", 4096)], &["many-files", "short-lived"]);
    let total = total(&report);
    assert_exact(&truth, total, true);
    assert!(total.files.iter().any(|file| file.path.is_some()), "what found room is named");
    let completeness = &report.completeness;
    assert!(completeness.exact_counts && !completeness.is_perfect(), "{completeness:?}");
    assert!(completeness.unresolved_paths > 900, "{completeness:?}");
    assert!(completeness.unresolved_calls >= completeness.unresolved_paths, "{completeness:?}");
    assert!(completeness.warnings.iter().any(|warning| warning.contains("names found no room")));
}

#[test]
fn histograms_without_room_are_said_to_be_missing() {
    let (truth, report) = run(&[("LATENCIES", 1), ("HISTOGRAMS", 1)], &["fsync"]);
    assert_exact(&truth, total(&report), true);
    assert!(report.completeness.exact_counts, "{:?}", report.completeness);
    // Whichever op came first has the room.
    assert!([5, 8].contains(&report.completeness.latencies_lost), "{:?}", report.completeness);
}

#[test]
fn processes_without_room_make_the_counts_inexact() {
    let (_, report) = run(&[("MEMBERS", 2)], &["storm"]);
    let completeness = &report.completeness;
    assert!(!completeness.exact_counts, "{completeness:?}");
    assert!(completeness.warnings.iter().any(|warning| warning.contains("not watched")), "{completeness:?}");
}

/// Whether calls are in flight together is chance, so this tries until some were.
#[test]
fn calls_in_flight_without_room_count_once() {
    let cases = ["threads-one-descriptor", "threads", "seccomp-errno"];
    for _ in 0..50 {
        let (truth, report) = run(&[("IN_FLIGHT", 1), ("CROWDED", 1)], &cases);
        assert_exact(&truth, total(&report), false);
        let completeness = &report.completeness;
        if completeness.warnings.iter().any(|warning| warning.contains("without time and outcome")) {
            assert!(!completeness.exact_counts, "{completeness:?}");
            return;
        }
    }
    panic!("no two calls were ever in flight together");
}

/// A file whose name found no room is looked for among its process's descriptors.
#[test]
fn names_without_room_are_found_in_proc() {
    let watcher = watcher(loaded(&[("RECORDS", 4096)]));
    let dir = tempfile::tempdir().expect("a temporary folder");
    let session = open(&watcher);
    let mut command = Command::new(std::env::current_exe().expect("the test's own path"));
    command.args(["--ignored", "--exact", "losses::a_program_that_syncs_and_waits", "--nocapture"]);
    command.env(FOLDER, dir.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = spawn(&watcher, session, &mut command);
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert!(lines.by_ref().map_while(Result::ok).any(|line| line.ends_with("synced")), "the helper fails");
    let report = watcher.session_report(session).expect("a report");
    drop(child.stdin.take());
    child.wait().expect("the helper ends");
    watcher.stop();

    let by = |how| total(&report).files.iter().filter(|file| file.resolved_by == how).count();
    assert!(by(ResolvedBy::Kernel) > 0 && by(ResolvedBy::Proc) > 0);
    assert_eq!((by(ResolvedBy::None), total(&report).files.len()), (0, FILES));
    let completeness = &report.completeness;
    assert!(completeness.exact_counts && completeness.unresolved_paths == 0, "{completeness:?}");
}

const FOLDER: &str = "OPFS_PROBE_TEST_FOLDER";
const FILES: usize = 100;

/// No test of its own: what the one above starts.
#[test]
#[ignore = "started by another test, as the program under watch"]
fn a_program_that_syncs_and_waits() {
    let folder = std::path::PathBuf::from(std::env::var_os(FOLDER).expect("where to work"));
    let files: Vec<File> = (0..FILES)
        .map(|number| File::create(folder.join(format!("file-{number}"))).expect("a file"))
        .collect();
    for file in &files {
        file.sync_all().expect("fsync");
    }
    println!("synced");
    let _ = std::io::stdin().read(&mut [0]);
}
