//! One finished sync call, as the kernel side counts it.

use core::mem::size_of;

/// A kind of request for durability; the discriminants index arrays on both sides.
#[repr(u16)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// `fsync(2)`
    Fsync = 0,
    /// `fdatasync(2)`
    Fdatasync = 1,
    /// `sync(2)`: every file system, so no file is named
    Sync = 2,
    /// `syncfs(2)`
    Syncfs = 3,
    /// `sync_file_range(2)`, and `sync_file_range2` where the architecture has it
    SyncFileRange = 4,
    /// `msync(2)` with `MS_SYNC`
    Msync = 5,
    /// `IORING_OP_FSYNC` of `io_uring`, with `IORING_FSYNC_DATASYNC` or without
    UringFsync = 6,
    /// `IORING_OP_SYNC_FILE_RANGE` of `io_uring`
    UringSyncFileRange = 7,
}

impl Op {
    /// Every op, in the order of the discriminants.
    pub const ALL: [Self; 8] = [
        Self::Fsync,
        Self::Fdatasync,
        Self::Sync,
        Self::Syncfs,
        Self::SyncFileRange,
        Self::Msync,
        Self::UringFsync,
        Self::UringSyncFileRange,
    ];

    /// The op's name in reports and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::Fdatasync => "fdatasync",
            Self::Sync => "sync",
            Self::Syncfs => "syncfs",
            Self::SyncFileRange => "sync_file_range",
            Self::Msync => "msync",
            Self::UringFsync => "uring_fsync",
            Self::UringSyncFileRange => "uring_sync_file_range",
        }
    }

    /// The op of a discriminant that came out of a map, or none if it is not one.
    pub fn from_raw(raw: u16) -> Option<Self> {
        Self::ALL.get(usize::from(raw)).copied()
    }

    /// Whether it is a system call whose first argument is a descriptor.
    pub const fn takes_descriptor(self) -> bool {
        matches!(self, Self::Fsync | Self::Fdatasync | Self::Syncfs | Self::SyncFileRange)
    }

    /// Whether it is a system call of its own: what strace sees.
    pub const fn is_system_call(self) -> bool {
        !matches!(self, Self::UringFsync | Self::UringSyncFileRange)
    }
}

/// What tells one inode from all others while it is in memory.
///
/// No smaller set is unique: btrfs snapshots share device, number and generation; overlayfs and
/// tmpfs reuse numbers with generation 0. All zero means "no file".
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileIdentity {
    /// Address of the kernel's `struct inode`; of the `struct dentry` for a file without a place in
    /// a directory, since many such share one inode.
    pub inode_address: u64,
    /// `inode.i_ino`
    pub inode: u64,
    /// `super_block.s_dev`, in the kernel's own encoding: major << 20 | minor
    pub dev: u32,
    /// `inode.i_generation`
    pub generation: u32,
}

impl FileIdentity {
    /// The identity of a call without a file: `sync`, a closed descriptor.
    pub const NONE: Self = Self { inode_address: 0, inode: 0, dev: 0, generation: 0 };
}

/// Key of the call counters.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallKey {
    /// The file, or [`FileIdentity::NONE`].
    pub file: FileIdentity,
    /// The epoch in which the call began.
    pub epoch: u32,
    /// The process image that made it (see [`crate::membership::Membership::process`]).
    pub process: u32,
    /// [`Op`] as its discriminant.
    pub op: u16,
    /// 0 for success, else the errno (1 to 4095).
    pub errno: u16,
    /// [`DETAIL_LOST`], [`FILE_UNSEEN`], or 0.
    pub flags: u32,
}

/// The counters had no room for this call's own key: process and file are blank, the rest is exact.
pub const DETAIL_LOST: u32 = 1;

/// The call has a file, but which one could not be seen: the process's mappings were being changed.
pub const FILE_UNSEEN: u32 = 2;

/// Value of the call counters.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallTally {
    /// Number of calls.
    pub count: u64,
    /// Time between enter and exit, summed.
    pub total_ns: u64,
    /// The longest of them.
    pub max_ns: u64,
    /// Calls that were answered before the kernel entered them (a seccomp filter), or whose start was
    /// not kept: no time is known.
    pub untimed: u64,
}

/// A call that was entered and has not returned, by thread (`bpf_get_current_pid_tgid`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlightCall {
    /// The call's file.
    pub file: FileIdentity,
    /// `CLOCK_MONOTONIC` at enter.
    pub start_ns: u64,
    /// The epoch in which the call began.
    pub epoch: u32,
    /// The session's slot.
    pub slot: u32,
    /// The process image that made it.
    pub process: u32,
    /// [`Op`] as its discriminant.
    pub op: u16,
    /// The flags of its [`CallKey`].
    pub flags: u16,
}

/// One of a CPU's slots for finished calls, which lie before the call counters proper.
///
/// A slot belongs to the first key that finds it free, until user space has read that key's epoch after
/// its end, clears the slot and at last sets `key.epoch` to 0, which frees it. All zero when free.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSlot {
    /// Whose it is; free if its epoch is [`crate::epoch::NO_EPOCH`].
    pub key: CallKey,
    /// As in [`CallTally`], as the others; calls without a time go elsewhere.
    pub count: u64,
    /// See there.
    pub total_ns: u64,
    /// See there.
    pub max_ns: u64,
}

impl CallSlot {
    /// A slot that is no key's.
    pub const FREE: Self = Self {
        key: CallKey { file: FileIdentity::NONE, epoch: 0, process: 0, op: 0, errno: 0, flags: 0 },
        count: 0,
        total_ns: 0,
        max_ns: 0,
    };
}

/// How many each CPU has. A power of two, so that a hash has an index.
pub const CALL_SLOTS: u32 = 1_024;

/// One of the slots for calls in flight, by the low bits of the thread's id.
///
/// A thread claims a free slot by writing its id and sets `call.epoch` last; when the call has returned
/// and is counted it takes both back in the other order. Only the claiming thread writes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlightSlot {
    /// The thread's id in the initial PID namespace; 0 if free.
    pub thread: u32,
    /// Fills up.
    pub reserved: u32,
    /// The call; there is none while its epoch is [`crate::epoch::NO_EPOCH`].
    pub call: InFlightCall,
    /// To the length of a line of the CPU's cache: threads don't slow each other down.
    pub padding: u64,
}

/// How many there are. A power of two.
pub const IN_FLIGHT_SLOTS: u32 = 4_096;

/// A sync that was submitted to `io_uring` and is not completed, by the address of its `struct io_kiocb`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UringCall {
    /// What is asked for, and since when.
    pub call: InFlightCall,
    /// Address of the ring's `struct io_ring_ctx`.
    pub ring_address: u64,
    /// What its submitter will know its completion by.
    pub user_data: u64,
}

const _: () = assert!(size_of::<UringCall>() == size_of::<InFlightCall>() + 16);
const _: () = assert!(size_of::<FileIdentity>() == 24);
const _: () = assert!(size_of::<CallKey>() == 40);
const _: () = assert!(size_of::<CallTally>() == 32);
const _: () = assert!(size_of::<InFlightCall>() == 48);
const _: () = assert!(size_of::<CallSlot>() == 64);
const _: () = assert!(size_of::<InFlightSlot>() == 64);
const _: () = assert!(CALL_SLOTS.is_power_of_two() && IN_FLIGHT_SLOTS.is_power_of_two());

crate::pod!(FileIdentity, CallKey, CallTally, CallSlot, InFlightCall, UringCall, InFlightSlot);
