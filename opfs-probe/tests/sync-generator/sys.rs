//! The system calls the cases use, each wrapped once and checked.
//!
//! Calls go straight to the kernel (`syscall(2)`), so that one call here is one call there: no library
//! retries, adds or replaces any. Sync calls and opens are not issued through this module by the cases
//! but through [`crate::board::Board`], which writes down each one.

use std::ffi::{CStr, CString, OsStr};
use std::fmt;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use libc::{c_int, c_long, c_void};

/// An error number, as the kernel gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Errno(pub i32);

impl Errno {
    fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    /// The symbol, `EBADF`; for one that isn't in the table the number, `E133`.
    pub fn name(self) -> String {
        const NAMES: [(i32, &str); 20] = [
            (libc::EPERM, "EPERM"),
            (libc::ENOENT, "ENOENT"),
            (libc::EINTR, "EINTR"),
            (libc::EIO, "EIO"),
            (libc::EBADF, "EBADF"),
            (libc::ENOMEM, "ENOMEM"),
            (libc::EACCES, "EACCES"),
            (libc::EEXIST, "EEXIST"),
            (libc::ENOTDIR, "ENOTDIR"),
            (libc::EISDIR, "EISDIR"),
            (libc::EINVAL, "EINVAL"),
            (libc::EMFILE, "EMFILE"),
            (libc::ENOSPC, "ENOSPC"),
            (libc::ESPIPE, "ESPIPE"),
            (libc::EROFS, "EROFS"),
            (libc::ENAMETOOLONG, "ENAMETOOLONG"),
            (libc::ENOSYS, "ENOSYS"),
            (libc::ELOOP, "ELOOP"),
            (libc::EOPNOTSUPP, "EOPNOTSUPP"),
            (libc::EDQUOT, "EDQUOT"),
        ];
        let known = NAMES.iter().find(|(number, _)| *number == self.0);
        known.map_or_else(|| format!("E{}", self.0), |(_, name)| (*name).to_owned())
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name())
    }
}

impl std::error::Error for Errno {}

/// What a call answered.
pub type Answer<T = ()> = Result<T, Errno>;

fn checked(result: c_long) -> Answer<c_long> {
    if result < 0 { Err(Errno::last()) } else { Ok(result) }
}

/// A call whose arguments are numbers only: the kernel reads and writes no memory of ours for it.
fn plain(number: c_long, arguments: [c_long; 4]) -> Answer<c_long> {
    let [a, b, c, d] = arguments;
    // SAFETY: this function is private, and its callers below pass no pointers.
    checked(unsafe { libc::syscall(number, a, b, c, d) })
}

/// A path for the kernel.
///
/// # Panics
/// If it holds a zero byte: the cases make their own names.
pub fn c_path(path: impl AsRef<OsStr>) -> CString {
    CString::new(path.as_ref().as_bytes()).expect("no name in this program holds a zero byte")
}

/// A descriptor the kernel has just made for us.
fn owned(fd: c_long) -> OwnedFd {
    // SAFETY: callers pass what a call that makes a descriptor returned; nobody else owns it.
    unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
}

pub fn fsync(fd: RawFd) -> Answer {
    plain(libc::SYS_fsync, [fd.into(), 0, 0, 0]).map(drop)
}

pub fn fdatasync(fd: RawFd) -> Answer {
    plain(libc::SYS_fdatasync, [fd.into(), 0, 0, 0]).map(drop)
}

pub fn sync() -> Answer {
    plain(libc::SYS_sync, [0; 4]).map(drop)
}

pub fn syncfs(fd: RawFd) -> Answer {
    plain(libc::SYS_syncfs, [fd.into(), 0, 0, 0]).map(drop)
}

pub fn sync_file_range(fd: RawFd, offset: i64, length: i64, flags: u32) -> Answer {
    plain(libc::SYS_sync_file_range, [fd.into(), offset, length, flags.into()]).map(drop)
}

/// `msync(2)`; any address may be tried, since it changes no memory.
pub fn msync(address: usize, length: usize, flags: c_int) -> Answer {
    plain(libc::SYS_msync, [address as c_long, length as c_long, flags.into(), 0]).map(drop)
}

