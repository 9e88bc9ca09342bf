//! Version 1 of the windows protocol, the client's side of it: from bytes to a checked message.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::answer::{Code, Refusal};
use super::limits::Limits;
use crate::report::filter;

/// The protocol version spoken here.
pub const VERSION: u64 = 1;

/// A message that is well-formed and within the limits.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// The client introduces itself.
    Hello(Hello),
    /// A window begins.
    Begin(BeginMessage),
    /// A window ends.
    End(EndMessage),
    /// Data to keep with the session.
    Result {
        /// What it is.
        name: String,
        /// The data.
        data: Value,
    },
    /// A question for a report (unix socket only).
    Report(Filter),
    /// A question for the open windows (unix socket only).
    Windows,
}

/// A client's introduction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hello {
    /// The program and its version, as it says.
    pub client: Option<String>,
    /// What lets it in, where that is asked for.
    pub token: Option<String>,
    /// Whatever it wants kept with the session.
    pub meta: Map<String, Value>,
}

/// `begin`, as it was sent.
#[derive(Clone, Debug, PartialEq)]
pub struct BeginMessage {
    /// The client's own id for it; ignored for detached windows.
    pub id: Option<String>,
    /// The window's name.
    pub name: String,
    /// The id of the window it lies in.
    pub parent: Option<String>,
    /// Timed calls of the client's own.
    pub calls: Option<u64>,
    /// Whatever the client wants kept with it.
    pub attrs: Map<String, Value>,
    /// Whether it outlives the connection.
    pub detached: bool,
    /// The process a detached window belongs to.
    pub pid: Option<u32>,
}

/// `end`, as it was sent.
#[derive(Clone, Debug, PartialEq)]
pub struct EndMessage {
    /// The window's id.
    pub id: String,
    /// Timed calls of the client's own.
    pub calls: Option<u64>,
    /// More to keep with it.
    pub attrs: Map<String, Value>,
    /// Whether the id is a detached window's.
    pub detached: bool,
}

/// What a report is asked for. Empty lists and `None` let everything through.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Filter {
    /// Patterns of window names, `*` and `?` as in a shell; any of them.
    pub windows: Vec<String>,
    /// Patterns of session names.
    pub sessions: Vec<String>,
    /// Nothing that ended before.
    pub since: Option<Timestamp>,
    /// Nothing that began after.
    pub until: Option<Timestamp>,
}

impl From<&Filter> for filter::Filter {
    fn from(asked: &Filter) -> Self {
        let windows = asked.windows.iter().fold(Self::new(), |chosen, pattern| chosen.window(pattern));
        let sessions = asked.sessions.iter().fold(windows, |chosen, pattern| chosen.session(pattern));
        let since = asked.since.into_iter().fold(sessions, Self::since);
        asked.until.into_iter().fold(since, Self::until)
    }
}

/// Reads one message.
///
/// Unknown fields are ignored; a field that is null counts as absent. The refusal carries the
/// message's id where that much could be read.
pub fn parse(bytes: &[u8], limits: &Limits) -> Result<Message, Refusal> {
    if bytes.len() > limits.message_bytes {
        return Err(too_long(limits));
    }
    let value: Value =
        serde_json::from_slice(bytes).map_err(|error| Refusal::bad(format!("not JSON: {error}")))?;
    let Value::Object(map) = value else {
        return Err(Refusal::bad("a message is a JSON object"));
    };
    let mut fields = Fields { map, limits };
    let id = fields.readable_id();
    fields.message().map_err(|refusal| refusal.about(id.as_deref()))
}

/// The refusal of a message beyond the limit.
pub fn too_long(limits: &Limits) -> Refusal {
    Refusal::new(Code::Limit, format!("a message is limited to {} bytes", limits.message_bytes))
}

/// A message's fields, taken out one by one.
struct Fields<'a> {
    map: Map<String, Value>,
    limits: &'a Limits,
}

