//! The asked layer: every sync call from enter to exit.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns};
use aya_ebpf::macros::tracepoint;
use aya_ebpf::programs::TracePointContext;
use opfs_probe_common::call::{CallKey, FILE_UNSEEN, FileIdentity, InFlightCall, Op};

use crate::calls;
use crate::file;
use crate::first_sight;
use crate::in_flight::{self, Began};
use crate::kernel::Typed;
use crate::kernel::{add, fetch_add, offset, self_test_fd, syscall_fields_offset, user_registers};
use crate::maps::{EPOCHS, NameKey, Number, lose};
use crate::membership::{member, straddles};

/// `MS_SYNC` of include/uapi/asm-generic/mman-common.h.
const MS_SYNC: u64 = 4;

/// `SECCOMP_MODE_FILTER`
const SECCOMP_MODE_FILTER: i32 = 2;

/// What a system call returns that was not run at all.
const ENOSYS: u16 = 38;

/// The bit of `SIGKILL`, which is pending in every thread of a process that is being killed.
const PENDING_KILL: u64 = 1 << (9 - 1);

/// The largest errno that a system call returns, `MAX_ERRNO` of include/linux/err.h.
const MAX_ERRNO: i64 = 4095;

/// `ERESTARTSYS` to `ERESTART_RESTARTBLOCK` of include/linux/errno.h: the kernel will call again.
const RESTART_CODES: core::ops::RangeInclusive<i64> = 512..=516;

macro_rules! sync_call {
    ($op:expr, $enter:ident, $exit:ident) => {
        #[doc = concat!("`", stringify!($enter), "`: see [`enter`].")]
        #[tracepoint]
        pub fn $enter(ctx: TracePointContext) -> u32 {
            enter(&ctx, $op);
            0
        }

        #[doc = concat!("`", stringify!($exit), "`: see [`exit`].")]
        #[tracepoint]
        pub fn $exit(ctx: TracePointContext) -> u32 {
            exit(&ctx, $op);
            0
        }
    };
}

sync_call!(Op::Fsync, enter_fsync, exit_fsync);
sync_call!(Op::Fdatasync, enter_fdatasync, exit_fdatasync);
sync_call!(Op::Sync, enter_sync, exit_sync);
sync_call!(Op::Syncfs, enter_syncfs, exit_syncfs);
sync_call!(Op::SyncFileRange, enter_sync_file_range, exit_sync_file_range);
sync_call!(Op::Msync, enter_msync, exit_msync);

/// The `index`th 8-byte field of a system call tracepoint: an argument, or at 0 the result.
#[inline(always)]
pub fn field<T: Copy>(ctx: &TracePointContext, index: usize) -> T {
    const USUAL: usize = 16;
    // The verifier knows the offset and drops the branch that is not taken.
    if syscall_fields_offset() == USUAL {
        // SAFETY: the record holds six arguments behind the usual header.
        unsafe { ctx.as_ptr().byte_add(USUAL + 8 * index).cast::<T>().read() }
    } else {
        // SAFETY: a copy through the helper, which checks the address.
        unsafe { ctx.read_at(syscall_fields_offset() + 8 * index) }
            .unwrap_or_else(|_| unsafe { core::mem::zeroed() })
    }
}

#[inline(always)]
fn enter(ctx: &TracePointContext, op: Op) {
    let thread = bpf_get_current_pid_tgid();
    let tgid = (thread >> 32) as u32;
    let descriptor = if op.takes_descriptor() { Some(field::<u64>(ctx, 0) as i32) } else { None };
    if descriptor == Some(self_test_fd()) {
        note_own_tgid(tgid);
        return;
    }
    if matches!(op, Op::Msync) && field::<u64>(ctx, 2) & MS_SYNC == 0 {
        return;
    }
    let Some(member) = member(tgid) else { return };
    let mut flags = 0;
    let name = named(op, field(ctx, 0), member.epoch, &mut flags);
    let file = name.as_ref().map_or(FileIdentity::NONE, |name| name.file);
    let call = InFlightCall {
        file,
        start_ns: now_ns(),
        epoch: member.epoch,
        slot: member.slot,
        process: member.process,
        op: op as u16,
        flags: flags as u16,
    };
    match in_flight::begin(thread, call) {
        Began::Kept => {}
        Began::InPlaceOf(unreturned) => count_without_exit(&unreturned),
        Began::Unkept => {
            // The exit will not find it.
            if let Some(unreturned) = Number::CountedAtEnter.get() {
                // SAFETY: a valid map value.
                unsafe { add(unreturned, 1) };
            }
            count_without_exit(&call);
        }
    }
    first_sight::report(ctx, &member, name.as_ref());
}

/// Counts a call without its outcome and its time.
#[inline(always)]
fn count_without_exit(call: &InFlightCall) {
    lose(|losses| &mut losses.enters_lost);
    calls::count(key(call, 0), None);
}

