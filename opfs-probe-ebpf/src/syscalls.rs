//! The asked layer: every sync call from enter to exit.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::tracepoint;
use aya_ebpf::programs::TracePointContext;
use opfs_probe_common::call::{CallKey, FILE_UNSEEN, FileIdentity, InFlightCall, Op};

use crate::calls;
use crate::file;
use crate::first_sight;
use crate::in_flight::{self, Began};
use crate::kernel::{add, now_ns, self_test_fd, syscall_fields_offset};
use crate::maps::{EPOCHS, NameKey, Number};
use crate::membership::{member, straddles};
use crate::unmatched;

/// `MS_SYNC` of include/uapi/asm-generic/mman-common.h.
pub const MS_SYNC: u64 = 4;

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
        Began::Kept => first_sight::report(ctx, &member, name.as_ref()),
        // What is new of them is sent by a later call.
        Began::InPlaceOf(unreturned) => unmatched::count_enter(ctx, &unreturned),
        Began::Unkept => {
            // The exit will not find it.
            if let Some(unreturned) = Number::CountedAtEnter.get() {
                // SAFETY: a valid map value.
                unsafe { add(unreturned, 1) };
            }
            unmatched::count_enter(ctx, &call);
        }
    }
}

#[inline(always)]
fn exit(ctx: &TracePointContext, op: Op) {
    let thread = bpf_get_current_pid_tgid();
    let result: i64 = field(ctx, 0);
    let call = match in_flight::current(thread) {
        Some(call) if call.op == op as u16 => *call,
        _ => return unmatched::count_exit(ctx, op),
    };
    let duration_ns = now_ns() - call.start_ns;
    if RESTART_CODES.contains(&-result) {
        if let Some(epoch) = EPOCHS.get_ptr_mut(call.epoch) {
            // SAFETY: a valid map value.
            unsafe { add(&raw mut (*epoch).restarted, 1) };
        }
    } else {
        calls::count(key(&call, errno(result)), duration_ns);
        if straddles(call.slot, call.epoch)
            && let Some(epoch) = EPOCHS.get_ptr_mut(call.epoch)
        {
            // SAFETY: a valid map value.
            unsafe { add(&raw mut (*epoch).straddling, 1) };
        }
    }
    in_flight::end(thread, call.epoch);
}

/// The file that a call's first argument stands for. Adds to the flags of the call's key. (Handed back
/// together, the compiler would store what is not set of a missing name, which the verifier refuses.)
#[inline(always)]
pub fn named(op: Op, argument: u64, epoch: u32, flags: &mut u32) -> Option<NameKey> {
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

/// The key that a call counts under.
#[inline(always)]
pub fn key(call: &InFlightCall, errno: u16) -> CallKey {
    CallKey {
        file: call.file,
        epoch: call.epoch,
        process: call.process,
        op: call.op,
        errno,
        flags: u32::from(call.flags),
    }
}

/// The errno that a system call returned, or 0.
#[inline(always)]
pub fn errno(result: i64) -> u16 {
    if (-MAX_ERRNO..0).contains(&result) { -result as u16 } else { 0 }
}

#[inline(always)]
fn note_own_tgid(tgid: u32) {
    if let Some(own) = Number::OwnTgid.get() {
        // SAFETY: a valid map value.
        unsafe { *own = u64::from(tgid) };
    }
}
