//! Reads the syncs that file systems performed.

use std::collections::HashMap;

use anyhow::{Context, Result};
use aya::Ebpf;
use aya::maps::{HashMap as KernelHash, MapData};
use opfs_probe_common::call::{DETAIL_LOST, FileIdentity};
use opfs_probe_common::performed::{Cause, Filesystem, PerformedKey as KernelKey};

use crate::attribution::totals::{FileRef, PerformedKey, Totals};
use crate::attribution::window::Epoch;

/// The maps they are counted in; none where no probe sees any.
pub(super) struct Performed(Option<[KernelHash<MapData, KernelKey, u64>; 2]>);

impl Performed {
    pub fn new(programs: &mut Ebpf, seen: bool) -> Result<Self> {
        let mut take = |name: &str| -> Result<_> {
            let map = programs.take_map(name).with_context(|| format!("no map {name}"))?;
            Ok(KernelHash::try_from(map)?)
        };
        let maps = [take("PERFORMED")?, take("PERFORMED_OVERFLOW")?];
        Ok(Self(seen.then_some(maps)))
    }

    /// Adds what was performed in each of these epochs so far.
    pub fn read(&self, epochs: &mut HashMap<Epoch, Totals>) -> Result<()> {
        let Some(maps) = &self.0 else { return Ok(()) };
        for totals in epochs.values_mut() {
            totals.performed.get_or_insert_default();
        }
        for map in maps {
            for key in map.keys() {
                let key = key?;
                let Some(totals) = epochs.get_mut(&Epoch(key.epoch)) else { continue };
                let Some(mine) = performed_key(&key) else { continue };
                // Gone only if someone else deletes, and nobody does.
                totals.add_performed(mine, map.get(&key, 0)?);
            }
        }
        Ok(())
    }

    /// Deletes what was read of epochs that nothing can still write to.
    pub fn forget(&mut self, epochs: &HashMap<Epoch, Totals>) -> Result<()> {
        for map in self.0.iter_mut().flatten() {
            let keys = map.keys().collect::<Result<Vec<_>, _>>()?;
            for key in keys.into_iter().filter(|key| epochs.contains_key(&Epoch(key.epoch))) {
                map.remove(&key)?;
            }
        }
        Ok(())
    }
}

fn performed_key(key: &KernelKey) -> Option<PerformedKey> {
    let lost = key.flags & DETAIL_LOST != 0;
    let file = match key.file {
        _ if lost => FileRef::Lost,
        FileIdentity::NONE => FileRef::Unseen,
        file => FileRef::Known(file),
    };
    Some(PerformedKey {
        filesystem: Filesystem::from_raw(key.filesystem)?,
        cause: Cause::from_raw(key.cause)?,
        process: (!lost).then_some(key.process),
        file,
    })
}
