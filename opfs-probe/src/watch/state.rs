//! Which session is in which slot and epoch, and everything that is known about it.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::Sender;

use anyhow::{Context, Result};
use opfs_probe_common::epoch::{MAX_SESSIONS, SYSTEM_SLOT};
use serde_json::{Map, Value};

use super::clock::now;
use super::detached::Detached;
use super::metrics::Forgotten;
use crate::attribution::session::{Attribution, Limits};
use crate::attribution::totals::Totals;
use crate::attribution::window::{Begin, ClientId, Epoch, Moment, SessionId, WindowError, WindowId};
use crate::bench::host::PageEvent;
use crate::files::Names;
use crate::kernel::control::Control;
use crate::processes::Images;
use crate::report::model::{Browser, SessionKind};

/// Epochs that may wait for draining; the kernel's map has room for some more.
pub const MAX_EPOCHS: usize = 8_000;

/// Everything behind the lock.
pub struct State {
    /// None without programs in the kernel.
    pub control: Option<Control>,
    /// What the kernel side counted; its windows are everybody's.
    pub attribution: Attribution,
    /// The same windows, for what strace counts.
    pub strace: Option<Attribution>,
    /// What is known of each session besides its counts.
    pub facts: BTreeMap<SessionId, Facts>,
    /// Epochs in the kernel's maps.
    pub epochs: BTreeMap<Epoch, KernelEpoch>,
    /// What files are called.
    pub names: Names,
    /// What processes are called.
    pub images: Images,
    /// Windows without a connection.
    pub detached: Detached,
    /// The session that every client joins, whoever it is.
    pub everybodys: Option<SessionId>,
    /// The session of each client.
    pub clients: HashMap<ClientId, SessionId>,
    /// Counts of sessions that were forgotten, for metrics that must not shrink.
    pub forgotten: Forgotten,
    /// Slots of ended sessions, until no process can be in them.
    pub closing_slots: Vec<u32>,
    /// By how many calls the kernel side's two counts differ: those by process and file, and those by latency.
    pub unreconciled_calls: u64,
    free_slots: Vec<u32>,
    newest_client: u64,
}

/// An epoch in the kernel's maps.
#[derive(Clone, Copy, Debug)]
pub struct KernelEpoch {
    /// Its session has moved on.
    pub ended: bool,
}

/// When a session entered an epoch.
#[derive(Clone, Copy, Debug)]
pub struct EpochSpan {
    /// Which.
    pub epoch: Epoch,
    /// When calls began to count in it.
    pub from: Moment,
}

/// What is known of a session besides its counts.
pub struct Facts {
    /// What it is.
    pub kind: SessionKind,
    /// Its place in the kernel's maps; none once it is closed.
    pub slot: Option<u32>,
    /// The epoch it is in.
    pub epoch: Epoch,
    /// Since when.
    pub epoch_since: Moment,
    /// Every epoch it was in, where strace's calls are to be attributed by time.
    pub spans: Vec<EpochSpan>,
    /// First process.
    pub root_pid: Option<u32>,
    /// Command line.
    pub command: Option<Vec<Vec<u8>>>,
    /// Exit status, 128 + n for signal n.
    pub exit_status: Option<i32>,
    /// The browser, if it is one.
    pub browser: Option<Browser>,
    /// It ends with its last process and client: nobody will close it.
    pub ends_by_itself: bool,
    /// Clients that may still announce.
    pub clients: usize,
    /// What a reader of its numbers must know.
    pub warnings: Vec<String>,
    /// Data that clients handed over, by name.
    pub results: Vec<(String, Value)>,
    /// Who wants to know of its windows.
    pub listener: Option<Sender<PageEvent>>,
}

