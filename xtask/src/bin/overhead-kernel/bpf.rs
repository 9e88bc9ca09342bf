//! The few commands of bpf(2) that are needed here. Layouts are those of `union bpf_attr` and
//! `struct bpf_prog_info` in include/uapi/linux/bpf.h.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const PROG_LOAD: libc::c_long = 5;
const PROG_GET_NEXT_ID: libc::c_long = 11;
const PROG_GET_FD_BY_ID: libc::c_long = 13;
const OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const RAW_TRACEPOINT_OPEN: libc::c_long = 17;
const ENABLE_STATS: libc::c_long = 32;

/// `BPF_PROG_TYPE_TRACEPOINT` and `BPF_PROG_TYPE_RAW_TRACEPOINT`
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum ProgramType {
    /// For the perf event of a tracepoint.
    Tracepoint = 5,
    /// For a tracepoint itself.
    RawTracepoint = 17,
}

/// `r0 = 0; exit`, as `struct bpf_insn`
static NOTHING: [[u8; 8]; 2] = [[0xb7, 0, 0, 0, 0, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];

#[repr(C)]
struct Load {
    program_type: u32,
    instructions: u32,
    instructions_at: u64,
    license_at: u64,
    log_level: u32,
    log_size: u32,
    log_at: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

/// Loads a program that does nothing. The name is cut to the 15 bytes that the kernel keeps.
pub fn load_empty(program_type: ProgramType, name: &str) -> io::Result<OwnedFd> {
    let mut attributes = Load {
        program_type: program_type as u32,
        instructions: NOTHING.len() as u32,
        instructions_at: NOTHING.as_ptr() as u64,
        license_at: c"GPL".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_at: 0,
        kernel_version: 0,
        flags: 0,
        name: [0; 16],
    };
    for (place, byte) in attributes.name[..15].iter_mut().zip(name.bytes()) {
        *place = byte;
    }
    descriptor(bpf(PROG_LOAD, &attributes)?)
}

/// Attaches to a tracepoint itself; detached when the descriptor is closed.
pub fn open_raw_tracepoint(program: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Open {
        name_at: u64,
        program: u32,
        padding: u32,
    }
    let name = CString::new(name)?;
    let program = program.as_raw_fd() as u32;
    descriptor(bpf(RAW_TRACEPOINT_OPEN, &Open { name_at: name.as_ptr() as u64, program, padding: 0 })?)
}

/// The kernel times every program until the descriptor is closed, and so no longer than we live.
pub fn enable_statistics() -> io::Result<OwnedFd> {
    // `BPF_STATS_RUN_TIME`
    descriptor(bpf(ENABLE_STATS, &0_u32)?)
}

/// What the kernel knows of a program.
pub struct Program {
    /// `enum bpf_prog_type`
    pub kind: u32,
    /// Its name.
    pub name: String,
    /// How often it ran while statistics were on.
    pub runs: u64,
    /// How long, in nanoseconds.
    pub run_ns: u64,
}

#[repr(C)]
struct ById {
    id: u32,
    next_id: u32,
    open_flags: u32,
}

/// The ids of all programs.
pub fn program_ids() -> io::Result<Vec<u32>> {
    let mut ids = Vec::new();
    loop {
        let mut attributes = ById { id: ids.last().copied().unwrap_or(0), next_id: 0, open_flags: 0 };
        match bpf_out(PROG_GET_NEXT_ID, &mut attributes) {
            Ok(_) => ids.push(attributes.next_id),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ids),
            Err(error) => return Err(error),
        }
    }
}

/// Opens a program by its id; fails with `NotFound` once it is gone.
pub fn open_program(id: u32) -> io::Result<OwnedFd> {
    descriptor(bpf(PROG_GET_FD_BY_ID, &ById { id, next_id: 0, open_flags: 0 })?)
}

/// What the kernel knows of an open program.
pub fn program(program: &OwnedFd) -> io::Result<Program> {
    #[repr(C)]
    struct GetInfo {
        descriptor: u32,
        size: u32,
        at: u64,
    }
    // Up to run_cnt; the type is at byte 0, the name at 64, run_time_ns at 192.
    let mut info = [0_u32; 52];
    let at = info.as_mut_ptr() as u64;
    let size = size_of_val(&info) as u32;
    bpf(OBJ_GET_INFO_BY_FD, &GetInfo { descriptor: program.as_raw_fd() as u32, size, at })?;
    // A u64 is two of them, in this machine's order.
    let u64_at = |place: usize| {
        let (first, second) = (u64::from(info[place]), u64::from(info[place + 1]));
        if cfg!(target_endian = "big") { first << 32 | second } else { second << 32 | first }
    };
    let name: Vec<u8> = info[16..20].iter().flat_map(|part| part.to_ne_bytes()).collect();
    let name = CStr::from_bytes_until_nul(&name).map_err(io::Error::other)?;
    Ok(Program {
        kind: info[0],
        name: name.to_string_lossy().into_owned(),
        run_ns: u64_at(48),
        runs: u64_at(50),
    })
}

fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<libc::c_long> {
    call(command, std::ptr::from_ref(attributes).cast_mut())
}

/// A command that answers in its attributes.
fn bpf_out<T>(command: libc::c_long, attributes: &mut T) -> io::Result<libc::c_long> {
    call(command, std::ptr::from_mut(attributes))
}

fn call<T>(command: libc::c_long, attributes: *mut T) -> io::Result<libc::c_long> {
    // SAFETY: the attributes are those of the command, without undefined bytes, and what they point to
    // outlives the call; the kernel takes fields beyond their size as zero, and writes only where the
    // command answers in them.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn descriptor(result: libc::c_long) -> io::Result<OwnedFd> {
    let result = i32::try_from(result).map_err(io::Error::other)?;
    // SAFETY: a descriptor that the kernel just made for us.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}
