//! The bpf(2) calls that aya does not offer: programs too small to be worth an object file.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::libc;
use opfs_probe_common::config::{CALL, CALLS_KERNEL_FUNCTION};

/// `enum bpf_cmd` of include/uapi/linux/bpf.h.
const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;

/// A program that returns 0: what a hook accepts if it accepts anything.
#[derive(Clone, Copy, Debug, Default)]
pub struct TinyProgram {
    /// `enum bpf_prog_type`
    pub program_type: u32,
    /// `enum bpf_attach_type`, where the type asks for one.
    pub attach_type: u32,
    /// BTF id of what it is attached to, where the type asks for one.
    pub attach_btf_id: u32,
    /// A kernel function that it calls before, where there is one.
    pub calls: Option<KernelCall>,
}

/// A call of a kernel function with the arguments 0 and a number.
#[derive(Clone, Copy, Debug)]
pub struct KernelCall {
    /// BTF id of the function.
    pub function: u32,
    /// The number.
    pub argument: u32,
}

/// `struct bpf_insn`
#[repr(C)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// `BPF_ALU64 | BPF_MOV | BPF_K` and `BPF_JMP | BPF_EXIT`
const SET: u8 = 0xb7;
const EXIT: u8 = 0x95;

impl Instruction {
    const fn new(code: u8, registers: u8, immediate: u32) -> Self {
        Self { code, registers, offset: 0, immediate: immediate as i32 }
    }

    /// `r = value`
    const fn set(register: u8, value: u32) -> Self {
        let registers = if cfg!(target_endian = "big") { register << 4 } else { register };
        Self::new(SET, registers, value)
    }
}

/// What `union bpf_attr` holds for `BPF_PROG_LOAD`, up to `attach_btf_id`.
#[repr(C)]
#[derive(Default)]
struct LoadAttributes {
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
    interface: u32,
    expected_attach_type: u32,
    btf_fd: u32,
    function_info_size: u32,
    function_info_at: u64,
    function_infos: u32,
    line_info_size: u32,
    line_info_at: u64,
    line_infos: u32,
    attach_btf_id: u32,
    attach_to_fd: u32,
    /// To a multiple of 8, so that no byte is undefined.
    padding: u32,
}

const _: () = assert!(size_of::<LoadAttributes>() == 120);

/// What `union bpf_attr` holds for `BPF_MAP_CREATE`.
#[repr(C)]
struct MapAttributes {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

impl TinyProgram {
    /// Loads the program; it is gone when the descriptor is closed.
    pub fn load(self) -> io::Result<OwnedFd> {
        let call = |KernelCall { function, argument }| {
            let call = Instruction::new(CALL, CALLS_KERNEL_FUNCTION, function);
            [Instruction::set(1, 0), Instruction::set(2, argument), call]
        };
        let mut instructions: Vec<Instruction> = self.calls.map(call).into_iter().flatten().collect();
        instructions.extend([Instruction::set(0, 0), Instruction::new(EXIT, 0, 0)]);
        let attributes = LoadAttributes {
            program_type: self.program_type,
            instructions: instructions.len() as u32,
            instructions_at: instructions.as_ptr() as u64,
            license_at: c"GPL".as_ptr() as u64,
            expected_attach_type: self.attach_type,
            attach_btf_id: self.attach_btf_id,
            ..LoadAttributes::default()
        };
        bpf(BPF_PROG_LOAD, attributes)
    }
}

/// Makes a map of a type that needs nothing but a size.
pub fn create_map(map_type: u32, max_entries: u32) -> io::Result<OwnedFd> {
    bpf(BPF_MAP_CREATE, MapAttributes { map_type, key_size: 0, value_size: 0, max_entries })
}

/// What `union bpf_attr` holds for `BPF_OBJ_GET_INFO_BY_FD`.
#[repr(C)]
struct InfoAttributes {
    fd: u32,
    info_len: u32,
    info_at: u64,
}

/// What the kernel counts of a program: the end of `struct bpf_prog_info`, as its kernel fills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunCounts {
    /// Time it ran, while statistics were on.
    pub run_ns: u64,
    /// How often it ran, while statistics were on.
    pub runs: u64,
    /// How often it was due and skipped; none where this kernel has no such field (before 5.12).
    pub missed: Option<u64>,
}

impl RunCounts {
    /// `run_time_ns`, `run_cnt` and `recursion_misses` in `struct bpf_prog_info`.
    const RUN_NS: usize = 192;
    const RUNS: usize = 200;
    const MISSED: usize = 208;
    const END: usize = 216;

    /// Asks the kernel; needs no privilege beyond the descriptor.
    pub fn of(program: BorrowedFd<'_>) -> io::Result<Self> {
        let mut info = [0_u64; Self::END / 8];
        let mut attributes = InfoAttributes {
            fd: program.as_raw_fd() as u32,
            info_len: Self::END as u32,
            info_at: info.as_mut_ptr() as u64,
        };
        call(BPF_OBJ_GET_INFO_BY_FD, &mut attributes)?;
        let filled = attributes.info_len as usize;
        // The address of `info` went to the kernel as a number: nothing is to be taken for known of it.
        let info = std::hint::black_box(info);
        let field = |offset: usize| (offset + 8 <= filled).then(|| info[offset / 8]);
        match (field(Self::RUN_NS), field(Self::RUNS)) {
            (Some(run_ns), Some(runs)) => Ok(Self { run_ns, runs, missed: field(Self::MISSED) }),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

fn bpf<T>(command: libc::c_long, mut attributes: T) -> io::Result<OwnedFd> {
    let fd = call(command, &mut attributes)?;
    // SAFETY: a descriptor that the kernel just made for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn call<T>(command: libc::c_long, attributes: &mut T) -> io::Result<i32> {
    // SAFETY: the attributes are this command's, fully initialised, and what they point to outlives the
    // call; the kernel takes fields beyond their size as zero, and writes no further than they say.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    i32::try_from(result).ok().filter(|result| *result >= 0).ok_or_else(io::Error::last_os_error)
}
