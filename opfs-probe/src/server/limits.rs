//! What a client may ask for at most; more is answered with `limit`, and nothing else is disturbed.

use std::time::Duration;

/// Limits of the protocol. Open windows and windows a session are limits of the attribution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Clients connected at once, over both sockets.
    pub clients: usize,
    /// Bytes of one message.
    pub message_bytes: usize,
    /// Bytes of a window's or result's name, or of a client's.
    pub name_bytes: usize,
    /// Bytes of a window's id.
    pub id_bytes: usize,
    /// Entries of `attrs` or `meta`.
    pub attrs: usize,
    /// Bytes of `attrs` or `meta`, as JSON.
    pub attrs_bytes: usize,
    /// Patterns in one question for a report.
    pub patterns: usize,
    /// Window or session names that are metric labels; the rest is `other`.
    pub metric_names: usize,
    /// How long a connection may wait before its client has said hello.
    pub hello_wait: Duration,
    /// How long a client may take to read an answer.
    pub answer_wait: Duration,
    /// How long an HTTP request may take to arrive, and a connection to be idle between two.
    pub request_wait: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 512,
            message_bytes: 1 << 20,
            name_bytes: 256,
            id_bytes: 128,
            attrs: 64,
            attrs_bytes: 16 << 10,
            patterns: 64,
            metric_names: 200,
            hello_wait: Duration::from_secs(10),
            answer_wait: Duration::from_secs(30),
            request_wait: Duration::from_secs(30),
        }
    }
}
