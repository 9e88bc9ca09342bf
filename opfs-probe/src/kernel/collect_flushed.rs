//! Reads what devices flushed.

use std::collections::HashMap;

use anyhow::{Context, Result};
use aya::Ebpf;
use aya::maps::{HashMap as KernelHash, MapData, PerCpuHashMap};
use opfs_probe_common::flushed::{DeviceTally, FlushKey, FlushTally};

use crate::attribution::window::Epoch;

/// What each device flushed, by moment: the newest epoch of any session when the device was done.
pub type Flushes = HashMap<Epoch, HashMap<u32, FlushTally>>;

/// The maps it is counted in; none where the block layer is not watched.
pub(super) struct Flushed(Option<Maps>);

struct Maps {
    flushes: PerCpuHashMap<MapData, FlushKey, FlushTally>,
    devices: KernelHash<MapData, u32, DeviceTally>,
}

impl Flushed {
    pub fn new(programs: &mut Ebpf, seen: bool) -> Result<Self> {
        let mut take = |name: &str| programs.take_map(name).with_context(|| format!("no map {name}"));
        let maps = Maps {
            flushes: PerCpuHashMap::try_from(take("FLUSHES")?)?,
            devices: KernelHash::try_from(take("DEVICES")?)?,
        };
        Ok(Self(seen.then_some(maps)))
    }

    pub fn seen(&self) -> bool {
        self.0.is_some()
    }

    pub fn read(&self) -> Result<Flushes> {
        let mut flushes = Flushes::new();
        let Some(maps) = &self.0 else { return Ok(flushes) };
        for key in maps.flushes.keys() {
            let key = key?;
            let sum = flushes.entry(Epoch(key.moment)).or_default().entry(key.dev).or_default();
            // Gone only if someone else deletes, and nobody does.
            maps.flushes.get(&key, 0)?.iter().for_each(|cpu| sum.add(cpu));
        }
        Ok(flushes)
    }

    pub fn forget(&mut self, flushes: &Flushes) {
        let Some(maps) = &mut self.0 else { return };
        for (moment, devices) in flushes {
            for dev in devices.keys() {
                // Nothing else deletes them, so it is there.
                let _ = maps.flushes.remove(&FlushKey { moment: moment.0, dev: *dev });
            }
        }
    }

    pub fn devices(&self) -> Result<Option<HashMap<u32, DeviceTally>>> {
        let Some(maps) = &self.0 else { return Ok(None) };
        let devices: Result<HashMap<u32, DeviceTally>, _> = maps.devices.iter().collect();
        Ok(Some(devices?))
    }
}
