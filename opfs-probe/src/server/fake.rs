//! A watch that counts nothing, for tests: it keeps the rules of windows and remembers what it was told.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::answer::{Code, Refusal};
use super::protocol::{Filter, Hello};
use super::watch::{BeginDetached, End, EndDetached, Ended, Joined, Peer, Watch, WindowLine};
use crate::attribution::window::{Begin, ClientId, Moment, SessionId, WindowError};
use crate::metrics::Snapshot;

/// See the module.
#[derive(Default)]
pub struct Fake(Mutex<Told>);

/// What a [`Fake`] was told.
#[derive(Default)]
pub struct Told {
    /// The names of open windows, by client and id.
    pub open: HashMap<ClientId, BTreeMap<String, String>>,
    /// Detached windows by id.
    pub detached: BTreeMap<String, BeginDetached>,
    /// Who said hello.
    pub peers: Vec<Peer>,
    /// Ids of windows that ended because their client went away.
    pub aborted: Vec<String>,
    /// Results by name.
    pub results: Vec<(String, Value)>,
    now: u64,
}

impl Fake {
    /// A new one, to share with a server.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// What it was told so far.
    pub fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap()
    }
}

impl Told {
    fn tick(&mut self) -> Moment {
        self.now += 1;
        Moment { monotonic_ns: self.now, realtime: Timestamp::UNIX_EPOCH }
    }

    fn ended(&mut self) -> Ended {
        Ended { at: self.tick(), sync_calls: Some(7), sync_ns: Some(7_000) }
    }
}

impl Watch for Fake {
    fn join(&self, peer: &Peer, _hello: &Hello) -> Result<Joined, Refusal> {
        let mut told = self.told();
        told.peers.push(peer.clone());
        let client = ClientId(told.peers.len() as u64);
        told.open.insert(client, BTreeMap::new());
        Ok(Joined {
            session: "s1".into(),
            session_id: SessionId(1),
            client,
            at: told.tick(),
            coverage_gaps: vec!["aio_fsync".into()],
        })
    }

    fn begin(&self, _session: SessionId, begin: Begin) -> Result<Moment, Refusal> {
        let mut told = self.told();
        let open = told.open.get_mut(&begin.client).expect("a client that joined");
        if let Some(parent) = begin.parent.filter(|parent| !open.contains_key(parent)) {
            return Err(WindowError::Unknown(parent).into());
        }
        if open.contains_key(&begin.client_id) {
            return Err(WindowError::Duplicate(begin.client_id).into());
        }
        open.insert(begin.client_id, begin.name);
        Ok(told.tick())
    }

    fn end(&self, _session: SessionId, end: End) -> Result<Ended, Refusal> {
        let mut told = self.told();
        let open = told.open.get_mut(&end.client).expect("a client that joined");
        match open.remove(&end.client_id) {
            Some(_) => Ok(told.ended()),
            None => Err(WindowError::Unknown(end.client_id).into()),
        }
    }

    fn abandon(&self, client: ClientId) {
        let mut told = self.told();
        let open = told.open.remove(&client).expect("a client is abandoned once, and only after it joined");
        told.aborted.extend(open.into_keys());
    }

    fn begin_detached(&self, _peer: &Peer, begin: BeginDetached) -> Result<(String, Moment), Refusal> {
        let mut told = self.told();
        let at = told.tick();
        let id = format!("d{}", at.monotonic_ns);
        told.detached.insert(id.clone(), begin);
        Ok((id, at))
    }

    fn end_detached(&self, _peer: &Peer, end: EndDetached) -> Result<Ended, Refusal> {
        let mut told = self.told();
        match told.detached.remove(&end.id) {
            Some(_) => Ok(told.ended()),
            None => Err(WindowError::Unknown(end.id).into()),
        }
    }

    fn result(&self, _session: SessionId, name: String, data: Value) -> Result<(), Refusal> {
        self.told().results.push((name, data));
        Ok(())
    }

    fn windows(&self) -> Vec<WindowLine> {
        let told = self.told();
        let lines = told.detached.iter().map(|(id, window)| WindowLine {
            id: id.clone(),
            name: window.name.clone(),
            session: "script".into(),
            parent: window.parent.clone(),
            open_since: Timestamp::UNIX_EPOCH,
            detached: true,
            owner_pid: window.owner_pid,
        });
        lines.collect()
    }

    fn report(&self, filter: &Filter) -> Result<Value, Refusal> {
        if filter.windows.iter().any(|pattern| pattern == "[") {
            return Err(Refusal::new(Code::BadMessage, "\"[\" is no pattern"));
        }
        Ok(json!({ "schema": "opfs-probe.report/1", "asked": filter }))
    }

    fn metrics(&self) -> Snapshot {
        let open = self.told().open.values().map(BTreeMap::len).sum::<usize>();
        Snapshot { windows_open: Some(open as u64), ..Snapshot::default() }
    }
}
