//! One session of a probe in this process.

use std::collections::BTreeMap;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};

use opfs_probe::attribution::window::SessionId;
use opfs_probe::kernel::load::Loaded;
use opfs_probe::report::model::{Report, SessionKind, Totals};
use opfs_probe::watch::{LIMITS, NewSession, Tracers, Watcher};

use crate::common::{require_root, sync_generator};
use crate::truth::Truth;

/// The programs, with these sizes of maps.
pub fn loaded(sizes: &[(&str, u32)]) -> Loaded {
    require_root();
    Loaded::with_map_sizes(sizes).expect("the programs load")
}

/// A probe that does not keep house, so that nothing makes room meanwhile.
pub fn watcher(loaded: Loaded) -> Arc<Watcher> {
    Watcher::on(Some(loaded), Tracers { ebpf: true, strace: false }, LIMITS)
}

/// Opens a session.
pub fn open(watcher: &Watcher) -> SessionId {
    let session =
        NewSession { name: "session".to_owned(), kind: SessionKind::Command, browser: None, command: None };
    watcher.open(session).expect("a session opens")
}

/// Starts a command in a session. A child of this process that another test starts at that moment would
/// belong to the session, too.
pub fn spawn(watcher: &Watcher, session: SessionId, command: &mut Command) -> Child {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _lock = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    watcher.spawn(session, command).expect("the command starts")
}

/// Runs cases of the generator in a session; gives its folder, too.
pub fn run_on(loaded: Loaded, cases: &[&str]) -> (Truth, Report, String) {
    let generator = sync_generator();
    let watcher = watcher(loaded);
    let dir = tempfile::tempdir().expect("a temporary folder");
    let truth = dir.path().join("truth.json");
    let session = open(&watcher);
    let mut command = Command::new(generator);
    command.arg("--dir").arg(dir.path()).arg("--truth").arg(&truth).args(cases);
    let status = spawn(&watcher, session, &mut command).wait().expect("the generator can be waited for");
    assert!(status.success(), "{status}");
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
