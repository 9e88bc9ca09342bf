//! The other side of the unix socket, for the command line: asks a running probe and waits.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::protocol::Filter;
use super::watch::WindowLine;

/// Names the socket when `--socket` does not.
pub const SOCKET_VARIABLE: &str = "OPFS_PROBE_SOCKET";

/// Where a daemon's socket is unless somebody says otherwise.
pub const DEFAULT_SOCKET: &str = "/run/opfs-probe.sock";

/// How long an answer may take: a report of a long session reads many maps and files.
const ANSWER_WAIT: Duration = Duration::from_mins(1);

/// The longest answer that is read; a report with a million files is smaller.
const ANSWER_BYTES: u64 = 1 << 30;

/// Where to look for a running probe: `--socket`, else the variable, else the usual place.
pub fn socket_path(option: Option<PathBuf>) -> PathBuf {
    option
        .or_else(|| std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from))
        .unwrap_or_else(|| PathBuf::from(DEFAULT_SOCKET))
}

/// Why a running probe could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is no probe at the socket.
    #[error(
        "no probe answers at {}: {why}; start one with `opfs-probe daemon`, or name its socket with --socket or {SOCKET_VARIABLE}", path.display()
    )]
    NoProbe {
        /// The socket.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// The socket is for others.
    #[error("can't use {}: {why}; join the socket's group, or use sudo", path.display())]
    NotAllowed {
        /// The socket.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// The probe went silent, or away.
    #[error("the probe at {} gave no answer: {why}; see its log", path.display())]
    NoAnswer {
        /// The socket.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// What came back is not the protocol.
    #[error("what serves {} answers in another language: {answer}; is it another version of opfs-probe?", path.display())]
    Strange {
        /// The socket.
        path: PathBuf,
        /// The beginning of what it said.
        answer: String,
    },
    /// The probe refused.
    #[error("the probe refused: {message} ({code})")]
    Refused {
        /// For programs.
        code: String,
        /// For people.
        message: String,
    },
}

/// What `window begin` asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Begin {
    /// The window's name.
    pub name: String,
    /// The id of the detached window it lies in.
    pub parent: Option<String>,
    /// Timed calls inside it.
    pub calls: Option<u64>,
    /// Whatever is to be kept with it.
    pub attrs: Map<String, Value>,
    /// The process it belongs to; none for the parent of this one.
    pub owner_pid: Option<u32>,
}

/// A connection to a running probe.
pub struct Client {
    stream: BufReader<UnixStream>,
    path: PathBuf,
}

impl Client {
    /// Connects to the probe at `path`.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let path = path.to_owned();
        let stream = match UnixStream::connect(&path) {
            Ok(stream) => stream,
            Err(why) if why.kind() == io::ErrorKind::PermissionDenied => {
                return Err(ClientError::NotAllowed { path, why });
            }
            Err(why) => return Err(ClientError::NoProbe { path, why }),
        };
        let bounded =
            stream.set_read_timeout(Some(ANSWER_WAIT)).and(stream.set_write_timeout(Some(ANSWER_WAIT)));
        match bounded {
            Ok(()) => Ok(Self { stream: BufReader::new(stream), path }),
            Err(why) => Err(ClientError::NoAnswer { path, why }),
        }
    }

    /// Begins a detached window and gives its id, once the kernel counts for it.
    pub fn begin(&mut self, begin: &Begin) -> Result<String, ClientError> {
        let answer = self.ask(&json!({
            "op": "begin",
            "detached": true,
            "name": begin.name,
            "parent": begin.parent,
            "calls": begin.calls,
            "attrs": begin.attrs,
            "pid": begin.owner_pid,
        }))?;
        match answer.get("id").and_then(Value::as_str) {
            Some(id) => Ok(id.to_owned()),
            None => Err(self.strange(&answer.to_string())),
        }
    }

    /// Ends a detached window, with the number of timed calls if that was not known at its begin.
    pub fn end(&mut self, id: &str, calls: Option<u64>) -> Result<(), ClientError> {
        self.ask(&json!({ "op": "end", "detached": true, "id": id, "calls": calls })).map(|_| ())
    }

    /// The open windows.
    pub fn windows(&mut self) -> Result<Vec<WindowLine>, ClientError> {
        let mut answer = self.ask(&json!({ "op": "windows" }))?;
        let windows = answer.get_mut("windows").map(Value::take).unwrap_or_default();
        serde_json::from_value(windows).map_err(|_| self.strange(&answer.to_string()))
    }

    /// A report of what the filter lets through.
    pub fn report(&mut self, filter: &Filter) -> Result<Value, ClientError> {
        let mut answer = self.ask(&json!({
            "op": "report",
            "windows": filter.windows,
            "sessions": filter.sessions,
            "since": filter.since,
            "until": filter.until,
        }))?;
        match answer.get_mut("report") {
            Some(report) => Ok(report.take()),
            None => Err(self.strange(&answer.to_string())),
        }
    }

    fn ask(&mut self, question: &Value) -> Result<Value, ClientError> {
        let answer = self
            .exchange(&question.to_string())
            .map_err(|why| ClientError::NoAnswer { path: self.path.clone(), why })?;
        let Ok(answer) = serde_json::from_slice::<Value>(&answer) else {
            return Err(self.strange(&String::from_utf8_lossy(&answer)));
        };
        let text = |field| answer.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        match answer.get("op").and_then(Value::as_str) {
            Some("error") => Err(ClientError::Refused { code: text("code"), message: text("message") }),
            Some(_) => Ok(answer),
            None => Err(self.strange(&answer.to_string())),
        }
    }

    fn exchange(&mut self, question: &str) -> io::Result<Vec<u8>> {
        self.stream.get_mut().write_all(format!("{question}\n").as_bytes())?;
        let mut answer = Vec::new();
        (&mut self.stream).take(ANSWER_BYTES).read_until(b'\n', &mut answer)?;
        if answer.last() == Some(&b'\n') {
            return Ok(answer);
        }
        let why = if answer.len() as u64 == ANSWER_BYTES {
            "the answer is too long"
        } else {
            "the connection was closed"
        };
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, why))
    }

    fn strange(&self, answer: &str) -> ClientError {
        ClientError::Strange { path: self.path.clone(), answer: answer.chars().take(80).collect() }
    }
}
