//! Syncs through `io_uring`, against what was asked of the ring. Needs root.

mod common;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::Command;

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, Fixed, FsyncFlags};
use io_uring::{IoUring, opcode};
use libc::{EBADF, ECANCELED, EINVAL};
use opfs_probe::report::model::{Report, Totals};

use common::image::{Image, skipped};
use common::{probe, require_root, text};

/// Where this program works as the command under watch.
const DIR: &str = "URING_TEST_DIR";

/// Not a test: what the others watch.
#[test]
#[ignore = "run by the other tests, as the command under watch"]
fn work() {
    let dir = PathBuf::from(std::env::var_os(DIR).expect("where to work"));
    let file = |name: &str| {
        let file = OpenOptions::new().create_new(true).write(true).open(dir.join(name)).unwrap();
        (&file).write_all(b"data").unwrap();
        file
    };
    let mut ring = IoUring::new(16).unwrap();
    let plain = file("plain");
    for _ in 0..3 {
        assert_eq!(ask(&mut ring, &[fsync(&plain)]), [0]);
    }
    let data = file("data");
    let datasync = opcode::Fsync::new(Fd(data.as_raw_fd())).flags(FsyncFlags::DATASYNC).build();
    assert_eq!(ask(&mut ring, &[datasync.clone(), datasync]), [0, 0]);
    let range = file("range");
    assert_eq!(ask(&mut ring, &[opcode::SyncFileRange::new(Fd(range.as_raw_fd()), 4).build()]), [0]);
    let forced = file("async");
    assert_eq!(ask(&mut ring, &[fsync(&forced).flags(Flags::ASYNC)]), [0]);
    let (first, second) = (file("first"), file("second"));
    assert_eq!(ask(&mut ring, &[fsync(&first).flags(Flags::IO_LINK), fsync(&second)]), [0, 0]);
    // The first of a chain fails, and cuts off the second.
    let cut = file("cut");
    let broken = opcode::Fsync::new(Fd(NOT_OPEN)).build().flags(Flags::IO_LINK);
    assert_eq!(ask(&mut ring, &[broken, fsync(&cut)]), [-EBADF, -ECANCELED]);
    // A pipe can't be synced; and no kernel knows this flag.
    let (reader, _writer) = std::io::pipe().unwrap();
    assert_eq!(ask(&mut ring, &[opcode::Fsync::new(Fd(reader.as_raw_fd())).build()]), [-EINVAL]);
    let refused = file("refused");
    let unknown = FsyncFlags::from_bits_retain(0x80);
    let unknown = opcode::Fsync::new(Fd(refused.as_raw_fd())).flags(unknown).build();
    assert_eq!(ask(&mut ring, &[unknown]), [-EINVAL]);
    // Registered, and its descriptor closed.
    let fixed = file("fixed");
    ring.submitter().register_files(&[fixed.as_raw_fd()]).unwrap();
    drop(fixed);
    let by_index = opcode::Fsync::new(Fixed(0)).build();
    assert_eq!(ask(&mut ring, &[by_index.clone(), by_index]), [0, 0]);
    // Without events but for the last.
    let (silent, heard) = (file("silent"), file("heard"));
    let quiet = fsync(&silent).flags(Flags::SKIP_SUCCESS | Flags::IO_LINK);
    assert_eq!(ask_for(&mut ring, &[quiet.clone(), quiet, fsync(&heard)], 1), [0]);
    // A kernel thread takes the requests.
    let polled = file("polled");
    let mut polling = IoUring::builder().setup_sqpoll(1000).build(4).unwrap();
    assert_eq!(ask(&mut polling, &[fsync(&polled), fsync(&polled)]), [0, 0]);
    overflow(&file("overflow"));
    // Never mind what is no sync.
    let other = file("other");
    let write = opcode::Write::new(Fd(other.as_raw_fd()), b"more".as_ptr(), 4).build();
    assert_eq!(ask(&mut ring, &[opcode::Nop::new().build(), write]), [0, 4]);
}

const OVERFLOWING: u64 = 12;

/// More completions than the ring has room for, not told apart by their data, and reaped at last.
fn overflow(file: &File) {
    let mut small = IoUring::new(2).unwrap();
    for _ in 0..OVERFLOWING {
        // SAFETY: the request points to nothing.
        unsafe { small.submission().push(&fsync(file)) }.expect("the ring has room");
        small.submit().unwrap();
    }
    let mut reaped = 0;
    while reaped < OVERFLOWING {
        small.submit_and_wait(1).unwrap();
        reaped += small.completion().map(|event| assert_eq!(event.result(), 0)).count() as u64;
    }
}

const NOT_OPEN: RawFd = 9_999;

fn fsync(file: &File) -> Entry {
    opcode::Fsync::new(Fd(file.as_raw_fd())).build()
}

/// Submits requests, and gives their results in the same order.
fn ask(ring: &mut IoUring, requests: &[Entry]) -> Vec<i32> {
    ask_for(ring, requests, requests.len())
}