/// Which of the calls that open a file to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenCall {
    #[cfg(target_arch = "x86_64")]
    Open,
    #[cfg(target_arch = "x86_64")]
    Creat,
    OpenAt,
    OpenAt2,
}

pub fn open(call: OpenCall, dir: RawFd, path: &CStr, flags: c_int, mode: u32) -> Answer<OwnedFd> {
    let name = path.as_ptr();
    // SAFETY: `name` is a C string that outlives the call, and `how` below a whole `open_how`.
    let result = unsafe {
        match call {
            #[cfg(target_arch = "x86_64")]
            OpenCall::Open => libc::syscall(libc::SYS_open, name, flags, mode),
            #[cfg(target_arch = "x86_64")]
            OpenCall::Creat => libc::syscall(libc::SYS_creat, name, mode),
            OpenCall::OpenAt => libc::syscall(libc::SYS_openat, dir, name, flags, mode),
            OpenCall::OpenAt2 => {
                // Flags, mode (allowed only where a file can be made) and resolve, 64 bits each.
                let makes = flags & (libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY) != 0;
                let how: [u64; 3] = [flags as u64, if makes { mode.into() } else { 0 }, 0];
                libc::syscall(libc::SYS_openat2, dir, name, how.as_ptr(), size_of_val(&how))
            }
        }
    };
    checked(result).map(owned)
}

/// Closes by number: for the cases in which the number, not its owner, matters.
pub fn close(fd: RawFd) -> Answer {
    plain(libc::SYS_close, [fd.into(), 0, 0, 0]).map(drop)
}

pub fn close_range(first: RawFd, last: RawFd) -> Answer {
    plain(libc::SYS_close_range, [first.into(), last.into(), 0, 0]).map(drop)
}

/// A second descriptor of the same open file, above or equal to `least`, that exec keeps.
pub fn duplicate_from(fd: RawFd, least: RawFd) -> Answer<OwnedFd> {
    plain(libc::SYS_fcntl, [fd.into(), libc::F_DUPFD.into(), least.into(), 0]).map(owned)
}

/// `dup3`: makes `to` another descriptor of `fd`. What is then to become of `to` is the caller's matter.
pub fn duplicate_to(fd: RawFd, to: RawFd) -> Answer {
    plain(libc::SYS_dup3, [fd.into(), to.into(), 0, 0]).map(drop)
}

/// Lets the descriptor pass through exec.
pub fn keep_on_exec(fd: &OwnedFd) -> Answer {
    plain(libc::SYS_fcntl, [fd.as_raw_fd().into(), libc::F_SETFD.into(), 0, 0]).map(drop)
}

pub fn write_all(fd: &OwnedFd, bytes: &[u8]) -> Answer {
    let mut rest = bytes;
    while !rest.is_empty() {
        // SAFETY: the kernel reads `rest.len()` bytes of a slice that lives.
        let result = unsafe { libc::syscall(libc::SYS_write, fd.as_raw_fd(), rest.as_ptr(), rest.len()) };
        rest = &rest[checked(result)? as usize..];
    }
    Ok(())
}

/// Reads once.
pub fn read(fd: &OwnedFd, buffer: &mut [u8]) -> Answer<usize> {
    // SAFETY: the kernel writes at most `buffer.len()` bytes into a slice that is ours alone.
    let result = unsafe { libc::syscall(libc::SYS_read, fd.as_raw_fd(), buffer.as_mut_ptr(), buffer.len()) };
    checked(result).map(|length| length as usize)
}

