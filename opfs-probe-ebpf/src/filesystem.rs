//! The performed layer: every sync that a file system begins, whoever caused it.
//!
//! These tracepoints are reached in the context of the task that syncs, never in an interrupt, so the
//! programs may share maps with those of system calls. Counted where the sync begins: what is in an epoch
//! is there once the programs that ran while it went on have ended.

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::maps::HashMap;
use aya_ebpf::programs::RawTracePointContext;
use opfs_probe_common::call::{DETAIL_LOST, FileIdentity};
use opfs_probe_common::membership::RECORDED;
use opfs_probe_common::performed::{Cause, Filesystem, PerformedKey};

use crate::file;
use crate::first_sight;
use crate::in_flight;
use crate::kernel::{Typed, add, offset};
use crate::maps::{NameKey, PERFORMED, PERFORMED_OVERFLOW, lose};
use crate::membership::{Member, member};

// From include/linux/sched.h.
const PF_IO_WORKER: u32 = 0x0000_0010;
const PF_KTHREAD: u32 = 0x0020_0000;

/// What a tracepoint tells of the file.
#[derive(Clone, Copy)]
enum Synced {
    /// Address of a `struct file`.
    File(u64),
    /// Address of a `struct inode`.
    Inode(u64),
}

impl Synced {
    #[inline(always)]
    fn inode(self) -> Option<u64> {
        match self {
            Self::File(file) => file::inode_of(file),
            Self::Inode(inode) => Some(inode),
        }
    }

    #[inline(always)]
    fn name(self, epoch: u32) -> Option<NameKey> {
        match self {
            Self::File(file) => file::of_file(file, epoch),
            Self::Inode(inode) => file::of_inode(inode, epoch),
        }
    }
}

/// `ext4_sync_file_enter(file, datasync)`
#[raw_tracepoint(tracepoint = "ext4_sync_file_enter")]
pub fn performed_ext4(ctx: RawTracePointContext) -> u32 {
    performed(&ctx, Filesystem::Ext4, Synced::File(ctx.arg(0)))
}

/// `btrfs_sync_file(file, datasync)`
#[raw_tracepoint(tracepoint = "btrfs_sync_file")]
pub fn performed_btrfs(ctx: RawTracePointContext) -> u32 {
    performed(&ctx, Filesystem::Btrfs, Synced::File(ctx.arg(0)))
}

/// `xfs_file_fsync(ip)`, for a `struct xfs_inode`
#[raw_tracepoint(tracepoint = "xfs_file_fsync")]
pub fn performed_xfs(ctx: RawTracePointContext) -> u32 {
    performed(&ctx, Filesystem::Xfs, xfs_inode(&ctx))
}

/// `xfs_dir_fsync(ip)`: XFS syncs its directories in a function of their own.
#[raw_tracepoint(tracepoint = "xfs_dir_fsync")]
pub fn performed_xfs_dir(ctx: RawTracePointContext) -> u32 {
    performed(&ctx, Filesystem::Xfs, xfs_inode(&ctx))
}

/// `f2fs_sync_file_enter(inode)`
#[raw_tracepoint(tracepoint = "f2fs_sync_file_enter")]
pub fn performed_f2fs(ctx: RawTracePointContext) -> u32 {
    performed(&ctx, Filesystem::F2fs, Synced::Inode(ctx.arg(0)))
}

#[inline(always)]
fn xfs_inode(ctx: &RawTracePointContext) -> Synced {
    let inode: u64 = ctx.arg(0);
    Synced::Inode(inode + u64::from(offset!(xfs_inode_vnode)))
}

#[inline(always)]
fn performed(ctx: &RawTracePointContext, filesystem: Filesystem, synced: Synced) -> u32 {
    let thread = bpf_get_current_pid_tgid();
    let (cause, member, known) = match in_flight::current(thread) {
        Some(call) => {
            let same = synced.inode() == Some(call.file.inode_address);
            // The call's own program has sent what is new of its process and file.
            let caller =
                Member { slot: call.slot, process: call.process, flags: RECORDED, epoch: call.epoch };
            (Cause::Explicit, caller, if same { Some(call.file) } else { None })
        }
        None => {
            let Some(member) = member((thread >> 32) as u32) else { return 0 };
            (cause_without_call(), member, None)
        }
    };
    let name = if known.is_none() { synced.name(member.epoch) } else { None };
    let named = name.as_ref().map_or(FileIdentity::NONE, |name| name.file);
    count(PerformedKey {
        file: known.unwrap_or(named),
        epoch: member.epoch,
        process: member.process,
        cause: cause as u16,
        filesystem: filesystem as u16,
        flags: 0,
    });
    first_sight::report_raw(ctx, &member, name.as_ref());
    0
}

#[inline(always)]
fn cause_without_call() -> Cause {
    let flags: u32 = Typed::current_task().load(offset!(task_flags));
    if flags & PF_IO_WORKER != 0 {
        Cause::Uring
    } else if flags & PF_KTHREAD != 0 {
        Cause::Kernel
    } else {
        Cause::Implicit
    }
}

/// Counts one, in its own record or, where there is no room, in the one without detail.
#[inline(always)]
fn count(key: PerformedKey) {
    if !tally(&PERFORMED, &key) {
        lose(|losses| &mut losses.detail_lost);
        let overflow = PerformedKey { file: FileIdentity::NONE, process: 0, flags: DETAIL_LOST, ..key };
        if !tally(&PERFORMED_OVERFLOW, &overflow) {
            lose(|losses| &mut losses.performed_lost);
        }
    }
}

#[inline(always)]
fn tally(map: &HashMap<PerformedKey, u64>, key: &PerformedKey) -> bool {
    const NO_EXIST: u64 = 1;
    let mut count = map.get_ptr_mut(*key);
    if count.is_none() {
        if map.insert(*key, 1, NO_EXIST).is_ok() {
            return true;
        }
        // Another CPU may have been first.
        count = map.get_ptr_mut(*key);
    }
    let Some(count) = count else { return false };
    // SAFETY: a valid map value.
    unsafe { add(count, 1) };
    true
}