impl Fields<'_> {
    fn message(&mut self) -> Result<Message, Refusal> {
        let Some(op) = self.text("op", 32)? else {
            return Err(Refusal::bad("`op` is missing"));
        };
        match op.as_str() {
            "hello" => self.hello().map(Message::Hello),
            "begin" => self.begin().map(Message::Begin),
            "end" => self.end().map(Message::End),
            "result" => self.result(),
            "report" => self.filter().map(Message::Report),
            "windows" => Ok(Message::Windows),
            _ => Err(Refusal::bad(format!("there is no op {op:?}"))),
        }
    }

    fn hello(&mut self) -> Result<Hello, Refusal> {
        match self.number("v")? {
            Some(VERSION) => {}
            Some(other) => {
                let message = format!("version {other} is not spoken here; version {VERSION} is");
                return Err(Refusal::new(Code::BadVersion, message));
            }
            None => return Err(Refusal::bad("`v`, the protocol's version, is missing")),
        }
        Ok(Hello {
            client: self.text("client", self.limits.name_bytes)?,
            token: self.text("token", self.limits.name_bytes)?,
            meta: self.object("meta")?,
        })
    }

    fn begin(&mut self) -> Result<BeginMessage, Refusal> {
        let pid = self.number("pid")?.map(u32::try_from).transpose();
        Ok(BeginMessage {
            id: self.text("id", self.limits.id_bytes)?,
            name: self.required_text("name", self.limits.name_bytes)?,
            parent: self.text("parent", self.limits.id_bytes)?,
            calls: self.number("calls")?,
            attrs: self.object("attrs")?,
            detached: self.flag("detached")?,
            pid: pid.map_err(|_| Refusal::bad("`pid` is no process id"))?,
        })
    }

    fn end(&mut self) -> Result<EndMessage, Refusal> {
        Ok(EndMessage {
            id: self.required_text("id", self.limits.id_bytes)?,
            calls: self.number("calls")?,
            attrs: self.object("attrs")?,
            detached: self.flag("detached")?,
        })
    }

    fn result(&mut self) -> Result<Message, Refusal> {
        let name = self.required_text("name", self.limits.name_bytes)?;
        let data = self.map.remove("data").ok_or_else(|| Refusal::bad("`data` is missing"))?;
        Ok(Message::Result { name, data })
    }

    fn filter(&mut self) -> Result<Filter, Refusal> {
        Ok(Filter {
            windows: self.patterns("windows")?,
            sessions: self.patterns("sessions")?,
            since: self.time("since")?,
            until: self.time("until")?,
        })
    }

    /// The id, if it is one that can be sent back.
    fn readable_id(&self) -> Option<String> {
        let id = self.map.get("id")?.as_str()?;
        check_text("id", id, self.limits.id_bytes).ok().map(|()| id.to_owned())
    }

    /// A field's value; null is absent.
    fn take(&mut self, field: &str) -> Option<Value> {
        self.map.remove(field).filter(|value| !value.is_null())
    }

    fn text(&mut self, field: &str, limit: usize) -> Result<Option<String>, Refusal> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) => check_text(field, &text, limit).map(|()| Some(text)),
            Some(_) => Err(Refusal::bad(format!("`{field}` must be text"))),
        }
    }

    fn required_text(&mut self, field: &str, limit: usize) -> Result<String, Refusal> {
        self.text(field, limit)?.ok_or_else(|| Refusal::bad(format!("`{field}` is missing")))
    }

    fn number(&mut self, field: &str) -> Result<Option<u64>, Refusal> {
        self.take(field)
            .map(|value| {
                value.as_u64().ok_or_else(|| Refusal::bad(format!("`{field}` must be a whole number from 0")))
            })
            .transpose()
    }

    fn flag(&mut self, field: &str) -> Result<bool, Refusal> {
        match self.take(field) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(_) => Err(Refusal::bad(format!("`{field}` must be true or false"))),
        }
    }

    fn object(&mut self, field: &str) -> Result<Map<String, Value>, Refusal> {
        let map = match self.take(field) {
            None => return Ok(Map::new()),
            Some(Value::Object(map)) => map,
            Some(_) => return Err(Refusal::bad(format!("`{field}` must be an object"))),
        };
        let (entries, bytes) = (self.limits.attrs, self.limits.attrs_bytes);
        let value = Value::Object(map);
        if value.to_string().len() > bytes {
            return Err(Refusal::new(Code::Limit, format!("`{field}` is limited to {bytes} bytes")));
        }
        match value {
            Value::Object(map) if map.len() <= entries => Ok(map),
            _ => Err(Refusal::new(Code::Limit, format!("`{field}` is limited to {entries} entries"))),
        }
    }

    fn patterns(&mut self, field: &str) -> Result<Vec<String>, Refusal> {
        let values = match self.take(field) {
            None => return Ok(Vec::new()),
            Some(Value::Array(values)) => values,
            Some(_) => return Err(Refusal::bad(format!("`{field}` must be a list of patterns"))),
        };
        if values.len() > self.limits.patterns {
            let message = format!("`{field}` is limited to {} patterns", self.limits.patterns);
            return Err(Refusal::new(Code::Limit, message));
        }
        values
            .into_iter()
            .map(|value| match value {
                Value::String(text) => check_text(field, &text, self.limits.name_bytes).map(|()| text),
                _ => Err(Refusal::bad(format!("`{field}` must hold text only"))),
            })
            .collect()
    }

    fn time(&mut self, field: &str) -> Result<Option<Timestamp>, Refusal> {
        self.text(field, 64)?
            .map(|text| {
                text.parse()
                    .map_err(|_| Refusal::bad(format!("`{field}` must be an RFC 3339 time with its zone")))
            })
            .transpose()
    }
}

/// Names and ids go to terminals and labels: they hold something, and nothing that moves a cursor.
fn check_text(field: &str, text: &str, limit: usize) -> Result<(), Refusal> {
    if text.len() > limit {
        return Err(Refusal::new(Code::Limit, format!("`{field}` is limited to {limit} bytes")));
    }
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err(Refusal::bad(format!("`{field}` must not be empty or hold control characters")));
    }
    Ok(())
}
