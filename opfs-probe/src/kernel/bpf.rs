//! The bpf(2) calls that aya does not offer: programs too small to be worth an object file.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use nix::libc;
use opfs_probe_common::config::{CALL, CALLS_KERNEL_FUNCTION};

/// `enum bpf_cmd` of include/uapi/linux/bpf.h.
const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_PROG_LOAD: libc::c_long = 5;

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
        bpf(BPF_PROG_LOAD, &attributes)
    }
}

/// Makes a map of a type that needs nothing but a size.
pub fn create_map(map_type: u32, max_entries: u32) -> io::Result<OwnedFd> {
    bpf(BPF_MAP_CREATE, &MapAttributes { map_type, key_size: 0, value_size: 0, max_entries })
}

fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the attributes are this command's, fully initialised, and what they point to is static;
    // the kernel takes fields beyond their size as zero.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    let fd = i32::try_from(result).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: a descriptor that the kernel just made for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
