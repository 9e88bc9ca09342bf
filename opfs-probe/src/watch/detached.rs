//! Windows that need no connection: they end with the process they belong to, if not before.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use super::Watcher;
use crate::attribution::window::{ClientId, SessionId};
use crate::processes::tree::{Process, is_ending};

/// The process that a detached window belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Owner {
    /// Which.
    pub process: Process,
    /// Whose it is.
    pub uid: Option<u32>,
}

/// All detached windows that are open. Those of one owner are one client's, so that they nest.
#[derive(Default)]
pub struct Detached {
    windows: HashMap<String, Open>,
    newest: u64,
}

struct Open {
    client: ClientId,
    session: SessionId,
    owner: Owner,
}

impl Detached {
    /// An id that was not given before.
    pub fn new_id(&mut self) -> String {
        self.newest += 1;
        format!("d{}", self.newest)
    }

    /// The client under which the owner's windows run.
    pub fn client_of(&self, owner: &Owner) -> Option<ClientId> {
        self.windows.values().find(|open| same(&open.owner.process, &owner.process)).map(|open| open.client)
    }

    /// A window was begun.
    pub fn insert(&mut self, id: String, client: ClientId, session: SessionId, owner: Owner) {
        self.windows.insert(id, Open { client, session, owner });
    }

    /// The window, if the user may end it: its own, or anybody's for root and for whoever showed the
    /// token (no user).
    pub fn find(&self, id: &str, uid: Option<u32>) -> Option<(ClientId, SessionId)> {
        let open = self.windows.get(id)?;
        let allowed = uid.is_none_or(|uid| uid == 0 || open.owner.uid == Some(uid));
        allowed.then_some((open.client, open.session))
    }

    /// A window was ended.
    pub fn remove(&mut self, id: &str) {
        self.windows.remove(id);
    }

    /// The process that a window belongs to, if it is detached.
    pub fn owner_of(&self, id: &str, client: ClientId) -> Option<u32> {
        let open = self.windows.get(id).filter(|open| open.client == client)?;
        Some(open.owner.process.pid)
    }

    /// Clients whose owner has ended; their windows are forgotten here.
    fn take_ownerless(&mut self) -> Vec<ClientId> {
        let gone = |open: &Open| {
            let process = open.owner.process;
            // Not whether anybody has asked for its exit status: a parent may never do that.
            is_ending(&process)
        };
        let mut clients: Vec<ClientId> =
            self.windows.values().filter(|open| gone(open)).map(|open| open.client).collect();
        clients.sort_unstable();
        clients.dedup();
        self.windows.retain(|_, open| !clients.contains(&open.client));
        clients
    }
}

/// Ids are given again; together with the start time they are not. The parent may change.
fn same(one: &Process, other: &Process) -> bool {
    (one.pid, one.start_ticks) == (other.pid, other.start_ticks)
}

/// The user that a process runs as.
pub fn user_of(pid: u32) -> Option<u32> {
    fs::metadata(format!("/proc/{pid}")).ok().map(|metadata| metadata.uid())
}

impl Watcher {
    /// Ends the windows of owners that have ended, as aborted.
    pub(super) fn end_with_owners(&self) {
        let mut state = self.state();
        for client in state.detached.take_ownerless() {
            if let Err(error) = state.abandon(client) {
                tracing::error!("ending the windows of a process that ended: {error:#}");
            }
        }
    }
}
