//! The flushed layer: cache flushes and forced-unit-access (FUA) writes, from a device's getting one to its
//! being done.
//!
//! Devices are done in interrupts, where plain tracepoint programs may be skipped; these are raw ones. Counted
//! are requests as the device gets them: the kernel merges flushes that are asked for at the same time,
//! and turns FUA writes to a device that knows none into a write and a flush (block/blk-flush.c).

use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use opfs_probe_common::flushed::{DeviceTally, FlushKey, FlushTally};
use opfs_probe_common::histogram::{BUCKETS, bucket};

use crate::kernel::{self, now_ns, offset, read};
use crate::maps::{DEVICES, FLUSH_STARTS, FLUSHES, MOMENT, lose};

// From include/linux/blk_types.h: the operation is in the low bits, flags are above.
const REQ_OP_MASK: u32 = 0xff;
const REQ_OP_FLUSH: u32 = 2;
const REQ_FUA: u32 = 1 << 17;

/// `MINORBITS` of include/linux/kdev_t.h.
const MINOR_BITS: u32 = 20;

/// `block_rq_issue(request)`
#[raw_tracepoint(tracepoint = "block_rq_issue")]
pub fn flush_issued(ctx: RawTracePointContext) -> u32 {
    let request: u64 = ctx.arg(0);
    if makes_durable(request).is_none() {
        return 0;
    }
    // A request that is issued again begins again.
    if FLUSH_STARTS.insert(request, now_ns(), 0).is_err() {
        lose(|losses| &mut losses.flushes_lost);
    }
    0
}

/// `block_rq_complete(request, error, bytes)`, where the device is done with so many bytes of what is left.
#[raw_tracepoint(tracepoint = "block_rq_complete")]
pub fn flush_completed(ctx: RawTracePointContext) -> u32 {
    let request: u64 = ctx.arg(0);
    let Some(flags) = makes_durable(request) else { return 0 };
    let (error, bytes): (u32, u32) = (ctx.arg(1), ctx.arg(2));
    let left = read::<u32>(request + u64::from(offset!(request_data_len))).unwrap_or(0);
    if bytes < left {
        return 0;
    }
    // What was never issued is the kernel's own bookkeeping: a request that was split into flush and write.
    let Some(start) = FLUSH_STARTS.get_ptr(request) else { return 0 };
    // SAFETY: a valid map value, which nobody writes while the device has the request.
    let ns = now_ns() - unsafe { *start };
    let _ = FLUSH_STARTS.remove(request);
    if let Some(dev) = disk_of(request) {
        let flush = is_flush(flags);
        count(
            dev,
            FlushTally {
                flushes: u64::from(flush),
                fua: u64::from(!flush),
                errors: u64::from(error != 0),
                total_ns: ns,
                max_ns: ns,
            },
        );
    }
    0
}

/// The flags of a request, if it is a flush or an FUA write.
#[inline(always)]
fn makes_durable(request: u64) -> Option<u32> {
    let flags = read::<u32>(request + u64::from(offset!(request_cmd_flags)))?;
    (is_flush(flags) || flags & REQ_FUA != 0).then_some(flags)
}

#[inline(always)]
fn is_flush(flags: u32) -> bool {
    flags & REQ_OP_MASK == REQ_OP_FLUSH
}

/// The number of the whole disk.
#[inline(always)]
fn disk_of(request: u64) -> Option<u32> {
    let queue: u64 = read(request + u64::from(offset!(request_queue)))?;
    let disk: u64 = read(queue + u64::from(offset!(queue_disk)))?;
    if disk == 0 {
        return None;
    }
    let major: u32 = read(disk + u64::from(offset!(disk_major)))?;
    let minor: u32 = read(disk + u64::from(offset!(disk_first_minor)))?;
    Some(major << MINOR_BITS | minor)
}

#[inline(always)]
fn count(dev: u32, one: FlushTally) {
    let moment = match MOMENT.get_ptr(0) {
        // SAFETY: a valid map value, written whole by one 32-bit store.
        Some(moment) => unsafe { moment.read_volatile() },
        None => 0,
    };
    let key = FlushKey { moment, dev };
    match FLUSHES.get_ptr_mut(key) {
        // SAFETY: a valid map value of this CPU, whose program the kernel doesn't run inside itself.
        Some(tally) => unsafe { add(tally, &one) },
        None => {
            if FLUSHES.insert(key, one, 0).is_err() {
                lose(|losses| &mut losses.flushes_lost);
            }
        }
    }
    if let Some(device) = device(dev) {
        let index = bucket(one.total_ns);
        // SAFETY: a valid map value, which all CPUs share.
        unsafe {
            kernel::add(&raw mut (*device).flushes, one.flushes);
            kernel::add(&raw mut (*device).fua, one.fua);
            kernel::add(&raw mut (*device).total_ns, one.total_ns);
            if index < BUCKETS {
                kernel::add(&raw mut (*device).latencies.buckets[index], 1);
            }
        }
    }
}

/// A device's entry, made if it is the first time.
#[inline(always)]
fn device(dev: u32) -> Option<*mut DeviceTally> {
    const NO_EXIST: u64 = 1;
    static EMPTY: DeviceTally = DeviceTally::ZERO;
    if let Some(device) = DEVICES.get_ptr_mut(dev) {
        return Some(device);
    }
    #[expect(clippy::needless_borrows_for_generic_args, reason = "the stack has no room for a copy")]
    let _ = DEVICES.insert(dev, &EMPTY, NO_EXIST);
    DEVICES.get_ptr_mut(dev)
}

/// # Safety
/// `tally` must be a map value of this CPU.
#[inline(always)]
unsafe fn add(tally: *mut FlushTally, one: &FlushTally) {
    // SAFETY: the caller's promise.
    unsafe {
        (*tally).flushes += one.flushes;
        (*tally).fua += one.fua;
        (*tally).errors += one.errors;
        (*tally).total_ns += one.total_ns;
        if one.max_ns > (*tally).max_ns {
            (*tally).max_ns = one.max_ns;
        }
    }
}
