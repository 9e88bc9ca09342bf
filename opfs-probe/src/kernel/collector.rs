//! Reads what the kernel side counted.

use std::collections::HashMap;
use std::io;

use anyhow::{Context, Result};
use aya::Ebpf;
use aya::maps::{HashMap as KernelHash, MapData, PerCpuArray, PerCpuHashMap, RingBuf};
use nix::libc;
use opfs_probe_common::call::{
    CallKey as KernelCallKey, CallTally, DETAIL_LOST, FILE_UNSEEN, FileIdentity, InFlightCall, Op,
};
use opfs_probe_common::epoch::{EpochTotals, HistogramKey};
use opfs_probe_common::histogram::Histogram;
use opfs_probe_common::record::{FILE_RECORD, FileRecord, Losses, PROCESS_RECORD, ProcessRecord};

use super::collect_performed::Performed;
use crate::attribution::totals::{CallKey, FileRef, Totals};
use crate::attribution::window::Epoch;

/// Reads and empties the kernel's maps.
pub struct Collector {
    calls: PerCpuHashMap<MapData, KernelCallKey, CallTally>,
    overflow: PerCpuHashMap<MapData, KernelCallKey, CallTally>,
    performed: Performed,
    histograms: KernelHash<MapData, HistogramKey, Histogram>,
    in_flight: KernelHash<MapData, u64, InFlightCall>,
    losses: PerCpuArray<MapData, Losses>,
    records: RingBuf<MapData>,
    #[cfg(feature = "kernel-log")]
    log: aya_log::EbpfLogger<&'static dyn log::Log>,
}

/// A first-sight record, with its variable part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A file's name.
    File {
        /// The fixed part.
        record: FileRecord,
        /// Path components, leaf first.
        components: Vec<u8>,
    },
    /// A process image's names.
    Process {
        /// The fixed part.
        record: ProcessRecord,
        /// Start of the argument vector, NUL-separated.
        args: Vec<u8>,
        /// Components of the executable's path, leaf first.
        executable: Vec<u8>,
    },
}

impl Collector {
    /// `performed`: whether performed syncs are seen at all.
    pub(super) fn new(programs: &mut Ebpf, performed: bool) -> Result<Self> {
        #[cfg(feature = "kernel-log")]
        let log = aya_log::EbpfLogger::init(programs).context("reading the kernel side's log")?;
        let performed = Performed::new(programs, performed)?;
        let mut take = |name: &str| programs.take_map(name).with_context(|| format!("no map {name}"));
        Ok(Self {
            calls: PerCpuHashMap::try_from(take("CALLS")?)?,
            overflow: PerCpuHashMap::try_from(take("OVERFLOW")?)?,
            performed,
            histograms: KernelHash::try_from(take("HISTOGRAMS")?)?,
            in_flight: KernelHash::try_from(take("IN_FLIGHT")?)?,
            losses: PerCpuArray::try_from(take("LOSSES")?)?,
            records: RingBuf::try_from(take("RECORDS")?)?,
            #[cfg(feature = "kernel-log")]
            log,
        })
    }

    /// The next first-sight record, if there is one.
    pub fn next_record(&mut self) -> Option<Record> {
        loop {
            let item = self.records.next()?;
            if let Some(record) = parse_record(&item) {
                return Some(record);
            }
            tracing::error!(bytes = item.len(), "a record of the kernel side is malformed");
        }
    }

    /// What the calls of each of these epochs added up to so far.
    pub fn read(&self, epochs: &HashMap<Epoch, EpochTotals>) -> Result<HashMap<Epoch, Totals>> {
        let mut totals: HashMap<Epoch, Totals> =
            epochs.iter().map(|(epoch, kernel)| (*epoch, scalars(kernel))).collect();
        for map in [&self.calls, &self.overflow] {
            for key in map.keys() {
                let key = key?;
                let Some(totals) = totals.get_mut(&Epoch(key.epoch)) else { continue };
                let Some(op) = Op::from_raw(key.op) else { continue };
                // Gone only if someone else deletes, and nobody does.
                let tallies = map.get(&key, 0)?;
                for tally in tallies.iter().filter(|tally| tally.count > 0) {
                    totals.add_call(call_key(&key, op), *tally);
                }
            }
        }
        self.performed.read(&mut totals)?;
        for (epoch, totals) in &mut totals {
            for op in Op::ALL {
                if let Ok(histogram) = self.histograms.get(&HistogramKey::new(epoch.0, op), 0) {
                    totals.histograms.insert(op, histogram);
                }
            }
        }
        Ok(totals)
    }

