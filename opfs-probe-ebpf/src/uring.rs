//! Syncs that are asked for through io_uring, from their submission to their completion.
//!
//! A request is its submitter's, whoever works on it: the ring's own thread (SQPOLL) is of the same process, and
//! so are its workers. All of this happens in tasks, never in an interrupt.

use core::ffi::{c_long, c_void};
use core::mem::MaybeUninit;

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::bpf_for_each_map_elem;
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use opfs_probe_common::call::{FILE_UNSEEN, FileIdentity, InFlightCall, Op, UringCall};
use opfs_probe_common::epoch::EpochTotals;
use opfs_probe_common::membership::RECORDED;

use crate::calls;
use crate::file;
use crate::first_sight;
use crate::kernel::{add, now_ns, offset, read};
use crate::maps::{EPOCHS, NameKey, Number, URING, lose};
use crate::membership::{Member, member, straddles};
use crate::syscalls::{errno, key};

// From include/uapi/linux/io_uring.h.
const IORING_OP_FSYNC: u8 = 3;
const IORING_OP_SYNC_FILE_RANGE: u8 = 8;

// Of `io_kiocb.flags`; those that a request is submitted with are the same as in its `IOSQE_…`.
const REQ_F_FIXED_FILE: u32 = 1 << 0;
const REQ_F_CQE_SKIP: u32 = 1 << 6;

/// `io_uring_submit_req(request)`, before Linux 6.3 `io_uring_submit_sqe(request, …)`
#[raw_tracepoint(tracepoint = "io_uring_submit_req")]
pub fn uring_submitted(ctx: RawTracePointContext) -> u32 {
    let request: u64 = ctx.arg(0);
    let Some(op) = op_of(request) else { return 0 };
    let Some(member) = member((bpf_get_current_pid_tgid() >> 32) as u32) else { return 0 };
    let name = named_by_descriptor(request, member.epoch);
    let call = call(&member, op, name.as_ref());
    // One that succeeds without a completion event is never heard of again: it is counted now, without its
    // time. If it fails, it gets an event all the same, which can't be told from it any more.
    if flags_of(request) & REQ_F_CQE_SKIP != 0 {
        calls::count_untimed(key(&call, 0));
    } else {
        keep(request, call);
    }
    first_sight::report_raw(&ctx, &member, name.as_ref());
    0
}

#[inline(always)]
fn keep(request: u64, call: InFlightCall) {
    if let Some(stale) = URING.get_ptr(request) {
        // The kernel uses the memory again: that one is over, however it ended.
        // SAFETY: a valid map value.
        let stale = unsafe { (*stale).call };
        lose(|losses| &mut losses.enters_lost);
        calls::count_untimed(key(&stale, 0));
        with_epoch(stale.epoch, |epoch| &mut epoch.returned);
        let _ = take(request, stale);
    }
    let uring = UringCall {
        call,
        ring_address: read(request + u64::from(offset!(uring_ring))).unwrap_or(0),
        user_data: read(request + u64::from(offset!(uring_user_data))).unwrap_or(0),
    };
    if let Some(kept) = Number::UringKept.get() {
        // SAFETY: a valid map value.
        unsafe { add(kept, 1) };
    }
    if URING.insert(request, uring, 0).is_ok() {
        with_epoch(call.epoch, |epoch| &mut epoch.entered);
    } else {
        lose(|losses| &mut losses.enters_lost);
        calls::count_untimed(key(&call, 0));
    }
}

/// `io_uring_complete(ring, request, …)`
#[raw_tracepoint(tracepoint = "io_uring_complete")]
pub fn uring_completed(ctx: RawTracePointContext) -> u32 {
    let request: u64 = ctx.arg(1);
    if op_of(request).is_none() {
        return 0;
    }
    let taken = match URING.get_ptr(request) {
        // SAFETY: a valid map value, which nobody writes until the request is over.
        Some(submitted) => take(request, unsafe { (*submitted).call }),
        // The event of another request with the same data may have taken it: then that one's is left.
        None => take_any(
            read(request + u64::from(offset!(uring_ring))).unwrap_or(0),
            read(request + u64::from(offset!(uring_user_data))).unwrap_or(0),
        ),
    };
    let Some(mut call) = taken else { return 0 };
    // A registered file has no descriptor, but is with the request by now.
    let name = if call.file == FileIdentity::NONE { named_by_request(request, call.epoch) } else { None };
    if let Some(name) = &name {
        call.file = name.file;
        call.flags = 0;
    }
    finish(&call, read(request + u64::from(offset!(uring_result))).unwrap_or(0));
    let submitter = Member { slot: call.slot, process: call.process, flags: RECORDED, epoch: call.epoch };
    first_sight::report_raw(&ctx, &submitter, name.as_ref());
    0
}

/// `io_uring_cqe_overflow(ring, user_data, result, …)`: completed, but the event found no room in the ring and
/// `io_uring_complete` does not tell of it. Nor is the request told: it is any of those with the data.
#[raw_tracepoint(tracepoint = "io_uring_cqe_overflow")]
pub fn uring_overflowed(ctx: RawTracePointContext) -> u32 {
    if let Some(call) = take_any(ctx.arg(0), ctx.arg(1)) {
        finish(&call, ctx.arg(2));
    }
    0
}

