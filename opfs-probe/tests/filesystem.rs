//! What file systems performed, against what was done to them. Needs root.

#[path = "common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use opfs_probe::report::model::{self, Performed, Report, Totals};
use tempfile::TempDir;

use common::image::{Image, skipped};
use common::{as_reported, probe, require_root, text};

/// Names the work that this program does as the command under watch, and where.
const WORK: &str = "FILESYSTEM_TEST_WORK";
const DIR: &str = "FILESYSTEM_TEST_DIR";

const THREADS: u64 = 8;
const WRITES: u64 = 50;
const FSYNCS: u64 = 20;

/// Not a test: what the others watch.
#[test]
#[ignore = "run by the other tests, as the command under watch"]
fn work() {
    let dir = PathBuf::from(std::env::var_os(DIR).expect("where to work"));
    match std::env::var(WORK).expect("what to do").as_str() {
        "mix" => mix(&dir),
        "kinds" => kinds(&dir),
        "threads" => threads(&dir),
        other => panic!("no such work: {other}"),
    }
}

/// One write to a file opened with `O_DSYNC`, one with `RWF_DSYNC`, one fsync.
fn mix(dir: &Path) {
    dsync_write(&dir.join("dsync"), libc::O_DSYNC);
    rwf_dsync_write(&create(&dir.join("rwf")));
    let mut plain = create(&dir.join("plain"));
    plain.write_all(b"data").unwrap();
    plain.sync_all().unwrap();
}

/// Everything else that syncs, and what looks like it and does not.
fn kinds(dir: &Path) {
    let mut synced = create(&dir.join("fdatasync"));
    for _ in 0..2 {
        synced.write_all(b"data").unwrap();
        synced.sync_data().unwrap();
    }
    let mut sync = dsync_write(&dir.join("o_sync"), libc::O_SYNC);
    sync.write_all(b"data").unwrap();
    assert_eq!(sync.write(b"").unwrap(), 0);
    // SAFETY: an address that is not there, which the kernel refuses.
    let failed = unsafe { libc::write(sync.as_raw_fd(), std::ptr::without_provenance(1), 1) };
    assert_eq!(failed, -1);
    let mut range = create(&dir.join("range"));
    range.write_all(b"data").unwrap();
    // SAFETY: no pointers.
    let status = unsafe { libc::sync_file_range(range.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
    assert_eq!(status, 0);
    msync(&dir.join("mapped"));
    File::open(dir).unwrap().sync_all().unwrap();
}

fn msync(path: &Path) {
    const LENGTH: usize = 4096;
    let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(path).unwrap();
    file.set_len(LENGTH as u64).unwrap();
    // SAFETY: a new mapping of a file of this length, which ends before the file does.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let fd = file.as_raw_fd();
        let address = libc::mmap(std::ptr::null_mut(), LENGTH, protection, libc::MAP_SHARED, fd, 0);
        assert_ne!(address, libc::MAP_FAILED);
        address.cast::<u8>().write(1);
        assert_eq!(libc::msync(address, LENGTH, libc::MS_SYNC), 0);
        libc::munmap(address, LENGTH);
    }
}

fn threads(dir: &Path) {
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let mut dsync = open(&dir.join(format!("dsync-{thread}")), libc::O_DSYNC);
                let mut plain = create(&dir.join(format!("plain-{thread}")));
                for round in 0..WRITES {
                    dsync.write_all(b"data").unwrap();
                    if round < FSYNCS {
                        plain.write_all(b"data").unwrap();
                        plain.sync_all().unwrap();
                    }
                }
            });
        }
    });
}

fn open(path: &Path, flags: i32) -> File {
    OpenOptions::new().create(true).truncate(true).write(true).custom_flags(flags).open(path).unwrap()
}

fn create(path: &Path) -> File {
    open(path, 0)
}

fn dsync_write(path: &Path, flags: i32) -> File {
    let mut file = open(path, flags);
    file.write_all(b"data").unwrap();
    file
}

fn rwf_dsync_write(file: &File) {
    let data = b"data";
    let part = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    // SAFETY: one buffer of that length, which is only read.
    let written = unsafe { libc::pwritev2(file.as_raw_fd(), &raw const part, 1, 0, libc::RWF_DSYNC) };
    assert_eq!(written, 4);
}

