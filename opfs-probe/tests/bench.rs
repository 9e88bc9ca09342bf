//! `bench opfs` with real Chromium and Firefox on the real kernel. Needs root.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use opfs_probe::files::opfs::is_opfs;
use opfs_probe::report::agreement::Comparison;
use opfs_probe::report::model::{Report, Session, Window};
use opfs_probe::report::read::from_json;

/// Small writes a pass, files of new-file, and passes (with the one to warm up).
const N: u64 = 40;
const M: u64 = 4;
const PASSES: u64 = 2;

fn bench(arguments: &[&str]) -> Command {
    assert!(nix::unistd::geteuid().is_root(), "these tests load programs into the kernel: run them as root");
    let mut command = Command::new(env!("CARGO_BIN_EXE_opfs-probe"));
    command.args(["bench", "opfs"]).args(arguments);
    command
}

fn small(out: &Path, more: &[&str]) -> Output {
    let (n, m) = (N.to_string(), M.to_string());
    let mut command = bench(&["--n", &n, "--m", &m, "--runs", "1", "--out", out.to_str().unwrap()]);
    command.args(more).output().unwrap()
}

fn report(out: &Path) -> Report {
    from_json(&fs::read(out.join("report.json")).unwrap()).unwrap()
}

/// Calls on OPFS files in the `loop` windows of a workload.
fn calls_on_opfs_in_loops(session: &Session, workload: &str) -> u64 {
    let is_loop = |window: &&Window| {
        window.name == "loop" && window.within.first().map(String::as_str) == Some(workload)
    };
    let files =
        session.windows.iter().filter(is_loop).flat_map(|window| &window.total.as_ref().unwrap().files);
    files
        .filter(|file| file.path.as_deref().is_some_and(|path| is_opfs(path.as_bytes())))
        .map(|file| file.count)
        .sum()
}

