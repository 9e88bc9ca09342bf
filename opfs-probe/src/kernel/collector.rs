//! Reads what the kernel side counted.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use anyhow::{Context, Result};
use aya::Ebpf;
use aya::maps::{MapData, PerCpuArray, RingBuf};
use nix::libc;
use opfs_probe_common::call::InFlightCall;
use opfs_probe_common::epoch::EpochTotals;
use opfs_probe_common::flushed::DeviceTally;
use opfs_probe_common::record::{FILE_RECORD, FileRecord, Losses, PROCESS_RECORD, ProcessRecord};

use super::calls::Calls;
use super::collect_flushed::{Flushed, Flushes};
use super::collect_performed::Performed;
use super::in_flight::InFlight;
use super::latencies::{Latencies, LatencySlots};
use crate::attribution::totals::Totals;
use crate::attribution::window::Epoch;

/// Reads and empties the kernel's maps.
pub struct Collector {
    calls: Calls,
    performed: Performed,
    flushed: Flushed,
    latencies: Latencies,
    in_flight: InFlight,
    losses: PerCpuArray<MapData, Losses>,
    records: RingBuf<MapData>,
    #[cfg(feature = "kernel-log")]
    log: aya_log::EbpfLogger<&'static dyn log::Log>,
}

/// What is seen besides sync calls.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Syncs that file systems performed.
    pub performed: bool,
    /// Flushes of devices.
    pub flushed: bool,
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
    pub(super) fn new(programs: &mut Ebpf, latencies: Arc<LatencySlots>, seen: Seen) -> Result<Self> {
        #[cfg(feature = "kernel-log")]
        let log = aya_log::EbpfLogger::init(programs).context("reading the kernel side's log")?;
        let performed = Performed::new(programs, seen.performed)?;
        let flushed = Flushed::new(programs, seen.flushed)?;
        let (calls, in_flight) = (Calls::new(programs)?, InFlight::new(programs)?);
        let latencies = Latencies::new(programs, latencies)?;
        let mut take = |name: &str| programs.take_map(name).with_context(|| format!("no map {name}"));
        Ok(Self {
            calls,
            performed,
            flushed,
            latencies,
            in_flight,
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
        for epoch in self.in_flight.epochs_in_slots() {
            if let Some(totals) = totals.get_mut(&Epoch(epoch)) {
                totals.in_flight += 1;
            }
        }
        self.calls.read(&mut totals)?;
        self.performed.read(&mut totals)?;
        if self.flushed.seen() {
            for totals in totals.values_mut() {
                totals.flushes = Some(HashMap::new());
            }
        }
        self.latencies.read(&mut totals);
        Ok(totals)
    }

    /// Deletes what was read of epochs that no call can still write to.
    pub fn forget(&mut self, epochs: &HashMap<Epoch, Totals>) -> Result<()> {
        self.calls.forget(epochs)?;
        self.performed.forget(epochs)?;
        self.latencies.forget(epochs);
        Ok(())
    }

    /// The epochs that calls in flight began in, of those calls that [`EpochTotals`] don't count in and out.
    pub fn epochs_in_flight(&self) -> HashSet<Epoch> {
        self.in_flight.epochs_in_slots().map(Epoch).collect()
    }

    /// What devices flushed, by moment.
    pub fn flushes(&self) -> Result<Flushes> {
        self.flushed.read()
    }

    /// Deletes what was read of moments that nothing can still write to.
    pub fn forget_flushes(&mut self, flushes: &Flushes) {
        self.flushed.forget(flushes);
    }

    /// What each device flushed since the probe was loaded; none where that is not seen.
    pub fn devices(&self) -> Result<Option<HashMap<u32, DeviceTally>>> {
        self.flushed.devices()
    }

    /// Calls entered and not returned.
    pub fn in_flight(&self) -> impl Iterator<Item = InFlightCall> + '_ {
        self.in_flight.iter()
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
            sum.flushes_lost += cpu.flushes_lost;
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