/// Takes a request out, unless another CPU was first.
#[inline(always)]
fn take(request: u64, call: InFlightCall) -> Option<InFlightCall> {
    URING.remove(request).ok()?;
    if let Some(kept) = Number::UringKept.get() {
        // SAFETY: a valid map value.
        unsafe { add(kept, u64::MAX) };
    }
    Some(call)
}

/// Takes any request out that has this ring and data.
#[inline(always)]
fn take_any(ring_address: u64, user_data: u64) -> Option<InFlightCall> {
    // A walk misses what moves meanwhile: entries that go free others' places.
    const WALKS: u32 = 3;
    let mut wanted = Wanted { ring_address, user_data, found: 0, call: MaybeUninit::zeroed() };
    for _ in 0..WALKS {
        // SAFETY: a valid map value.
        if Number::UringKept.get().is_none_or(|kept| unsafe { kept.read_volatile() } == 0) {
            return None;
        }
        // SAFETY: the verifier checks the callback and what it is handed.
        unsafe {
            let callback = take_wanted as *mut c_void;
            bpf_for_each_map_elem(
                (&raw const URING).cast_mut().cast(),
                callback,
                (&raw mut wanted).cast(),
                0,
            );
        }
        // SAFETY: the callback may have written it, unseen by the compiler.
        if unsafe { (&raw const wanted.found).read_volatile() } != 0 {
            // SAFETY: it is written with `found`.
            return Some(unsafe { (&raw const wanted.call).read_volatile().assume_init() });
        }
    }
    None
}

/// What the walk through [`URING`] looks for, and what it takes out.
#[repr(C)]
struct Wanted {
    ring_address: u64,
    user_data: u64,
    found: u64,
    call: MaybeUninit<InFlightCall>,
}

extern "C" fn take_wanted(
    _map: *mut c_void,
    request: *const u64,
    uring: *const UringCall,
    wanted: *mut Wanted,
) -> c_long {
    // SAFETY: the helper hands over a key and a value of the map, and what it was given itself.
    unsafe {
        if (*uring).ring_address != (*wanted).ring_address || (*uring).user_data != (*wanted).user_data {
            return 0;
        }
        (*wanted).call = MaybeUninit::new((*uring).call);
        if take(*request, (*uring).call).is_none() {
            return 0;
        }
        (*wanted).found = 1;
    }
    1
}

/// Counts a request that is over.
#[inline(always)]
fn finish(call: &InFlightCall, result: i32) {
    calls::count_shared(key(call, errno(i64::from(result))), now_ns() - call.start_ns);
    if straddles(call.slot, call.epoch) {
        with_epoch(call.epoch, |epoch| &mut epoch.straddling);
    }
    // Last, so that an epoch whose calls have all returned has all their counts.
    with_epoch(call.epoch, |epoch| &mut epoch.returned);
}

/// `io_uring_req_failed(sqe, request, error)`: refused before it was submitted.
#[raw_tracepoint(tracepoint = "io_uring_req_failed")]
pub fn uring_refused(ctx: RawTracePointContext) -> u32 {
    let request: u64 = ctx.arg(1);
    let error: i32 = ctx.arg(2);
    let Some(op) = op_of(request) else { return 0 };
    let Some(member) = member((bpf_get_current_pid_tgid() >> 32) as u32) else { return 0 };
    let name = named_by_descriptor(request, member.epoch);
    calls::count_untimed(key(&call(&member, op, name.as_ref()), errno(i64::from(error))));
    first_sight::report_raw(&ctx, &member, name.as_ref());
    0
}

/// What a request asks for, if that is a sync.
#[inline(always)]
fn op_of(request: u64) -> Option<Op> {
    match read::<u8>(request + u64::from(offset!(uring_opcode)))? {
        IORING_OP_FSYNC => Some(Op::UringFsync),
        IORING_OP_SYNC_FILE_RANGE => Some(Op::UringSyncFileRange),
        _ => None,
    }
}

/// The low half of `io_kiocb.flags`, which is 64 bits long since Linux 6.9.
#[inline(always)]
fn flags_of(request: u64) -> u32 {
    read(request + u64::from(offset!(uring_flags))).unwrap_or(0)
}

#[inline(always)]
fn call(member: &Member, op: Op, name: Option<&NameKey>) -> InFlightCall {
    InFlightCall {
        file: name.map_or(FileIdentity::NONE, |name| name.file),
        start_ns: now_ns(),
        epoch: member.epoch,
        slot: member.slot,
        process: member.process,
        op: op as u16,
        flags: if name.is_none() { FILE_UNSEEN as u16 } else { 0 },
    }
}

#[inline(always)]
fn named_by_descriptor(request: u64, epoch: u32) -> Option<NameKey> {
    if flags_of(request) & REQ_F_FIXED_FILE != 0 {
        return None;
    }
    let fd: i32 = read(request + u64::from(offset!(uring_fd)))?;
    file::of_descriptor(fd, epoch)
}

#[inline(always)]
fn named_by_request(request: u64, epoch: u32) -> Option<NameKey> {
    match read(request + u64::from(offset!(uring_file)))? {
        0 => None,
        file => file::of_file(file, epoch),
    }
}

#[inline(always)]
fn with_epoch(epoch: u32, counter: fn(&mut EpochTotals) -> &mut u64) {
    if let Some(epoch) = EPOCHS.get_ptr_mut(epoch) {
        // SAFETY: a valid map value; the addition is atomic.
        unsafe { add(counter(&mut *epoch), 1) };
    }
}
