//! The report, schema `opfs-probe.report/1`: what scripts and dashboards read.
//!
//! Durations are nanoseconds, times RFC 3339 in UTC. What was not measured is null, never 0.
//! Fields may be added; a reader ignores those it does not know.

mod totals;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use totals::{
    ErrorCodes, File, FileOp, Flush, HistogramBuckets, Op, Opens, Performed, Process, ResolvedBy, Role,
    Totals,
};

/// The schema that these types write and read.
pub const SCHEMA: &str = "opfs-probe.report/1";

/// A whole report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`]
    pub schema: String,
    /// When the report was made.
    pub generated_at: Timestamp,
    /// The machine.
    pub host: Host,
    /// What counted.
    pub tracer: Tracer,
    /// The file systems that synced files lie on.
    #[serde(default)]
    pub filesystems: Vec<Filesystem>,
    /// The patterns of the windows that were asked for; empty for a report on everything.
    #[serde(default)]
    pub narrowed_to: Vec<String>,
    /// The sessions.
    pub sessions: Vec<Session>,
    /// What this report may lack.
    pub completeness: Completeness,
}

/// The machine that was watched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Its name.
    pub hostname: String,
    /// The kernel's release.
    pub kernel: String,
    /// The machine's architecture, as `uname -m` says it.
    pub arch: String,
    /// The processor's model, where it is known.
    pub cpu: Option<String>,
    /// Processors online.
    pub cpus: Option<u32>,
    /// Main memory.
    pub memory_bytes: Option<u64>,
}

/// What counted the calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tracer {
    /// Its kind.
    pub kind: TracerKind,
    /// Its version.
    pub version: Option<String>,
    /// Its probes.
    #[serde(default)]
    pub probes: Vec<Probe>,
    /// For how long the probes' run time has been measured; null where it is not.
    #[serde(default)]
    pub run_time_over_ns: Option<u64>,
}

/// Kinds of tracers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TracerKind {
    /// Programs in the kernel.
    Ebpf,
    /// `strace`, which stops each call.
    Strace,
    /// Nothing was counted; windows have times alone.
    None,
}

/// One probe of the tracer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Where it sits.
    pub name: String,
    /// What it watches.
    pub layer: Layer,
    /// Whether it is attached.
    pub attached: bool,
    /// Why it is not.
    pub reason: Option<String>,
    /// How often it ran while its run time was measured; null where it was not.
    pub runs: Option<u64>,
    /// Time it ran then, over all processors.
    pub run_ns: Option<u64>,
    /// How often the kernel skipped it; null where the kernel does not count that.
    pub missed: Option<u64>,
}

/// Layers that probes watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// System calls.
    Syscall,
    /// What the file system ran.
    Filesystem,
    /// Requests through `io_uring`.
    Uring,
    /// What the device got.
    Block,
    /// Which processes there are.
    Process,
}

/// A file system that synced files lie on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Filesystem {
    /// `major:minor`, as `stat` reports it.
    pub dev: String,
    /// Where it is mounted.
    pub mount: String,
    /// Its type.
    pub fstype: String,
    /// Its mount options.
    pub options: String,
    /// The device or other source under it, and what that lies on: `/dev/loop0 on /srv/image on vda`.
    pub device: Option<String>,
    /// The write cache of the disks at the bottom, in the kernel's words.
    pub write_cache: Option<String>,
    /// Whether it has a journal, where that can be told.
    #[serde(default)]
    pub journal: Option<bool>,
    /// Whether its syncs flush the device's cache.
    #[serde(default)]
    pub barrier: Option<bool>,
    /// Whether what is flushed there survives a power cut, where that can be told.
    pub durable: Option<bool>,
    /// What else a reader should know of it.
    pub note: Option<String>,
}

/// A watched process tree, or everything else on the system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Unique in the report.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: SessionKind,
    /// The tree's first process, in the initial PID namespace.
    pub root_pid: Option<u32>,
    /// Its command line.
    pub command: Option<Vec<String>>,
    /// When the watching began.
    pub started_at: Timestamp,
    /// How long it has been watched.
    pub duration_ns: u64,
    /// The command's exit status; 128 + n for signal n.
    pub exit_status: Option<i32>,
    /// The browser, if it is one.
    pub browser: Option<Browser>,
    /// Its windows, flat, parents before their children.
    pub windows: Vec<Window>,
    /// Its calls in no window; null if nothing was counted.
    pub outside: Option<Totals>,
    /// All its calls; null if nothing was counted.
    pub total: Option<Totals>,
    /// Its calls that have not returned, the oldest first.
    #[serde(default)]
    pub in_flight: Vec<InFlight>,
}

