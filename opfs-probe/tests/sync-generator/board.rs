//! Where every call is written down: by the caller itself, around the call, in memory that all processes share.
//!
//! A line is taken and marked *entered* before the call and *returned*, with the answer, after it. The
//! memory outlives the caller, so nothing is lost when a process ends or is killed at any point; a line
//! that is entered and never returned is a call that may or may not have reached the kernel. A program
//! that was exec'ed finds the board again through a descriptor that it inherited.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Instant;

use anyhow::{Context as _, Result};
use libc::c_int;

use crate::line::{Asked, Call, Line, Op, Place};
use crate::sys::{self, Answer, Errno, OpenCall};

/// Lines on the board: far more than any case writes.
const LINES: usize = 1 << 16;

#[repr(C)]
struct Lines {
    /// Beyond `LINES` when calls were refused
    taken: AtomicU32,
    /// Puts the lines on a boundary of their own
    padding: [AtomicU32; 15],
    each: [Line; LINES],
}

/// The board; a copy is the same board.
#[derive(Clone, Copy)]
pub struct Board {
    lines: &'static Lines,
    fd: RawFd,
}

impl Board {
    pub fn new() -> Result<Self> {
        let file = sys::memory_file(c"sync-generator-board", 0).context("memfd_create")?;
        sys::truncate(&file, size_of::<Lines>()).context("ftruncate of the board")?;
        Self::on(file)
    }

    /// The board behind a descriptor that was inherited.
    pub fn inherited(fd: RawFd) -> Result<Self> {
        sys::identity(fd).context("no board was inherited")?;
        // SAFETY: the descriptor is open, and this program uses its number for nothing else.
        Self::on(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    fn on(file: OwnedFd) -> Result<Self> {
        let address = sys::map_shared(&file, size_of::<Lines>()).context("mapping the board")?;
        let fd = file.as_raw_fd();
        std::mem::forget(file);
        // SAFETY: the mapping is as long as `Lines`, aligned to a page, never taken away, and made only of
        // atomics, for which any bits are valid.
        let lines = unsafe { &*address.cast::<Lines>() };
        Ok(Self { lines, fd })
    }

    /// The descriptor to hand to a program that is exec'ed.
    pub fn fd(self) -> RawFd {
        self.fd
    }

    /// Wipes the board: between cases, when nobody else is there.
    pub fn clear(self) {
        for line in self.lines.each.iter().take(self.lines.taken.swap(0, Relaxed) as usize) {
            line.state.store(0, Relaxed);
        }
    }

    /// Whether calls were refused because the board was full: then the case is void.
    pub fn overflowed(self) -> bool {
        self.lines.taken.load(Acquire) as usize > LINES
    }

    /// Calls that have returned, so far.
    pub fn returned(self) -> usize {
        self.taken().filter(|line| line.state.load(Acquire) == 2).count()
    }

    fn taken(self) -> impl Iterator<Item = &'static Line> {
        self.lines.each.iter().take(self.lines.taken.load(Acquire) as usize)
    }

    /// Everything on the board.
    pub fn calls(self) -> Vec<Call> {
        self.taken().filter(|line| line.state.load(Acquire) != 0).map(Line::read).collect()
    }

    /// Writes down a call around issuing it. Allocates nothing. On a full board the call is not issued.
    fn write_down<T>(self, call: &Asked, issue: impl FnOnce() -> Answer<T>) -> Answer<T> {
        let index = self.lines.taken.fetch_add(1, Relaxed) as usize;
        let line = self.lines.each.get(index).ok_or(Errno(libc::ENOBUFS))?;
        line.enter(call);
        let start = Instant::now();
        let answer = issue();
        line.elapsed_ns.store(start.elapsed().as_nanos() as u64, Relaxed);
        line.errno.store(answer.as_ref().err().map_or(0, |errno| errno.0), Relaxed);
        line.state.store(2, Release);
        answer
    }

    fn on_descriptor(self, op: Op, place: Place, fd: RawFd, issue: impl FnOnce() -> Answer) -> Answer {
        self.write_down(&Asked { fd: Some(fd), ..Asked::new(op, place) }, issue)
    }

    pub fn fsync(self, place: Place, fd: RawFd) -> Answer {
        self.on_descriptor(Op::Fsync, place, fd, || sys::fsync(fd))
    }

    pub fn fdatasync(self, place: Place, fd: RawFd) -> Answer {
        self.on_descriptor(Op::Fdatasync, place, fd, || sys::fdatasync(fd))
    }

    pub fn syncfs(self, place: Place, fd: RawFd) -> Answer {
        self.on_descriptor(Op::Syncfs, place, fd, || sys::syncfs(fd))
    }

    pub fn sync(self, place: Place) -> Answer {
        self.write_down(&Asked::new(Op::Sync, place), sys::sync)
    }

    pub fn sync_file_range(self, place: Place, fd: RawFd, offset: i64, length: i64, flags: u32) -> Answer {
        let issue = || sys::sync_file_range(fd, offset, length, flags);
        self.on_descriptor(Op::SyncFileRange, place, fd, issue)
    }

    /// `msync`, written down if it asks for `MS_SYNC`; `fd` says which file is mapped there.
    pub fn msync(
        self,
        place: Place,
        fd: Option<RawFd>,
        address: usize,
        length: usize,
        flags: c_int,
    ) -> Answer {
        if flags & libc::MS_SYNC == 0 {
            return sys::msync(address, length, flags);
        }
        self.write_down(&Asked { fd, ..Asked::new(Op::Msync, place) }, || sys::msync(address, length, flags))
    }

    /// One successful call of another program, which doesn't know the board. How long it took is not known: 0.
    pub fn seen_elsewhere(self, op: Op, place: Place, fd: RawFd, pid: i32, comm: [u8; 16]) {
        let index = self.lines.taken.fetch_add(1, Relaxed) as usize;
        if let Some(line) = self.lines.each.get(index) {
            line.enter(&Asked { fd: Some(fd), ..Asked::new(op, place) });
            line.attribute_to(pid, comm);
            line.errno.store(0, Relaxed);
            line.elapsed_ns.store(0, Relaxed);
            line.state.store(2, Release);
        }
    }

    /// A call that was made through the 32-bit entry.
    #[cfg(target_arch = "x86_64")]
    pub fn compat(self, op: Op, place: Place, fd: Option<RawFd>, issue: impl FnOnce() -> Answer) -> Answer {
        self.write_down(&Asked { fd, compat: true, ..Asked::new(op, place) }, issue)
    }

    /// Opens a file, by the given call.
    pub fn open_by(
        self,
        call: OpenCall,
        dir: RawFd,
        path: &CStr,
        flags: c_int,
        mode: u32,
    ) -> Answer<OwnedFd> {
        let asked = match call {
            #[cfg(target_arch = "x86_64")]
            OpenCall::Creat => libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC,
            _ => flags,
        };
        let written = Asked { open_flags: asked, ..Asked::new(Op::Open, Place(0)) };
        self.write_down(&written, || sys::open(call, dir, path, flags, mode))
    }

    /// Opens a file below a directory, close-on-exec.
    pub fn open_at(self, dir: RawFd, path: &CStr, flags: c_int) -> Answer<OwnedFd> {
        self.open_by(OpenCall::OpenAt, dir, path, flags | libc::O_CLOEXEC, 0o644)
    }
}