impl State {
    pub fn new(control: Option<Control>, limits: Limits, strace: bool) -> Self {
        Self {
            control,
            attribution: Attribution::new(limits),
            strace: strace.then(|| Attribution::new(limits)),
            facts: BTreeMap::new(),
            epochs: BTreeMap::new(),
            names: Names::new(),
            images: Images::new(),
            detached: Detached::default(),
            everybodys: None,
            clients: HashMap::new(),
            forgotten: Forgotten::default(),
            closing_slots: Vec::new(),
            unreconciled_calls: 0,
            free_slots: (SYSTEM_SLOT + 1..MAX_SESSIONS).rev().collect(),
            newest_client: 0,
        }
    }

    /// Opens a session in a slot of its own, or in the system's.
    pub fn open_session(&mut self, name: &str, kind: SessionKind) -> Result<SessionId> {
        let slot = match kind {
            SessionKind::System => SYSTEM_SLOT,
            _ => self
                .free_slots
                .pop()
                .with_context(|| format!("only {} sessions can be watched at once", MAX_SESSIONS - 1))?,
        };
        let at = now();
        let (session, epoch) = self.attribution.open_session(name.to_owned(), at);
        if let Some(strace) = &mut self.strace {
            strace.open_session(name.to_owned(), at);
        }
        let facts = Facts {
            kind,
            slot: Some(slot),
            epoch,
            epoch_since: at,
            spans: Vec::new(),
            root_pid: None,
            command: None,
            exit_status: None,
            browser: None,
            ends_by_itself: false,
            clients: 0,
            warnings: Vec::new(),
            results: Vec::new(),
            listener: None,
        };
        self.facts.insert(session, facts);
        self.enter(session, epoch, false)?;
        Ok(session)
    }

    /// The session is counted no longer; its open windows end as aborted.
    pub fn close_session(&mut self, session: SessionId) -> Result<()> {
        let Some(facts) = self.facts.get_mut(&session) else { return Ok(()) };
        let Some(slot) = facts.slot.take() else { return Ok(()) };
        let at = now();
        let next = self.attribution.close_session(session, at);
        if let Some(strace) = &mut self.strace {
            strace.close_session(session, at);
        }
        self.end_epoch(facts_epoch(&self.facts, session));
        if let Some(control) = &mut self.control {
            control.leave(slot, next)?;
            control.release_members(slot);
        }
        if slot != SYSTEM_SLOT {
            self.closing_slots.push(slot);
        }
        Ok(())
    }

    /// Makes slots usable again that nobody is in any more.
    pub fn free(&mut self, slots: &[u32]) {
        for slot in slots {
            if let Some(control) = &mut self.control {
                // A child forked while the others were released.
                control.release_members(*slot);
            }
        }
        self.closing_slots.retain(|slot| !slots.contains(slot));
        self.free_slots.extend(slots);
    }

    /// Begins a window; calls that begin after this count in it.
    pub fn begin(&mut self, session: SessionId, begin: Begin) -> Result<Moment, AnnounceError> {
        self.check_open(session, &begin.client_id)?;
        let at = now();
        let strace = self.strace.as_mut().map(|strace| strace.begin(session, begin.clone(), at));
        let (window, epoch) = self.attribution.begin(session, begin, at)?;
        debug_assert!(strace.is_none_or(|same| same == Ok((window, epoch))), "both have the same windows");
        let at = self.enter(session, epoch, false)?;
        self.tell(session, window, PageEvent::Began);
        Ok(at)
    }

    /// Ends a window and what is open in it.
    pub fn end(
        &mut self,
        session: SessionId,
        client: ClientId,
        client_id: &str,
        calls: Option<u64>,
        attrs: Map<String, Value>,
    ) -> Result<(WindowId, Moment), AnnounceError> {
        self.check_open(session, client_id)?;
        let at = now();
        if let Some(strace) = &mut self.strace {
            // Refused for the same reason as below, if it is.
            let _ = strace.end(session, client, client_id, calls, attrs.clone(), at);
        }
        let (window, epoch) = self.attribution.end(session, client, client_id, calls, attrs, at)?;
        let at = self.enter(session, epoch, false)?;
        self.tell(session, window, PageEvent::Ended);
        Ok((window, at))
    }