/// A pipe: its end to read from, its end to write to.
pub fn pipe() -> Answer<(OwnedFd, OwnedFd)> {
    let mut ends: [RawFd; 2] = [-1; 2];
    // SAFETY: the kernel writes two descriptors into an array of two.
    checked(unsafe { libc::syscall(libc::SYS_pipe2, ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    Ok((owned(ends[0].into()), owned(ends[1].into())))
}

pub fn socket_pair() -> Answer<(OwnedFd, OwnedFd)> {
    let mut ends: [RawFd; 2] = [-1; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: the kernel writes two descriptors into an array of two.
    checked(unsafe { libc::syscall(libc::SYS_socketpair, libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) })?;
    Ok((owned(ends[0].into()), owned(ends[1].into())))
}

pub fn event_fd() -> Answer<OwnedFd> {
    plain(libc::SYS_eventfd2, [0, libc::EFD_CLOEXEC.into(), 0, 0]).map(owned)
}

pub fn epoll() -> Answer<OwnedFd> {
    plain(libc::SYS_epoll_create1, [libc::EPOLL_CLOEXEC.into(), 0, 0, 0]).map(owned)
}

pub fn memory_file(name: &CStr, flags: u32) -> Answer<OwnedFd> {
    // SAFETY: `name` is a C string that outlives the call.
    checked(unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), flags) }).map(owned)
}

pub fn truncate(fd: &OwnedFd, length: usize) -> Answer {
    plain(libc::SYS_ftruncate, [fd.as_raw_fd().into(), length as c_long, 0, 0]).map(drop)
}

pub fn make_dir_at(dir: &OwnedFd, name: &CStr) -> Answer {
    // SAFETY: `name` is a C string that outlives the call.
    checked(unsafe { libc::syscall(libc::SYS_mkdirat, dir.as_raw_fd(), name.as_ptr(), 0o755) }).map(drop)
}

/// `access(2)`: what the marks between cases are made of, since tracers show its path and it opens nothing.
pub fn access(path: &CStr) -> Answer {
    // SAFETY: `path` is a C string that outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, path.as_ptr(), libc::F_OK) };
    checked(result).map(drop)
}

/// `fstat(2)`: the device (major, minor) and the inode number.
pub fn identity(fd: RawFd) -> Answer<((u32, u32), u64)> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel fills a whole `stat`, which is valid when zeroed, too.
    let stat = unsafe {
        checked(libc::fstat(fd, stat.as_mut_ptr()).into())?;
        stat.assume_init()
    };
    Ok(((libc::major(stat.st_dev), libc::minor(stat.st_dev)), stat.st_ino))
}

/// Where /proc/self/fd says a descriptor leads, and whether it says that the name is gone. That link opens nothing.
pub fn shown_path(fd: RawFd) -> std::io::Result<(PathBuf, bool)> {
    let shown = std::fs::read_link(format!("/proc/self/fd/{fd}"))?;
    let bytes = shown.as_os_str().as_bytes();
    Ok(match bytes.strip_suffix(b" (deleted)") {
        Some(name) => (Path::new(OsStr::from_bytes(name)).to_owned(), true),
        None => (shown, false),
    })
}

/// This process's number as /proc has it. Allocates and opens nothing.
pub fn number_in_proc() -> Option<i32> {
    let mut text = [0_u8; 16];
    let (link, room) = (c"/proc/self".as_ptr(), text.as_mut_ptr());
    // SAFETY: a C string, and room for as many bytes as the kernel is told.
    let length = unsafe { libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, link, room, text.len()) };
    str::from_utf8(text.get(..length as usize)?).ok()?.parse().ok()
}

/// A shared mapping of a file, aligned to a page.
pub fn map_shared(fd: &OwnedFd, length: usize) -> Answer<*mut c_void> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at a place of the kernel's choice touches no memory that exists.
    let address = unsafe { libc::mmap(ptr::null_mut(), length, access, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
    if address == libc::MAP_FAILED { Err(Errno::last()) } else { Ok(address) }
}

/// A private mapping that no file is behind.
pub fn map_anonymous(length: usize) -> Answer<*mut c_void> {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at a place of the kernel's choice touches no memory that exists.
    let address = unsafe { libc::mmap(ptr::null_mut(), length, access, kind, -1, 0) };
    if address == libc::MAP_FAILED { Err(Errno::last()) } else { Ok(address) }
}

/// Takes a mapping away.
///
/// # Safety
/// It came from one of the two functions above, and nothing points into it.
pub unsafe fn unmap(address: *mut c_void, length: usize) -> Answer {
    // SAFETY: what the caller promises.
    checked(unsafe { libc::munmap(address, length) }.into()).map(drop)
}

/// Keeps the allocator from opening /sys/devices/system/cpu/online once there are many threads.
pub fn use_one_arena() {
    // SAFETY: numbers only, before there are threads.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1)
    };
}

/// Lets the process sleep for a moment.
pub fn pause() {
    std::thread::sleep(std::time::Duration::from_micros(200));
}
