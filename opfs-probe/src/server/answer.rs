//! What the server says: one JSON object an answer.

use serde::Serialize;
use serde_json::{Value, json};

use super::protocol::VERSION;
use super::watch::{Joined, WindowLine};
use crate::attribution::window::{Moment, WindowError};

/// Why something was refused, in one word for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// Not JSON, not a known op, a field missing or of the wrong type, or out of turn.
    BadMessage,
    /// A protocol version that is not spoken here.
    BadVersion,
    /// The token is missing or wrong, or this socket can't be asked that.
    Unauthorized,
    /// No open window has that id.
    UnknownWindow,
    /// Another window has that id.
    DuplicateWindow,
    /// A limit is reached.
    Limit,
    /// The probe itself failed; the message was fine.
    Internal,
}

impl Code {
    /// The word as it is sent.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BadMessage => "bad_message",
            Self::BadVersion => "bad_version",
            Self::Unauthorized => "unauthorized",
            Self::UnknownWindow => "unknown_window",
            Self::DuplicateWindow => "duplicate_window",
            Self::Limit => "limit",
            Self::Internal => "internal",
        }
    }
}

/// A message that was not obeyed. Nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// For programs.
    pub code: Code,
    /// For people.
    pub message: String,
    /// The id in the message that was refused, where it has one.
    pub id: Option<String>,
}

impl Refusal {
    /// A refusal that names no window.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), id: None }
    }

    /// A refusal of a message that can't be understood or is out of turn.
    pub fn bad(message: impl Into<String>) -> Self {
        Self::new(Code::BadMessage, message)
    }

    /// The same refusal, of a message about the window `id`.
    #[must_use]
    pub fn about(mut self, id: Option<&str>) -> Self {
        self.id = id.map(str::to_owned);
        self
    }
}

impl From<WindowError> for Refusal {
    fn from(error: WindowError) -> Self {
        let code = match error {
            WindowError::Unknown(_) => Code::UnknownWindow,
            WindowError::Duplicate(_) => Code::DuplicateWindow,
            WindowError::Limit { .. } => Code::Limit,
        };
        Self::new(code, error.to_string())
    }
}

/// One answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// To a hello.
    Welcome(Joined),
    /// To a begin: the kernel counts for the window.
    Begun {
        /// The window's id: the client's own, or ours for a detached window.
        id: String,
        /// Since when.
        at: Moment,
    },
    /// To an end.
    Ended {
        /// The window's id.
        id: String,
        /// When.
        at: Moment,
        /// Sync calls in the window so far; none if not measured.
        sync_calls: Option<u64>,
        /// Time inside them.
        sync_ns: Option<u64>,
    },
    /// To a question for the open windows.
    Windows(Vec<WindowLine>),
    /// To a question for a report.
    Report(Value),
    /// To anything that was refused.
    Error(Refusal),
}

impl Answer {
    /// The answer as it is sent, without line end.
    pub fn to_json(&self) -> String {
        self.to_value().to_string()
    }

    fn to_value(&self) -> Value {
        match self {
            Self::Welcome(joined) => json!({
                "op": "welcome",
                "v": VERSION,
                "session": joined.session,
                "clock": {
                    "monotonic_ns": joined.at.monotonic_ns,
                    "realtime_ns": i64::try_from(joined.at.realtime.as_nanosecond()).unwrap_or(i64::MAX),
                },
                "coverage_gaps": joined.coverage_gaps,
            }),
            Self::Begun { id, at } => json!({ "op": "ack", "id": id, "monotonic_ns": at.monotonic_ns }),
            Self::Ended { id, at, sync_calls, sync_ns } => json!({
                "op": "ack",
                "id": id,
                "monotonic_ns": at.monotonic_ns,
                "sync_calls": sync_calls,
                "sync_ns": sync_ns,
            }),
            Self::Windows(windows) => json!({ "op": "windows", "windows": windows }),
            Self::Report(report) => json!({ "op": "report", "report": report }),
            Self::Error(refusal) => json!({
                "op": "error",
                "id": refusal.id,
                "code": refusal.code.name(),
                "message": refusal.message,
            }),
        }
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        Self::Error(refusal)
    }
}
