//! Making processes in all the ways the cases need, and waiting for them.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr;

use anyhow::{Context as _, Result, bail};
use libc::{c_int, c_long, c_ulong};

use crate::sys::{Answer, Errno, c_path};

fn checked(result: c_long) -> Answer<c_long> {
    if result < 0 {
        Err(Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)))
    } else {
        Ok(result)
    }
}

/// A child that has not been waited for.
#[must_use]
pub struct Child(pub i32);

impl Child {
    /// Waits, and wants the status to be 0.
    pub fn finish(self) -> Result<()> {
        match self.wait()? {
            0 => Ok(()),
            status if libc::WIFSIGNALED(status) => {
                bail!("a child was killed by signal {}", libc::WTERMSIG(status))
            }
            status => bail!("a child ended with status {}", libc::WEXITSTATUS(status)),
        }
    }

    /// Waits; the raw status.
    pub fn wait(self) -> Result<c_int> {
        let mut status = 0;
        // SAFETY: the kernel writes one number.
        let waited = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        checked(waited.into()).with_context(|| format!("waiting for process {}", self.0))?;
        Ok(status)
    }

    pub fn kill(&self) -> Answer {
        // SAFETY: a signal to a child of ours that has not been waited for, so its number is still its own.
        checked(unsafe { libc::kill(self.0, libc::SIGKILL) }.into()).map(drop)
    }
}

/// Ends this process at once: no exit handlers, no buffers.
pub fn exit(status: c_int) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(status) }
}

/// Ends this thread and nothing else: of the first thread, too.
pub fn exit_thread() -> ! {
    loop {
        // SAFETY: the thread holds nothing that others wait for: its callers leave only static data behind.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
}

/// Runs the body in this process, which then ends: with 1 and a word on stderr if it failed.
fn run_and_exit(body: impl FnOnce() -> Result<()>) -> ! {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => exit(0),
        Ok(Err(why)) => {
            eprintln!("sync-generator: in a child: {why:#}");
            exit(1)
        }
        Err(_) => exit(101),
    }
}

/// Forks, and runs the body in the child. This program has one thread whenever a case begins.
pub fn child(body: impl FnOnce() -> Result<()>) -> Result<Child> {
    // SAFETY: callers have one thread, so that no lock is held across the fork.
    match checked(unsafe { libc::fork() }.into()).context("fork")? {
        0 => run_and_exit(body),
        pid => Ok(Child(pid as i32)),
    }
}

/// Like [`child`], by `clone(2)` with more flags; none that share memory or give a stack.
pub fn child_with(flags: c_int, body: impl FnOnce() -> Result<()>) -> Result<Child> {
    assert_eq!(flags & (libc::CLONE_VM | libc::CLONE_SETTLS), 0, "such a child needs a stack");
    let flags = c_long::from(flags | libc::SIGCHLD);
    // SAFETY: without CLONE_VM this is a fork: the child has its own copy of all memory, and one thread.
    match checked(unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) }).context("clone")? {
        0 => run_and_exit(body),
        pid => Ok(Child(pid as i32)),
    }
}

/// A child as `vfork` makes it: in our memory, on a stack of its own, with us asleep until it ends or execs.
/// The body must allocate nothing; what it returns is its exit status.
pub fn vfork_child<F: FnMut() -> c_int>(mut body: F) -> Result<Child> {
    extern "C" fn call<F: FnMut() -> c_int>(body: *mut libc::c_void) -> c_int {
        // SAFETY: `vfork_child` passes its own body, which waits there until this process is gone.
        let body = unsafe { &mut *body.cast::<F>() };
        body()
    }
    let mut stack = vec![0_u128; 16 * 1024];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack begins at the end of a buffer that lives until the child has ended or exec'ed,
    // since CLONE_VFORK holds us until then; the same holds for the body.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(stack.len());
        libc::clone(call::<F>, top.cast(), flags, (&raw mut body).cast())
    };
    checked(pid.into()).context("clone as vfork does")?;
    Ok(Child(pid))
}

/// A program to become, put together before the fork.
pub struct Program {
    path: CString,
    arguments: Vec<CString>,
}

impl Program {
    pub fn new(path: &Path, arguments: &[String]) -> Self {
        let own = [c_path(path)];
        let rest = arguments.iter().map(c_path);
        Self { path: c_path(path), arguments: own.into_iter().chain(rest).collect() }
    }

