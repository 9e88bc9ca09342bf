//! Loads the programs and attaches them, as far as this kernel allows.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use aya::maps::{Array, MapData, ProgramArray};
use aya::util::nr_cpus;
use aya::{Ebpf, EbpfLoader};
use nix::libc;
use nix::sys::resource::{Resource, getrlimit};
use opfs_probe_common::call::CALL_SLOTS;
use opfs_probe_common::config::Config;
use opfs_probe_common::epoch::EXCLUDED_SLOT;
use opfs_probe_common::histogram::LATENCY_SLOTS;
use serde::Serialize;

use super::attach::{Outcomes, attach, load_programs};
use super::collector::{Collector, Seen};
use super::control::Control;
use super::direct::{DirectReads, Object};
use super::latencies::LatencySlots;
use super::offsets;
use super::performed;
use super::plan::{DESCRIBING, DESCRIBING_RAW, Layer, PLAN, UNMATCHED};
use super::privileges;
use super::statistics::{self, RunTime, Statistics};
use super::tracefs::{first_field_offset, with_tracefs};
use super::types::KernelTypes;

/// The kernel programs.
pub(super) static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/opfs-probe.bpf.o"));

/// What always stays unseen, whatever is attached.
const ALWAYS_UNSEEN: [&str; 2] = [
    "system calls of 32-bit programs (and int 0x80) are not seen",
    "AIO syncs (IOCB_CMD_FSYNC and IOCB_CMD_FDSYNC) are not seen",
];

/// The loaded programs: they count until this is dropped.
pub struct Loaded {
    /// Switches epochs and binds processes.
    pub control: Control,
    /// Reads what was counted.
    pub collector: Collector,
    /// Every planned probe and whether it is attached.
    pub probes: Vec<Probe>,
    /// Kinds of sync that can't be seen here.
    pub coverage_gaps: Vec<String>,
    /// The probe's own process id in the initial PID namespace.
    pub own_tgid: u32,
    /// Keeps the programs attached.
    pub attached: Attached,
}

/// Attached programs: they run until this is dropped.
pub struct Attached {
    pub(super) programs: Ebpf,
    /// The kernel empties an array once no descriptor of it is left.
    _describing: Describing,
}

/// A planned probe and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// `category:event`
    pub name: String,
    /// Its layer.
    pub layer: Layer,
    /// Whether it is attached.
    pub attached: bool,
    /// Why it is not.
    pub reason: Option<String>,
}

/// What a moment's trial found.
pub struct Trial {
    /// Every planned probe.
    pub probes: Vec<Probe>,
    /// Every program that the kernel took, by name.
    pub programs: Vec<Program>,
    /// What the kernel measured of the probes meanwhile, by name; or why it did not.
    pub run_times: Result<HashMap<String, Statistics>, String>,
}

/// A program that the kernel took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Program {
    /// Its name in the object.
    pub name: String,
    /// How many instructions the verifier looked at; kernels before 5.16 don't say.
    pub verified_instructions: Option<u32>,
}

impl Loaded {
    /// Loads and attaches. Fails if not even the sync calls can be seen.
    pub fn new() -> Result<Self> {
        Self::with_map_sizes(&[])
    }

    /// The same with other sizes of some maps, by name: the tests fill small ones.
    pub fn with_map_sizes(sizes: &[(&str, u32)]) -> Result<Self> {
        Self::with(Tuning { map_sizes: sizes, ..Tuning::default() })
    }

    /// The same as on a kernel that does not let programs read its memory by plain loads.
    pub fn without_direct_reads() -> Result<Self> {
        Self::with(Tuning { without_direct_reads: true, ..Tuning::default() })
    }

    fn with(tuning: Tuning<'_>) -> Result<Self> {
        privileges::require()?;
        require_descriptors()?;
        with_tracefs(|| load(tuning))
    }
}

/// What tests load differently.
#[derive(Clone, Copy, Default)]
struct Tuning<'a> {
    map_sizes: &'a [(&'a str, u32)],
    without_direct_reads: bool,
}