/// The report on some work in a folder.
fn watch(work: &str, dir: &Path) -> Report {
    require_root();
    let output = tempfile::NamedTempFile::new().unwrap();
    let mut command = probe(&["run", "--format", "json", "--output"]);
    command.arg(output.path()).arg("--").arg(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "work", "--test-threads=1"]);
    let ran = command.env(WORK, work).env(DIR, dir).output().unwrap();
    assert!(ran.status.success(), "{}\n{}{}", ran.status, text(&ran.stdout), text(&ran.stderr));
    serde_json::from_slice(&fs::read(output.path()).unwrap()).unwrap()
}

/// What was counted in the command's window: the only one.
fn counted(report: &Report) -> &Totals {
    let [window] = report.sessions[0].windows.as_slice() else { panic!("not one window") };
    window.total.as_ref().expect("it was counted")
}

#[expect(clippy::unnecessary_wraps, reason = "reports have it optional")]
fn performed(explicit: u64, implicit: u64) -> Option<Performed> {
    Some(Performed { explicit: Some(explicit), implicit: Some(implicit), kernel: Some(0), uring: Some(0) })
}

/// Calls on each file, by its name in the folder, and what was performed.
fn by_name(totals: &Totals, dir: &Path) -> BTreeMap<String, (u64, Option<Performed>)> {
    let name = |file: &model::File| {
        let path = PathBuf::from(file.path.as_ref().expect("every path is known"));
        // In a chroot, names that came by no mount begin at its root.
        let name = path.strip_prefix(as_reported(dir)).or_else(|_| path.strip_prefix(dir));
        let name = name.expect("every file is in the folder");
        name.to_str().expect("a plain name").to_owned()
    };
    totals.files.iter().map(|file| (name(file), (file.count, file.performed))).collect()
}

fn assert_mix(report: &Report, dir: &Path) {
    let totals = counted(report);
    assert_eq!(totals.sync_calls, 1);
    assert_eq!(totals.performed, performed(1, 2));
    let expected =
        [("dsync", (0, performed(0, 1))), ("plain", (1, performed(1, 0))), ("rwf", (0, performed(0, 1)))];
    assert_eq!(by_name(totals, dir), expected.map(|(name, file)| (name.to_owned(), file)).into());
    let [process] = totals.processes.as_slice() else { panic!("{:?}", totals.processes) };
    assert_eq!((process.count, process.performed), (1, performed(1, 2)));
    assert_eq!(process.pid, report.sessions[0].root_pid);
    assert_eq!(report.sessions[0].total.as_ref().unwrap().performed, totals.performed);
    assert!(report.completeness.is_perfect(), "{:?}", report.completeness);
}

fn assert_kinds(report: &Report, dir: &Path) {
    let totals = counted(report);
    assert_eq!(totals.performed, performed(2 + 1 + 1, 2));
    let expected = [
        ("", (1, performed(1, 0))),
        ("fdatasync", (2, performed(2, 0))),
        ("mapped", (1, performed(1, 0))),
        ("o_sync", (0, performed(0, 2))),
        ("range", (1, performed(0, 0))),
    ];
    assert_eq!(by_name(totals, dir), expected.map(|(name, file)| (name.to_owned(), file)).into());
}

fn on(filesystem: &str) {
    require_root();
    let Some(image) = Image::of(filesystem) else { return };
    let dir = image.dir();
    assert_mix(&watch("mix", &dir), &dir);
    assert_kinds(&watch("kinds", &dir), &dir);
}

#[test]
fn writes_and_fsyncs_on_ext4() {
    on("ext4");
}

#[test]
fn writes_and_fsyncs_on_xfs() {
    on("xfs");
}

#[test]
fn writes_and_fsyncs_on_btrfs() {
    on("btrfs");
}

#[test]
fn what_is_not_seen_is_null() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let report = watch("mix", dir.path());
    let totals = counted(&report);
    assert_eq!(by_name(totals, dir.path()), [("plain".to_owned(), (1, None))].into());
    let gaps = report.completeness.coverage_gaps.concat();
    assert!(gaps.contains("performed by file systems other than"), "{gaps}");
}

