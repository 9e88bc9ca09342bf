//! The generator's known mix, in each way that a program can be run.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::User;
use opfs_probe::report::model::Report;

use crate::common::sync_generator;
use crate::compare::{How, differences};
use crate::run::{Ran, Run};
use crate::truth::Truth;

/// How often the plain run is repeated: what goes wrong by chance alone goes wrong here. `ROUNDS` says
/// otherwise where each takes long, as in emulation.
fn rounds() -> usize {
    const DEFAULT: usize = 3;
    std::env::var("ROUNDS").map_or(DEFAULT, |rounds| rounds.parse().expect("ROUNDS is a number"))
}

/// What strace can't count, in the generator's cases: calls that a filter answers or a kill cuts off; a
/// call after an exec that a later thread made, which it mistakes for the end of another; and it does
/// count 32-bit calls.
const NOT_FOR_STRACE: [&str; 7] = [
    "killed",
    "killed-threads",
    "seccomp-errno",
    "seccomp-silent",
    "seccomp-other",
    "exec-from-thread",
    "compat-calls",
];

/// Runs cases below `dir`, none named: all of them, and gives the truth and the report.
fn run(run: &Run, generator: &Path, dir: &Path, cases: &[String]) -> (Truth, Ran) {
    let truth = dir.join("truth.json");
    let mut words = vec![
        generator.as_os_str(),
        "--dir".as_ref(),
        dir.as_os_str(),
        "--truth".as_ref(),
        truth.as_os_str(),
        "--windows".as_ref(),
    ];
    words.extend(cases.iter().map(AsRef::<OsStr>::as_ref));
    let ran = run.of(&words);
    let said = String::from_utf8_lossy(&ran.output.stderr);
    assert!(ran.output.status.success(), "{}:\n{said}", ran.output.status);
    (Truth::read(&truth), ran)
}

fn assert_equal(truth: &Truth, report: &Report, how: How) {
    let differences = differences(truth, report, how);
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

/// A folder on the disk, short enough for the longest paths.
fn on_disk(run: &Run) -> PathBuf {
    let dir = run.folder().join("g");
    fs::create_dir(&dir).expect("a folder");
    dir
}

#[test]
fn a_plain_run_equals_the_truth() {
    for _ in 0..rounds() {
        let plain = Run::new(&[]);
        let (truth, ran) = run(&plain, &sync_generator(), &on_disk(&plain), &[]);
        assert_equal(&truth, &ran.report, How::PLAIN);
        assert_eq!(ran.report.sessions[0].root_pid, Some(truth.pid));
    }
}

#[test]
fn a_run_on_tmpfs_equals_the_truth() {
    let dir = tempfile::Builder::new().prefix("opfs-probe-").tempdir_in("/dev/shm").expect("/dev/shm");
    let (truth, ran) = run(&Run::new(&[]), &sync_generator(), dir.path(), &[]);
    assert_equal(&truth, &ran.report, How::PLAIN);
}

#[test]
fn a_run_as_another_user_equals_the_truth() {
    let user = User::from_name("nobody").expect("the users can be asked for").expect("there is nobody");
    let as_nobody = Run::new(&["--user", "nobody"]);
    let folder = as_nobody.folder();
    chown(folder, Some(user.uid.as_raw()), None).expect("chown");
    let dir = on_disk(&as_nobody);
    chown(&dir, Some(user.uid.as_raw()), None).expect("chown");
    // The build's own folder may be closed to others.
    let generator = folder.join("sync-generator");
    fs::copy(sync_generator(), &generator).expect("a copy of the generator");
    let (truth, ran) = run(&as_nobody, &generator, &dir, &[]);
    assert_equal(&truth, &ran.report, How::PLAIN);
}

#[test]
fn a_run_inside_a_pid_namespace_equals_the_truth() {
    // As `--mount-proc`, which a chroot refuses: its root need not be a mountpoint, /proc is one.
    let script = "mount --make-private /proc && mount -t proc proc /proc && exec \"$@\"";
    let unshare = ["unshare", "--pid", "--fork", "--mount", "--propagation", "unchanged"];
    let inside = Run::new(&[]).inside(&[&unshare[..], &["sh", "-c", script, "sh"]].concat());
    let (truth, ran) = run(&inside, &sync_generator(), &on_disk(&inside), &[]);
    assert_equal(&truth, &ran.report, How { initial_pids: false, ..How::PLAIN });
    let root = ran.report.sessions[0].root_pid.expect("the root is known");
    assert_ne!(root, truth.pid, "root_pid is the initial namespace's");
}

#[test]
fn strace_on_the_same_run_counts_the_same() {
    let both = Run::new(&["--tracer", "ebpf,strace"]);
    let generator = sync_generator();
    let list = Command::new(&generator).arg("--list").output().expect("the generator starts");
    let list = String::from_utf8(list.stdout).expect("names are UTF-8");
    let names = list.lines().filter_map(|line| line.split(' ').next());
    let cases: Vec<String> = names.filter(|name| !NOT_FOR_STRACE.contains(name)).map(str::to_owned).collect();
    let (truth, ran) = run(&both, &generator, &on_disk(&both), &cases);
    assert_equal(&truth, &ran.report, How { only_its_opens: false, ..How::PLAIN });
    let said = String::from_utf8_lossy(&ran.output.stderr);
    assert!(said.contains("strace counted the same"), "{said}");
}

/// The cases that the comparison leaves out still equal the truth when strace is there.
#[test]
fn what_strace_gets_wrong_is_right_in_the_report() {
    let both = Run::new(&["--tracer", "ebpf,strace"]);
    let cases = NOT_FOR_STRACE.map(str::to_owned);
    let (truth, ran) = run(&both, &sync_generator(), &on_disk(&both), &cases);
    assert_equal(&truth, &ran.report, How { only_its_opens: false, ..How::PLAIN });
}
