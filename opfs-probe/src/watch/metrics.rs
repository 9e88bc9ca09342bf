//! What is measured now, for the metrics.

use std::collections::HashMap;

use anyhow::Result;
use opfs_probe_common::flushed::DeviceTally;

use super::Watcher;
use super::clock::monotonic_ns;
use super::state::State;
use crate::attribution::session::Session;
use crate::attribution::window::SessionId;
use crate::files::devices::Devices;
use crate::files::major_minor;
use crate::metrics::{Build, Counts, Device, InFlight, Named, Probe, Snapshot};

/// Counts of sessions that are no longer kept.
#[derive(Default)]
pub struct Forgotten {
    sessions: Vec<Named>,
    windows: Vec<Named>,
    windows_total: u64,
}

impl State {
    /// Drops a session's details; its counts stay in the metrics.
    pub fn forget(&mut self, session: SessionId) {
        self.facts.remove(&session);
        if let Some(strace) = &mut self.strace {
            strace.forget_session(session);
        }
        if let Some(session) = self.attribution.forget_session(session) {
            let Forgotten { sessions, windows, windows_total } = &mut self.forgotten;
            add_session(sessions, windows, &session);
            *windows_total += session.windows.len() as u64;
        }
    }
}

impl Watcher {
    pub(super) fn snapshot(&self) -> Result<Snapshot> {
        let Some(mut collector) = self.collector() else { return Ok(Snapshot::default()) };
        let live = self.undrained(&mut collector)?;
        let losses = collector.losses()?;
        let flushed = collector.devices()?;
        let (calls, oldest) = collector.in_flight().fold((0, None::<u64>), |(calls, oldest), call| {
            (calls + 1, Some(oldest.map_or(call.start_ns, |oldest| oldest.min(call.start_ns))))
        });
        drop(collector);
        let state = self.state();
        let mut attribution = state.attribution.clone();
        for (epoch, totals) in &live {
            attribution.absorb(*epoch, totals);
        }
        let Forgotten { mut sessions, mut windows, mut windows_total } = Forgotten {
            sessions: state.forgotten.sessions.clone(),
            windows: state.forgotten.windows.clone(),
            windows_total: state.forgotten.windows_total,
        };
        let mut windows_open = 0;
        for session in attribution.sessions() {
            add_session(&mut sessions, &mut windows, session);
            windows_total += session.windows.len() as u64;
            windows_open += session.windows.iter().filter(|window| window.open_since.is_some()).count();
        }
        let statistics = self.statistics();
        Ok(Snapshot {
            sessions,
            windows,
            in_flight: Some(InFlight {
                calls,
                oldest_ns: oldest.map(|start_ns| monotonic_ns().saturating_sub(start_ns)),
            }),
            devices: flushed.map(devices),
            events_lost: None,
            detail_lost: Some(losses.detail_lost),
            probes: self
                .probes
                .iter()
                .map(|probe| {
                    let of_it = statistics.get(&probe.name).filter(|_| probe.attached);
                    let timed = of_it.filter(|_| self.measured_run_time().is_some());
                    Probe {
                        name: probe.name.clone(),
                        layer: probe.layer.name().to_owned(),
                        attached: probe.attached,
                        runs: timed.map(|statistics| statistics.runs),
                        run_ns: timed.map(|statistics| statistics.run_ns),
                        missed: of_it.and_then(|statistics| statistics.missed),
                    }
                })
                .collect(),
            windows_open: Some(windows_open as u64),
            windows_total: Some(windows_total),
            build: Some(Build {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                kernel: super::host().kernel,
            }),
        })
    }
}

fn devices(flushed: HashMap<u32, DeviceTally>) -> Vec<Device> {
    let here = Devices::here();
    let name = |dev| {
        let (major, minor) = major_minor(dev);
        here.name((major, minor)).unwrap_or_else(|| format!("{major}:{minor}"))
    };
    let mut devices: Vec<Device> =
        flushed.into_iter().map(|(dev, flushed)| Device { name: name(dev), flushed }).collect();
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    devices
}

fn add_session(sessions: &mut Vec<Named>, windows: &mut Vec<Named>, session: &Session) {
    counts_of(sessions, &session.name).add_totals(&session.total);
    for window in &session.windows {
        counts_of(windows, &window.name).add_totals(&window.total);
    }
}

fn counts_of<'a>(all: &'a mut Vec<Named>, name: &str) -> &'a mut Counts {
    let index = all.iter().position(|named| named.name == name).unwrap_or_else(|| {
        all.push(Named { name: name.to_owned(), counts: Counts::default() });
        all.len() - 1
    });
    &mut all[index].counts
}
