//! What the server needs of whoever counts.

use std::net::SocketAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::answer::Refusal;
use super::protocol::{Filter, Hello};
use crate::attribution::window::{Begin, ClientId, Moment, SessionId};
use crate::metrics::Snapshot;

/// Who is at the other end, as far as the kernel tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process on the unix socket, by its credentials when it connected.
    Process {
        /// 0 if it can't be seen from our PID namespace.
        pid: u32,
        /// Its effective user.
        uid: u32,
    },
    /// A connection to the page's port; which process holds it can be found through /proc.
    Tcp {
        /// The client's end.
        peer: SocketAddr,
        /// Our end.
        local: SocketAddr,
    },
}

/// What a client is told and bound to when it says hello.
#[derive(Clone, Debug, PartialEq)]
pub struct Joined {
    /// The session's public id.
    pub session: String,
    /// The session, for the calls that follow.
    pub session_id: SessionId,
    /// The client, new with each hello.
    pub client: ClientId,
    /// When it joined.
    pub at: Moment,
    /// Kinds of sync that can't be seen here, in words.
    pub coverage_gaps: Vec<String>,
}

/// The end of a held window.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    /// Who asks.
    pub client: ClientId,
    /// The window's id in the client's own words.
    pub client_id: String,
    /// Timed calls of the client's own, if they were not known at its begin.
    pub calls: Option<u64>,
    /// More to keep with it.
    pub attrs: Map<String, Value>,
}

/// What an end is answered with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ended {
    /// When the window ended.
    pub at: Moment,
    /// Sync calls in the window, over all its entries so far; none if not measured.
    pub sync_calls: Option<u64>,
    /// Time inside them.
    pub sync_ns: Option<u64>,
}

/// A window that outlives its announcer's connection, and ends at the latest with its owner.
#[derive(Clone, Debug, PartialEq)]
pub struct BeginDetached {
    /// The process it belongs to, in the announcer's PID namespace. None: the parent of the process
    /// on the unix socket, or the process tree that holds the TCP connection.
    pub owner_pid: Option<u32>,
    /// The window's name.
    pub name: String,
    /// The id of the detached window it lies in.
    pub parent: Option<String>,
    /// Timed calls of the client's own.
    pub calls: Option<u64>,
    /// Whatever the client wants kept with it.
    pub attrs: Map<String, Value>,
}

/// The end of a detached window.
#[derive(Clone, Debug, PartialEq)]
pub struct EndDetached {
    /// Its id, made by us.
    pub id: String,
    /// Timed calls of the client's own, if they were not known at its begin.
    pub calls: Option<u64>,
    /// More to keep with it.
    pub attrs: Map<String, Value>,
}

/// One open window, as `window list` shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowLine {
    /// Its id: what `window end` takes if it is detached, else its client's own.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The session's name.
    pub session: String,
    /// The id of the window it lies in.
    pub parent: Option<String>,
    /// When it was entered.
    pub open_since: Timestamp,
    /// Whether it needs no connection.
    pub detached: bool,
    /// The process a detached window belongs to, in the initial PID namespace.
    pub owner_pid: Option<u32>,
}

/// Whoever counts. Calls may block for some milliseconds: they never run on an async thread.
///
/// A refusal's `id` is filled in by the server.
pub trait Watch: Send + Sync + 'static {
    /// Finds the session of a client that said hello, or opens it. Every success is followed by
    /// exactly one [`Watch::abandon`] of its client.
    fn join(&self, peer: &Peer, hello: &Hello) -> Result<Joined, Refusal>;

    /// Begins a window; returns once the kernel counts for it.
    fn begin(&self, session: SessionId, begin: Begin) -> Result<Moment, Refusal>;

    /// Ends a window.
    fn end(&self, session: SessionId, end: End) -> Result<Ended, Refusal>;

    /// The client went away: its open windows end as aborted.
    fn abandon(&self, client: ClientId);

    /// Begins a detached window and gives the id made for it. The peer may only name an owner of its
    /// own user, unless it is root.
    fn begin_detached(&self, peer: &Peer, begin: BeginDetached) -> Result<(String, Moment), Refusal>;

    /// Ends a detached window that the same user began (root: anybody's).
    fn end_detached(&self, peer: &Peer, end: EndDetached) -> Result<Ended, Refusal>;

    /// Keeps data with a session.
    fn result(&self, session: SessionId, name: String, data: Value) -> Result<(), Refusal>;

    /// The open windows.
    fn windows(&self) -> Vec<WindowLine>;

    /// A report, schema `opfs-probe.report/1`, of what the filter lets through.
    fn report(&self, filter: &Filter) -> Result<Value, Refusal>;

    /// What is measured now.
    fn metrics(&self) -> Snapshot;
}
