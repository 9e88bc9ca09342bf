//! One line of the board: a call, who made it, and what it answered.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

use libc::c_int;

use crate::process;
use crate::sys::{self, Answer, Errno};

/// What was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Op {
    Fsync,
    Fdatasync,
    Sync,
    Syncfs,
    SyncFileRange,
    Msync,
    Open,
}

impl Op {
    const ALL: [Self; 7] = [
        Self::Fsync,
        Self::Fdatasync,
        Self::Sync,
        Self::Syncfs,
        Self::SyncFileRange,
        Self::Msync,
        Self::Open,
    ];

    pub fn name(self) -> &'static str {
        ["fsync", "fdatasync", "sync", "syncfs", "sync_file_range", "msync", "open"][self as usize]
    }
}

/// Which of the scene's places a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(pub u32);

/// A line nobody has taken is all zero.
#[repr(C)]
pub struct Line {
    /// 0 free, 1 entered, 2 returned
    pub state: AtomicU32,
    op: AtomicU32,
    place: AtomicU32,
    pub errno: AtomicI32,
    pub pid: AtomicI32,
    pub ns_pid: AtomicI32,
    /// 1 if made through the 32-bit entry
    compat: AtomicU32,
    /// How an open was asked for
    open_flags: AtomicI32,
    dev_major: AtomicU32,
    dev_minor: AtomicU32,
    inode: AtomicU64,
    pub elapsed_ns: AtomicU64,
    comm: [AtomicU64; 2],
    process_comm: [AtomicU64; 2],
}

/// One call, read back.
#[derive(Clone, Debug)]
pub struct Call {
    pub op: Op,
    pub place: Place,
    /// None while it has not returned
    pub answer: Option<Answer>,
    pub pid: i32,
    pub ns_pid: i32,
    pub compat: bool,
    pub open_flags: c_int,
    /// What `fstat` said of the descriptor just before; None without one
    pub identity: Option<((u32, u32), u64)>,
    pub elapsed_ns: u64,
    /// Of the calling thread
    pub comm: [u8; 16],
    /// Of the process: of its first thread
    pub process_comm: [u8; 16],
}

/// This process's number as it sees itself, and as /proc has it.
static NUMBERS: [AtomicI32; 2] = [AtomicI32::new(0), AtomicI32::new(0)];

/// The name of this process, as its first thread last had it.
static PROCESS_COMM: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Asks /proc for this process's number: it is numbered as where /proc was mounted, so for a process in a
/// newer PID namespace as outside of it. To be called by a process that is the first of a new one, whose
/// number can be its maker's again; others are noticed by their number.
pub fn ask_for_numbers() -> i32 {
    let own = process::own_pid();
    // The own number last: another thread that finds it there takes the other, too.
    NUMBERS[1].store(sys::number_in_proc().unwrap_or(own), Relaxed);
    NUMBERS[0].store(own, Release);
    own
}

/// The number outside, and the process's own.
pub fn numbers() -> (i32, i32) {
    let own = process::own_pid();
    if NUMBERS[0].load(Acquire) != own {
        ask_for_numbers();
    }
    (NUMBERS[1].load(Relaxed), own)
}

/// A call that is about to be made.
pub struct Asked {
    pub op: Op,
    pub place: Place,
    pub fd: Option<RawFd>,
    pub compat: bool,
    pub open_flags: c_int,
}

impl Asked {
    pub fn new(op: Op, place: Place) -> Self {
        Self { op, place, fd: None, compat: false, open_flags: 0 }
    }
}

impl Line {
    pub fn enter(&self, call: &Asked) {
        let ((major, minor), inode) = call.fd.and_then(|fd| sys::identity(fd).ok()).unwrap_or_default();
        let (pid, ns_pid) = numbers();
        self.op.store(call.op as u32, Relaxed);
        self.place.store(call.place.0, Relaxed);
        self.ns_pid.store(ns_pid, Relaxed);
        self.pid.store(pid, Relaxed);
        self.compat.store(call.compat.into(), Relaxed);
        self.open_flags.store(call.open_flags, Relaxed);
        self.dev_major.store(major, Relaxed);
        self.dev_minor.store(minor, Relaxed);
        self.inode.store(inode, Relaxed);
        let comm = process::comm();
        if process::own_tid() == ns_pid {
            store_comm(&PROCESS_COMM, comm);
        }
        store_comm(&self.comm, comm);
        store_comm(&self.process_comm, load_comm(&PROCESS_COMM));
        // The time of an earlier case would otherwise stand in a line whose call is cut off.
        self.elapsed_ns.store(0, Relaxed);
        self.state.store(1, Release);
    }

    /// Makes the call another process's, of one thread.
    pub fn attribute_to(&self, pid: i32, comm: [u8; 16]) {
        self.pid.store(pid, Relaxed);
        self.ns_pid.store(pid, Relaxed);
        store_comm(&self.comm, comm);
        store_comm(&self.process_comm, comm);
    }

    pub fn read(&self) -> Call {
        let inode = self.inode.load(Relaxed);
        let dev = (self.dev_major.load(Relaxed), self.dev_minor.load(Relaxed));
        Call {
            op: Op::ALL[self.op.load(Relaxed) as usize],
            place: Place(self.place.load(Relaxed)),
            answer: (self.state.load(Acquire) == 2).then(|| match self.errno.load(Relaxed) {
                0 => Ok(()),
                errno => Err(Errno(errno)),
            }),
            pid: self.pid.load(Relaxed),
            ns_pid: self.ns_pid.load(Relaxed),
            compat: self.compat.load(Relaxed) != 0,
            open_flags: self.open_flags.load(Relaxed),
            identity: (inode != 0).then_some((dev, inode)),
            elapsed_ns: self.elapsed_ns.load(Relaxed),
            comm: load_comm(&self.comm),
            process_comm: load_comm(&self.process_comm),
        }
    }
}

fn store_comm(to: &[AtomicU64; 2], comm: [u8; 16]) {
    let comm = u128::from_ne_bytes(comm);
    to[0].store(comm as u64, Relaxed);
    to[1].store((comm >> 64) as u64, Relaxed);
}

fn load_comm(from: &[AtomicU64; 2]) -> [u8; 16] {
    (u128::from(from[1].load(Relaxed)) << 64 | u128::from(from[0].load(Relaxed))).to_ne_bytes()
}
