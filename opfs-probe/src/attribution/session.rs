//! Sessions: the windows announced in each, and what was counted in them.
//!
//! Every announcement starts an epoch, and an epoch knows the windows open in it. So a window is the
//! set of epochs during which it was open, and counts that come in by epoch, in any order and in any
//! pieces, find all their windows without a clock.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use opfs_probe_common::flushed::FlushTally;
use serde_json::{Map, Value};

use super::epochs::{Epochs, OpenWindow};
use super::totals::Totals;
use super::window::{Begin, ClientId, Epoch, Moment, SessionId, Window, WindowError, WindowId};

/// What bounds the memory that clients can make the program use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Windows open at once in one session.
    pub open_windows: usize,
    /// Windows in one session, ended ones included. Entering one again makes no new one.
    pub windows_per_session: usize,
}

/// A process tree being watched, and what was counted in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// Its number.
    pub id: SessionId,
    /// Its name.
    pub name: String,
    /// When its first epoch began.
    pub started_at: Moment,
    /// When it was closed.
    pub ended_at: Option<Moment>,
    /// Its windows in the order of their first entry, so parents stand before their children.
    pub windows: Vec<Window>,
    /// Counted while no window was open.
    pub outside: Totals,
    /// All that was counted.
    pub total: Totals,
}

impl Session {
    /// One of its windows.
    pub fn window(&self, id: WindowId) -> Option<&Window> {
        // Numbers grow with the list.
        let index = self.windows.binary_search_by_key(&id, |window| window.id).ok()?;
        self.windows.get(index)
    }
}

/// All sessions, and the counter of epochs.
///
/// Not told here: which epoch the kernel counts in. Whoever announces writes the returned epoch there.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribution {
    limits: Limits,
    sessions: BTreeMap<SessionId, Entry>,
    epochs: Epochs,
    newest_session: u32,
    newest_window: u32,
}

/// A session and what is needed to take announcements for it.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    session: Session,
    /// Windows by the ids that their clients chose.
    by_client: HashMap<ClientId, HashMap<String, usize>>,
    /// The current entry of each open window, parents before children.
    open: Vec<OpenEntry>,
}

/// The current entry of an open window.
#[derive(Clone, Copy, Debug, PartialEq)]
struct OpenEntry {
    /// The window's place in its session's list.
    index: usize,
    /// The same of its parent.
    parent: Option<usize>,
    /// The window's calls before this entry.
    calls_before: Option<u64>,
}

