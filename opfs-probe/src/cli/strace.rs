//! What strace counted of a session, as a report.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use jiff::Timestamp;
use opfs_probe_common::call::FileIdentity;

use crate::attribution::window::{SessionId, WindowId};
use crate::report::agreement::Ambiguous;
use crate::report::build::{FileName, ImageName, Losses, Naming, window_id};
use crate::report::model::{self, ResolvedBy};
use crate::strace::attribute::{Attributed, BOUND_NS, EpochStart, attribute};
use crate::strace::command::Strace;
use crate::strace::parse::parse;
use crate::watch::{EpochSpan, Watcher};

/// What strace never shows.
const UNSEEN: [&str; 3] = [
    "io_uring and AIO syncs are not seen",
    "msync: strace does not name the mapped file",
    "opens, and what the file system and the device did, are not measured",
];

/// A session as strace saw it.
pub struct Straced {
    /// The session, with the windows of the probe's own.
    pub session: model::Session,
    /// What the log lacks.
    pub losses: Losses,
    /// Calls that may belong to a neighbouring window.
    pub ambiguous: Ambiguous,
}

/// Reads the log that strace wrote of a session.
pub fn read(watcher: &Watcher, session: SessionId, log: &Path, strace: &Strace) -> Result<Straced> {
    let bytes = fs::read(log).with_context(|| format!("reading strace's log {}", log.display()))?;
    let log = parse(&bytes, strace.deleted_mark());
    let spans = watcher.spans(session);
    let starts: Vec<EpochStart> = spans.iter().map(start).collect();
    let attributed = attribute(&log.calls, &starts, BOUND_NS);
    let counted = watcher.strace_session(session, &attributed.totals, &Named::new(&attributed))?;
    let mut losses = Losses {
        inexact: log.unreadable_lines > 0,
        coverage_gaps: UNSEEN.map(str::to_owned).to_vec(),
        ..Losses::default()
    };
    if let Some(line) = log.first_unreadable {
        let warning =
            format!("{} lines of strace's log make no sense, the first: {line}", log.unreadable_lines);
        losses.warnings.push(warning);
    }
    let ambiguous = counted
        .windows
        .iter()
        .filter_map(|window| Some((window.id.clone(), WindowId(window.id.strip_prefix('w')?.parse().ok()?))))
        .flat_map(|(name, id)| {
            debug_assert_eq!(name, window_id(id), "ids are written in one way");
            let near_edge = attributed.ambiguous_in(&watcher.epochs_of(id));
            near_edge.into_iter().map(move |(op, calls)| ((name.clone(), op.name().to_owned()), calls))
        })
        .collect();
    Ok(Straced { session: counted, losses, ambiguous })
}

fn start(span: &EpochSpan) -> EpochStart {
    // The clock was after 1970 when strace stamped its calls, too.
    let realtime_ns = span.from.realtime.duration_since(Timestamp::UNIX_EPOCH).as_nanos();
    EpochStart { epoch: span.epoch, realtime_ns: u64::try_from(realtime_ns).unwrap_or(0) }
}

/// Files by path and processes by thread: all that strace knows of them.
struct Named {
    files: HashMap<FileIdentity, (Vec<u8>, bool)>,
    threads: HashMap<u32, u32>,
}

impl Named {
    fn new(attributed: &Attributed) -> Self {
        let files = attributed.paths.iter().map(|(file, path, deleted)| (file, (path.to_vec(), deleted)));
        Self { files: files.collect(), threads: attributed.threads.iter().collect() }
    }
}

impl Naming for Named {
    fn file(&self, identity: &FileIdentity) -> Option<FileName> {
        let (path, deleted) = self.files.get(identity)?;
        Some(FileName {
            path: Some(path.clone()),
            names: vec![path.clone()],
            deleted: *deleted,
            resolved_by: ResolvedBy::Proc,
            ..FileName::default()
        })
    }

    fn image(&self, process: u32) -> Option<ImageName> {
        let pid = *self.threads.get(&process)?;
        Some(ImageName { pid, ..ImageName::default() })
    }

    fn device(&self, _dev: u32) -> Option<String> {
        None
    }
}
