//! From a process to its session and the session's epoch.

use opfs_probe_common::epoch::{EXCLUDED_SLOT, NO_EPOCH, SYSTEM_SLOT, SessionSlot};
use opfs_probe_common::membership::{BOUND_BY_USER_SPACE, Membership};

use crate::kernel;
use crate::maps::{MEMBERS, Number, SESSIONS, lose};

/// A process whose calls are counted now.
pub struct Member {
    pub slot: u32,
    pub process: u32,
    pub flags: u32,
    /// The session's epoch, never [`NO_EPOCH`].
    pub epoch: u32,
}

/// The membership of process `tgid`, if its session is being counted.
#[inline(always)]
pub fn member(tgid: u32) -> Option<Member> {
    let entry = MEMBERS.get_ptr_mut(tgid).or_else(|| adopt(tgid))?;
    // SAFETY: a valid map value; its fields are read once, whoever writes them meanwhile.
    let Membership { slot, process, flags } = unsafe { entry.read_volatile() };
    if slot == EXCLUDED_SLOT {
        return None;
    }
    let epoch = epoch_of(slot)?;
    Some(Member { slot, process, flags, epoch })
}

/// The current epoch of a session that is being counted.
#[inline(always)]
pub fn epoch_of(slot: u32) -> Option<u32> {
    let session = SESSIONS.get_ptr(slot)?;
    // SAFETY: a valid map value, written whole by one 32-bit store.
    let epoch = unsafe { (&raw const (*session).epoch).read_volatile() };
    (epoch != NO_EPOCH).then_some(epoch)
}

/// Whether a call that began in `epoch` and returns now does so under other windows.
#[inline(always)]
pub fn straddles(slot: u32, epoch: u32) -> bool {
    let Some(session) = SESSIONS.get_ptr(slot) else { return true };
    // SAFETY: a valid map value, whose field is read once.
    let windows_epoch = unsafe { (&raw const (*session).windows_epoch).read_volatile() };
    SessionSlot::straddled_by(windows_epoch, epoch)
}

/// A process seen for the first time joins the system session, where that is counted.
#[inline(always)]
fn adopt(tgid: u32) -> Option<*mut Membership> {
    epoch_of(SYSTEM_SLOT)?;
    join(tgid, SYSTEM_SLOT);
    MEMBERS.get_ptr_mut(tgid)
}

/// Enters process `tgid` into a session, as a new image.
#[inline(always)]
pub fn join(tgid: u32, slot: u32) {
    let member = Membership { slot, process: next_image(), flags: 0 };
    if MEMBERS.insert(tgid, member, 0).is_err() {
        lose(|losses| &mut losses.members_lost);
    }
}

/// A number for a new process image.
#[inline(always)]
pub fn next_image() -> u32 {
    let Some(last) = Number::LastImage.get() else { return 0 };
    // SAFETY: a valid map value.
    let number = unsafe { kernel::fetch_add(last, 1) } + 1;
    number as u32 & !BOUND_BY_USER_SPACE
}

/// The session's array entry, to note its first process.
#[inline(always)]
pub fn session(slot: u32) -> Option<*mut SessionSlot> {
    SESSIONS.get_ptr_mut(slot)
}
