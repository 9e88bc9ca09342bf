//! What was counted in a window or a session, and on what.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Everything counted in some stretch of a session.
///
/// A file or a process that is here for performed syncs alone has a count of 0. The counts of `files`, `no_file` and `detail_lost` add up to `sync_calls`, as do those of
/// `ops` and those of `processes`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Finished sync calls.
    pub sync_calls: u64,
    /// Time inside them; null if there were some and none was timed.
    pub sync_ns: Option<u64>,
    /// Those that failed.
    pub errors: u64,
    /// Those that returned in a later epoch than they began in.
    pub straddling: u64,
    /// Calls that the kernel restarted; not in `sync_calls`.
    pub restarted: u64,
    /// Calls that had not returned; not in `sync_calls`.
    #[serde(default)]
    pub in_flight: u64,
    /// Calls that have no file: `sync`, or a descriptor that is not open.
    #[serde(default)]
    pub no_file: u64,
    /// Calls whose process and file were not kept.
    #[serde(default)]
    pub detail_lost: u64,
    /// By kind of call; kinds without a call are left out.
    pub ops: BTreeMap<String, Op>,
    /// Syncs that file systems ran.
    pub performed: Option<Performed>,
    /// Those of `performed` whose process and file were not kept.
    #[serde(default)]
    pub performed_detail_lost: u64,
    /// Flushes that devices got.
    pub flushes: Option<Vec<Flush>>,
    /// Opens.
    pub opens: Option<Opens>,
    /// By process image: an exec makes a new entry.
    pub processes: Vec<Process>,
    /// By path; one entry with a null path holds the calls whose file has no known path.
    pub files: Vec<File>,
}

/// Errors by their name (`EIO`).
pub type ErrorCodes = BTreeMap<String, u64>;

/// Latencies, not cumulative: `(le_ns, count)`, the bound inclusive. The last bucket has no bound.
/// A bucket is left out if it is empty and the one above it too, so each one's lower bound shows.
pub type HistogramBuckets = Vec<(Option<u64>, u64)>;

/// One kind of call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Op {
    /// Finished calls.
    pub count: u64,
    /// Those that failed.
    pub errors: u64,
    /// Why.
    pub error_codes: ErrorCodes,
    /// Calls whose time is not known; `total_ns` and `max_ns` are of the others.
    #[serde(default)]
    pub untimed: u64,
    /// Time inside them; null if none was timed.
    pub total_ns: Option<u64>,
    /// The longest; null if none was timed.
    pub max_ns: Option<u64>,
    /// Half took at most this.
    pub p50_ns: Option<u64>,
    /// Nine in ten took at most this.
    pub p90_ns: Option<u64>,
    /// Ninety-nine in a hundred took at most this.
    pub p99_ns: Option<u64>,
    /// Bound of the percentiles' relative error.
    pub percentile_error: Option<f64>,
    /// Latencies.
    pub histogram: Option<HistogramBuckets>,
}

/// Syncs that a file system ran, by what caused them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Performed {
    /// Sync calls.
    pub explicit: Option<u64>,
    /// Writes with `O_SYNC`, `O_DSYNC` and the like.
    pub implicit: Option<u64>,
    /// The kernel itself.
    pub kernel: Option<u64>,
    /// Requests through `io_uring`.
    pub uring: Option<u64>,
}

impl Performed {
    /// All of them that were measured; none if nothing was.
    pub fn total(&self) -> Option<u64> {
        [self.explicit, self.implicit, self.kernel, self.uring]
            .into_iter()
            .flatten()
            .reduce(|sum, more| sum + more)
    }
}

/// Flushes that a device was done with meanwhile, whoever caused them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flush {
    /// `major:minor` of the whole disk
    pub dev: String,
    /// Its name, such as `vda`.
    #[serde(default)]
    pub device: Option<String>,
    /// Cache flushes.
    pub count: u64,
    /// Forced-unit-access writes.
    pub fua: u64,
    /// Those of either kind that failed.
    #[serde(default)]
    pub errors: u64,
    /// Time in both.
    pub total_ns: Option<u64>,
    /// The longest.
    pub max_ns: Option<u64>,
}