    /// Deletes what was read of epochs that no call can still write to.
    pub fn forget(&mut self, epochs: &HashMap<Epoch, Totals>) -> Result<()> {
        let gone = |key: &KernelCallKey| epochs.contains_key(&Epoch(key.epoch));
        for map in [&mut self.calls, &mut self.overflow] {
            let keys: Vec<KernelCallKey> =
                map.keys().collect::<Result<Vec<_>, _>>()?.into_iter().filter(gone).collect();
            for key in keys {
                map.remove(&key)?;
            }
        }
        self.performed.forget(epochs)?;
        for epoch in epochs.keys() {
            for op in Op::ALL {
                // Ops that were not called have none.
                let _ = self.histograms.remove(&HistogramKey::new(epoch.0, op));
            }
        }
        Ok(())
    }

    /// Calls entered and not returned, by session slot, with the time they began.
    pub fn in_flight(&self) -> impl Iterator<Item = InFlightCall> + '_ {
        self.in_flight.iter().flatten().map(|(_, call)| call)
    }

    /// Passes on what the kernel side logged.
    pub fn flush_log(&mut self) {
        #[cfg(feature = "kernel-log")]
        self.log.flush();
    }

    /// What the kernel side could not keep, since it was loaded.
    pub fn losses(&self) -> Result<Losses> {
        let mut sum = Losses::default();
        for cpu in self.losses.get(&0, 0)?.iter() {
            sum.detail_lost += cpu.detail_lost;
            sum.calls_lost += cpu.calls_lost;
            sum.enters_lost += cpu.enters_lost;
            sum.records_lost += cpu.records_lost;
            sum.members_lost += cpu.members_lost;
            sum.histogram_lost += cpu.histogram_lost;
            sum.begun_before += cpu.begun_before;
            sum.compat_images += cpu.compat_images;
            sum.performed_lost += cpu.performed_lost;
        }
        Ok(sum)
    }
}

/// Waits until every program that runs now has ended: what began before a map was written has then
/// seen the old value and finished with it.
pub fn barrier() -> Result<()> {
    // SAFETY: the call takes no pointers.
    let status = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()).context("membarrier") }
}

fn scalars(kernel: &EpochTotals) -> Totals {
    Totals {
        opens: Some(kernel.opens),
        straddling: kernel.straddling,
        restarted: kernel.restarted,
        in_flight: kernel.entered.saturating_sub(kernel.returned),
        ..Totals::default()
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

fn parse_record(bytes: &[u8]) -> Option<Record> {
    let kind = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
    match kind {
        FILE_RECORD => {
            let (record, rest) = split::<FileRecord>(bytes)?;
            let components = rest.get(..record.path_len())?.to_vec();
            Some(Record::File { record, components })
        }
        PROCESS_RECORD => {
            let (record, rest) = split::<ProcessRecord>(bytes)?;
            let path_len = (record.mount_len + record.above_len) as usize;
            let (executable, rest) = rest.split_at_checked(path_len)?;
            let args = rest.get(..record.args_len as usize)?.to_vec();
            Some(Record::Process { record, args, executable: executable.to_vec() })
        }
        _ => None,
    }
}

/// The fixed part of a record and what follows.
fn split<T: aya::Pod>(bytes: &[u8]) -> Option<(T, &[u8])> {
    let (fixed, rest) = bytes.split_at_checked(size_of::<T>())?;
    // SAFETY: `T` is plain data of this length; the read needs no alignment.
    Some((unsafe { fixed.as_ptr().cast::<T>().read_unaligned() }, rest))
}