#[inline(always)]
fn exit(ctx: &TracePointContext, op: Op) {
    let thread = bpf_get_current_pid_tgid();
    let result: i64 = field(ctx, 0);
    let call = match in_flight::current(thread) {
        Some(call) if call.op == op as u16 => *call,
        _ => return exit_without_enter(ctx, op, (thread >> 32) as u32, result),
    };
    let duration_ns = now_ns() - call.start_ns;
    if RESTART_CODES.contains(&-result) {
        if let Some(epoch) = EPOCHS.get_ptr_mut(call.epoch) {
            // SAFETY: a valid map value.
            unsafe { add(&raw mut (*epoch).restarted, 1) };
        }
    } else {
        calls::count(key(&call, errno(result)), Some(duration_ns));
        if straddles(call.slot, call.epoch)
            && let Some(epoch) = EPOCHS.get_ptr_mut(call.epoch)
        {
            // SAFETY: a valid map value.
            unsafe { add(&raw mut (*epoch).straddling, 1) };
        }
    }
    in_flight::end(thread, call.epoch);
}

/// A call that a seccomp filter answered is asked for all the same; one that began before its
/// process was watched is not ours.
#[inline(always)]
fn exit_without_enter(ctx: &TracePointContext, op: Op, tgid: u32, result: i64) {
    let registers = user_registers();
    let descriptor: u64 = registers.load(offset!(pt_regs_di));
    let third: u64 = registers.load(offset!(pt_regs_dx));
    if op.takes_descriptor() && descriptor as i32 == self_test_fd() {
        return;
    }
    if matches!(op, Op::Msync) && third & MS_SYNC == 0 {
        return;
    }
    let Some(member) = member(tgid) else { return };
    if was_counted_at_enter() {
        return;
    }
    let seccomp_mode: i32 = Typed::current_task().load(offset!(task_seccomp_mode));
    if seccomp_mode != SECCOMP_MODE_FILTER {
        lose(|losses| &mut losses.begun_before);
        return;
    }
    let pending: u64 = Typed::current_task().load(offset!(task_pending_signals));
    if errno(result) == ENOSYS && pending & PENDING_KILL != 0 {
        // Killed where its filter hands it to a tracer, strace for one (`__seccomp_filter()` in
        // kernel/seccomp.c): it never got to ask.
        return;
    }
    let mut flags = 0;
    let name = named(op, descriptor, member.epoch, &mut flags);
    let key = CallKey {
        file: name.as_ref().map_or(FileIdentity::NONE, |name| name.file),
        epoch: member.epoch,
        process: member.process,
        op: op as u16,
        errno: errno(result),
        flags,
    };
    calls::count(key, None);
    first_sight::report(ctx, &member, name.as_ref());
}

/// Whether a call that was counted at its enter has not returned yet, which this one then stands for:
/// with a filter it may be another, but no call counts twice or never.
#[inline(always)]
fn was_counted_at_enter() -> bool {
    let Some(unreturned) = Number::CountedAtEnter.get() else { return false };
    // SAFETY: a valid map value.
    if unsafe { unreturned.read_volatile() } == 0 {
        return false;
    }
    // SAFETY: as above.
    let before = unsafe { fetch_add(unreturned, u64::MAX) } as i64;
    if before > 0 {
        return true;
    }
    // Another exit was first.
    // SAFETY: as above.
    unsafe { add(unreturned, 1) };
    false
}

/// The file that a call's first argument stands for. Adds to the flags of the call's key. (Handed back
/// together, the compiler would store what is not set of a missing name, which the verifier refuses.)
#[inline(always)]
fn named(op: Op, argument: u64, epoch: u32, flags: &mut u32) -> Option<NameKey> {
    match op {
        Op::Sync => None,
        Op::Msync => match file::mapped_at(argument) {
            0 => None,
            file::BUSY => {
                *flags |= FILE_UNSEEN;
                None
            }
            file => file::of_file(file, epoch),
        },
        _ => file::of_descriptor(argument as i32, epoch),
    }
}

#[inline(always)]
fn key(call: &InFlightCall, errno: u16) -> CallKey {
    CallKey {
        file: call.file,
        epoch: call.epoch,
        process: call.process,
        op: call.op,
        errno,
        flags: u32::from(call.flags),
    }
}

#[inline(always)]
fn errno(result: i64) -> u16 {
    if (-MAX_ERRNO..0).contains(&result) { -result as u16 } else { 0 }
}

#[inline(always)]
fn now_ns() -> u64 {
    // SAFETY: the helper has no precondition.
    unsafe { bpf_ktime_get_ns() }
}

#[inline(always)]
fn note_own_tgid(tgid: u32) {
    if let Some(own) = Number::OwnTgid.get() {
        // SAFETY: a valid map value.
        unsafe { *own = u64::from(tgid) };
    }
}
