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
}

const _: () = assert!(size_of::<Config>() == 12);

crate::pod!(Config);
