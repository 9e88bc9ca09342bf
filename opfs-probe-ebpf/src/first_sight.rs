//! Records of files and processes that were not seen before, each sent once.
//!
//! The hot path only notices that a name is new and ends with a tail call; the long walk is in
//! programs of its own, verified once.

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::{bpf_get_current_cgroup_id, bpf_get_current_pid_tgid};
use aya_ebpf::macros::{raw_tracepoint, tracepoint};
use aya_ebpf::maps::ProgramArray;
use aya_ebpf::programs::{RawTracePointContext, TracePointContext};
use opfs_probe_common::membership::{Membership, RECORDED};
use opfs_probe_common::record::{
    ARGS_BYTES, COMPAT_32_BIT, DELETED, FILE_RECORD, FileRecord, PATH_BYTES, PROCESS_RECORD, ProcessRecord,
};

use crate::file;
use crate::kernel::{Typed, is_32_bit, offset, read, read_user};
use crate::known;
use crate::log::debug;
use crate::maps::{
    COMPONENT_BYTES, DESCRIBE, DESCRIBE_RAW, HEADER_BYTES, MEMBERS, NameKey, RECORDS, Scratch, lose, scratch,
};
use crate::membership::Member;
use crate::path;

/// Index of a describing program in [`DESCRIBE`].
#[repr(u32)]
enum Describe {
    Process = 0,
    File = 1,
}

/// Sends what is new of a call's process and file. Ends the calling program if there is anything.
#[inline(always)]
pub fn report<C: EbpfContext>(ctx: &C, member: &Member, name: Option<&NameKey>) {
    report_through(&DESCRIBE, ctx, member, name);
}

/// The same for a raw tracepoint.
#[inline(always)]
pub fn report_raw(ctx: &RawTracePointContext, member: &Member, name: Option<&NameKey>) {
    report_through(&DESCRIBE_RAW, ctx, member, name);
}

#[inline(always)]
fn report_through<C: EbpfContext>(programs: &ProgramArray, ctx: &C, member: &Member, name: Option<&NameKey>) {
    let new_name = name.filter(|name| !known::is_known(name));
    let new_process = member.flags & RECORDED == 0;
    if !new_process && new_name.is_none() {
        return;
    }
    let Some(scratch) = scratch() else { return };
    scratch.describe_file = u32::from(new_name.is_some());
    if let Some(name) = new_name {
        scratch.name = *name;
    }
    let next = if new_process { Describe::Process } else { Describe::File };
    tail_call(programs, ctx, next);
}

/// Goes on in another program; comes back only if that failed, and then the record is missing until
/// the next call.
#[inline(always)]
fn tail_call<C: EbpfContext>(programs: &ProgramArray, ctx: &C, next: Describe) {
    // SAFETY: the loader fills each array with programs of one type.
    unsafe { programs.tail_call(ctx, next as u32) };
    lose(|losses| &mut losses.records_lost);
}

/// Sends the name of the file in the scratch space.
#[tracepoint]
pub fn describe_file(ctx: TracePointContext) -> u32 {
    file_record(&ctx);
    0
}

/// [`describe_file`] for raw tracepoints.
#[raw_tracepoint]
pub fn describe_file_raw(ctx: RawTracePointContext) -> u32 {
    file_record(&ctx);
    0
}

#[inline(always)]
fn file_record<C: EbpfContext>(_ctx: &C) {
    let Some(scratch) = scratch() else { return };
    let name = scratch.name;
    let identity = name.file;
    let walk = path::walk(scratch, name.dentry_address, name.mount_address);
    let super_block: u64 = read(name.inode_address + u64::from(offset!(inode_sb))).unwrap_or(0);
    let mode: u16 = read(name.inode_address + u64::from(offset!(inode_mode))).unwrap_or(0);
    let record = FileRecord {
        kind: FILE_RECORD,
        epoch: name.epoch,
        file: identity,
        magic: read(super_block + u64::from(offset!(sb_magic))).unwrap_or(0),
        mount_namespace: walk.mount_namespace,
        flags: walk.flags | name.gone,
        mount_len: walk.mount_len,
        above_len: walk.above_len,
        beneath_len: walk.beneath_len,
        mode: u32::from(mode),
    };
    if send(scratch, record, walk.mount_len + walk.above_len + walk.beneath_len) {
        known::note(&name);
    }
    debug!(_ctx, "file of inode {} in epoch {}", identity.inode, name.epoch);
}

/// Sends what the current process is called, then goes on to the file.
#[tracepoint]
pub fn describe_process(ctx: TracePointContext) -> u32 {
    process_then_file(&DESCRIBE, &ctx);
    0
}

/// [`describe_process`] for raw tracepoints.
#[raw_tracepoint]
pub fn describe_process_raw(ctx: RawTracePointContext) -> u32 {
    process_then_file(&DESCRIBE_RAW, &ctx);
    0
}

