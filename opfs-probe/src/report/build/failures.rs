//! Files whose data may be lost although a sync of them succeeded.

use super::super::model::{File, Session};

/// What the kernel reports of a write-back that failed, once for each descriptor (`file_check_and_advance_wb_err()`
/// in mm/filemap.c).
const WRITE_BACK_ERRORS: [&str; 3] = ["EIO", "ENOSPC", "EDQUOT"];

/// Files that are named; a full disk has thousands.
const MOST: usize = 10;

/// A line on each file that had both: a sync that failed with such an error, and one that succeeded.
pub fn failures(sessions: &[Session]) -> Vec<String> {
    let totals = sessions.iter().filter_map(|session| session.total.as_ref());
    let lines: Vec<String> = totals.flat_map(|total| &total.files).filter_map(failure).collect();
    let more = lines.len().saturating_sub(MOST);
    let more = (more > 0).then(|| format!("so it is with {more} more files"));
    lines.into_iter().take(MOST).chain(more).collect()
}

fn failure(file: &File) -> Option<String> {
    let codes = file.ops.values().flat_map(|op| &op.error_codes);
    let mut failed: Vec<&str> =
        codes.map(|(code, _)| code.as_str()).filter(|code| WRITE_BACK_ERRORS.contains(code)).collect();
    failed.sort_unstable();
    failed.dedup();
    let succeeded = file.count - file.errors;
    if failed.is_empty() || succeeded == 0 {
        return None;
    }
    Some(format!(
        "syncs of {} failed ({}), and others of it succeeded: the kernel reports each failed write-back only once, so \
         that a success afterwards does not mean that the data are on the disk",
        file.path.as_deref().unwrap_or("a file without a path"),
        failed.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::super::super::model::FileOp;
    use super::*;

    fn file(count: u64, codes: &[(&str, u64)]) -> File {
        let error_codes = codes.iter().map(|(code, count)| ((*code).to_owned(), *count)).collect();
        let errors = codes.iter().map(|(_, count)| count).sum();
        let op = FileOp { count, errors, error_codes, ..FileOp::default() };
        File {
            path: Some("/srv/data".into()),
            count,
            errors,
            ops: [("fsync".to_owned(), op)].into(),
            ..File::default()
        }
    }

    #[test]
    fn a_success_beside_a_failed_write_back_is_called_out() {
        let said = failure(&file(3, &[("EIO", 1), ("EINTR", 1)])).unwrap();
        assert!(said.starts_with("syncs of /srv/data failed (EIO), and others of it succeeded"), "{said}");
        assert_eq!(failure(&file(2, &[("EIO", 2)])), None, "nothing succeeded");
        assert_eq!(failure(&file(3, &[("EINVAL", 1)])), None, "nothing was to be written back");
        assert_eq!(failure(&file(3, &[])), None);
    }
}
