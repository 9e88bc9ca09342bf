//! Calls of which the probes saw one end, counted by programs of their own: the usual ones only notice, so
//! that they stay short for the verifier.

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::tracepoint;
use aya_ebpf::programs::TracePointContext;
use opfs_probe_common::call::{CallKey, FileIdentity, InFlightCall, Op};

use crate::calls;
use crate::first_sight;
use crate::kernel::{Typed, add, fetch_add, offset, self_test_fd, user_registers};
use crate::maps::{Number, UNMATCHED, lose, scratch};
use crate::membership::member;
use crate::syscalls::{MS_SYNC, errno, field, key, named};

/// `SECCOMP_MODE_FILTER`
const SECCOMP_MODE_FILTER: i32 = 2;

/// What a system call returns that was not run at all.
const ENOSYS: u16 = 38;

/// The bit of `SIGKILL`, which is pending in every thread of a process that is being killed.
const PENDING_KILL: u64 = 1 << (9 - 1);

/// Index of a program in [`UNMATCHED`].
#[repr(u32)]
enum End {
    Enter = 0,
    Exit = 1,
}

/// Counts a call that was entered without its outcome and its time. Ends the calling program.
#[inline(always)]
pub fn count_enter(ctx: &TracePointContext, call: &InFlightCall) {
    let Some(scratch) = scratch() else { return };
    scratch.unreturned = *call;
    go_on(ctx, End::Enter);
}

/// Counts what returns now and was not seen to be entered, if it is ours to count. Ends the calling program.
#[inline(always)]
pub fn count_exit(ctx: &TracePointContext, op: Op) {
    let Some(scratch) = scratch() else { return };
    scratch.op = op as u16;
    go_on(ctx, End::Exit);
}

#[inline(always)]
fn go_on(ctx: &TracePointContext, end: End) {
    // SAFETY: the loader fills the array with programs of this type.
    unsafe { UNMATCHED.tail_call(ctx, end as u32) };
    // Still here: it failed.
    lose(|losses| &mut losses.calls_lost);
}

/// A call whose start found no room, or whose return was missed.
#[tracepoint]
pub fn unmatched_enter(_ctx: TracePointContext) -> u32 {
    if let Some(scratch) = scratch() {
        lose(|losses| &mut losses.enters_lost);
        calls::count_untimed(key(&scratch.unreturned, 0));
    }
    0
}

/// A call that a seccomp filter answered is asked for all the same; one that began before its
/// process was watched is not ours.
#[tracepoint]
pub fn unmatched_exit(ctx: TracePointContext) -> u32 {
    if let Some(op) = scratch().and_then(|scratch| Op::from_raw(scratch.op)) {
        exit_without_enter(&ctx, op);
    }
    0
}

#[inline(always)]
fn exit_without_enter(ctx: &TracePointContext, op: Op) {
    let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
    let result: i64 = field(ctx, 0);
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
    calls::count_untimed(key);
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
