//! All maps, with who writes and who deletes.

use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap, LruHashMap, PerCpuArray, PerCpuHashMap, ProgramArray, RingBuf};
use opfs_probe_common::call::{
    self, CallKey, CallSlot, CallTally, FileIdentity, IN_FLIGHT_SLOTS, InFlightCall, InFlightSlot, UringCall,
};
use opfs_probe_common::epoch::{EpochTotals, HistogramKey, MAX_SESSIONS, SessionSlot};
use opfs_probe_common::flushed::{DeviceTally, FlushKey, FlushTally};
use opfs_probe_common::histogram::{Histogram, LATENCY_SLOTS, LatencySlot};
use opfs_probe_common::membership::Membership;
use opfs_probe_common::performed::PerformedKey;
use opfs_probe_common::record::{ARGS_BYTES, Losses, PATH_BYTES, ProcessRecord};

use crate::kernel;
use crate::path::Position;

/// `BPF_F_NO_PREALLOC`: memory only for what is there.
const NO_PREALLOC: u32 = 1;

/// `BPF_F_MMAPABLE`: user space reads it, and frees its slots, without a system call.
const MMAPABLE: u32 = 1 << 10;

/// Session slot → its current epoch. User space writes.
#[map]
pub static SESSIONS: Array<SessionSlot> = Array::with_max_entries(MAX_SESSIONS, 0);

/// tgid → session. Both sides insert; the exit of a process deletes.
#[map]
pub static MEMBERS: HashMap<u32, Membership> = HashMap::with_max_entries(65_536, NO_PREALLOC);

/// Calls in flight, by the low bits of the thread's id: see [`crate::in_flight`].
#[map]
pub static IN_FLIGHT: Array<InFlightSlot> = Array::with_max_entries(IN_FLIGHT_SLOTS, MMAPABLE);

/// Thread → the sync call it is in, for threads whose slot is another's.
#[map]
pub static CROWDED: HashMap<u64, InFlightCall> = HashMap::with_max_entries(4_096, 0);

/// Address of an io_uring request → the sync that it asks for.
#[map]
pub static URING: HashMap<u64, UringCall> = HashMap::with_max_entries(8_192, NO_PREALLOC);

/// Finished calls, each CPU's own slots one after the other: see [`crate::calls`]. The loader makes room
/// for every CPU.
#[map]
pub static CALL_SLOTS: Array<CallSlot> = Array::with_max_entries(call::CALL_SLOTS, MMAPABLE);

/// Finished calls whose slot is another's. User space deletes those of ended epochs.
#[map]
pub static CALLS: HashMap<CallKey, CallTally> = HashMap::with_max_entries(16_384, 0);

/// Finished calls that found no room there, without process and file. Room of their own, or else a full
/// `CALLS` would leave none for these either.
#[map]
pub static OVERFLOW: HashMap<CallKey, CallTally> = HashMap::with_max_entries(1_024, 0);

/// Latencies, each CPU's own slots one after the other: see [`crate::latencies`]. The loader makes room for
/// every CPU.
#[map]
pub static LATENCIES: Array<LatencySlot> = Array::with_max_entries(LATENCY_SLOTS, MMAPABLE);

/// Latencies of calls whose slot is another's. User space deletes those of ended epochs.
#[map]
pub static HISTOGRAMS: HashMap<HistogramKey, Histogram> = HashMap::with_max_entries(2_048, NO_PREALLOC);

/// Syncs that file systems performed. User space deletes those of ended epochs.
#[map]
pub static PERFORMED: HashMap<PerformedKey, u64> = HashMap::with_max_entries(8_192, 0);

/// Those that found no room there, without process and file.
#[map]
pub static PERFORMED_OVERFLOW: HashMap<PerformedKey, u64> = HashMap::with_max_entries(1_024, 0);

/// The newest epoch of any session. User space writes.
#[map]
pub static MOMENT: Array<u32> = Array::with_max_entries(1, 0);

/// Flush requests and FUA writes that devices have been given, by address → when. Of this map and the next two,
/// programs that run in interrupts alone are users: a program that one of them interrupted may hold the lock
/// of any other.
#[map]
pub static FLUSH_STARTS: HashMap<u64, u64> = HashMap::with_max_entries(1_024, 0);

/// Those that devices were done with. User space deletes those of moments that ended.
#[map]
pub static FLUSHES: PerCpuHashMap<FlushKey, FlushTally> = PerCpuHashMap::with_max_entries(512, 0);

/// The same by device, since the probe was loaded.
#[map]
pub static DEVICES: HashMap<u32, DeviceTally> = HashMap::with_max_entries(64, 0);