#[inline(always)]
fn process_then_file<C: EbpfContext>(programs: &ProgramArray, ctx: &C) {
    let tgid = (bpf_get_current_pid_tgid() >> 32) as u32;
    let Some(scratch) = scratch() else { return };
    if let Some(member) = MEMBERS.get_ptr_mut(tgid) {
        // SAFETY: a valid map value.
        let Membership { slot, process, .. } = unsafe { member.read_volatile() };
        let (record, length) = process_record(scratch, tgid, slot, process);
        if send(scratch, record, length) {
            // SAFETY: a valid map value; only this process's own calls set the flag.
            unsafe { (*member).flags |= RECORDED };
        }
        debug!(ctx, "process {} is image {} of slot {}", tgid, process, slot);
    }
    if scratch.describe_file != 0 {
        tail_call(programs, ctx, Describe::File);
    }
}

/// The current process's record, with the length of what is in the scratch space behind it: its
/// executable's path, then its arguments.
#[inline(always)]
fn process_record(scratch: &mut Scratch, tgid: u32, slot: u32, process: u32) -> (ProcessRecord, u32) {
    let task = Typed::current_task();
    let leader = task.follow(offset!(task_group_leader));
    let mut record = ProcessRecord {
        kind: PROCESS_RECORD,
        process,
        slot,
        tgid,
        parent_tgid: leader.follow(offset!(task_real_parent)).load(offset!(task_tgid)),
        ns_pid: namespace_pid(leader).unwrap_or(0),
        start_boottime_ns: leader.load(offset!(task_start_boottime)),
        // SAFETY: the helper has no precondition.
        cgroup_id: unsafe { bpf_get_current_cgroup_id() },
        comm: read(leader.address(offset!(task_comm))).unwrap_or([0; 16]),
        args_len: 0,
        mount_len: 0,
        above_len: 0,
        flags: 0,
    };
    let memory = task.follow(offset!(task_mm));
    if memory.is_null() {
        return (record, 0);
    }
    if is_32_bit(memory) {
        record.flags |= COMPAT_32_BIT;
    }
    let executable: u64 = memory.load(offset!(mm_exe_file));
    if let Some(name) = file::of_file(executable, 0) {
        let walk = path::walk(scratch, name.dentry_address, name.mount_address);
        record.mount_len = walk.mount_len;
        record.above_len = walk.above_len;
        record.flags |= walk.flags | (name.gone & DELETED);
    }
    let path_len = record.mount_len + record.above_len;
    let args_start: u64 = memory.load(offset!(mm_arg_start));
    let args_end: u64 = memory.load(offset!(mm_arg_end));
    let args_len = bounded(args_end - args_start, ARGS_BYTES as u64 - 1) as u32;
    if path_len as usize <= PATH_BYTES {
        // SAFETY: the scratch space has `ARGS_BYTES` left behind the longest path.
        let destination = unsafe { scratch.path.as_mut_ptr().add(path_len as usize) };
        // SAFETY: as above.
        if unsafe { read_user(destination, args_len, args_start) } {
            record.args_len = args_len;
        }
    }
    (record, path_len + record.args_len)
}

/// The process's id in its own PID namespace: the last of `struct pid`'s numbers.
#[inline(always)]
fn namespace_pid(leader: Typed) -> Option<u32> {
    let pid: u64 = leader.load(offset!(task_thread_pid));
    let level: u32 = read(pid + u64::from(offset!(pid_level)))?;
    let last = bounded(u64::from(level) * u64::from(offset!(upid_size)), MAX_NUMBERS_BYTES);
    read(pid + u64::from(offset!(pid_numbers)) + last + u64::from(offset!(upid_nr)))
}

/// Above what `MAX_PID_NS_LEVEL` of include/linux/pid_namespace.h, 32, comes to. Linux 6.1's verifier
/// forgets what it knew of a factor once it is multiplied, so the product is what needs a bound.
const MAX_NUMBERS_BYTES: u64 = 4_096;

/// Puts a record and the `length` bytes of the scratch space's `path` into the ring buffer; says
/// whether there was room.
#[inline(always)]
fn send<T>(scratch: &mut Scratch, record: T, length: u32) -> bool {
    let header = (HEADER_BYTES - size_of::<T>()) / 8;
    let start = (&raw mut scratch.header[header]).cast::<T>();
    // SAFETY: the header is aligned and its end has room for the record.
    unsafe { start.write(record) };
    let length = bounded(u64::from(length), (PATH_BYTES + COMPONENT_BYTES + ARGS_BYTES) as u64) as usize;
    // SAFETY: the path follows the header in the scratch space.
    let bytes = unsafe { core::slice::from_raw_parts(start.cast::<u8>(), size_of::<T>() + length) };
    let sent = RECORDS.output::<[u8]>(bytes, 0).is_ok();
    if !sent {
        lose(|losses| &mut losses.records_lost);
    }
    sent
}

/// At most `limit`. Opaque to the compiler, which would else drop or move the comparison that the
/// verifier needs to see.
#[inline(always)]
fn bounded(value: u64, limit: u64) -> u64 {
    let value = core::hint::black_box(value);
    if value > limit { limit } else { value }
}
