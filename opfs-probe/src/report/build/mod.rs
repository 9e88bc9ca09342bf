//! From what was counted to the report.

mod completeness;
mod failures;
mod files;
mod percentiles;
mod performed;
mod processes;
#[cfg(test)]
mod tests;
mod totals;

use std::collections::HashMap;

use jiff::Timestamp;
use opfs_probe_common::call::{FileIdentity, InFlightCall, Op};

use super::escape::lossless;
use super::model::{self, Browser, ResolvedBy, Role, SessionKind};
use crate::attribution::totals::Totals;
use crate::attribution::window::{Moment, SessionId, Window, WindowId};

pub use completeness::{Losses, add_up, completeness};
pub use failures::failures;
pub use totals::totals;

/// Knows what identities and image numbers stand for.
pub trait Naming {
    /// What is known of a file.
    fn file(&self, identity: &FileIdentity) -> Option<FileName>;
    /// What is known of a process image.
    fn image(&self, process: u32) -> Option<ImageName>;
    /// The name of a block device, by its number in the kernel's encoding.
    fn device(&self, dev: u32) -> Option<String>;
}

/// What is known of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileName {
    /// Its path from the root, undecorated.
    pub path: Option<Vec<u8>>,
    /// Its path from its file system's root.
    pub fs_path: Option<Vec<u8>>,
    /// All names it was seen under.
    pub names: Vec<Vec<u8>>,
    /// Its device as `stat` reports it, in the kernel's encoding.
    pub dev: u32,
    /// Its inode number.
    pub inode: u64,
    /// The name is gone.
    pub deleted: bool,
    /// How the path was found.
    pub resolved_by: ResolvedBy,
    /// What kind of file it is to its program.
    pub group: Option<String>,
    /// Grows from file to file in the order they were first seen; 0 where that is not known.
    pub seen: u64,
    /// Whether syncs that its file system performs are seen.
    pub performed_seen: bool,
}

/// What is known of a process image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageName {
    /// In the initial PID namespace.
    pub pid: u32,
    /// In its own PID namespace.
    pub ns_pid: Option<u32>,
    /// When it started.
    pub started_at: Option<Timestamp>,
    /// The kernel's short name of it.
    pub comm: Vec<u8>,
    /// Its executable.
    pub exe: Option<Vec<u8>>,
    /// What it does in its program.
    pub role: Role,
    /// Its cgroup.
    pub cgroup: Option<String>,
    /// It runs 32-bit code.
    pub compat_32_bit: bool,
}

/// A session: what it was, and what was counted in it.
#[derive(Clone, Debug)]
pub struct Measured<'a> {
    /// Its number.
    pub id: SessionId,
    /// Its name.
    pub name: &'a str,
    /// What it is.
    pub kind: SessionKind,
    /// The tree's first process.
    pub root_pid: Option<u32>,
    /// Its command line; none if it was not started by us.
    pub command: Option<&'a [Vec<u8>]>,
    /// When the watching began.
    pub started_at: Moment,
    /// When it ended; the present moment while it goes on.
    pub ended_at: Moment,
    /// The command's exit status; 128 + n for signal n.
    pub exit_status: Option<i32>,
    /// The browser, if it is one.
    pub browser: Option<Browser>,
    /// Its windows, parents before their children.
    pub windows: &'a [Window],
    /// Counted in no window.
    pub outside: &'a Totals,
    /// All that was counted.
    pub total: &'a Totals,
    /// Its calls that have not returned, the oldest first.
    pub in_flight: &'a [InFlightCall],
    /// Whether anything was counting; if not, the report's totals are null.
    pub counted: bool,
}

/// The report's part on one session.
pub fn session(measured: &Measured<'_>, naming: &impl Naming) -> model::Session {
    let totals_of = |counts| measured.counted.then(|| totals(counts, naming));
    let by_id = measured.windows.iter().map(|window| (window.id, window)).collect();
    model::Session {
        id: session_id(measured.id),
        name: measured.name.to_owned(),
        kind: measured.kind,
        root_pid: measured.root_pid,
        command: measured.command.map(|words| words.iter().map(|word| lossless(word)).collect()),
        started_at: measured.started_at.realtime,
        duration_ns: span_ns(measured.started_at, measured.ended_at),
        exit_status: measured.exit_status,
        browser: measured.browser.clone(),
        windows: measured
            .windows
            .iter()
            .map(|window| {
                let total = totals_of(&window.total);
                model::Window {
                    id: window_id(window.id),
                    client_id: window.client_id.clone(),
                    parent: window.parent.map(window_id),
                    within: ancestors(window, &by_id),
                    name: window.name.clone(),
                    attrs: window.attrs.clone(),
                    calls: window.calls,
                    entries: window.entries,
                    started_at: window.started_at.realtime,
                    duration_ns: window.open_ns
                        + window.open_since.map_or(0, |since| span_ns(since, measured.ended_at)),
                    open: window.open_since.is_some(),
                    aborted: window.aborted,
                    events_lost: None,
                    detail_lost: total.as_ref().map(|total| total.detail_lost),
                    own: totals_of(&window.own),
                    total,
                }
            })
            .collect(),
        outside: totals_of(measured.outside),
        total: totals_of(measured.total),
        in_flight: measured.in_flight.iter().filter_map(|call| in_flight(call, measured, naming)).collect(),
    }
}

/// A call that has not returned, with its names; none if its op is not one.
fn in_flight(call: &InFlightCall, measured: &Measured<'_>, naming: &impl Naming) -> Option<model::InFlight> {
    let image = naming.image(call.process);
    let file = naming.file(&call.file);
    Some(model::InFlight {
        op: Op::from_raw(call.op)?.name().to_owned(),
        pid: image.as_ref().map(|image| image.pid),
        comm: image.map(|image| lossless(&image.comm)),
        path: file.and_then(|file| file.path).map(|path| lossless(&path)),
        age_ns: measured.ended_at.monotonic_ns.saturating_sub(call.start_ns),
    })
}

/// A session's id in reports and on the sockets.
pub fn session_id(id: SessionId) -> String {
    format!("s{}", id.0)
}

/// A window's id in reports.
pub fn window_id(id: WindowId) -> String {
    format!("w{}", id.0)
}

fn span_ns(from: Moment, to: Moment) -> u64 {
    to.monotonic_ns.saturating_sub(from.monotonic_ns)
}

/// Names of the windows around `window`, the outermost first.
fn ancestors(window: &Window, by_id: &HashMap<WindowId, &Window>) -> Vec<String> {
    let mut names = Vec::new();
    let mut parent = window.parent;
    while let Some(above) = parent.and_then(|id| by_id.get(&id)) {
        // A chain longer than the list would go in circles.
        if names.len() == by_id.len() {
            break;
        }
        names.push(above.name.clone());
        parent = above.parent;
    }
    names.reverse();
    names
}
