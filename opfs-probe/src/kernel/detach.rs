//! Ends without waiting for the kernel to detach the programs.

use std::fs;
use std::os::fd::RawFd;

use nix::libc;
use nix::unistd::getpid;

/// We should have ended long before.
const LONGEST_WAIT_MS: u32 = 10_000;

/// Forks a process that holds this one's BPF descriptors, and no others, until it has ended.
///
/// Closing the last descriptor of a system call tracepoint waits for every CPU: some 70 ms each, one
/// after the other. The child waits instead, and so has to be the last to let go: it looks every
/// millisecond whether it has another parent, which it gets once our last thread has let go. Without
/// it (no memory, no processes left) the end is merely slow, so a failed fork is no error.
pub fn in_background() {
    let (bpf, others): (Vec<RawFd>, Vec<RawFd>) = open_descriptors().partition(|fd| is_bpf(*fd));
    if bpf.is_empty() {
        return;
    }
    let parent = getpid().as_raw();
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
            for _ in 0..LONGEST_WAIT_MS {
                if libc::getppid() != parent {
                    break;
                }
                libc::usleep(1000);
            }
            libc::_exit(0);
        }
    }
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
