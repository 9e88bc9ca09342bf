//! What became of each probe, and what it costs.

use std::collections::HashMap;
use std::sync::PoisonError;

use super::Watcher;
use crate::kernel::load::Attached;
use crate::kernel::plan::Layer;
use crate::kernel::statistics::{RunTime, Statistics};
use crate::report::build::Losses;
use crate::report::model::{self, Tracer, TracerKind};

impl Watcher {
    /// Has the kernel measure the probes' run time from now on. Where it refuses, reports say so.
    pub fn measure_self_cost(&self) {
        if self.tracers.ebpf {
            // Asked for twice, it is measured from the first time on.
            let _ = self.run_time.set(RunTime::measure());
        }
    }

    /// The tracer as a report has it; what its probes missed goes to `losses`.
    pub(super) fn tracer(&self, losses: &mut Losses) -> Tracer {
        let statistics = self.statistics();
        let probes: Vec<model::Probe> = self
            .probes
            .iter()
            .map(|probe| {
                let of_it = statistics.get(&probe.name).filter(|_| probe.attached);
                let timed = of_it.filter(|_| self.measured_run_time().is_some());
                model::Probe {
                    name: probe.name.clone(),
                    layer: layer(probe.layer),
                    attached: probe.attached,
                    reason: probe.reason.clone(),
                    runs: timed.map(|statistics| statistics.runs),
                    run_ns: timed.map(|statistics| statistics.run_ns),
                    missed: of_it.and_then(|statistics| statistics.missed),
                }
            })
            .collect();
        losses.add_missed(&probes);
        if let Some(Err(refused)) = self.run_time.get() {
            losses.warnings.push(refused.clone());
        }
        Tracer {
            kind: if self.tracers.ebpf { TracerKind::Ebpf } else { TracerKind::None },
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            probes,
            run_time_over_ns: self.measured_run_time().map(|run_time| run_time.elapsed().as_nanos() as u64),
        }
    }

    /// What the kernel counted of each probe, by name; empty once the programs are let go.
    pub(super) fn statistics(&self) -> HashMap<String, Statistics> {
        let programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        programs.as_ref().map(Attached::statistics).unwrap_or_default()
    }

    /// None where nobody asked for run times, or the kernel refused.
    pub(super) fn measured_run_time(&self) -> Option<&RunTime> {
        self.run_time.get()?.as_ref().ok()
    }
}

fn layer(layer: Layer) -> model::Layer {
    match layer {
        Layer::Syscall => model::Layer::Syscall,
        Layer::Filesystem => model::Layer::Filesystem,
        Layer::Uring => model::Layer::Uring,
        Layer::Block => model::Layer::Block,
        Layer::Process => model::Layer::Process,
    }
}
