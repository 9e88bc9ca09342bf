//! Perf events of tracepoints. Layouts are those of `include/uapi/linux/perf_event.h`.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `PERF_TYPE_TRACEPOINT`
const TYPE_TRACEPOINT: u32 = 2;
/// `PERF_EVENT_IOC_SET_BPF` and `PERF_EVENT_IOC_ENABLE`
const SET_BPF: libc::c_ulong = 0x4004_2408;
const ENABLE: libc::c_ulong = 0x2400;

/// `struct perf_event_attr` up to its first published size, `PERF_ATTR_SIZE_VER0`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    event_type: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

/// Opens the perf event of `category:event`, for a program on it: any one processor stands for all.
pub fn open(category: &str, event: &str) -> io::Result<OwnedFd> {
    let id = fs::read_to_string(format!("/sys/kernel/tracing/events/{category}/{event}/id"))?;
    let config = id.trim().parse().map_err(io::Error::other)?;
    let (process, processor) = (-1, 0);
    let size = size_of::<Attributes>() as u32;
    let attributes = Attributes { event_type: TYPE_TRACEPOINT, size, config, ..Attributes::default() };
    let (group, close_on_exec) = (-1, 8);
    // SAFETY: the attributes are fully initialised and say how long they are.
    let result = unsafe {
        let attributes = std::ptr::from_ref(&attributes);
        libc::syscall(libc::SYS_perf_event_open, attributes, process, processor, group, close_on_exec)
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that the kernel just made for us.
    Ok(unsafe { OwnedFd::from_raw_fd(result as i32) })
}

/// Puts a program on it.
pub fn attach(event: &OwnedFd, program: &OwnedFd) -> io::Result<()> {
    // SAFETY: both take a number, no pointer.
    let results = unsafe {
        [
            libc::ioctl(event.as_raw_fd(), SET_BPF, program.as_raw_fd()),
            libc::ioctl(event.as_raw_fd(), ENABLE, 0),
        ]
    };
    if results == [0, 0] { Ok(()) } else { Err(io::Error::last_os_error()) }
}
