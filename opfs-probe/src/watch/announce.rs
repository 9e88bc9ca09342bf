//! What clients ask of the probe.

use opfs_probe_common::epoch::{EXCLUDED_SLOT, SYSTEM_SLOT};
use serde_json::Value;

use super::attach::file_name;
use super::clock::now;
use super::detached::Owner;
use super::state::AnnounceError;
use super::{Target, Watcher};
use crate::attribution::window::{Begin, ClientId, Moment, SessionId, WindowId};
use crate::bench::host::PageEvent;
use crate::metrics::Snapshot;
use crate::processes::sockets::owner_of_peer;
use crate::processes::tree::{Process, Snapshot as ProcessSnapshot, exe, is_kernel_thread};
use crate::report;
use crate::report::model::SessionKind;
use crate::server::answer::{Code, Refusal};
use crate::server::protocol::{Filter, Hello};
use crate::server::watch::{BeginDetached, End, EndDetached, Ended, Joined, Peer, Watch, WindowLine};

/// Results that a session keeps.
const MAX_RESULTS: usize = 64;

impl Watch for Watcher {
    fn join(&self, peer: &Peer, _hello: &Hello) -> Result<Joined, Refusal> {
        let session_id = self.session_of_peer(peer)?;
        let mut state = self.state();
        let client = state.new_client();
        state.clients.insert(client, session_id);
        if let Some(facts) = state.facts.get_mut(&session_id) {
            facts.clients += 1;
            if let Some(listener) = &facts.listener {
                // A listener that went away wants no news.
                let _ = listener.send(PageEvent::Connected);
            }
        }
        Ok(Joined {
            session: report::build::session_id(session_id),
            session_id,
            client,
            at: now(),
            coverage_gaps: self.coverage_gaps.clone(),
        })
    }

    fn begin(&self, session: SessionId, begin: Begin) -> Result<Moment, Refusal> {
        self.make_room()?;
        Ok(self.state().begin(session, begin)?)
    }

    fn end(&self, session: SessionId, end: End) -> Result<Ended, Refusal> {
        self.make_room()?;
        let mut state = self.state();
        let (window, at) = state.end(session, end.client, &end.client_id, end.calls, end.attrs)?;
        drop(state);
        Ok(self.ended(session, window, at))
    }

    fn abandon(&self, client: ClientId) {
        let mut state = self.state();
        if let Err(error) = state.abandon(client) {
            tracing::error!("ending the windows of a client that went away: {error:#}");
        }
        if let Some(session) = state.clients.remove(&client)
            && let Some(facts) = state.facts.get_mut(&session)
        {
            facts.clients -= 1;
            if let Some(listener) = &facts.listener {
                // A listener that went away wants no news.
                let _ = listener.send(PageEvent::Gone);
            }
        }
    }

    fn begin_detached(&self, peer: &Peer, begin: BeginDetached) -> Result<(String, Moment), Refusal> {
        let owner = owner(peer, begin.owner_pid)?;
        let session = match self.everybodys() {
            Some(session) => session,
            None => self.session_of_process(owner.process.pid)?,
        };
        self.make_room()?;
        let mut state = self.state();
        let client = match state.detached.client_of(&owner) {
            Some(client) => client,
            None => state.new_client(),
        };
        let id = state.detached.new_id();
        let begin = Begin {
            client,
            client_id: id.clone(),
            name: begin.name,
            parent: begin.parent,
            calls: begin.calls,
            attrs: begin.attrs,
        };
        let at = state.begin(session, begin)?;
        state.detached.insert(id.clone(), client, session, owner);
        Ok((id, at))
    }

    fn end_detached(&self, peer: &Peer, end: EndDetached) -> Result<Ended, Refusal> {
        self.make_room()?;
        let mut state = self.state();
        let uid = if let Peer::Process { uid, .. } = peer { Some(*uid) } else { None };
        let (client, session) = state.detached.find(&end.id, uid).ok_or_else(|| {
            Refusal::new(Code::UnknownWindow, format!("no open window of this user has the id {:?}", end.id))
        })?;
        let (window, at) = state.end(session, client, &end.id, end.calls, end.attrs)?;
        state.detached.remove(&end.id);
        drop(state);
        Ok(self.ended(session, window, at))
    }

    fn result(&self, session: SessionId, name: String, data: Value) -> Result<(), Refusal> {
        let mut state = self.state();
        let Some(facts) = state.facts.get_mut(&session) else { return Ok(()) };
        if facts.results.len() >= MAX_RESULTS {
            let message = format!("a session keeps at most {MAX_RESULTS} results");
            return Err(Refusal::new(Code::Limit, message));
        }
        if let Some(listener) = &facts.listener {
            // A listener that went away wants no news.
            let _ = listener.send(PageEvent::Result { name: name.clone(), data: data.clone() });
        }
        facts.results.push((name, data));
        Ok(())
    }

    fn windows(&self) -> Vec<WindowLine> {
        let state = self.state();
        let sessions = state.attribution.sessions();
        let open = sessions.flat_map(|session| {
            session.windows.iter().filter_map(|window| {
                let owner = state.detached.owner_of(&window.client_id, window.client);
                Some(WindowLine {
                    id: window.client_id.clone(),
                    name: window.name.clone(),
                    session: session.name.clone(),
                    parent: window
                        .parent
                        .and_then(|parent| session.window(parent))
                        .map(|parent| parent.client_id.clone()),
                    open_since: window.open_since?.realtime,
                    detached: owner.is_some(),
                    owner_pid: owner,
                })
            })
        });
        open.collect()
    }