#[test]
fn many_threads_are_counted_exactly() {
    let Some(image) = Image::of("ext4") else { return };
    let dir = image.dir();
    let report = watch("threads", &dir);
    let totals = counted(&report);
    assert_eq!(totals.sync_calls, THREADS * FSYNCS);
    assert_eq!(totals.performed, performed(THREADS * FSYNCS, THREADS * WRITES));
    let files = by_name(totals, &dir);
    for thread in 0..THREADS {
        assert_eq!(files[&format!("dsync-{thread}")], (0, performed(0, WRITES)));
        assert_eq!(files[&format!("plain-{thread}")], (FSYNCS, performed(FSYNCS, 0)));
    }
}

/// The file system beneath performs the sync, on its own file.
#[test]
fn beneath_an_overlay_the_layer_is_named() {
    let Some(image) = Image::of("ext4") else { return };
    let place = |name: &str| {
        let dir = image.dir().join(name);
        fs::create_dir(&dir).unwrap();
        dir
    };
    let (lower, upper, work, merged) = (place("lower"), place("upper"), place("work"), place("merged"));
    let options =
        format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
    let mounted = Command::new("mount")
        .args(["-t", "overlay", "overlay", "-o", &options])
        .arg(&merged)
        .output()
        .unwrap();
    if !mounted.status.success() {
        return skipped("overlay", &format!("it can't be mounted: {}", text(&mounted.stderr)));
    }
    let report = watch("mix", &merged);
    let _ = Command::new("umount").arg(&merged).output();
    let totals = counted(&report);
    assert_eq!((totals.sync_calls, totals.performed), (1, performed(1, 2)));
    let beneath = vec![
        ("merged/plain", (1, None)),
        ("upper/dsync", (0, performed(0, 1))),
        ("upper/plain", (0, performed(1, 0))),
        ("upper/rwf", (0, performed(0, 1))),
    ];
    // Until Linux 6.7 (def3ae83da02) the layer's file went by the path of the overlay's.
    let above = vec![
        ("merged/dsync", (0, performed(0, 1))),
        ("merged/plain", (1, performed(1, 0))),
        ("merged/rwf", (0, performed(0, 1))),
    ];
    let expected = if kernel_version() < (6, 7) { above } else { beneath };
    let files = by_name(totals, &image.dir());
    assert_eq!(files, expected.into_iter().map(|(name, file)| (name.to_owned(), file)).collect());
}

fn kernel_version() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// A tmpfs that is full before the image on it is, so that what is written back is lost.
struct Full(TempDir);

impl Full {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=40m", "none"]).arg(folder.path()).output();
        let mounted = mounted.unwrap();
        assert!(mounted.status.success(), "{}", text(&mounted.stderr));
        Self(folder)
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).output();
    }
}

#[test]
fn a_success_after_a_failed_write_back_is_called_out() {
    require_root();
    let full = Full::new();
    // A journal would be aborted, and no sync succeed any more.
    let Some(image) = Image::made_with(full.0.path(), "ext4", &["-O", "^has_journal"]) else { return };
    let output = tempfile::NamedTempFile::new().unwrap();
    let script = "dd if=/dev/urandom of=file bs=1M count=60 2>/dev/null
                  failed=0; until sync file 2>/dev/null; do failed=$((failed + 1)); done; echo $failed";
    let mut command = probe(&["run", "--format", "json", "--output"]);
    command.arg(output.path()).args(["--", "sh", "-c", script]).current_dir(image.dir());
    let ran = command.output().unwrap();
    let failed: u64 = text(&ran.stdout).trim().parse().unwrap();
    assert!(failed > 0, "the disk was full");
    let report: Report = serde_json::from_slice(&fs::read(output.path()).unwrap()).unwrap();
    let [file] = &counted(&report).files[..] else { panic!("{:?}", counted(&report).files) };
    assert_eq!((file.count, file.errors), (failed + 1, failed));
    let warnings = &report.completeness.warnings;
    let called_out = |warning: &String| warning.contains("/file failed (") && warning.contains("only once");
    assert!(warnings.iter().any(called_out), "{warnings:?}");
    assert!(report.completeness.exact_counts);
}
