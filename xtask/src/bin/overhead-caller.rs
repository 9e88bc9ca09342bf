//! Makes one kind of system call over and over, in eight threads, for as long as each line of its
//! input says (`fsync 40`: milliseconds), and answers each with what came of it: how many calls,
//! nanoseconds that passed, nanoseconds of the threads' own processor time. Its first line is its
//! process id. Ends with its input.
//!
//! It lives on between the lines, so that what is measured holds neither its start nor its end.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, BufRead, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const THREADS: usize = 8;
const FILES_PER_THREAD: usize = 8;
/// What is opened before all of it is closed, which is not timed: with [`THREADS`] threads well below the
/// usual limit of 1024 descriptors.
const OPEN_AT_ONCE: usize = 64;
/// `TMPFS_MAGIC` of include/uapi/linux/magic.h.
const TMPFS: i64 = 0x0102_1994;

#[derive(Clone, Copy)]
enum Kind {
    Fsync,
    /// By one thread, while the others wait.
    FsyncAlone,
    Getppid,
    Pread,
    Openat,
}

/// What the threads share with the one that tells them.
struct Board {
    /// What to do; none: end.
    kind: Mutex<Option<Kind>>,
    stop: AtomicBool,
    epoch: Instant,
    /// When the first thread began, in nanoseconds since the epoch.
    began_ns: AtomicU64,
    begin: Barrier,
    end: Barrier,
    calls: AtomicU64,
    cpu_ns: AtomicU64,
    failure: Mutex<Option<io::Error>>,
}

impl Board {
    fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: calling failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.ok_or_else(|| io::Error::other("name an empty folder on tmpfs"))?;
    if file_system(&folder)? != TMPFS {
        let text = format!("{} is not on tmpfs, where a sync costs next to nothing", folder.display());
        return Err(io::Error::other(text));
    }
    let board = Board {
        kind: Mutex::new(None),
        stop: AtomicBool::new(false),
        epoch: Instant::now(),
        began_ns: AtomicU64::new(0),
        begin: Barrier::new(THREADS + 1),
        end: Barrier::new(THREADS + 1),
        calls: AtomicU64::new(0),
        cpu_ns: AtomicU64::new(0),
        failure: Mutex::new(None),
    };
    let mut desks = Vec::new();
    for thread in 0..THREADS {
        desks.push(Desk::new(&folder, thread)?);
    }
    thread::scope(|scope| {
        for desk in &desks {
            scope.spawn(|| work(&board, desk));
        }
        let result = answer(&board);
        *board.kind.lock().unwrap_or_else(PoisonError::into_inner) = None;
        board.begin.wait();
        result
    })
}

fn answer(board: &Board) -> io::Result<()> {
    say(format_args!("{}", std::process::id()))?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let order = line.split_once(' ').and_then(|(kind, ms)| Some((kind_of(kind)?, ms.parse().ok()?)));
        let (kind, ms) = order.ok_or_else(|| io::Error::other(format!("{line:?} is no order")))?;
        *board.kind.lock().unwrap_or_else(PoisonError::into_inner) = Some(kind);
        board.calls.store(0, Ordering::Relaxed);
        board.cpu_ns.store(0, Ordering::Relaxed);
        board.stop.store(false, Ordering::Relaxed);
        board.began_ns.store(u64::MAX, Ordering::Relaxed);
        board.begin.wait();
        thread::sleep(Duration::from_millis(ms));
        board.stop.store(true, Ordering::Relaxed);
        let stopped_ns = board.now_ns();
        board.end.wait();
        if let Some(error) = board.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(error);
        }
        let calls = board.calls.load(Ordering::Relaxed);
        let cpu_ns = board.cpu_ns.load(Ordering::Relaxed);
        // The threads keep the processors busy, so this one went to sleep some time after they began.
        let wall_ns = stopped_ns.saturating_sub(board.began_ns.load(Ordering::Relaxed));
        say(format_args!("{calls} {wall_ns} {cpu_ns}"))?;
    }
    Ok(())
}

fn say(line: std::fmt::Arguments<'_>) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{line}")?;
    output.flush()
}

