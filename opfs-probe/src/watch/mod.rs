//! The running probe: the kernel side, the sessions and windows, and what everything is called.
//!
//! Locks are taken in the order `collector`, `state`. Announcements take `state` alone and only for
//! map writes, so that reading the kernel's maps never delays a client.

mod announce;
mod attach;
mod clock;
mod detached;
mod drain;
mod filesystems;
mod host;
mod metrics;
mod naming;
mod preloads;
mod probes;
mod reporting;
mod sessions;
mod state;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;

use crate::attribution::session::Limits;
use crate::kernel::collector::Collector;
use crate::kernel::load::{Loaded, Probe};
use crate::kernel::statistics::RunTime;
use state::State;

pub use attach::Target;
pub use clock::now;
pub use reporting::host;
pub use sessions::NewSession;
pub use state::EpochSpan;

/// How often the kernel's maps are emptied.
const TICK: Duration = Duration::from_millis(50);

/// What bounds the memory that clients can make the program use, unless configured.
pub const LIMITS: Limits = Limits { open_windows: 64, windows_per_session: 20_000 };

/// What counts, if anything does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracers {
    /// Programs in the kernel.
    pub ebpf: bool,
    /// strace, which whoever starts commands runs over them.
    pub strace: bool,
}

/// The running probe.
pub struct Watcher {
    tracers: Tracers,
    state: Mutex<State>,
    /// None without programs in the kernel.
    collector: Option<Mutex<Collector>>,
    probes: Vec<Probe>,
    coverage_gaps: Vec<String>,
    /// Our process id in the initial PID namespace, as the kernel side sees it.
    own_tgid: Option<u32>,
    /// Keeps the programs attached.
    programs: Mutex<Option<crate::kernel::load::Attached>>,
    /// Set where the probes' run time was asked for; else why it is not measured.
    run_time: OnceLock<Result<RunTime, String>>,
    /// One session is spawned at a time: for that moment our own process belongs to it.
    spawning: Mutex<()>,
    stopping: AtomicBool,
}

impl Watcher {
    /// Loads what `tracers` ask for.
    pub fn new(tracers: Tracers, limits: Limits) -> Result<Arc<Self>> {
        let loaded = tracers.ebpf.then(Loaded::new).transpose()?;
        Ok(Self::on(loaded, tracers, limits))
    }

    /// On what is loaded already, if anything is.
    pub fn on(loaded: Option<Loaded>, tracers: Tracers, limits: Limits) -> Arc<Self> {
        let (control, collector, probes, coverage_gaps, own_tgid, programs) = match loaded {
            Some(Loaded { control, collector, probes, coverage_gaps, own_tgid, attached }) => {
                let collector = Some(Mutex::new(collector));
                (Some(control), collector, probes, coverage_gaps, Some(own_tgid), Some(attached))
            }
            None => (None, None, Vec::new(), Vec::new(), None, None),
        };
        Arc::new(Self {
            tracers,
            state: Mutex::new(State::new(control, limits, tracers.strace)),
            collector,
            probes,
            coverage_gaps,
            own_tgid,
            programs: Mutex::new(programs),
            run_time: OnceLock::new(),
            spawning: Mutex::new(()),
            stopping: AtomicBool::new(false),
        })
    }

    /// What counts.
    pub fn tracers(&self) -> Tracers {
        self.tracers
    }

    /// Empties the kernel's maps in the background until [`Watcher::stop`].
    pub fn keep_house(self: &Arc<Self>) -> JoinHandle<()> {
        let watcher = Arc::clone(self);
        thread::spawn(move || {
            while !watcher.stopping.load(Ordering::Relaxed) {
                thread::sleep(TICK);
                watcher.end_with_owners();
                watcher.rotate_old_epochs();
                if let Err(error) = watcher.drain() {
                    tracing::error!("reading what was counted: {error:#}; trying again");
                }
                watcher.forget_finished_sessions();
            }
        })
    }

    /// Ends the housekeeping and lets go of the kernel's programs, without waiting for either.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        let programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(programs) = programs {
            programs.detach_in_background();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves counts that are still right: every change is made whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn collector(&self) -> Option<MutexGuard<'_, Collector>> {
        self.collector.as_ref().map(|mutex| mutex.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