/// The same where only so many of them have events.
fn ask_for(ring: &mut IoUring, requests: &[Entry], events: usize) -> Vec<i32> {
    for (index, request) in requests.iter().enumerate() {
        let request = request.clone().user_data(index as u64);
        // SAFETY: what the requests point to outlives them: each is waited for.
        unsafe { ring.submission().push(&request) }.expect("the ring has room");
    }
    ring.submit_and_wait(events).unwrap();
    let results: BTreeMap<u64, i32> =
        ring.completion().map(|event| (event.user_data(), event.result())).collect();
    assert_eq!(results.len(), events);
    results.into_values().collect()
}

fn watch(dir: &Path) -> Report {
    require_root();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "work", "--test-threads=1"]).env(DIR, dir);
    watch_command(&command)
}

/// The report on a command, which must succeed.
fn watch_command(watched: &Command) -> Report {
    let output = tempfile::NamedTempFile::new().unwrap();
    let mut command = probe(&["run", "--format", "json", "--output"]);
    command.arg(output.path()).arg("--").arg(watched.get_program()).args(watched.get_args());
    command.envs(watched.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{}\n{}{}", ran.status, text(&ran.stdout), text(&ran.stderr));
    serde_json::from_slice(&fs::read(output.path()).unwrap()).unwrap()
}

fn total(report: &Report) -> &Totals {
    report.sessions[0].total.as_ref().unwrap()
}

#[test]
fn every_way_to_ask_is_counted_to_its_file() {
    let Some(image) = Image::of("ext4") else { return };
    let report = watch(&image.dir());
    let total = total(&report);
    let fsyncs = &total.ops["uring_fsync"];
    let codes = [("EBADF", 1), ("ECANCELED", 1), ("EINVAL", 2)].map(|(code, count)| (code.to_owned(), count));
    assert_eq!(fsyncs.error_codes, codes.into());
    // The refused one and the two silent ones.
    assert_eq!((fsyncs.count, fsyncs.untimed), (19 + OVERFLOWING, 3));
    assert_eq!(
        fsyncs.histogram.as_ref().unwrap().iter().map(|(_, count)| count).sum::<u64>(),
        16 + OVERFLOWING
    );
    assert!(fsyncs.max_ns.is_some_and(|max_ns| max_ns > 0));
    assert_eq!(total.ops["uring_sync_file_range"].count, 1);
    assert_eq!(total.ops.len(), 2, "{:?}", total.ops.keys());
    let counted: BTreeMap<&str, u64> = total
        .files
        .iter()
        .filter_map(|file| Some((file.path.as_deref()?.rsplit('/').next()?, file.count)))
        .filter(|(name, _)| !name.starts_with("pipe:"))
        .collect();
    let expected = [
        ("async", 1),
        ("cut", 1),
        ("data", 2),
        ("first", 1),
        ("fixed", 2),
        ("heard", 1),
        ("overflow", OVERFLOWING),
        ("plain", 3),
        ("polled", 2),
        ("range", 1),
        ("refused", 1),
        ("second", 1),
        ("silent", 2),
    ];
    assert_eq!(counted, expected.into());
    let [process] = &total.processes[..] else { panic!("{:?}", total.processes) };
    assert_eq!((process.pid, process.count), (report.sessions[0].root_pid, 20 + OVERFLOWING));
    // Every fsync that reached the file system, by a worker of the ring.
    let performed = total.performed.unwrap();
    assert_eq!(
        (performed.explicit, performed.implicit, performed.uring),
        (Some(0), Some(0), Some(15 + OVERFLOWING))
    );
    assert!(report.completeness.exact_counts, "{:?}", report.completeness);
    assert_eq!(report.completeness.in_flight_calls, 0);
}

/// A program that knows nothing of us, on each file system that is told of.
fn fio_on(filesystem: &str) {
    require_root();
    if Command::new("fio").arg("--version").output().is_err() {
        return skipped("fio", "it is not installed");
    }
    let Some(image) = Image::of(filesystem) else { return };
    let mut fio = Command::new("fio");
    fio.args(["--name=job", "--ioengine=io_uring", "--fsync=1", "--rw=write", "--bs=4k", "--size=160k"]);
    fio.args(["--output=/dev/null", "--directory"]).arg(image.dir());
    let report = watch_command(&fio);
    let total = total(&report);
    let [file] = &total.files[..] else { panic!("{:?}", total.files) };
    assert!(file.path.as_ref().unwrap().ends_with("/job.0.0"), "{file:?}");
    // One after each of 40 writes, but for the last, after which fio is done.
    assert_eq!((file.count, file.ops["uring_fsync"].count), (39, 39), "{filesystem}");
    assert_eq!(file.performed.and_then(|performed| performed.uring), Some(39), "{filesystem}");
    let process = &total.processes[0];
    assert_eq!((process.comm.as_deref(), process.count), (Some("fio"), 39));
    assert!(report.completeness.is_perfect(), "{:?}", report.completeness);
}

#[test]
fn fio_on_ext4() {
    fio_on("ext4");
}

#[test]
fn fio_on_xfs() {
    fio_on("xfs");
}

#[test]
fn fio_on_btrfs() {
    fio_on("btrfs");
}
