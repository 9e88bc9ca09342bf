//! Opens by watched processes, counted where they return: the arguments are still in the registers.

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::tracepoint;
use aya_ebpf::programs::TracePointContext;

use crate::kernel::{self, add, offset, user_registers};
use crate::maps::EPOCHS;
use crate::membership::member;
use crate::syscalls::field;

// From include/uapi/asm-generic/fcntl.h; `O_SYNC` includes `O_DSYNC`.
const O_WRONLY: u64 = 0o1;
const O_CREAT: u64 = 0o100;
const O_EXCL: u64 = 0o200;
const O_TRUNC: u64 = 0o1000;
const O_DSYNC: u64 = 0o10000;
const O_SYNC: u64 = 0o4_000_000 | O_DSYNC;

/// `openat(dirfd, path, flags, mode)`
#[tracepoint]
pub fn exit_openat(ctx: TracePointContext) -> u32 {
    count(&ctx, || Some(user_registers().load(offset!(pt_regs_dx))))
}

/// `openat2(dirfd, path, how, size)`: the flags are the first member of `struct open_how`.
#[tracepoint]
pub fn exit_openat2(ctx: TracePointContext) -> u32 {
    count(&ctx, || {
        let how: u64 = user_registers().load(offset!(pt_regs_dx));
        let mut flags = 0_u64;
        // SAFETY: eight bytes are writable.
        unsafe { kernel::read_user((&raw mut flags).cast(), 8, how) }.then_some(flags)
    })
}

/// `open(path, flags, mode)`
#[tracepoint]
pub fn exit_open(ctx: TracePointContext) -> u32 {
    count(&ctx, || Some(user_registers().load(offset!(pt_regs_si))))
}

/// `creat(path, mode)`
#[tracepoint]
pub fn exit_creat(ctx: TracePointContext) -> u32 {
    count(&ctx, || Some(O_CREAT | O_WRONLY | O_TRUNC))
}

#[inline(always)]
fn count(ctx: &TracePointContext, flags: impl FnOnce() -> Option<u64>) -> u32 {
    let Some(member) = member((bpf_get_current_pid_tgid() >> 32) as u32) else { return 0 };
    let Some(epoch) = EPOCHS.get_ptr_mut(member.epoch) else { return 0 };
    let result: i64 = field(ctx, 0);
    let flags = flags().unwrap_or(0);
    macro_rules! bump {
        ($member:ident, $condition:expr) => {
            if $condition {
                // SAFETY: a member of a valid map value.
                unsafe { add(&raw mut (*epoch).opens.$member, 1) };
            }
        };
    }
    bump!(count, true);
    bump!(errors, result < 0);
    bump!(create, flags & O_CREAT != 0);
    bump!(excl, flags & O_EXCL != 0);
    bump!(trunc, flags & O_TRUNC != 0);
    bump!(sync, flags & O_SYNC == O_SYNC);
    bump!(dsync, flags & O_SYNC == O_DSYNC);
    bump!(direct, flags & kernel::o_direct() != 0);
    0
}