/// Attaches everything for a moment, and says what became of each probe. Fails where nothing can be
/// attached, or what is attached does not run. By a process that ends soon after this call.
pub fn try_probes() -> Result<Trial> {
    privileges::require()?;
    with_tracefs(|| {
        let mut staged = stage(Tuning::default())?;
        let runs = if vital_missing(&staged.probes).is_none() {
            staged.call_ourselves().map(|_| ())
        } else {
            Ok(())
        };
        let programs = taken(&staged.programs);
        let attached = Attached { programs: staged.programs, _describing: staged.describing };
        let run_times = RunTime::measure().map(|_on| {
            statistics::exercise();
            attached.statistics()
        });
        attached.detach_in_background();
        runs.map(|()| Trial { probes: staged.probes, programs, run_times })
    })
}

fn taken(programs: &Ebpf) -> Vec<Program> {
    let taken = programs.programs().filter_map(|(name, program)| {
        // Only a loaded program has any.
        let info = program.info().ok()?;
        Some(Program { name: name.to_owned(), verified_instructions: info.verified_instruction_count() })
    });
    taken.collect()
}

/// The vital probe that is not attached, if there is one: without it there is nothing to report.
pub fn vital_missing(probes: &[Probe]) -> Option<&Probe> {
    probes.iter().find(|probe| is_vital(probe))
}

/// The arrays of the programs that others end with.
type Describing = [ProgramArray<MapData>; 3];

/// Loaded and attached as far as this kernel allows.
struct Staged {
    programs: Ebpf,
    describing: Describing,
    probes: Vec<Probe>,
    coverage_gaps: Vec<String>,
    self_test_fd: i32,
}

impl Attached {
    /// Lets go of the programs without waiting for the kernel to detach them, by a process that ends
    /// right after this call.
    pub fn detach_in_background(self) {
        super::detach::in_background();
        std::mem::forget(self);
    }
}

fn load(tuning: Tuning<'_>) -> Result<Loaded> {
    let mut staged = stage(tuning)?;
    if let Some(missing) = vital_missing(&staged.probes) {
        let reason = missing.reason.as_deref().unwrap_or_default();
        bail!("attaching {}: {reason}; `opfs-probe doctor` says what this kernel allows", missing.name);
    }
    let latencies = Arc::new(LatencySlots::new(&mut staged.programs)?);
    let mut control = Control::new(&mut staged.programs, Arc::clone(&latencies))?;
    let seen = Seen {
        performed: !performed::seen(&staged.probes).is_empty(),
        flushed: staged.probes.iter().all(|probe| probe.layer != Layer::Block || probe.attached),
    };
    let collector = Collector::new(&mut staged.programs, latencies, seen)?;
    let own_tgid = staged.call_ourselves()?;
    control.bind(own_tgid, EXCLUDED_SLOT, 0)?;
    let Staged { programs, describing, probes, coverage_gaps, .. } = staged;
    let attached = Attached { programs, _describing: describing };
    give_memory_back();
    Ok(Loaded { control, collector, probes, coverage_gaps, own_tgid, attached })
}

fn stage(tuning: Tuning<'_>) -> Result<Staged> {
    let started = Instant::now();
    let types = KernelTypes::read()?;
    let offsets = offsets::find(&types)?;
    let direct = if tuning.without_direct_reads { None } else { DirectReads::find(types.kernel()) };
    drop(types);
    log_time("reading the kernel's types", started);
    let config = Config {
        self_test_fd: -rand::random_range(1_000_000..i32::MAX),
        syscall_fields_offset: first_field_offset("syscalls", "sys_enter_fsync")?,
        o_direct: libc::O_DIRECT as u32,
        word_structure: direct.map_or(0, |direct| direct.word_structure),
    };
    let cpus = nr_cpus().map_err(|(path, error)| anyhow!("reading {path}: {error}"))? as u32;
    let mut loader = EbpfLoader::new();
    for (map, entries) in [("CALL_SLOTS", CALL_SLOTS), ("LATENCIES", LATENCY_SLOTS)] {
        loader.map_max_entries(map, entries.saturating_mul(cpus));
    }
    for (map, entries) in tuning.map_sizes {
        loader.map_max_entries(map, *entries);
    }
    let mut programs = loader
        .override_global("OFFSETS", &offsets, true)
        .override_global("CONFIG", &config, true)
        .load(Object::new(OBJECT, direct).bytes())
        .context("loading the kernel programs' maps (root, or CAP_BPF and CAP_PERFMON, is needed)")?;
    // It has parsed the kernel's types, and would hold them while they are parsed again.
    drop(loader);
    log_time("loading the maps", started);
    let kernel_types = aya::Btf::from_sys_fs().context("reading the kernel's BTF")?;
    let mut outcomes = load_programs(&mut programs, &kernel_types, &offsets);
    let describing = fill_arrays(&mut programs, &mut outcomes)?;
    let mut probes = Vec::new();
    let mut coverage_gaps: Vec<String> = ALWAYS_UNSEEN.map(str::to_owned).to_vec();
    for planned in &PLAN {
        let outcome = outcomes.take(planned.program).and_then(|()| attach(&mut programs, planned));
        let reason = outcome.as_ref().err().map(|error| format!("{error:#}"));
        if reason.is_some() && planned.everywhere && !coverage_gaps.iter().any(|gap| gap == planned.gap) {
            coverage_gaps.push(planned.gap.to_owned());
        }
        probes.push(Probe { name: planned.name(), layer: planned.layer, attached: reason.is_none(), reason });
    }
    coverage_gaps.extend(performed::gaps(&performed::seen(&probes)));
    coverage_gaps.extend(statistics::gap());
    log_time("loading and attaching the programs", started);
    Ok(Staged { programs, describing, probes, coverage_gaps, self_test_fd: config.self_test_fd })
}