/// Opens, and how they were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opens {
    /// All of them.
    pub count: u64,
    /// Those that failed.
    pub errors: u64,
    /// With `O_CREAT`.
    pub create: u64,
    /// With `O_EXCL`.
    pub excl: u64,
    /// With `O_TRUNC`.
    pub trunc: u64,
    /// With `O_SYNC`.
    pub sync: u64,
    /// With `O_DSYNC` and not `O_SYNC`.
    pub dsync: u64,
    /// With `O_DIRECT`.
    pub direct: u64,
}

/// A process image and its calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// In the initial PID namespace; null for calls whose process was not kept.
    pub pid: Option<u32>,
    /// In its own PID namespace.
    pub ns_pid: Option<u32>,
    /// When it started.
    pub started_at: Option<Timestamp>,
    /// The kernel's short name of it.
    pub comm: Option<String>,
    /// Its executable.
    pub exe: Option<String>,
    /// `exe` in base64, if that is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exe_bytes: Option<String>,
    /// What it does in its program.
    pub role: Role,
    /// Its cgroup.
    pub cgroup: Option<String>,
    /// It runs 32-bit code, whose calls the probes can't see.
    #[serde(default)]
    pub compat_32_bit: bool,
    /// Finished sync calls.
    pub count: u64,
    /// Time inside them; null if none was timed.
    pub total_ns: Option<u64>,
    /// Syncs that file systems ran for it.
    #[serde(default)]
    pub performed: Option<Performed>,
}

/// What a process does in its program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The program's first process.
    Main,
    /// Runs pages.
    Content,
    /// Draws.
    Gpu,
    /// Talks to the network.
    Network,
    /// Keeps data.
    Storage,
    /// A service of the program.
    Utility,
    /// A small aid of the program.
    Helper,
    /// The command that the probe started.
    Command,
    /// A descendant of it.
    Child,
    /// A kernel thread.
    Kernel,
    /// Anything else, and roles that a later version added.
    #[default]
    #[serde(other)]
    Other,
}

impl Role {
    /// The role's name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Content => "content",
            Self::Gpu => "gpu",
            Self::Network => "network",
            Self::Storage => "storage",
            Self::Utility => "utility",
            Self::Helper => "helper",
            Self::Command => "command",
            Self::Child => "child",
            Self::Kernel => "kernel",
            Self::Other => "other",
        }
    }
}

/// How a path was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResolvedBy {
    /// In the kernel, at the time of the call.
    Kernel,
    /// From `/proc/PID/fd`, afterwards.
    Proc,
    /// From the call that opened it.
    Open,
    /// Not at all.
    #[default]
    #[serde(other)]
    None,
}

/// A path and the calls on the files it named.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct File {
    /// Where it was, seen from the root; null if that is not known.
    pub path: Option<String>,
    /// `path` in base64, if that is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
    /// Where it was, seen from its file system's root.
    pub fs_path: Option<String>,
    /// `fs_path` in base64, if that is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs_path_bytes: Option<String>,
    /// All names it was seen under.
    pub names: Vec<String>,
    /// `names` in base64, in the same order, if any of them is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names_bytes: Option<Vec<String>>,
    /// `major:minor`, as `stat` reports it.
    pub dev: Option<String>,
    /// Inode number, decimal. Of several inodes in turn: of one that still has the name if there
    /// is one, and of those the last that was first seen.
    pub inode: Option<String>,
    /// How many inodes the path named in turn.
    #[serde(default)]
    pub inodes: u64,
    /// The name is gone, for every one of those inodes.
    pub deleted: bool,
    /// How the path was found.
    pub resolved_by: ResolvedBy,
    /// What kind of file it is to its program.
    pub group: Option<String>,
    /// Finished sync calls.
    pub count: u64,
    /// Those that failed.
    pub errors: u64,
    /// Time inside them; null if none was timed.
    pub total_ns: Option<u64>,
    /// The longest; null if none was timed.
    pub max_ns: Option<u64>,
    /// By kind of call.
    pub ops: BTreeMap<String, FileOp>,
    /// Syncs that its file system ran; null where none of that is seen.
    pub performed: Option<Performed>,
}

/// One kind of call on one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileOp {
    /// Finished calls.
    pub count: u64,
    /// Those that failed.
    pub errors: u64,
    /// Why.
    pub error_codes: ErrorCodes,
    /// Time inside them; null if none was timed.
    pub total_ns: Option<u64>,
    /// The longest; null if none was timed.
    pub max_ns: Option<u64>,
}
