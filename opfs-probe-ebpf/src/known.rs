//! Which names are in the ring buffer already.
//!
//! Each CPU remembers names that it met in slots of its own, found by a hash, where the last one stays; the
//! rest is asked of a map that all share.

use crate::kernel::hash;
use crate::maps::{KNOWN_NAMES, KNOWN_PER_CPU, KNOWN_SLOTS, NameKey};

/// Whether the name's record was sent.
#[inline(always)]
pub fn is_known(name: &NameKey) -> bool {
    let index = hash(name.name_hash_len ^ name.inode_address ^ u64::from(name.epoch) << 40, KNOWN_PER_CPU);
    let Some(slot) = KNOWN_SLOTS.get_ptr_mut(index) else { return false };
    // SAFETY: a map value of this CPU, whose user can't be preempted by another.
    unsafe {
        if *slot == *name {
            return true;
        }
        let known = KNOWN_NAMES.get_ptr(name).is_some();
        if known {
            *slot = *name;
        }
        known
    }
}

/// The name's record was sent.
#[inline(always)]
pub fn note(name: &NameKey) {
    // Without room it is sent again.
    let _ = KNOWN_NAMES.insert(name, 1, 0);
}
