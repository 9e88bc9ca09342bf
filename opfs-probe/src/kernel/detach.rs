//! Ends without waiting for the kernel to detach the programs.

use std::fs;
use std::os::fd::{AsRawFd, RawFd};

use nix::fcntl::OFlag;
use nix::libc;
use nix::unistd::pipe2;

/// Forks a process that holds this one's BPF descriptors, and no others, until it has ended.
///
/// Closing the last descriptor of a system call tracepoint waits for every CPU: some 70 ms each, one
/// after the other. The child waits instead: it must be the last to hold them, so it ends after this
/// process, whose end of a pipe closes then. Without it (no memory, no processes left) the end is
/// merely slow, so a failure is no error.
pub fn in_background() {
    let Ok((until_our_end, our_end)) = pipe2(OFlag::O_CLOEXEC) else { return };
    let (bpf, others): (Vec<RawFd>, Vec<RawFd>) =
        open_descriptors().filter(|fd| *fd != until_our_end.as_raw_fd()).partition(|fd| is_bpf(*fd));
    if bpf.is_empty() {
        return;
    }
    // SAFETY: the child makes system calls and ends, which is allowed after a fork in a process with
    // threads; it allocates nothing.
    unsafe {
        if libc::fork() == 0 {
            libc::setsid();
            // Nobody's file system is kept busy meanwhile.
            libc::chdir(c"/".as_ptr());
            for fd in &others {
                libc::close(*fd);
            }
            libc::read(until_our_end.as_raw_fd(), [0_u8; 1].as_mut_ptr().cast(), 1);
            libc::_exit(0);
        }
    }
    // Open until this process has ended.
    std::mem::forget(our_end);
}

fn open_descriptors() -> impl Iterator<Item = RawFd> {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Programs, maps, links and perf events are anonymous inodes named after what they are.
fn is_bpf(fd: RawFd) -> bool {
    fs::read_link(format!("/proc/self/fd/{fd}")).is_ok_and(|target| {
        let target = target.to_string_lossy();
        target.starts_with("anon_inode:") && (target.contains("bpf") || target.contains("perf_event"))
    })
}
