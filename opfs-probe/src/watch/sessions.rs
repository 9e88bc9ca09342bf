//! Sessions from beginning to end.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::process::{Child, Command};
use std::sync::mpsc::Receiver;

use anyhow::Result;
use opfs_probe_common::epoch::EXCLUDED_SLOT;
use opfs_probe_common::membership::SPAWNING;
use serde_json::Value;

use super::Watcher;
use super::state::EpochSpan;
use crate::attribution::window::SessionId;
use crate::bench::host::PageEvent;
use crate::report::model::{Browser, SessionKind};

/// Ended sessions that are kept for reports.
const MAX_FINISHED: usize = 64;

/// A session to be opened.
#[derive(Clone, Debug)]
pub struct NewSession {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: SessionKind,
    /// The browser, if it is one.
    pub browser: Option<Browser>,
    /// The command line, if it is a command.
    pub command: Option<Vec<OsString>>,
}

impl Watcher {
    /// Starts a command as the first process of a session: not one of its calls is missed.
    pub fn spawn(&self, session: SessionId, command: &mut Command) -> io::Result<Child> {
        let _one_at_a_time = self.binding();
        self.note_preload_of(session, command);
        let slot = self.state().facts.get(&session).and_then(|facts| facts.slot);
        // Our children begin where we are: for this moment, in the session.
        self.bind_ourselves(slot.unwrap_or(EXCLUDED_SLOT), SPAWNING)?;
        let child = command.spawn();
        self.bind_ourselves(EXCLUDED_SLOT, 0)?;
        let child = child?;
        let mut state = self.state();
        let root = slot.and_then(|slot| state.control.as_ref()?.root_tgid(slot)).unwrap_or(child.id());
        if let Some(slot) = slot {
            state.images.set_root(slot, root);
        }
        if let Some(facts) = state.facts.get_mut(&session) {
            facts.root_pid = Some(root);
        }
        Ok(child)
    }

    /// Opens a session without processes.
    pub fn open(&self, new: NewSession) -> Result<SessionId> {
        let mut state = self.state();
        let session = state.open_session(&new.name, new.kind)?;
        if let Some(facts) = state.facts.get_mut(&session) {
            facts.browser = new.browser;
            let bytes = |words: Vec<OsString>| words.into_iter().map(OsStringExt::into_vec).collect();
            facts.command = new.command.map(bytes);
        }
        Ok(session)
    }

    /// Every client that says hello from now on joins this session; none: each joins its own.
    pub fn everybody_joins(&self, session: Option<SessionId>) {
        self.state().everybodys = session;
    }

    /// Ends a session; whatever its processes still do is not counted.
    pub fn close(&self, session: SessionId, exit_status: Option<i32>) -> Result<()> {
        let mut state = self.state();
        if let Some(facts) = state.facts.get_mut(&session) {
            facts.exit_status = exit_status;
        }
        state.close_session(session)
    }

    /// Whether a session still counts: one of running processes ends with the last of them.
    pub fn is_open(&self, session: SessionId) -> bool {
        self.state().facts.get(&session).is_some_and(|facts| facts.slot.is_some())
    }

    /// News of a session's windows.
    pub fn listen(&self, session: SessionId) -> Receiver<PageEvent> {
        let (sender, receiver) = std::sync::mpsc::channel();
        if let Some(facts) = self.state().facts.get_mut(&session) {
            facts.listener = Some(sender);
        }
        receiver
    }

    /// Adds to what a reader of the session's numbers must know.
    pub fn warn(&self, session: SessionId, warning: String) {
        if let Some(facts) = self.state().facts.get_mut(&session) {
            facts.warnings.push(warning);
        }
    }

    /// When the session was in which epoch; empty unless strace counts.
    pub fn spans(&self, session: SessionId) -> Vec<EpochSpan> {
        self.state().facts.get(&session).map(|facts| facts.spans.clone()).unwrap_or_default()
    }

    /// Data that a session's clients handed over.
    pub fn results(&self, session: SessionId) -> Vec<(String, Value)> {
        self.state().facts.get(&session).map(|facts| facts.results.clone()).unwrap_or_default()
    }

    /// Closes sessions whose last process and client have gone, and forgets the oldest of many.
    pub(super) fn forget_finished_sessions(&self) {
        let mut state = self.state();
        let candidates: Vec<(SessionId, u32)> = state
            .facts
            .iter()
            .filter(|(_, facts)| facts.ends_by_itself && facts.clients == 0)
            .filter_map(|(session, facts)| Some((*session, facts.slot?)))
            .collect();
        for (session, slot) in candidates {
            let alive = state.control.as_ref().is_some_and(|control| control.has_members(slot));
            if !alive && let Err(error) = state.close_session(session) {
                tracing::error!("closing a session: {error:#}");
            }
        }
        let finished: Vec<SessionId> = state
            .facts
            .iter()
            .filter(|(_, facts)| facts.slot.is_none())
            .map(|(session, _)| *session)
            .collect();
        for session in finished.iter().take(finished.len().saturating_sub(MAX_FINISHED)) {
            state.forget(*session);
        }
    }

    fn bind_ourselves(&self, slot: u32, flags: u32) -> io::Result<()> {
        let (mut state, Some(own)) = (self.state(), self.own_tgid) else { return Ok(()) };
        match &mut state.control {
            Some(control) => control.bind(own, slot, flags).map(|_| ()).map_err(io::Error::other),
            None => Ok(()),
        }
    }
}
