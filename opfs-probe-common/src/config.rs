//! What the loader tells the kernel programs once, before they run.

use core::mem::size_of;

/// Settings in the programs' read-only data.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// A descriptor number that only the probe itself uses: a sync call on it tells the kernel side
    /// the probe's own tgid in the initial PID namespace, and proves that the probes run.
    pub self_test_fd: i32,
    /// Byte offset of a system call's first argument in `syscalls:sys_enter_*` (and of its result in
    /// `sys_exit_*`), from the tracepoint's `format` file: 16 except on some distributions' kernels.
    pub syscall_fields_offset: u32,
    /// `O_DIRECT` of this architecture; the other open flags are the same on all we build for.
    pub o_direct: u32,
    /// BTF id of a kernel structure that begins with an 8-byte integer: through it the programs read any
    /// kernel memory by plain loads. 0 where the kernel lacks `bpf_rdonly_cast` (before Linux 6.2).
    pub word_structure: u32,
}

/// `BPF_PSEUDO_KFUNC_CALL` as the source register of a call without destination, in the byte of an
/// instruction that holds both registers.
pub const CALLS_KERNEL_FUNCTION: u8 = if cfg!(target_endian = "big") { 0x02 } else { 0x20 };

/// `BPF_JMP | BPF_CALL` of include/uapi/linux/bpf.h.
pub const CALL: u8 = 0x85;

/// What the programs call for such a pointer, until the loader puts the function's BTF id in its place.
pub const CAST_MARKER: u32 = 0x0b7f_ca57;

const _: () = assert!(size_of::<Config>() == 16);

crate::pod!(Config);
