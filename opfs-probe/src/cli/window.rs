//! `opfs-probe window`: announces windows from a script.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use serde_json::{Map, Value};

use super::output::print;
use crate::report::tables::Table;
use crate::report::text::layout;
use crate::server::client::{Begin, Client, socket_path};
use crate::server::watch::WindowLine;

/// Announce windows from a script, and list the open ones
///
/// A window is a named stretch of a script: `begin` prints its id, and `end` takes it. What the script
/// and its children sync between the two is counted for the window. The probe is found by --socket, else
/// by `OPFS_PROBE_SOCKET` (which `opfs-probe run` sets for its command), else at /run/opfs-probe.sock.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    id=$(opfs-probe window begin load --pid $$)\n  \
    dd if=/dev/zero of=file bs=4k count=100 conv=fsync\n  \
    opfs-probe window end \"$id\" --calls 100\n  \
    opfs-probe report --window load")]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Begin(BeginArguments),
    End(EndArguments),
    List(ListArguments),
}

/// Begin a window, and print its id once calls count for it
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    outer=$(opfs-probe window begin nightly --pid $$)\n  \
    inner=$(opfs-probe window begin backup --parent \"$outer\" --pid $$ --attr target=nas)")]
struct BeginArguments {
    /// What it is called in reports.
    name: String,
    /// The id of the window that it lies in.
    #[arg(long, value_name = "ID")]
    parent: Option<String>,
    /// How many calls of your own it stands for, to be told syncs per call.
    #[arg(long, value_name = "N")]
    calls: Option<u64>,
    /// Something to keep with it; a value that is JSON is kept as such.
    #[arg(long = "attr", value_name = "KEY=VALUE", value_parser = attribute)]
    attrs: Vec<(String, Value)>,
    /// The process it belongs to; when that ends, so does the window, as aborted [default: the process
    /// that started this one].
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
    #[command(flatten)]
    probe: Probe,
}

/// End a window
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  opfs-probe window end \"$id\" --calls 100")]
struct EndArguments {
    /// The id that `begin` printed.
    id: String,
    /// How many calls of your own it stands for, if that was not known at its begin.
    #[arg(long, value_name = "N")]
    calls: Option<u64>,
    #[command(flatten)]
    probe: Probe,
}

/// List the open windows
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  opfs-probe window list")]
struct ListArguments {
    #[command(flatten)]
    probe: Probe,
}

/// Which running probe.
#[derive(Clone, Debug, Args)]
pub struct Probe {
    /// The probe's socket [default: `OPFS_PROBE_SOCKET`, or /run/opfs-probe.sock].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl Probe {
    /// Connects to it.
    pub fn connect(&self) -> Result<Client> {
        Ok(Client::connect(&socket_path(self.socket.clone()))?)
    }
}

/// Announces or lists.
pub fn main(arguments: Arguments) -> Result<ExitCode> {
    match arguments.action {
        Action::Begin(arguments) => begin(arguments),
        Action::End(EndArguments { id, calls, probe }) => {
            probe.connect()?.end(&id, calls).with_context(|| format!("can't end the window {id:?}"))
        }
        Action::List(ListArguments { probe }) => print(list(&probe.connect()?.windows()?).as_bytes()),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn begin(arguments: BeginArguments) -> Result<()> {
    let BeginArguments { name, parent, calls, attrs, pid, probe } = arguments;
    let mut client = probe.connect()?;
    let begin = Begin {
        name: name.clone(),
        parent,
        calls,
        attrs: attrs.into_iter().collect::<Map<_, _>>(),
        owner_pid: pid,
    };
    let id = client.begin(&begin).with_context(|| format!("can't begin the window {name:?}"))?;
    print(format!("{id}\n").as_bytes())
}

fn attribute(text: &str) -> Result<(String, Value), String> {
    let (key, value) = text.split_once('=').ok_or("write it as KEY=VALUE")?;
    if key.is_empty() {
        return Err("write it as KEY=VALUE: the key is missing".to_owned());
    }
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
    Ok((key.to_owned(), value))
}

fn list(windows: &[WindowLine]) -> String {
    if windows.is_empty() {
        return "No window is open.\n".to_owned();
    }
    let mut table = Table::new(["<id", "<window", "<parent", "<session", "<open since", "owner"]);
    for window in windows {
        let owner = window.owner_pid.map_or_else(|| "its client".to_owned(), |pid| format!("pid {pid}"));
        table.rows.push(vec![
            window.id.clone(),
            window.name.clone(),
            window.parent.clone().unwrap_or_default(),
            window.session.clone(),
            // Seconds are enough to know it by.
            format!("{:.0}", window.open_since),
            owner,
        ]);
    }
    format!("{}\n", layout(&table))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_text_unless_they_are_json() {
        let read = |text: &str| attribute(text).unwrap();
        assert_eq!(read("target=nas"), ("target".to_owned(), Value::from("nas")));
        assert_eq!(read("rows=17").1, Value::from(17));
        assert_eq!(read("query=a=b").1, Value::from("a=b"));
        assert_eq!(read("empty=").1, Value::from(""));
        assert!(attribute("target").is_err() && attribute("=nas").is_err());
    }

    #[test]
    fn the_list_names_ids_and_owners() {
        assert_eq!(list(&[]), "No window is open.\n");
        let line = WindowLine {
            id: "d7".to_owned(),
            name: "load".to_owned(),
            session: "bash".to_owned(),
            parent: None,
            open_since: "2026-03-01T12:00:00.123456Z".parse().unwrap(),
            detached: true,
            owner_pid: Some(42),
        };
        let text = list(&[line]);
        let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(words, ["d7", "load", "bash", "2026-03-01T12:00:00Z", "pid", "42"]);
    }
}