/// A sync call that has not returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlight {
    /// The kind of call.
    pub op: String,
    /// Its process, in the initial PID namespace.
    pub pid: Option<u32>,
    /// The process's short name.
    pub comm: Option<String>,
    /// The file.
    pub path: Option<String>,
    /// How long ago it was entered.
    pub age_ns: u64,
}

/// Kinds of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionKind {
    /// A command that the probe started.
    Command,
    /// A browser.
    Browser,
    /// Processes that ran already.
    Attached,
    /// Everything that belongs to no other session.
    System,
}

/// A browser.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Browser {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: Option<String>,
    /// Its executable.
    pub executable: Option<String>,
}

/// A named interval inside a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Unique in the report.
    pub id: String,
    /// Its id in the words of the client that announced it.
    pub client_id: String,
    /// The `id` of the window it lies in.
    pub parent: Option<String>,
    /// Names of all windows it lies in, the outermost first. A filter may drop those windows
    /// themselves; their names stay.
    #[serde(default)]
    pub within: Vec<String>,
    /// Its name.
    pub name: String,
    /// What the client wanted kept.
    #[serde(default)]
    pub attrs: Map<String, Value>,
    /// The client's own timed calls in it, over all entries.
    pub calls: Option<u64>,
    /// How often it was entered.
    pub entries: u64,
    /// When it was first entered.
    pub started_at: Timestamp,
    /// Time it was open, over all entries.
    pub duration_ns: u64,
    /// It is still open: its numbers go on growing.
    #[serde(default)]
    pub open: bool,
    /// Something else than its client ended it.
    pub aborted: bool,
    /// Events lost while it was open; null where none were taken.
    pub events_lost: Option<u64>,
    /// Calls whose process and file were not kept; null if nothing was counted.
    pub detail_lost: Option<u64>,
    /// In this window and in none of its children; null if nothing was counted.
    #[serde(rename = "self")]
    pub own: Option<Totals>,
    /// In this window, its children included; null if nothing was counted.
    pub total: Option<Totals>,
}

impl Window {
    /// Its name, after those of the windows around it: `small-append › run 1 › loop`.
    pub fn place(&self) -> String {
        self.within.iter().chain([&self.name]).map(String::as_str).collect::<Vec<_>>().join(" › ")
    }
}

/// What a report may lack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Completeness {
    /// Every call that the probes can see was counted, once.
    pub exact_counts: bool,
    /// Events that found no room; null where none were taken. Counts never come from events.
    pub events_lost: Option<u64>,
    /// Calls counted without their process and file.
    pub detail_lost: u64,
    /// Inodes whose path was not found; 1 if there are only calls whose file was never seen.
    pub unresolved_paths: u64,
    /// Calls on such files.
    #[serde(default)]
    pub unresolved_calls: u64,
    /// Calls missing from the histograms, and so from the percentiles.
    #[serde(default)]
    pub latencies_lost: u64,
    /// Calls that began in one epoch and returned in a later one; they count where they began.
    pub straddling_calls: u64,
    /// Calls that had not returned; they are not counted.
    pub in_flight_calls: u64,
    /// Kinds of sync that no attached probe can see.
    pub coverage_gaps: Vec<String>,
    /// Anything else to know before the numbers are relied on.
    pub warnings: Vec<String>,
}

impl Completeness {
    /// Whether the report lacks nothing that it claims to have: what `--strict` asks.
    ///
    /// Straddling calls do not count against it: each is counted, once, in the window it began
    /// in, and nothing is missing. Coverage gaps do not either: a kind of sync that nobody issued
    /// leaves no hole, and on a kernel that lacks a probe `--strict` would otherwise never pass.
    /// Who meets one all the same (a 32-bit process, say) clears `exact_counts`.
    pub fn is_perfect(&self) -> bool {
        self.exact_counts
            && self.events_lost.unwrap_or(0) == 0
            && self.detail_lost == 0
            && self.unresolved_paths == 0
            && self.latencies_lost == 0
            && self.in_flight_calls == 0
    }
}
