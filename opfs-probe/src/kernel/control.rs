//! Tells the kernel side which epoch a session is in and who belongs to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use aya::Ebpf;
use aya::maps::{Array, HashMap, MapData};
use opfs_probe_common::epoch::{EpochTotals, NO_EPOCH, SessionSlot};
use opfs_probe_common::membership::{BOUND_BY_USER_SPACE, Membership};

use super::latencies::LatencySlots;
use crate::attribution::window::Epoch;

/// Quick writes to the kernel's maps.
pub struct Control {
    sessions: Array<MapData, SessionSlot>,
    moment: Array<MapData, u32>,
    members: HashMap<MapData, u32, Membership>,
    epochs: HashMap<MapData, u32, EpochTotals>,
    latencies: Arc<LatencySlots>,
    last_image: u32,
}

impl Control {
    pub(super) fn new(programs: &mut Ebpf, latencies: Arc<LatencySlots>) -> Result<Self> {
        let mut take = |name: &str| programs.take_map(name).with_context(|| format!("no map {name}"));
        Ok(Self {
            sessions: Array::try_from(take("SESSIONS")?)?,
            moment: Array::try_from(take("MOMENT")?)?,
            members: HashMap::try_from(take("MEMBERS")?)?,
            epochs: HashMap::try_from(take("EPOCHS")?)?,
            latencies,
            last_image: BOUND_BY_USER_SPACE,
        })
    }

    /// Calls of the session in `slot` that begin from now on count in `epoch`, under other windows than
    /// before or under the same.
    pub fn enter_epoch(&mut self, slot: u32, epoch: Epoch, same_windows: bool) -> Result<()> {
        self.epochs.insert(epoch.0, EpochTotals::ZERO, 0).context("making room for an epoch")?;
        let before = self.sessions.get(&slot, 0).unwrap_or_default();
        let windows_epoch = if same_windows { before.windows_epoch } else { epoch.0 };
        let now = SessionSlot { epoch: epoch.0, windows_epoch, ..before };
        self.sessions.set(slot, now, 0).context("switching the epoch")?;
        self.begin_moment(epoch)
    }

    /// The session in `slot` is counted no longer; the slot can then be used again. What devices flush from
    /// now on is of the moment `next`.
    pub fn leave(&mut self, slot: u32, next: Epoch) -> Result<()> {
        self.sessions.set(slot, SessionSlot { epoch: NO_EPOCH, root_tgid: 0, windows_epoch: NO_EPOCH }, 0)?;
        self.begin_moment(next)
    }

    fn begin_moment(&mut self, epoch: Epoch) -> Result<()> {
        self.moment.set(0, epoch.0, 0).context("switching the moment")
    }

    /// The first process that was forked into the session, in the initial PID namespace.
    pub fn root_tgid(&self, slot: u32) -> Option<u32> {
        self.sessions.get(&slot, 0).ok().map(|session| session.root_tgid).filter(|tgid| *tgid != 0)
    }

    /// Puts a running process into the session in `slot`; gives the number of its image.
    pub fn bind(&mut self, tgid: u32, slot: u32, flags: u32) -> Result<u32> {
        self.last_image += 1;
        let member = Membership { slot, process: self.last_image, flags };
        self.members.insert(tgid, member, 0).with_context(|| format!("binding process {tgid}"))?;
        Ok(self.last_image)
    }

    /// Takes a process out of whatever session it is in.
    pub fn unbind(&mut self, tgid: u32) {
        // It may have ended by itself meanwhile.
        let _ = self.members.remove(&tgid);
    }

    /// The slot of a process that is watched or excluded.
    pub fn slot_of(&self, tgid: u32) -> Option<u32> {
        self.members.get(&tgid, 0).ok().map(|member| member.slot)
    }

    /// Whether any process belongs to the session in `slot`.
    pub fn has_members(&self, slot: u32) -> bool {
        self.members.iter().flatten().any(|(_, member)| member.slot == slot)
    }

    /// The processes in these slots, each with what its slot stands for.
    pub fn members_of<T: Copy>(&self, slots: &BTreeMap<u32, T>) -> Vec<(T, u32)> {
        let members = self.members.iter().flatten();
        members.filter_map(|(tgid, member)| Some((*slots.get(&member.slot)?, tgid))).collect()
    }

    /// The processes of the session in `slot` leave it.
    pub fn release_members(&mut self, slot: u32) {
        let of_slot = |(tgid, member): (u32, Membership)| (member.slot == slot).then_some(tgid);
        let members: Vec<u32> = self.members.iter().flatten().filter_map(of_slot).collect();
        for tgid in members {
            self.unbind(tgid);
        }
    }

    /// Number of an epoch's sync calls so far, and the time in them.
    pub fn counted(&self, epoch: Epoch) -> Option<(u64, u64)> {
        let EpochTotals { counted, total_ns, .. } = self.epoch_totals(epoch)?;
        let (calls, ns) = self.latencies.counted(epoch);
        Some((counted + calls, total_ns + ns))
    }

    /// What an epoch has counted so far, besides what is in slots.
    pub fn epoch_totals(&self, epoch: Epoch) -> Option<EpochTotals> {
        self.epochs.get(&epoch.0, 0).ok()
    }

    /// Forgets an epoch that no call can still write to.
    pub fn forget_epoch(&mut self, epoch: Epoch) {
        // Nothing else deletes epochs, so it is there.
        let _ = self.epochs.remove(&epoch.0);
    }
}