#[test]
fn both_browsers_are_counted_as_strace_counts_them() {
    let out = tempfile::tempdir().unwrap();
    let output = small(out.path(), &["--tracer", "ebpf,strace", "--settle", "4"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let report = report(out.path());
    assert_eq!(report.sessions.len(), 2);
    assert!(report.completeness.is_perfect(), "{:?}", report.completeness);
    for session in &report.sessions {
        // A flush is one call: what the page did is the truth here.
        assert_eq!(calls_on_opfs_in_loops(session, "append+flush"), N * PASSES, "{}", session.name);
        assert_eq!(calls_on_opfs_in_loops(session, "small-append"), 0, "{}", session.name);
        assert_eq!(calls_on_opfs_in_loops(session, "small-overwrite"), 0, "{}", session.name);
        assert!(session.windows.iter().all(|window| !window.aborted), "{}", session.name);
        let steps = session.windows.iter().filter(|window| window.within.len() == 3);
        let entries: Vec<(String, u64)> = steps.map(|window| (window.name.clone(), window.entries)).collect();
        let expected: Vec<(String, u64)> = ["create+open", "first write", "close", "delete"]
            .repeat(PASSES as usize)
            .into_iter()
            .map(|step| (step.to_owned(), M))
            .collect();
        assert_eq!(entries, expected, "{}", session.name);
    }

    let agreement: BTreeMap<String, Vec<Comparison>> =
        serde_json::from_slice(&fs::read(out.path().join("agreement.json")).unwrap()).unwrap();
    assert_eq!(agreement.len(), 2);
    for (browser, comparisons) in agreement {
        let in_windows: Vec<_> = comparisons.iter().filter(|row| row.window.is_some()).collect();
        let equal = in_windows.iter().filter(|row| row.equal()).count();
        let different: Vec<_> =
            in_windows.iter().filter(|row| !row.equal() && !row.explained_by_edge()).collect();
        assert!(different.is_empty(), "{browser}: {different:#?}");
        // Each pass of append+flush, its loop, and the workload around them.
        assert!(equal > 2 * PASSES as usize, "{browser}: {comparisons:#?}");
    }

    let markdown = fs::read_to_string(out.path().join("report.md")).unwrap();
    let mut rest = markdown.as_str();
    for heading in [
        "# OPFS sync write benchmark",
        "## Per-call write cost",
        "## Per-file cost",
        "## Durability syscalls per call",
        "## Durability syscalls per file, by step",
        "## eBPF against strace: Chromium",
        "## eBPF against strace: Firefox",
        "## Completeness",
        "## Chromium",
        "Derived:",
        "## Firefox",
        "Derived:",
    ] {
        let at = rest.find(heading).unwrap_or_else(|| panic!("{heading:?} is missing or out of place"));
        rest = &rest[at + heading.len()..];
    }
    assert!(
        markdown.contains("`profile/Default/File System/"),
        "Chromium's files are named from the profile"
    );
    assert!(markdown.contains("`profile/storage/default/"), "Firefox's files are named from the profile");
}

#[test]
fn without_a_tracer_there_are_times_and_no_counts() {
    let out = tempfile::tempdir().unwrap();
    let output = small(
        out.path(),
        &["--browser", "chromium", "--tracer", "none", "--workloads", "small-append", "--settle", "0"],
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = report(out.path());
    let [session] = report.sessions.as_slice() else { panic!("one session: {report:?}") };
    assert_eq!(session.total, None);
    assert!(session.windows.iter().any(|window| window.name == "loop" && window.calls == Some(N)));
    let markdown = fs::read_to_string(out.path().join("report.md")).unwrap();
    assert!(markdown.contains("| small-append |"), "{markdown}");
}

#[test]
fn an_interrupted_run_leaves_nothing_behind() {
    let out = tempfile::tempdir().unwrap();
    // Below a folder of the disk that everybody can pass through.
    let profiles = tempfile::Builder::new().prefix("opfs-probe-test-").tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(profiles.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let place = profiles.path().to_str().unwrap();
    for browser in ["chromium", "firefox"] {
        let out = out.path().join(browser);
        let mut child =
            bench(&["--browser", browser, "--profiles-dir", place, "--out", out.to_str().unwrap()])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
        let start = Instant::now();
        while processes_naming(place) == 0 {
            assert!(start.elapsed() < Duration::from_mins(1), "{browser} never started");
            std::thread::sleep(Duration::from_millis(50));
        }
        kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(1));
        assert_eq!(processes_naming(place), 0, "{browser} goes on");
        assert_eq!(fs::read_dir(profiles.path()).unwrap().count(), 0, "{browser}'s profile is left behind");
    }
}

/// Processes with this text among their arguments: the browser's. The bench's own, and the one that
/// detaches its programs from the kernel, are not among them.
fn processes_naming(text: &str) -> usize {
    let own = Path::new(env!("CARGO_BIN_EXE_opfs-probe"));
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let others =
        processes.filter(|process| fs::read_link(process.path().join("exe")).is_ok_and(|exe| exe != own));
    let naming = others.filter(|process| {
        fs::read(process.path().join("cmdline"))
            .is_ok_and(|words| String::from_utf8_lossy(&words).contains(text))
    });
    naming.count()
}

#[test]
fn what_can_not_run_is_said_and_why() {
    let refused = |arguments: &[&str], said: &str| {
        let output = bench(arguments).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{arguments:?}: {:?}", output.status);
        assert!(stderr.starts_with("error: ") && stderr.contains(said), "{arguments:?}: {stderr}");
    };
    refused(&["--browser", "netscape"], "netscape");
    refused(&["--browser", "/nonexistent/firefox"], "/nonexistent/firefox");
    refused(&["--workloads", "no-such"], "no-such");
    refused(&["--n", "0"], "n");
    refused(&["--browser", "chromium", "--profiles-dir", "/nonexistent"], "/nonexistent");
    let closed = tempfile::tempdir().unwrap();
    fs::set_permissions(closed.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let place = closed.path().to_str().unwrap();
    refused(&["--browser", "chromium", "--profiles-dir", place], place);
}

#[test]
fn a_profile_in_memory_is_warned_of() {
    let out = tempfile::tempdir().unwrap();
    let output = small(
        out.path(),
        &[
            "--browser",
            "chromium",
            "--profiles-dir",
            "/dev/shm",
            "--workloads",
            "append+flush",
            "--settle",
            "0",
        ],
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = report(out.path());
    let warnings = report.completeness.warnings.join("\n");
    assert!(warnings.contains("tmpfs"), "{warnings}");
}
