//! Reads the finished calls: each CPU's slots, and the maps behind them.

use std::collections::HashMap;
use std::sync::atomic::{Ordering, fence};

use anyhow::{Context, Result};
use aya::Ebpf;
use aya::maps::{HashMap as KernelHash, MapData};
use opfs_probe_common::call::{
    CallKey as KernelCallKey, CallSlot, CallTally, DETAIL_LOST, FILE_UNSEEN, FileIdentity, Op,
};
use opfs_probe_common::epoch::NO_EPOCH;

use super::shared::Shared;
use crate::attribution::totals::{CallKey, FileRef, Totals};
use crate::attribution::window::Epoch;

/// Where the kernel programs count calls.
pub(super) struct Calls {
    slots: Shared<CallSlot>,
    /// Those that found their slot taken, and those that found no room there either.
    maps: [KernelHash<MapData, KernelCallKey, CallTally>; 2],
}

impl Calls {
    pub fn new(programs: &mut Ebpf) -> Result<Self> {
        let slots = Shared::take(programs, "CALL_SLOTS")?;
        let mut take = |name: &str| -> Result<_> {
            let map = programs.take_map(name).with_context(|| format!("no map {name}"))?;
            Ok(KernelHash::try_from(map)?)
        };
        Ok(Self { slots, maps: [take("CALLS")?, take("OVERFLOW")?] })
    }

    /// Adds the calls of each of these epochs so far.
    pub fn read(&self, epochs: &mut HashMap<Epoch, Totals>) -> Result<()> {
        let mut add = |key: &KernelCallKey, tally| {
            let (Some(totals), Some(op)) = (epochs.get_mut(&Epoch(key.epoch)), Op::from_raw(key.op)) else {
                return;
            };
            totals.add_call(call_key(key, op), tally);
        };
        for slot in self.slots.iter() {
            // SAFETY: an entry of the array. A slot that is taken keeps its key.
            let key = unsafe {
                if (&raw const (*slot).key.epoch).read_volatile() == NO_EPOCH {
                    continue;
                }
                fence(Ordering::Acquire);
                (&raw const (*slot).key).read_volatile()
            };
            // SAFETY: as above.
            let CallSlot { count, total_ns, max_ns, .. } = unsafe { slot.read_volatile() };
            if count > 0 {
                add(&key, CallTally { count, total_ns, max_ns, untimed: 0 });
            }
        }
        for map in &self.maps {
            for key in map.keys() {
                let key = key?;
                // Gone only if someone else deletes, and nobody does.
                add(&key, map.get(&key, 0)?);
            }
        }
        Ok(())
    }

    /// Deletes what was read of epochs that no call can still write to.
    pub fn forget(&mut self, epochs: &HashMap<Epoch, Totals>) -> Result<()> {
        let gone = |epoch: u32| epochs.contains_key(&Epoch(epoch));
        for slot in self.slots.iter() {
            // SAFETY: an entry of the array, which the kernel side leaves alone once its epoch is over,
            // until it is free.
            unsafe {
                let epoch = (&raw const (*slot).key.epoch).read_volatile();
                if epoch != NO_EPOCH && gone(epoch) {
                    let key = KernelCallKey { epoch, ..CallSlot::FREE.key };
                    slot.write_volatile(CallSlot { key, ..CallSlot::FREE });
                    fence(Ordering::Release);
                    (&raw mut (*slot).key.epoch).write_volatile(NO_EPOCH);
                }
            }
        }
        for map in &mut self.maps {
            let keys = map.keys().collect::<Result<Vec<_>, _>>()?;
            for key in keys.into_iter().filter(|key| gone(key.epoch)) {
                map.remove(&key)?;
            }
        }
        Ok(())
    }
}

fn call_key(key: &KernelCallKey, op: Op) -> CallKey {
    let lost = key.flags & DETAIL_LOST != 0;
    let file = if lost {
        FileRef::Lost
    } else if key.file != FileIdentity::NONE {
        FileRef::Known(key.file)
    } else if key.flags & FILE_UNSEEN != 0 {
        FileRef::Unseen
    } else {
        FileRef::None
    };
    CallKey { op, process: (!lost).then_some(key.process), file, errno: key.errno }
}
