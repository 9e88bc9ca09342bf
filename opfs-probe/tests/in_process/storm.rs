//! A million calls by 64 threads on 200 files, with too little room for their names: every one is counted,
//! with its op, its outcome, its process and its file.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::ptr::NonNull;
use std::sync::Barrier;
use std::thread;

use nix::libc;
use nix::sys::mman::{MapFlags, ProtFlags, mmap};

use opfs_probe::report::model::Process;

use crate::common::as_reported;
use crate::session::{loaded, open, spawn, total, watcher};

const PROCESSES: u64 = 8;
const THREADS: u64 = 8;
const FILES: usize = 200;
/// How many of them a process uses: what is different fits the kernel side's tables, also when a slow machine
/// has several epochs in them.
const FILES_A_PROCESS: usize = 50;
const BYTES: usize = 4096;

/// `ROUNDS` is 1 where the machine is emulated: a tenth of a storm is slow enough there.
fn calls_a_thread() -> u64 {
    const WHOLE: u64 = 15_625;
    const { assert!(PROCESSES * THREADS * WHOLE == 1_000_000) };
    if std::env::var_os("ROUNDS").is_some_and(|rounds| rounds == "1") { WHOLE / 10 } else { WHOLE }
}

/// What a thread asks for.
#[derive(Clone, Copy)]
enum Kind {
    Fsync,
    Fdatasync,
    Range,
    RefusedRange,
    Msync,
    RefusedMsync,
    NoFile,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Fsync,
        Self::Fdatasync,
        Self::Range,
        Self::RefusedRange,
        Self::Msync,
        Self::RefusedMsync,
        Self::NoFile,
    ];

    /// The op, and the error that it ends with.
    fn told_as(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Fsync => ("fsync", None),
            Self::Fdatasync => ("fdatasync", None),
            Self::Range => ("sync_file_range", None),
            Self::RefusedRange => ("sync_file_range", Some("EINVAL")),
            Self::Msync => ("msync", None),
            Self::RefusedMsync => ("msync", Some("EINVAL")),
            Self::NoFile => ("fsync", Some("EBADF")),
        }
    }
}

/// What a thread of a process does, the same at every run.
fn calls(process: u64, thread: u64) -> impl Iterator<Item = (Kind, usize)> {
    let mut state = process << 32 | thread;
    (0..calls_a_thread()).map(move |_| {
        // D. E. Knuth's MMIX: a linear congruential generator.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let random = (state >> 33) as usize;
        let file = process as usize * FILES / PROCESSES as usize + random / Kind::ALL.len() % FILES_A_PROCESS;
        (Kind::ALL[random % Kind::ALL.len()], file % FILES)
    })
}

/// Counts by op and error.
type Ops = BTreeMap<(String, Option<String>), u64>;

#[test]
fn a_storm_is_counted_whole() {
    let watcher = watcher(loaded(&[("RECORDS", 4096)]));
    let housekeeping = watcher.keep_house();
    let folder = tempfile::Builder::new().prefix("opfs-probe-").tempdir_in("/dev/shm").expect("/dev/shm");
    let path = |number| folder.path().join(format!("file-{number}"));
    for number in 0..FILES {
        File::create(path(number)).and_then(|file| file.set_len(BYTES as u64)).expect("a file");
    }
    let session = open(&watcher);
    let mut child = spawn(&watcher, session, &mut process(folder.path(), 0));
    assert!(child.wait().expect("it can be waited for").success());
    watcher.close(session, Some(0)).expect("the session closes");
    watcher.drain().expect("the counts are read");
    let report = watcher.session_report(session).expect("a report");
    watcher.stop();
    housekeeping.join().expect("the housekeeping ends");

    let (mut ops, mut files) = (Ops::new(), BTreeMap::<String, Ops>::new());
    for (kind, file) in (0..PROCESSES).flat_map(|process| (0..THREADS).flat_map(move |it| calls(process, it)))
    {
        let (op, error) = kind.told_as();
        let key = (op.to_owned(), error.map(str::to_owned));
        *ops.entry(key.clone()).or_default() += 1;
        if !matches!(kind, Kind::NoFile) {
            let path = as_reported(&path(file)).to_str().expect("UTF-8").to_owned();
            *files.entry(path).or_default().entry(key).or_default() += 1;
        }
    }
    let total = total(&report);
    let by_op = total.ops.iter().map(|(name, op)| (name, op.count, op.errors, &op.error_codes));
    assert_eq!(told(by_op), ops);
    let mut named = 0;
    for file in &total.files {
        let Some(path) = &file.path else { continue };
        let by_op = file.ops.iter().map(|(name, op)| (name, op.count, op.errors, &op.error_codes));
        assert_eq!(Some(told(by_op)), files.remove(path), "{path}");
        named += 1;
    }
    // Those whose names were lost are told together.
    let unnamed: u64 = total.files.iter().filter(|file| file.path.is_none()).map(|file| file.count).sum();
    assert_eq!(unnamed, files.values().flat_map(BTreeMap::values).sum::<u64>());
    // So are processes.
    let (named_processes, unnamed_processes): (Vec<&Process>, Vec<&Process>) =
        total.processes.iter().partition(|process| process.pid.is_some());
    let of_each = THREADS * calls_a_thread();
    assert!(named_processes.iter().all(|process| process.count == of_each), "{:?}", total.processes);
    let of_unnamed: u64 = unnamed_processes.iter().map(|process| process.count).sum();
    assert_eq!(of_unnamed, of_each * (PROCESSES - named_processes.len() as u64));
    let completeness = &report.completeness;
    assert!(completeness.exact_counts, "{completeness:?}");
    let lost = (total.detail_lost, completeness.unresolved_paths, completeness.unresolved_calls);
    assert_eq!(lost, (0, FILES as u64 - named, unnamed), "{completeness:?}");
    eprintln!("{named} of {FILES} files have their names");
}

