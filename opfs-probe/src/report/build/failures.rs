//! Files whose data may be lost although a sync of them succeeded.

use std::collections::{BTreeMap, BTreeSet};

use nix::libc::{EDQUOT, EIO, ENOSPC};
use opfs_probe_common::call::FileIdentity;

use super::super::escape::lossless;
use super::Naming;
use super::totals::errno_name;
use crate::attribution::totals::{FileRef, Totals};

/// What the kernel reports of a write-back that failed, once for each descriptor (`file_check_and_advance_wb_err()`
/// in mm/filemap.c).
const WRITE_BACK_ERRORS: [i32; 3] = [EIO, ENOSPC, EDQUOT];

/// Files that are named; a full disk has thousands.
const MOST: usize = 10;

/// What became of the syncs of one file.
#[derive(Default)]
struct Syncs {
    failed: BTreeSet<u16>,
    succeeded: bool,
}

/// A line on each file that had both: a sync that failed with such an error, and one that succeeded.
pub fn failures(counts: &Totals, naming: &impl Naming) -> Vec<String> {
    let mut files: BTreeMap<FileIdentity, Syncs> = BTreeMap::new();
    for (key, tally) in &counts.calls {
        let FileRef::Known(file) = key.file else { continue };
        // What was answered before the kernel entered it says nothing of the file.
        if tally.count == tally.untimed {
            continue;
        }
        let syncs = files.entry(file).or_default();
        syncs.succeeded |= key.errno == 0;
        if WRITE_BACK_ERRORS.contains(&i32::from(key.errno)) {
            syncs.failed.insert(key.errno);
        }
    }
    let both: Vec<_> =
        files.into_iter().filter(|(_, syncs)| syncs.succeeded && !syncs.failed.is_empty()).collect();
    let more = both.len().saturating_sub(MOST);
    let more = (more > 0).then(|| format!("so it is with {more} more files"));
    both.iter().take(MOST).map(|(file, syncs)| line(file, &syncs.failed, naming)).chain(more).collect()
}

fn line(file: &FileIdentity, failed: &BTreeSet<u16>, naming: &impl Naming) -> String {
    let path = naming.file(file).and_then(|file| file.path).map(|path| lossless(&path));
    let codes: Vec<String> = failed.iter().map(|errno| errno_name(*errno)).collect();
    format!(
        "syncs of {} failed ({}), and others of it succeeded: the kernel reports each failed write-back only once, so \
         that a success afterwards does not mean that the data are on the disk",
        path.as_deref().unwrap_or("a file whose path is not known"),
        codes.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use opfs_probe_common::call::{CallTally, Op};

    use super::super::super::sample::{identity, names};
    use super::*;
    use crate::attribution::totals::CallKey;

    fn calls(inode: u64, outcomes: &[(i32, u64)]) -> Vec<String> {
        let mut counts = Totals::default();
        for (errno, untimed) in outcomes {
            let file = FileRef::Known(identity(inode));
            let key = CallKey { op: Op::Fsync, process: Some(1), file, errno: *errno as u16 };
            counts.add_call(key, CallTally { count: 1, untimed: *untimed, ..CallTally::default() });
        }
        failures(&counts, &names())
    }

    #[test]
    fn a_success_beside_a_failed_write_back_is_called_out() {
        let said = calls(10, &[(0, 0), (EIO, 0)]).concat();
        assert!(said.starts_with("syncs of /srv/data.db failed (EIO), and others of it succeeded"), "{said}");
        let unknown = calls(77, &[(0, 0), (ENOSPC, 0)]).concat();
        assert!(unknown.contains("a file whose path is not known failed (ENOSPC)"), "{unknown}");
        let silent: [&[(i32, u64)]; 4] = [&[(EIO, 0)], &[(0, 0)], &[(0, 0), (22, 0)], &[(0, 0), (EIO, 1)]];
        for outcomes in silent {
            assert_eq!(calls(10, outcomes), [""; 0], "{outcomes:?}");
        }
    }
}
