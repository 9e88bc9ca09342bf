//! Maps that are made too small on purpose: what is lost is said, and totals stay exact.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};
use std::sync::Arc;

use opfs_probe::kernel::load::Loaded;
use opfs_probe::report::model::{Report, ResolvedBy, SessionKind, Totals};
use opfs_probe::watch::{LIMITS, NewSession, Tracers, Watcher};

use crate::common::{require_root, sync_generator};
use crate::truth::Truth;

/// A probe with these map sizes that does not keep house, so that nothing makes room meanwhile.
fn watcher(sizes: &[(&str, u32)]) -> Arc<Watcher> {
    require_root();
    watcher_on(Loaded::with_map_sizes(sizes).expect("the programs load"))
}

fn watcher_on(loaded: Loaded) -> Arc<Watcher> {
    Watcher::on(Some(loaded), Tracers { ebpf: true, strace: false }, LIMITS)
}

fn session() -> NewSession {
    NewSession { name: "session".to_owned(), kind: SessionKind::Command, browser: None, command: None }
}

/// Runs cases of the generator in a session of a probe with these map sizes.
fn run(sizes: &[(&str, u32)], cases: &[&str]) -> (Truth, Report) {
    require_root();
    let (truth, report, _) = run_on(Loaded::with_map_sizes(sizes).expect("the programs load"), cases);
    (truth, report)
}

/// Runs cases of the generator in a session; gives its folder, too.
pub fn run_on(loaded: Loaded, cases: &[&str]) -> (Truth, Report, String) {
    let watcher = watcher_on(loaded);
    let dir = tempfile::tempdir().expect("a temporary folder");
    let truth = dir.path().join("truth.json");
    let session = watcher.open(session()).expect("a session opens");
    let mut command = Command::new(sync_generator());
    command.arg("--dir").arg(dir.path()).arg("--truth").arg(&truth).args(cases);
    let status = watcher.spawn(session, &mut command).and_then(|mut child| child.wait());
    assert!(status.expect("the generator starts").success());
    watcher.close(session, Some(0)).expect("the session closes");
    watcher.drain().expect("the counts are read");
    let report = watcher.session_report(session).expect("a report");
    watcher.stop();
    let folder = dir.path().to_str().expect("a temporary folder's name is UTF-8").to_owned();
    (Truth::read(&truth), report, folder)
}

/// All calls of the one session.
pub fn total(report: &Report) -> &Totals {
    report.sessions[0].total.as_ref().expect("it was counted")
}

/// Counts by op and, unless calls have lost them, errors.
pub fn assert_exact(truth: &Truth, total: &Totals, errors: bool) {
    let counts: BTreeMap<&str, u64> = total.ops.iter().map(|(op, totals)| (&op[..], totals.count)).collect();
    let expected: BTreeMap<&str, u64> =
        truth.totals.iter().map(|(op, totals)| (&op[..], totals.count)).collect();
    assert_eq!(counts, expected);
    for (op, expected) in truth.totals.iter().filter(|_| errors) {
        assert_eq!(total.ops[op].error_codes, expected.errors, "{op}");
        assert!(total.ops[op].total_ns.is_some_and(|ns| ns > 0), "{op} is timed");
    }
    let of_files: u64 = total.files.iter().map(|file| file.count).sum();
    assert_eq!(of_files + total.no_file + total.detail_lost, total.sync_calls, "each call is somewhere");
    let of_processes: u64 = total.processes.iter().map(|process| process.count).sum();
    assert_eq!(of_processes, total.sync_calls);
}

#[test]
fn counters_without_room_lose_detail_alone() {
    let (truth, report) = run(&[("CALLS", 32)], &["many-files", "threads", "short-lived", "closed"]);
    let total = total(&report);
    assert_exact(&truth, total, true);
    assert!(total.detail_lost > 1000, "{} of {} calls", total.detail_lost, total.sync_calls);
    let completeness = &report.completeness;
    assert!(completeness.exact_counts && !completeness.is_perfect(), "{completeness:?}");
    assert_eq!(completeness.detail_lost, total.detail_lost);
    assert_eq!(completeness.latencies_lost, 0);
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
    let (truth, report) = run(&[("HISTOGRAMS", 1)], &["fsync"]);
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
        let (truth, report) = run(&[("IN_FLIGHT", 1)], &cases);
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
    let watcher = watcher(&[("RECORDS", 4096)]);
    let dir = tempfile::tempdir().expect("a temporary folder");
    let session = watcher.open(session()).expect("a session opens");
    let mut command = Command::new(std::env::current_exe().expect("the test's own path"));
    command.args(["--ignored", "--exact", "losses::a_program_that_syncs_and_waits", "--nocapture"]);
    command.env(FOLDER, dir.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = watcher.spawn(session, &mut command).expect("the helper starts");
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
