//! Announcing each case as a window, so that a report tells the cases apart.
//!
//! Version 1 of the windows protocol: one JSON object a line on the unix socket that `OPFS_PROBE_SOCKET` names.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

/// The connection.
pub struct Announcer {
    stream: BufReader<UnixStream>,
}

impl Announcer {
    pub fn connect() -> Result<Self> {
        let socket = std::env::var_os("OPFS_PROBE_SOCKET").context("--windows needs OPFS_PROBE_SOCKET")?;
        let stream =
            UnixStream::connect(&socket).with_context(|| format!("connecting to {}", socket.display()))?;
        let mut announcer = Self { stream: BufReader::new(stream) };
        announcer.ask(&json!({"op": "hello", "v": 1, "client": "sync-generator/1"}), "welcome")?;
        Ok(announcer)
    }

    /// Returns once the case is counted for.
    pub fn begin(&mut self, case: &str) -> Result<()> {
        self.ask(&json!({"op": "begin", "id": case, "name": case}), "ack")
    }

    pub fn end(&mut self, case: &str) -> Result<()> {
        self.ask(&json!({"op": "end", "id": case}), "ack")
    }

    fn ask(&mut self, message: &Value, wanted: &str) -> Result<()> {
        let stream = self.stream.get_mut();
        stream.write_all(format!("{message}\n").as_bytes()).context("announcing a window")?;
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line).context("reading the answer to a window")? == 0 {
                bail!("the windows socket was closed");
            }
            let answer: Value = serde_json::from_str(&line).with_context(|| format!("not JSON: {line:?}"))?;
            match answer["op"].as_str() {
                Some(op) if op == wanted => return Ok(()),
                Some("error") => bail!("refused: {answer}"),
                _ => {}
            }
        }
    }
}