    /// Ends what a client left open.
    pub fn abandon(&mut self, client: ClientId) -> Result<()> {
        let at = now();
        if let Some(strace) = &mut self.strace {
            strace.abandon(client, at);
        }
        for (session, epoch) in self.attribution.abandon(client, at) {
            self.enter(session, epoch, false)?;
        }
        Ok(())
    }

    /// Starts a new epoch with the same windows.
    pub fn rotate(&mut self, session: SessionId) -> Result<()> {
        if let Some(strace) = &mut self.strace {
            strace.rotate(session);
        }
        let Some(epoch) = self.attribution.rotate(session) else { return Ok(()) };
        self.enter(session, epoch, true).map(|_| ())
    }

    /// A number for a client.
    pub fn new_client(&mut self) -> ClientId {
        self.newest_client += 1;
        ClientId(self.newest_client)
    }

    /// Sync calls and the time in them that a window has so far, children included.
    pub fn counted_in(&self, session: SessionId, window: WindowId) -> Option<(u64, u64)> {
        let control = self.control.as_ref()?;
        let total: &Totals = &self.attribution.session(session)?.window(window)?.total;
        let undrained = self.attribution.epochs_of(window).filter_map(|epoch| control.counted(epoch));
        Some(undrained.fold((total.sync_calls(), total.sync_ns()), |(calls, ns), (more_calls, more_ns)| {
            (calls + more_calls, ns + more_ns)
        }))
    }

    /// Whether the epochs in the kernel's maps leave room for another.
    pub fn has_room(&self) -> bool {
        self.epochs.len() < MAX_EPOCHS
    }

    fn check_open(&self, session: SessionId, id: &str) -> Result<(), WindowError> {
        let open = self.facts.get(&session).is_some_and(|facts| facts.slot.is_some());
        if open { Ok(()) } else { Err(WindowError::Unknown(id.to_owned())) }
    }

    /// Calls of the session that begin after this count in `epoch`.
    fn enter(&mut self, session: SessionId, epoch: Epoch, same_windows: bool) -> Result<Moment> {
        let Some(facts) = self.facts.get_mut(&session) else { return Ok(now()) };
        let previous = std::mem::replace(&mut facts.epoch, epoch);
        if let (Some(control), Some(slot)) = (&mut self.control, facts.slot) {
            control.enter_epoch(slot, epoch, same_windows)?;
            self.epochs.insert(epoch, KernelEpoch { ended: false });
        }
        let at = now();
        facts.epoch_since = at;
        if self.strace.is_some() {
            facts.spans.push(EpochSpan { epoch, from: at });
        }
        if previous != epoch {
            self.end_epoch(previous);
        }
        Ok(at)
    }

    /// Nothing more begins in this epoch.
    fn end_epoch(&mut self, epoch: Epoch) {
        match self.epochs.get_mut(&epoch) {
            Some(kernel) => kernel.ended = true,
            None => self.attribution.retire(epoch),
        }
    }

    /// Lets a listener know of a window.
    fn tell(&self, session: SessionId, window: WindowId, event: fn(Vec<String>) -> PageEvent) {
        let Some(listener) = self.facts.get(&session).and_then(|facts| facts.listener.as_ref()) else {
            return;
        };
        let Some(windows) = self.attribution.session(session) else { return };
        let mut names = Vec::new();
        let mut next = Some(window);
        while let Some(window) = next.and_then(|id| windows.window(id)) {
            names.push(window.name.clone());
            next = window.parent;
        }
        names.reverse();
        // A listener that went away wants no news.
        let _ = listener.send(event(names));
    }
}

fn facts_epoch(facts: &BTreeMap<SessionId, Facts>, session: SessionId) -> Epoch {
    facts.get(&session).map_or(Epoch(0), |facts| facts.epoch)
}

/// Why an announcement failed.
#[derive(Debug, thiserror::Error)]
pub enum AnnounceError {
    /// The client asked for what can't be.
    #[error(transparent)]
    Refused(#[from] WindowError),
    /// The kernel's maps could not be written.
    #[error("{0:#}")]
    Failed(#[from] anyhow::Error),
}