/// Counts by op and error, from number of calls, errors, and errors by code.
fn told<'a>(ops: impl Iterator<Item = (&'a String, u64, u64, &'a BTreeMap<String, u64>)>) -> Ops {
    let mut told = Ops::new();
    for (op, count, errors, codes) in ops {
        told.extend(codes.iter().map(|(error, count)| ((op.clone(), Some(error.clone())), *count)));
        if count > errors {
            told.insert((op.clone(), None), count - errors);
        }
    }
    told
}

const FOLDER: &str = "OPFS_PROBE_TEST_FOLDER";
const PROCESS: &str = "OPFS_PROBE_TEST_PROCESS";

fn process(folder: &Path, number: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the test's own path"));
    command.args(["--ignored", "--exact", "storm::a_process_of_the_storm"]).stdout(Stdio::null());
    command.env(FOLDER, folder).env(PROCESS, number.to_string());
    command
}

/// No test of its own: what the one above starts.
#[test]
#[ignore = "started by another test, as the programs under watch"]
fn a_process_of_the_storm() {
    let folder = PathBuf::from(std::env::var_os(FOLDER).expect("where to work"));
    let number: u64 = std::env::var(PROCESS).ok().and_then(|number| number.parse().ok()).expect("a number");
    let others = if number == 0 { 1..PROCESSES } else { 0..0 };
    let others: Vec<Child> =
        others.map(|other| process(&folder, other).spawn().expect("another process")).collect();
    let open = |number| OpenOptions::new().read(true).write(true).open(folder.join(format!("file-{number}")));
    let files: Vec<File> = (0..FILES).map(|number| open(number).expect("a file")).collect();
    let mappings: Vec<Mapping> = files.iter().map(Mapping::new).collect();
    // Threads that come and go change the mappings, and meanwhile nobody sees what is mapped where.
    let barrier = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (files, mappings, barrier) = (&files, &mappings, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for (kind, file) in calls(number, thread) {
                    issue(kind, &files[file], &mappings[file]);
                }
                barrier.wait();
            });
        }
    });
    for mut other in others {
        assert!(other.wait().expect("it can be waited for").success());
    }
}

/// A file's first page.
struct Mapping(NonNull<libc::c_void>);

// SAFETY: nobody looks into the memory.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: &File) -> Self {
        let length = NonZeroUsize::new(BYTES).expect("not zero");
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice; it stays until the process ends.
        Self(unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, file, 0) }.expect("mmap"))
    }
}

fn issue(kind: Kind, file: &File, Mapping(start): &Mapping) {
    const NO_SUCH_FLAGS: u32 = 1 << 30;
    let (fd, start) = (file.as_raw_fd(), start.as_ptr());
    // SAFETY: system calls on a descriptor, or on a mapping that stays; none changes memory.
    let result = unsafe {
        match kind {
            Kind::Fsync => libc::fsync(fd),
            Kind::Fdatasync => libc::fdatasync(fd),
            Kind::Range => libc::sync_file_range(fd, 0, 0, libc::SYNC_FILE_RANGE_WRITE),
            Kind::RefusedRange => libc::sync_file_range(fd, 0, 0, NO_SUCH_FLAGS),
            Kind::Msync => libc::msync(start, BYTES, libc::MS_SYNC),
            Kind::RefusedMsync => libc::msync(start, BYTES, libc::MS_SYNC | libc::MS_ASYNC),
            Kind::NoFile => libc::fsync(-1),
        }
    };
    assert_eq!(result == 0, kind.told_as().1.is_none());
}
