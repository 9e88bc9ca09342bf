//! What a run needs from whoever counts: a page to open, a session to start the browser in, and news
//! of the windows that the page announces.

use std::io;
use std::process::{Child, Command};
use std::sync::mpsc::Receiver;

use serde_json::Value;

use super::browser::Browser;
use crate::attribution::window::SessionId;

/// The counting side, as the runner sees it.
pub trait Host {
    /// The benchmark page's address without a query: `http://127.0.0.1:PORT/…`.
    fn page_url(&self) -> String;

    /// Starts the command as the first process of a new session, so that no call of it is missed.
    fn start(&self, browser: &Browser, command: &mut Command) -> io::Result<Started>;

    /// The session's last process has gone.
    fn finished(&self, session: SessionId);
}

/// A browser that was started.
#[derive(Debug)]
pub struct Started {
    /// Its first process.
    pub child: Child,
    /// Its session.
    pub session: SessionId,
    /// What its page announces from now on.
    pub events: Receiver<PageEvent>,
}

/// News from the page, in the order in which it happened.
#[derive(Clone, Debug, PartialEq)]
pub enum PageEvent {
    /// The page said hello.
    Connected,
    /// A window began: the names from the outermost window to it.
    Began(Vec<String>),
    /// A window ended.
    Ended(Vec<String>),
    /// The page handed over data.
    Result {
        /// What it is: [`RESULT`] or [`PROBLEM`].
        name: String,
        /// The data.
        data: Value,
    },
    /// The page's connection is gone.
    Gone,
}

/// Name of the data that a finished page hands over.
pub const RESULT: &str = "opfs-bench";
/// Name of the data that a page hands over when it can't go on: `{name, message}`.
pub const PROBLEM: &str = "opfs-bench-error";
