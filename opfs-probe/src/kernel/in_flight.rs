//! Reads the calls in flight.

use std::sync::atomic::{Ordering, fence};

use anyhow::{Context, Result};
use aya::Ebpf;
use aya::maps::{HashMap, MapData};
use opfs_probe_common::call::{InFlightCall, InFlightSlot, UringCall};
use opfs_probe_common::epoch::NO_EPOCH;

use super::shared::Shared;

/// Where the kernel programs keep calls in flight.
pub(super) struct InFlight {
    slots: Shared<InFlightSlot>,
    /// Those that found their slot taken.
    crowded: HashMap<MapData, u64, InFlightCall>,
    /// Requests of `io_uring`, by their address.
    uring: HashMap<MapData, u64, UringCall>,
}

impl InFlight {
    pub fn new(programs: &mut Ebpf) -> Result<Self> {
        let slots = Shared::take(programs, "IN_FLIGHT")?;
        let crowded = programs.take_map("CROWDED").context("no map CROWDED")?;
        let uring = programs.take_map("URING").context("no map URING")?;
        Ok(Self { slots, crowded: HashMap::try_from(crowded)?, uring: HashMap::try_from(uring)? })
    }

    /// The calls in slots. One that ends, or begins in its place, while it is read may be left out.
    pub fn in_slots(&self) -> impl Iterator<Item = InFlightCall> + '_ {
        self.slots.iter().filter_map(|slot| {
            // SAFETY: an entry of the array.
            unsafe {
                if (&raw const (*slot).call.epoch).read_volatile() == NO_EPOCH {
                    return None;
                }
                fence(Ordering::Acquire);
                let call = (&raw const (*slot).call).read_volatile();
                fence(Ordering::Acquire);
                // Another call has another start, and while it is put there no epoch.
                let same = (&raw const (*slot).call.start_ns).read_volatile() == call.start_ns;
                let there = (&raw const (*slot).call.epoch).read_volatile() == call.epoch;
                (same && there && call.epoch != NO_EPOCH).then_some(call)
            }
        })
    }

    /// The epochs of calls in slots: each that had one when this began and still has.
    pub fn epochs_in_slots(&self) -> impl Iterator<Item = u32> + '_ {
        // SAFETY: an entry of the array.
        let epochs = self.slots.iter().map(|slot| unsafe { (&raw const (*slot).call.epoch).read_volatile() });
        epochs.filter(|epoch| *epoch != NO_EPOCH)
    }

    /// All of them, in slots or not.
    pub fn iter(&self) -> impl Iterator<Item = InFlightCall> + '_ {
        let crowded = self.crowded.iter().flatten().map(|(_, call)| call);
        self.in_slots().chain(crowded).chain(self.uring.iter().flatten().map(|(_, uring)| uring.call))
    }
}