/// Epoch → its totals. User space inserts before an epoch begins and deletes after it ended.
#[map]
pub static EPOCHS: HashMap<u32, EpochTotals> = HashMap::with_max_entries(8_192, NO_PREALLOC);

/// Names that are in the ring buffer already, of those that this CPU met: see [`crate::known`].
#[map]
pub static KNOWN_SLOTS: PerCpuArray<NameKey> = PerCpuArray::with_max_entries(KNOWN_PER_CPU, 0);

/// How many of them each CPU remembers. A power of two.
pub const KNOWN_PER_CPU: u32 = 512;

/// All of them. Old ones go by themselves; they may then be sent again.
#[map]
pub static KNOWN_NAMES: LruHashMap<NameKey, u32> = LruHashMap::with_max_entries(8_192, 0);

/// First-sight records of files and processes.
#[map]
pub static RECORDS: RingBuf = RingBuf::with_byte_size(1 << 20, 0);

/// What could not be kept.
#[map]
pub static LOSSES: PerCpuArray<Losses> = PerCpuArray::with_max_entries(1, 0);

/// Single numbers, by [`Number`].
#[map]
pub static NUMBERS: Array<u64> = Array::with_max_entries(4, 0);

/// Index in [`NUMBERS`].
#[repr(u32)]
pub enum Number {
    /// The probe's own tgid in the initial PID namespace.
    OwnTgid = 0,
    /// The last image number given here.
    LastImage = 1,
    /// Calls counted at their enter that have not returned: their exits must not count again.
    CountedAtEnter = 2,
    /// Entries of [`URING`], at least: a walk through none is spared.
    UringKept = 3,
}

impl Number {
    /// The number's place.
    #[inline(always)]
    pub fn get(self) -> Option<*mut u64> {
        NUMBERS.get_ptr_mut(self as u32)
    }
}

/// The programs that build first-sight records, by [`crate::first_sight::Describe`].
#[map]
pub static DESCRIBE: ProgramArray = ProgramArray::with_max_entries(2, 0);

/// The same for raw tracepoints: a program goes on only in one of its own type.
#[map]
pub static DESCRIBE_RAW: ProgramArray = ProgramArray::with_max_entries(2, 0);

/// The programs that count calls of which one end was seen, by index: see [`crate::unmatched`].
#[map]
pub static UNMATCHED: ProgramArray = ProgramArray::with_max_entries(2, 0);

/// Work space of the program that runs on this CPU. Programs that use it run with preemption off.
#[map]
pub static SCRATCH: PerCpuArray<Scratch> = PerCpuArray::with_max_entries(1, 0);

/// One name of one file in one epoch. A rename changes `parent_address` or `name_hash_len`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NameKey {
    pub file: FileIdentity,
    pub inode_address: u64,
    pub dentry_address: u64,
    pub parent_address: u64,
    pub name_hash_len: u64,
    pub mount_address: u64,
    pub epoch: u32,
    /// `DELETED` and `OTHER_LINKS` of the record
    pub gone: u32,
}

/// A path under construction needs room for one more whole component, so that the verifier sees
/// that no component can run past the end.
pub const COMPONENT_BYTES: usize = 256;

/// See [`SCRATCH`].
#[repr(C)]
pub struct Scratch {
    /// What the describing programs are to describe.
    pub name: NameKey,
    /// `vm_area_struct.vm_file` of the mapping that was looked up.
    pub mapped_file: u64,
    pub describe_file: u32,
    /// What [`crate::unmatched`] is to count: the op that returns, or the call that did not.
    pub op: u16,
    pub reserved: u16,
    pub unreturned: InFlightCall,
    pub position: Position,
    /// A record under construction: the end of `header` is the end of its fixed part, so that the
    /// path follows at once.
    pub header: [u64; HEADER_BYTES / 8],
    pub path: [u8; PATH_BYTES + COMPONENT_BYTES + ARGS_BYTES],
}

/// Room for the longer fixed part.
pub const HEADER_BYTES: usize = size_of::<ProcessRecord>();

/// This CPU's work space.
#[inline(always)]
pub fn scratch() -> Option<&'static mut Scratch> {
    // SAFETY: the value is this CPU's own, and its user can't be preempted by another.
    SCRATCH.get_ptr_mut(0).map(|scratch| unsafe { &mut *scratch })
}

/// Counts a loss on this CPU.
#[inline(always)]
pub fn lose(which: fn(&mut Losses) -> &mut u64) {
    if let Some(losses) = LOSSES.get_ptr_mut(0) {
        // SAFETY: a value of this CPU; the addition is atomic because an interrupt may come between.
        unsafe { kernel::add(which(&mut *losses), 1) };
    }
}
