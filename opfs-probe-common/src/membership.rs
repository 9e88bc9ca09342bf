//! Which session a process belongs to.

use core::mem::size_of;

/// Entry of the membership table, by tgid (initial PID namespace).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The session's slot, or [`crate::epoch::EXCLUDED_SLOT`].
    pub slot: u32,
    /// Number of this process *image*: new for each fork and each exec, never reused, so that
    /// neither a reused pid nor an exec mixes two programs. Those of processes bound by user space
    /// have [`BOUND_BY_USER_SPACE`] set.
    pub process: u32,
    /// [`RECORDED`], [`SPAWNING`]
    pub flags: u32,
}

/// The image's record is in the ring buffer.
pub const RECORDED: u32 = 1;

/// The next children of this process start a session: `SessionSlot::root_tgid` takes the first.
pub const SPAWNING: u32 = 2;

/// Marks image numbers given by user space, so that both sides can number without asking each other.
pub const BOUND_BY_USER_SPACE: u32 = 1 << 31;

const _: () = assert!(size_of::<Membership>() == 12);

crate::pod!(Membership);
