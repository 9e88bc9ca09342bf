//! A window: a named interval inside a session, announced by a client.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::totals::Totals;

/// Number of a session, unique while the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u32);

/// Number of a window, unique while the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WindowId(pub u32);

/// Number of whoever announces windows: client-chosen window ids are that client's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u64);

/// Number of an epoch, never reused; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u32);

/// One moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// `CLOCK_MONOTONIC`
    pub monotonic_ns: u64,
    /// `CLOCK_REALTIME`
    pub realtime: Timestamp,
}

/// What a client asks for when it begins a window.
#[derive(Clone, Debug, PartialEq)]
pub struct Begin {
    /// Who asks.
    pub client: ClientId,
    /// The window's id in the client's own words.
    pub client_id: String,
    /// The window's name.
    pub name: String,
    /// The `client_id` of the window it lies in, which must be open.
    pub parent: Option<String>,
    /// How many timed calls of the client's own the window holds.
    pub calls: Option<u64>,
    /// Whatever the client wants kept with it.
    pub attrs: Map<String, Value>,
}

/// A window and what was counted in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// Its number.
    pub id: WindowId,
    /// Who announced it.
    pub client: ClientId,
    /// Its id in that client's words.
    pub client_id: String,
    /// The window it lies in.
    pub parent: Option<WindowId>,
    /// Its name.
    pub name: String,
    /// What the client wanted kept.
    pub attrs: Map<String, Value>,
    /// Timed calls of the client's own, added up over its entries.
    pub calls: Option<u64>,
    /// How often it was entered.
    pub entries: u64,
    /// When it was first entered.
    pub started_at: Moment,
    /// When it was entered the last time, while it is open.
    pub open_since: Option<Moment>,
    /// Time it was open, over all finished entries.
    pub open_ns: u64,
    /// It was ended by something else than its client: its parent's end, the client's going away.
    pub aborted: bool,
    /// Counted in this window and in none of its children.
    pub own: Totals,
    /// Counted in this window, its children included.
    pub total: Totals,
}

/// Why an announcement was refused. Nothing changes then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// `end` or `parent` names no open window of this client.
    #[error("no open window has the id {0:?}")]
    Unknown(String),
    /// `begin` with the id of an open window, or of an ended one with another name or parent.
    #[error("the id {0:?} is taken by another window")]
    Duplicate(String),
    /// A limit is reached.
    #[error("{what} is limited to {limit}")]
    Limit {
        /// Of what there would be too many.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
}