fn kind_of(name: &str) -> Option<Kind> {
    Some(match name {
        "fsync" => Kind::Fsync,
        "fsync-alone" => Kind::FsyncAlone,
        "getppid" => Kind::Getppid,
        "pread" => Kind::Pread,
        "openat" => Kind::Openat,
        _ => return None,
    })
}

fn work(board: &Board, desk: &Desk) {
    loop {
        board.begin.wait();
        let kind = *board.kind.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(kind) = kind else { return };
        board.began_ns.fetch_min(board.now_ns(), Ordering::Relaxed);
        match desk.call(kind, &board.stop) {
            Ok((calls, cpu_ns)) => {
                board.calls.fetch_add(calls, Ordering::Relaxed);
                board.cpu_ns.fetch_add(cpu_ns, Ordering::Relaxed);
            }
            Err(error) => *board.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error),
        }
        board.end.wait();
    }
}

/// One thread's files.
struct Desk {
    thread: usize,
    files: Vec<File>,
    paths: Vec<PathBuf>,
}

impl Desk {
    fn new(folder: &Path, thread: usize) -> io::Result<Self> {
        let paths: Vec<PathBuf> =
            (0..FILES_PER_THREAD).map(|file| folder.join(format!("{thread}-{file}"))).collect();
        let mut files = Vec::new();
        for path in &paths {
            fs::write(path, [0; 4096])?;
            files.push(File::open(path)?);
        }
        Ok(Self { thread, files, paths })
    }

    /// Calls until told to stop, but once at least: how many calls, and their processor time in nanoseconds.
    fn call(&self, kind: Kind, stop: &AtomicBool) -> io::Result<(u64, u64)> {
        match kind {
            Kind::FsyncAlone if self.thread > 0 => Ok((0, 0)),
            Kind::Fsync | Kind::FsyncAlone => {
                until(stop, |call| self.files[call % FILES_PER_THREAD].sync_all())
            }
            Kind::Getppid => until(stop, |_| {
                black_box(parent_id());
                Ok(())
            }),
            Kind::Pread => until(stop, |call| {
                let mut bytes = [0; 64];
                self.files[call % FILES_PER_THREAD].read_at(&mut bytes, 0)?;
                black_box(bytes);
                Ok(())
            }),
            Kind::Openat => self.open(stop),
        }
    }

    fn open(&self, stop: &AtomicBool) -> io::Result<(u64, u64)> {
        let (mut calls, mut cpu_ns) = (0, 0);
        let mut files = Vec::with_capacity(OPEN_AT_ONCE);
        loop {
            let before = thread_cpu_ns();
            for call in 0..OPEN_AT_ONCE {
                files.push(File::open(&self.paths[call % FILES_PER_THREAD])?);
            }
            cpu_ns += thread_cpu_ns() - before;
            calls += OPEN_AT_ONCE as u64;
            files.clear();
            if stop.load(Ordering::Relaxed) {
                return Ok((calls, cpu_ns));
            }
        }
    }
}

fn until(stop: &AtomicBool, mut call: impl FnMut(usize) -> io::Result<()>) -> io::Result<(u64, u64)> {
    let before = thread_cpu_ns();
    let mut calls = 0;
    loop {
        call(calls)?;
        calls += 1;
        if stop.load(Ordering::Relaxed) {
            return Ok((calls as u64, thread_cpu_ns() - before));
        }
    }
}

/// The calling thread's processor time in nanoseconds.
fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes into what it is given; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The magic number of the file system that a folder is on.
fn file_system(folder: &Path) -> io::Result<i64> {
    use std::os::fd::AsRawFd;
    let folder = File::open(folder)?;
    // SAFETY: plain numbers, which all may be zero.
    let mut answer: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: an open descriptor, and a place for the answer.
    let result = unsafe { libc::fstatfs(folder.as_raw_fd(), &raw mut answer) };
    #[allow(clippy::unnecessary_cast, reason = "the type differs between C libraries")]
    if result == 0 { Ok(answer.f_type as i64) } else { Err(io::Error::last_os_error()) }
}