impl Attribution {
    /// No session yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            sessions: BTreeMap::new(),
            epochs: Epochs::default(),
            newest_session: 0,
            newest_window: 0,
        }
    }

    /// Opens a session, in its first epoch and with no window open.
    pub fn open_session(&mut self, name: String, now: Moment) -> (SessionId, Epoch) {
        self.newest_session += 1;
        let id = SessionId(self.newest_session);
        let session = Session {
            id,
            name,
            started_at: now,
            ended_at: None,
            windows: Vec::new(),
            outside: Totals::default(),
            total: Totals::default(),
        };
        self.sessions.insert(id, Entry { session, by_client: HashMap::new(), open: Vec::new() });
        (id, self.epochs.start(id, Arc::new([])))
    }

    /// Enters a window: a new one, or again the ended one of that id, name and parent.
    ///
    /// `begin.calls` is the plan for this entry, and its attributes replace those of the same name.
    pub fn begin(
        &mut self,
        session: SessionId,
        begin: Begin,
        now: Moment,
    ) -> Result<(WindowId, Epoch), WindowError> {
        let entry = self.sessions.get_mut(&session).filter(|entry| entry.session.ended_at.is_none());
        let Some(entry) = entry else {
            return Err(WindowError::Limit {
                what: "the number of windows in a session that ended",
                limit: 0,
            });
        };
        let known = entry.window_of(begin.client, &begin.client_id);
        if known.is_some_and(|index| entry.is_open(index)) {
            return Err(WindowError::Duplicate(begin.client_id));
        }
        let parent = match &begin.parent {
            None => None,
            Some(id) => match entry.open_window_of(begin.client, id) {
                Some(index) => Some(index),
                None => return Err(WindowError::Unknown(id.clone())),
            },
        };
        let parent_id = parent.map(|index| entry.session.windows[index].id);
        if let Some(index) = known {
            let window = &entry.session.windows[index];
            if window.name != begin.name || window.parent != parent_id {
                return Err(WindowError::Duplicate(begin.client_id));
            }
        }
        if entry.open.len() >= self.limits.open_windows {
            let limit = self.limits.open_windows;
            return Err(WindowError::Limit { what: "the number of open windows", limit });
        }
        if known.is_none() && entry.session.windows.len() >= self.limits.windows_per_session {
            let limit = self.limits.windows_per_session;
            return Err(WindowError::Limit { what: "the number of windows in a session", limit });
        }

        let index = known.unwrap_or_else(|| {
            self.newest_window += 1;
            entry.add_window(WindowId(self.newest_window), &begin, parent_id, now)
        });
        let window = &mut entry.session.windows[index];
        let calls_before = window.calls;
        window.calls = add_calls(calls_before, begin.calls);
        window.attrs.extend(begin.attrs);
        window.entries += 1;
        window.open_since = Some(now);
        let id = window.id;
        entry.open.push(OpenEntry { index, parent, calls_before });
        Ok((id, self.epochs.start(session, entry.open_windows())))
    }

    /// Ends a window; children still open end with it, as aborted.
    ///
    /// `calls`, if given, replaces what this entry's `begin` planned.
    pub fn end(
        &mut self,
        session: SessionId,
        client: ClientId,
        client_id: &str,
        calls: Option<u64>,
        attrs: Map<String, Value>,
        now: Moment,
    ) -> Result<(WindowId, Epoch), WindowError> {
        let unknown = || WindowError::Unknown(client_id.to_owned());
        let entry = self.sessions.get_mut(&session).ok_or_else(unknown)?;
        let index = entry.open_window_of(client, client_id).ok_or_else(unknown)?;
        let window = &mut entry.session.windows[index];
        window.attrs.extend(attrs);
        if let (Some(_), Some(open)) = (calls, entry.open.iter().find(|open| open.index == index)) {
            window.calls = add_calls(open.calls_before, calls);
        }
        let id = window.id;
        let mut ending = vec![index];
        // Parents stand first, so one pass finds all descendants.
        for open in &entry.open {
            if open.parent.is_some_and(|parent| ending.contains(&parent)) {
                ending.push(open.index);
            }
        }
        for (nth, ended) in ending.iter().enumerate() {
            entry.leave(*ended, nth > 0, now);
        }
        entry.open.retain(|open| !ending.contains(&open.index));
        Ok((id, self.epochs.start(session, entry.open_windows())))
    }

    /// Ends every open window of a client that went away, as aborted. Gives the sessions that had one
    /// and the epoch that each is in now.
    pub fn abandon(&mut self, client: ClientId, now: Moment) -> Vec<(SessionId, Epoch)> {
        let mut changed = Vec::new();
        for (id, entry) in &mut self.sessions {
            // A parent is of the same client, so no other client's window loses its parent here.
            if entry.abort(|window| window.client == client, now) {
                changed.push((*id, self.epochs.start(*id, entry.open_windows())));
            }
        }
        changed
    }

    /// Starts an epoch with the same windows open; none in a session that ended, whose epoch would never be
    /// over.
    pub fn rotate(&mut self, session: SessionId) -> Option<Epoch> {
        let entry = self.sessions.get(&session).filter(|entry| entry.session.ended_at.is_none())?;
        let open = entry.open_windows();
        Some(self.epochs.start(session, open))
    }

    /// Closes a session: its open windows end, as aborted. Its epochs still take counts until retired. Gives
    /// the moment that begins then.
    pub fn close_session(&mut self, session: SessionId, now: Moment) -> Epoch {
        if let Some(entry) = self.sessions.get_mut(&session) {
            entry.abort(|_| true, now);
            entry.session.ended_at.get_or_insert(now);
        }
        self.epochs.close(session)
    }

    /// Drops a session and its epochs, and hands over what was counted.
    pub fn forget_session(&mut self, session: SessionId) -> Option<Session> {
        self.epochs.retire_session(session);
        self.sessions.remove(&session).map(|entry| entry.session)
    }

    /// Adds what was counted in an epoch since the last time, and says whether that epoch is known.
    pub fn absorb(&mut self, epoch: Epoch, counts: &Totals) -> bool {
        let Some(live) = self.epochs.get(epoch) else { return false };
        let Some(entry) = self.sessions.get_mut(&live.session) else { return false };
        entry.session.total.add(counts);
        if live.open.is_empty() {
            entry.session.outside.add(counts);
        }
        for open in live.open.iter() {
            let window = &mut entry.session.windows[open.index];
            window.total.add(counts);
            if open.innermost {
                window.own.add(counts);
            }
        }
        true
    }

    /// Adds what devices flushed at a moment that is over to every session that was there, before any epoch of
    /// then is retired.
    pub fn absorb_flushes(&mut self, moment: Epoch, flushes: &HashMap<u32, FlushTally>) {
        let counts = Totals { flushes: Some(flushes.clone()), ..Totals::default() };
        for epoch in self.during(moment) {
            self.absorb(epoch, &counts);
        }
    }

    /// The epochs that went on at a moment, one a session.
    pub fn during(&self, moment: Epoch) -> Vec<Epoch> {
        self.epochs.during(moment).collect()
    }

    /// Whose epoch it is, unless it is retired.
    pub fn session_of(&self, epoch: Epoch) -> Option<SessionId> {
        self.epochs.get(epoch).map(|live| live.session)
    }

    /// The moment of now.
    pub fn moment(&self) -> Epoch {
        self.epochs.moment()
    }

    /// Forgets an epoch that nothing more will come of.
    pub fn retire(&mut self, epoch: Epoch) {
        self.epochs.retire(epoch);
    }

    /// A session.
    pub fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id).map(|entry| &entry.session)
    }

    /// All sessions, oldest first.
    pub fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.sessions.values().map(|entry| &entry.session)
    }

    /// The epochs, of those not retired, in which a window was open; oldest first.
    pub fn epochs_of(&self, window: WindowId) -> impl Iterator<Item = Epoch> + '_ {
        self.epochs.with_window(window)
    }
}

