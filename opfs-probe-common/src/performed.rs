//! One sync that a file system performed, as the kernel side counts it.

use core::mem::size_of;

use crate::call::FileIdentity;

/// What made a file system sync; the discriminants cross between both sides.
#[repr(u16)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// A sync call of the same thread.
    Explicit = 0,
    /// Anything else that a thread of a program did: a write with `O_SYNC`, `O_DSYNC` or the like.
    Implicit = 1,
    /// A kernel thread.
    Kernel = 2,
    /// A worker thread of `io_uring`.
    Uring = 3,
}

impl Cause {
    /// Every cause, in the order of the discriminants.
    pub const ALL: [Self; 4] = [Self::Explicit, Self::Implicit, Self::Kernel, Self::Uring];

    /// The cause's name in reports and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Explicit => "explicit",
            Self::Implicit => "implicit",
            Self::Kernel => "kernel",
            Self::Uring => "uring",
        }
    }

    /// The cause of a discriminant that came out of a map, or none if it is not one.
    pub fn from_raw(raw: u16) -> Option<Self> {
        Self::ALL.get(usize::from(raw)).copied()
    }
}

/// A file system whose syncs are seen; the discriminants cross between both sides.
#[repr(u16)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Filesystem {
    /// ext4, also where it mounts ext2 and ext3
    Ext4 = 0,
    /// btrfs
    Btrfs = 1,
    /// XFS
    Xfs = 2,
    /// F2FS
    F2fs = 3,
}

impl Filesystem {
    /// Every one, in the order of the discriminants.
    pub const ALL: [Self; 4] = [Self::Ext4, Self::Btrfs, Self::Xfs, Self::F2fs];

    /// Its name, as mount(8) has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Btrfs => "btrfs",
            Self::Xfs => "xfs",
            Self::F2fs => "f2fs",
        }
    }

    /// `super_block.s_magic`, from include/uapi/linux/magic.h.
    pub const fn magic(self) -> u64 {
        match self {
            Self::Ext4 => 0xEF53,
            Self::Btrfs => 0x9123_683E,
            Self::Xfs => 0x5846_5342,
            Self::F2fs => 0xF2F5_2010,
        }
    }

    /// The file system of a discriminant that came out of a map, or none if it is not one.
    pub fn from_raw(raw: u16) -> Option<Self> {
        Self::ALL.get(usize::from(raw)).copied()
    }
}

/// Key of the per-CPU counters of performed syncs.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PerformedKey {
    /// The file as its own file system knows it: beneath an overlay, the one of a layer.
    pub file: FileIdentity,
    /// The epoch of the call that caused it, else the one in which it began.
    pub epoch: u32,
    /// The process image (see [`crate::membership::Membership::process`]).
    pub process: u32,
    /// [`Cause`] as its discriminant.
    pub cause: u16,
    /// [`Filesystem`] as its discriminant.
    pub filesystem: u16,
    /// [`crate::call::DETAIL_LOST`] or 0.
    pub flags: u32,
}

const _: () = assert!(size_of::<PerformedKey>() == 40);

crate::pod!(PerformedKey);