    fn report(&self, filter: &Filter) -> Result<Value, Refusal> {
        let chosen = report::filter::Filter::from(filter);
        let failed = |error: anyhow::Error| Refusal::new(Code::Internal, format!("{error:#}"));
        let report = chosen.apply(self.full_report().map_err(failed)?);
        serde_json::to_value(report).map_err(|error| failed(error.into()))
    }

    fn metrics(&self) -> Snapshot {
        self.snapshot().unwrap_or_else(|error| {
            tracing::error!("reading what was counted for the metrics: {error:#}");
            Snapshot::default()
        })
    }
}

impl Watcher {
    fn everybodys(&self) -> Option<SessionId> {
        self.state().everybodys
    }

    fn session_of_peer(&self, peer: &Peer) -> Result<SessionId, Refusal> {
        if let Some(session) = self.everybodys() {
            return Ok(session);
        }
        match *peer {
            Peer::Process { pid, .. } => self.session_of_process(pid),
            Peer::Tcp { peer, local } => {
                let pid = owner_of_peer(local, peer).ok_or_else(|| {
                    let message = format!(
                        "the process behind {peer} can't be found, so its calls can't be told from others'"
                    );
                    Refusal::new(Code::Unauthorized, message)
                })?;
                self.session_of_process(ProcessSnapshot::read().browser_root(pid))
            }
        }
    }

    /// The session that a process belongs to, or a new one with it as the root. A browser has one of
    /// its own, whatever it was started from: its windows are to hold nobody else's calls.
    fn session_of_process(&self, pid: u32) -> Result<SessionId, Refusal> {
        let failed = |error: anyhow::Error| Refusal::new(Code::Internal, format!("{error:#}"));
        // Two tabs of one browser that connect at once are one session.
        let _one_at_a_time = self.binding();
        let slot = self.state().control.as_ref().and_then(|control| control.slot_of(pid));
        if let Some(slot) = slot.filter(|slot| *slot != SYSTEM_SLOT && *slot != EXCLUDED_SLOT) {
            let state = self.state();
            let known = state.facts.iter().find(|(_, facts)| facts.slot == Some(slot));
            if let Some((session, facts)) = known
                && (facts.root_pid == Some(pid) || !is_browser_process(pid))
            {
                return Ok(*session);
            }
        }
        self.attach_locked(&Target::Tree(pid), None).map_err(failed)
    }

    /// Makes sure that one more epoch fits into the kernel's maps.
    fn make_room(&self) -> Result<(), Refusal> {
        if self.state().has_room() {
            return Ok(());
        }
        if let Err(error) = self.drain() {
            tracing::error!("reading what was counted: {error:#}");
        }
        if self.state().has_room() {
            return Ok(());
        }
        let message = "too many announcements at once: their counts are not read yet";
        Err(Refusal::new(Code::Limit, message))
    }

    fn ended(&self, session: SessionId, window: WindowId, at: Moment) -> Ended {
        let counted = self.state().counted_in(session, window);
        let (sync_calls, sync_ns) = counted.unzip();
        Ended { at, sync_calls, sync_ns }
    }
}

/// The process that a detached window belongs to.
fn owner(peer: &Peer, wanted: Option<u32>) -> Result<Owner, Refusal> {
    let (pid, uid) = match (peer, wanted) {
        (Peer::Process { uid, .. }, Some(pid)) => (pid, Some(*uid)),
        (Peer::Process { pid, uid }, None) => {
            let parent = Process::of(*pid).map(|process| process.parent);
            (parent.unwrap_or(*pid), Some(*uid))
        }
        (Peer::Tcp { .. }, Some(_)) => {
            let message = "only a process on the unix socket may name another as a window's owner";
            return Err(Refusal::new(Code::Unauthorized, message));
        }
        (Peer::Tcp { peer, local }, None) => {
            let holder = owner_of_peer(*local, *peer).ok_or_else(|| {
                Refusal::new(Code::Unauthorized, format!("the process behind {peer} can't be found"))
            })?;
            (ProcessSnapshot::read().browser_root(holder), None)
        }
    };
    let process = Process::of(pid)
        .ok_or_else(|| Refusal::bad(format!("there is no process {pid} to own the window")))?;
    if is_kernel_thread(pid) {
        let message = format!("process {pid} is one of the kernel's own threads, and makes no calls");
        return Err(Refusal::bad(message));
    }
    let owner = Owner { process, uid: super::detached::user_of(pid) };
    if uid.is_some_and(|uid| uid != 0 && Some(uid) != owner.uid) {
        let message = format!("process {pid} belongs to another user");
        return Err(Refusal::new(Code::Unauthorized, message));
    }
    Ok(owner)
}

impl From<AnnounceError> for Refusal {
    fn from(error: AnnounceError) -> Self {
        match error {
            AnnounceError::Refused(refused) => refused.into(),
            AnnounceError::Failed(failed) => Self::new(Code::Internal, format!("{failed:#}")),
        }
    }
}

fn is_browser_process(pid: u32) -> bool {
    exe(pid).is_some_and(|program| kind_of(Some(file_name(&program))) == SessionKind::Browser)
}

/// The kind of a session that is made for a running process.
pub(super) fn kind_of(program: Option<&[u8]>) -> SessionKind {
    if program.is_some_and(crate::processes::browsers::is_browser) {
        SessionKind::Browser
    } else {
        SessionKind::Attached
    }
}