impl Entry {
    /// The window that a client calls `client_id`, open or ended.
    fn window_of(&self, client: ClientId, client_id: &str) -> Option<usize> {
        self.by_client.get(&client)?.get(client_id).copied()
    }

    fn open_window_of(&self, client: ClientId, client_id: &str) -> Option<usize> {
        self.window_of(client, client_id).filter(|index| self.is_open(*index))
    }

    fn is_open(&self, index: usize) -> bool {
        self.session.windows[index].open_since.is_some()
    }

    fn add_window(&mut self, id: WindowId, begin: &Begin, parent: Option<WindowId>, now: Moment) -> usize {
        let index = self.session.windows.len();
        self.session.windows.push(Window {
            id,
            client: begin.client,
            client_id: begin.client_id.clone(),
            parent,
            name: begin.name.clone(),
            attrs: Map::new(),
            calls: None,
            entries: 0,
            started_at: now,
            open_since: None,
            open_ns: 0,
            aborted: false,
            own: Totals::default(),
            total: Totals::default(),
        });
        self.by_client.entry(begin.client).or_default().insert(begin.client_id.clone(), index);
        index
    }

    /// Marks a window as left; the caller takes it off the open ones.
    fn leave(&mut self, index: usize, aborted: bool, now: Moment) {
        let window = &mut self.session.windows[index];
        if let Some(since) = window.open_since.take() {
            window.open_ns += now.monotonic_ns.saturating_sub(since.monotonic_ns);
        }
        window.aborted |= aborted;
    }

    /// Aborts the open windows that `ending` picks, and says whether there was one.
    fn abort(&mut self, ending: impl Fn(&Window) -> bool, now: Moment) -> bool {
        let open = std::mem::take(&mut self.open);
        let (aborted, kept): (Vec<_>, Vec<_>) =
            open.into_iter().partition(|open| ending(&self.session.windows[open.index]));
        self.open = kept;
        for open in &aborted {
            self.leave(open.index, true, now);
        }
        !aborted.is_empty()
    }

    /// The open windows as an epoch keeps them.
    fn open_windows(&self) -> Arc<[OpenWindow]> {
        let parents: HashSet<usize> = self.open.iter().filter_map(|open| open.parent).collect();
        self.open
            .iter()
            .map(|open| OpenWindow {
                id: self.session.windows[open.index].id,
                index: open.index,
                innermost: !parents.contains(&open.index),
            })
            .collect()
    }
}

fn add_calls(before: Option<u64>, entry: Option<u64>) -> Option<u64> {
    match (before, entry) {
        (Some(before), Some(entry)) => Some(before.saturating_add(entry)),
        (one, other) => one.or(other),
    }
}