/// Says what was done how long after the start.
fn log_time(what: &str, started: Instant) {
    tracing::info!("{what}: done after {} ms", started.elapsed().as_millis());
}

/// The kernel's types took some 40 MB for a moment, which glibc would keep.
fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointers; it gives back what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Programs, maps and links take a descriptor each, and a run needs some beside.
fn require_descriptors() -> Result<()> {
    const NEEDED: u64 = 128;
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).context("asking how many files may be open")?;
    if limit < NEEDED {
        bail!(
            "only {limit} files may be open, and the probe needs {NEEDED}: raise the limit with `ulimit -n`"
        );
    }
    Ok(())
}

fn is_vital(probe: &Probe) -> bool {
    let vital = match probe.layer {
        Layer::Process => true,
        Layer::Syscall => probe.name.ends_with("_fsync") || probe.name.ends_with("_fdatasync"),
        Layer::Filesystem | Layer::Uring | Layer::Block => false,
    };
    vital && !probe.attached
}

/// The long walks are programs of their own that the others end with.
fn fill_arrays(programs: &mut Ebpf, outcomes: &mut Outcomes) -> Result<Describing> {
    let mut fill = |array, names: [&'static str; 2]| -> Result<_> {
        let mut array = describing_array(programs, array)?;
        for (index, name) in names.into_iter().enumerate() {
            outcomes.take(name).with_context(|| format!("loading {name}"))?;
            let program = programs.program(name).with_context(|| format!("no program {name}"))?;
            array.set(index as u32, program.fd()?, 0)?;
        }
        Ok(array)
    };
    Ok([fill("DESCRIBE", DESCRIBING)?, fill("UNMATCHED", UNMATCHED)?, fill("DESCRIBE_RAW", DESCRIBING_RAW)?])
}

fn describing_array(programs: &mut Ebpf, name: &str) -> Result<ProgramArray<MapData>> {
    let map = programs.take_map(name).with_context(|| format!("no map {name}"))?;
    Ok(ProgramArray::try_from(map)?)
}

impl Staged {
    /// Makes a sync call that only this program can make: proves that the probes run, and learns the
    /// process id that the kernel side sees, which differs inside a PID namespace.
    fn call_ourselves(&mut self) -> Result<u32> {
        // SAFETY: a system call on a descriptor that can't be open; it fails with EBADF.
        unsafe { libc::fsync(self.self_test_fd) };
        let numbers = self.programs.map("NUMBERS").context("no map NUMBERS")?;
        let numbers: Array<&MapData, u64> = Array::try_from(numbers)?;
        match numbers.get(&0, 0)? {
            0 => bail!("the probes are attached but don't run; does a seccomp filter block fsync here?"),
            own => Ok(own as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_is_not_there_stops_nothing() {
        let missing =
            |name: &str, layer| Probe { name: name.to_owned(), layer, attached: false, reason: None };
        assert!(vital_missing(&[missing("xfs:xfs_file_fsync", Layer::Filesystem)]).is_none());
        assert!(vital_missing(&[missing("syscalls:sys_exit_creat", Layer::Syscall)]).is_none());
        assert!(vital_missing(&[missing("syscalls:sys_enter_fsync", Layer::Syscall)]).is_some());
        assert!(vital_missing(&[missing("sched:sched_process_fork", Layer::Process)]).is_some());
    }
}
