//! Calls by path.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use opfs_probe_common::call::{FileIdentity, Op};

use super::performed::ByCause;
use super::totals::Sum;
use super::{FileName, Naming};
use crate::attribution::totals::{FileRef, Totals};
use crate::report::escape::{base64, lossless, text_and_bytes};
use crate::report::model::{File, ResolvedBy};

/// The calls of one identity, or of those that have none.
#[derive(Default)]
struct Calls {
    all: Sum,
    by_op: BTreeMap<Op, Sum>,
    performed: ByCause,
}

/// The files that were synced, those of one path in turn as one entry.
///
/// A program that replaces a file at each write (a journal, a temporary file renamed into place)
/// makes a new inode each time; to the reader it is one file. Calls whose file has no known path,
/// seen or not, share an entry without a path.
pub fn files(counts: &Totals, naming: &impl Naming) -> Vec<File> {
    let mut by_identity: HashMap<Option<FileIdentity>, Calls> = HashMap::new();
    for (key, tally) in counts.calls.iter().filter(|(_, tally)| tally.count > 0) {
        let identity = match key.file {
            FileRef::Known(identity) => Some(identity),
            FileRef::Unseen => None,
            FileRef::None | FileRef::Lost => continue,
        };
        let calls = by_identity.entry(identity).or_default();
        calls.all.add(key, tally);
        calls.by_op.entry(key.op).or_default().add(key, tally);
    }
    for (key, count) in counts.performed.iter().flatten() {
        let identity = match key.file {
            FileRef::Known(identity) => Some(identity),
            FileRef::Unseen | FileRef::None => None,
            FileRef::Lost => continue,
        };
        by_identity.entry(identity).or_default().performed.add(key.cause, *count);
    }

    let mut by_path: HashMap<Option<Vec<u8>>, Merged> = HashMap::new();
    for (identity, calls) in by_identity {
        let name = identity.map(|identity| {
            naming.file(&identity).unwrap_or_else(|| FileName {
                dev: identity.dev,
                inode: identity.inode,
                ..FileName::default()
            })
        });
        let path = name.as_ref().and_then(|name| name.path.clone());
        by_path.entry(path).or_default().add(name, calls);
    }

    let measured = counts.performed.is_some();
    let mut files: Vec<_> =
        by_path.into_iter().map(|(path, merged)| merged.into_file(path.as_deref(), measured)).collect();
    files.sort_by(|a, b| {
        let key = |file: &File| (Reverse(file.count), Reverse(file.total_ns));
        key(a).cmp(&key(b)).then_with(|| (&a.path, &a.path_bytes).cmp(&(&b.path, &b.path_bytes)))
    });
    files
}

/// The identities of one path.
#[derive(Default)]
struct Merged {
    identities: Vec<FileName>,
    calls: Calls,
}

impl Merged {
    fn add(&mut self, name: Option<FileName>, calls: Calls) {
        self.identities.extend(name);
        self.calls.all.merge(calls.all);
        self.calls.performed.merge(calls.performed);
        for (op, sum) in calls.by_op {
            self.calls.by_op.entry(op).or_default().merge(sum);
        }
    }

    /// `measured`: whether performed syncs are seen on any file system.
    fn into_file(self, path: Option<&[u8]>, measured: bool) -> File {
        let performed = self.calls.performed;
        let seen = !performed.is_empty() || self.identities.iter().any(|name| name.performed_seen);
        // Which inode stands for the path: one that still has the name, then the last seen.
        let latest =
            self.identities.iter().max_by_key(|name| (!name.deleted, name.seen, name.inode, name.dev));
        let names: BTreeSet<&[u8]> =
            self.identities.iter().flat_map(|name| &name.names).map(Vec::as_slice).collect();
        let (path, path_bytes) = path.map(text_and_bytes).unzip();
        let fs_path = latest.and_then(|name| name.fs_path.as_deref());
        let (fs_path, fs_path_bytes) = fs_path.map(text_and_bytes).unzip();
        File {
            resolved_by: match path {
                Some(_) => latest.map(|name| name.resolved_by).unwrap_or_default(),
                None => ResolvedBy::None,
            },
            path,
            path_bytes: path_bytes.flatten(),
            fs_path,
            fs_path_bytes: fs_path_bytes.flatten(),
            names_bytes: names
                .iter()
                .any(|name| str::from_utf8(name).is_err())
                .then(|| names.iter().map(|name| base64(name)).collect()),
            names: names.iter().map(|name| lossless(name)).collect(),
            dev: latest.map(|name| dev_in_words(name.dev)),
            inode: latest.map(|name| name.inode.to_string()),
            inodes: self.identities.len() as u64,
            deleted: !self.identities.is_empty() && self.identities.iter().all(|name| name.deleted),
            group: latest.and_then(|name| name.group.clone()),
            count: self.calls.all.count,
            errors: self.calls.all.errors,
            total_ns: self.calls.all.total_ns(),
            max_ns: self.calls.all.max_ns(),
            ops: self
                .calls
                .by_op
                .into_iter()
                .map(|(op, sum)| (op.name().to_owned(), sum.into_file_op()))
                .collect(),
            performed: (measured && seen).then(|| performed.into_model()),
        }
    }
}

/// A device number of the kernel's encoding as `major:minor`.
pub(super) fn dev_in_words(dev: u32) -> String {
    const MINOR_BITS: u32 = 20;
    format!("{}:{}", dev >> MINOR_BITS, dev & ((1 << MINOR_BITS) - 1))
}