    /// Becomes the program; returns only if that failed.
    pub fn exec(&self) -> Errno {
        let mut pointers = [ptr::null(); 16];
        for (pointer, argument) in pointers.iter_mut().take(15).zip(&self.arguments) {
            *pointer = argument.as_ptr();
        }
        let environment: [*const libc::c_char; 1] = [ptr::null()];
        // SAFETY: both lists end with a null pointer, and their strings live in `self`.
        let result = unsafe {
            libc::syscall(libc::SYS_execve, self.path.as_ptr(), pointers.as_ptr(), environment.as_ptr())
        };
        checked(result).err().unwrap_or(Errno(0))
    }
}

/// Takes other people's orphans among our descendants as our own children.
pub fn become_subreaper(on: bool) -> Answer {
    // SAFETY: numbers only.
    checked(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, c_ulong::from(on), 0, 0, 0) }.into()).map(drop)
}

/// Sets the name of the calling thread: up to 15 bytes.
pub fn set_comm(name: &CStr) -> Answer {
    // SAFETY: a C string that outlives the call.
    checked(unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0, 0, 0) }.into()).map(drop)
}

/// The name of the calling thread, filled up with zero bytes.
pub fn comm() -> [u8; 16] {
    let mut name = [0_u8; 16];
    // SAFETY: the kernel writes at most 16 bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr(), 0, 0, 0) };
    name
}

/// The process as it numbers itself; asked anew each time, since libraries have remembered it across clones.
pub fn own_pid() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::syscall(libc::SYS_getpid) as i32 }
}

/// The calling thread, as its process numbers it.
pub fn own_tid() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

pub fn is_root() -> bool {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() == 0 }
}

/// Raises the soft limit of open files to at least `least`.
pub fn allow_descriptors(least: u64) -> Answer {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills, then reads, one `rlimit`.
    unsafe {
        checked(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit).into())?;
        limit.rlim_cur = limit.rlim_cur.max(least);
        limit.rlim_max = limit.rlim_max.max(limit.rlim_cur);
        checked(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit).into()).map(drop)
    }
}

/// Puts a seccomp filter on this process, for good.
pub fn install_filter(filter: &libc::sock_fprog) -> Answer {
    // SAFETY: numbers, and a program whose steps live until the call is over: the kernel copies them.
    unsafe {
        checked(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into())?;
        checked(libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, ptr::from_ref(filter)))
            .map(drop)
    }
}

/// Room for one control message with one descriptor, aligned as its header wants it.
#[repr(C)]
struct Control {
    header: libc::cmsghdr,
    fd: RawFd,
    padding: u32,
}

fn one_descriptor(control: &mut Control, byte: &mut libc::iovec) -> libc::msghdr {
    // SAFETY: all zero is an empty message.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = byte;
    message.msg_iovlen = 1;
    message.msg_control = ptr::from_mut(control).cast();
    message.msg_controllen = size_of::<Control>() as _;
    message
}

fn control(fd: RawFd) -> Control {
    // SAFETY: gives a length.
    let length = unsafe { libc::CMSG_LEN(size_of::<RawFd>() as u32) };
    let mut control = Control {
        // SAFETY: all zero is a valid header.
        header: unsafe { std::mem::zeroed() },
        fd,
        padding: 0,
    };
    control.header.cmsg_len = length as _;
    control.header.cmsg_level = libc::SOL_SOCKET;
    control.header.cmsg_type = libc::SCM_RIGHTS;
    control
}

/// Passes a descriptor to whoever holds the other end.
pub fn send_descriptor(socket: &OwnedFd, fd: &OwnedFd) -> Answer {
    let mut byte = 0_u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut control = control(fd.as_raw_fd());
    let message = one_descriptor(&mut control, &mut part);
    // SAFETY: the message points at one byte and one control message, both alive.
    checked(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) } as c_long).map(drop)
}

/// Takes a descriptor that was passed.
pub fn receive_descriptor(socket: &OwnedFd) -> Result<OwnedFd> {
    let mut byte = 0_u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut control = control(-1);
    let mut message = one_descriptor(&mut control, &mut part);
    // SAFETY: the message points at room for one byte and one control message, both alive.
    checked(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) } as c_long)
        .context("recvmsg")?;
    if control.fd < 0 {
        bail!("no descriptor came with the message");
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(control.fd) })
}
