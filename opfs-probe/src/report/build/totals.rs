//! Totals of a window or a session, by kind of call, process and file.

use std::collections::{BTreeMap, HashMap};

use nix::errno::Errno;
use opfs_probe_common::call::{CallTally, Op};
use opfs_probe_common::flushed::FlushTally;
use opfs_probe_common::histogram::{Histogram, PERCENTILE_ERROR};

use super::files::dev_in_words;
use super::percentiles::{buckets, percentile_ns};
use super::performed::ByCause;
use super::{Naming, files, processes};
use crate::attribution::totals::{CallKey, FileRef, Totals};
use crate::report::model::{self, ErrorCodes, FileOp, Flush, Opens};

/// Counts with their names.
pub fn totals(counts: &Totals, naming: &impl Naming) -> model::Totals {
    let mut all = Sum::default();
    let mut by_op: BTreeMap<Op, Sum> = BTreeMap::new();
    let (mut no_file, mut detail_lost) = (0, 0);
    // Maps that were merged may hold keys without a call.
    for (key, tally) in counts.calls.iter().filter(|(_, tally)| tally.count > 0) {
        all.add(key, tally);
        by_op.entry(key.op).or_default().add(key, tally);
        match key.file {
            FileRef::None => no_file += tally.count,
            FileRef::Lost => detail_lost += tally.count,
            FileRef::Known(_) | FileRef::Unseen => {}
        }
    }
    let (mut performed, mut performed_detail_lost) = (ByCause::default(), 0);
    for (key, count) in counts.performed.iter().flatten() {
        performed.add(key.cause, *count);
        if key.file == FileRef::Lost {
            performed_detail_lost += count;
        }
    }
    model::Totals {
        sync_calls: all.count,
        sync_ns: all.total_ns(),
        errors: all.errors,
        straddling: counts.straddling,
        restarted: counts.restarted,
        in_flight: counts.in_flight,
        no_file,
        detail_lost,
        ops: by_op
            .into_iter()
            .map(|(op, sum)| (op.name().to_owned(), sum.into_op(counts.histograms.get(&op))))
            .collect(),
        performed: counts.performed.as_ref().map(|_| performed.into_model()),
        performed_detail_lost,
        flushes: counts.flushes.as_ref().map(|counts| flushes(counts, naming)),
        opens: counts.opens.map(|opens| Opens {
            count: opens.count,
            errors: opens.errors,
            create: opens.create,
            excl: opens.excl,
            trunc: opens.trunc,
            sync: opens.sync,
            dsync: opens.dsync,
            direct: opens.direct,
        }),
        processes: processes::processes(counts, naming),
        files: files::files(counts, naming),
    }
}

fn flushes(counts: &HashMap<u32, FlushTally>, naming: &impl Naming) -> Vec<Flush> {
    let mut flushes: Vec<Flush> = counts
        .iter()
        .map(|(dev, tally)| Flush {
            dev: dev_in_words(*dev),
            device: naming.device(*dev),
            count: tally.flushes,
            fua: tally.fua,
            errors: tally.errors,
            total_ns: Some(tally.total_ns),
            max_ns: Some(tally.max_ns),
        })
        .collect();
    flushes.sort_by(|a, b| {
        let amount = |flush: &Flush| (flush.count + flush.fua, flush.total_ns);
        amount(b).cmp(&amount(a)).then_with(|| a.dev.cmp(&b.dev))
    });
    flushes
}

/// Calls of several keys, added up.
#[derive(Clone, Debug, Default)]
pub(super) struct Sum {
    pub count: u64,
    pub errors: u64,
    error_codes: ErrorCodes,
    untimed: u64,
    total_ns: u64,
    max_ns: u64,
}

impl Sum {
    pub fn add(&mut self, key: &CallKey, tally: &CallTally) {
        self.count += tally.count;
        self.untimed += tally.untimed;
        self.total_ns += tally.total_ns;
        self.max_ns = self.max_ns.max(tally.max_ns);
        if key.errno != 0 {
            self.errors += tally.count;
            *self.error_codes.entry(errno_name(key.errno)).or_default() += tally.count;
        }
    }

    pub fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.untimed += other.untimed;
        self.total_ns += other.total_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.errors += other.errors;
        for (code, count) in other.error_codes {
            *self.error_codes.entry(code).or_default() += count;
        }
    }

    fn timed(&self) -> bool {
        self.count == 0 || self.untimed < self.count
    }

    pub fn total_ns(&self) -> Option<u64> {
        self.timed().then_some(self.total_ns)
    }

    pub fn max_ns(&self) -> Option<u64> {
        (self.untimed < self.count).then_some(self.max_ns)
    }

    pub fn into_file_op(self) -> FileOp {
        FileOp {
            count: self.count,
            errors: self.errors,
            total_ns: self.total_ns(),
            max_ns: self.max_ns(),
            error_codes: self.error_codes,
        }
    }

    fn into_op(self, histogram: Option<&Histogram>) -> model::Op {
        let histogram =
            histogram.filter(|histogram| self.timed() && histogram.buckets.iter().any(|&count| count > 0));
        let percentile = |per_cent| percentile_ns(histogram?, per_cent, self.max_ns);
        model::Op {
            count: self.count,
            errors: self.errors,
            untimed: self.untimed,
            total_ns: self.total_ns(),
            max_ns: self.max_ns(),
            p50_ns: percentile(50),
            p90_ns: percentile(90),
            p99_ns: percentile(99),
            percentile_error: histogram.map(|_| PERCENTILE_ERROR),
            histogram: histogram.map(buckets),
            error_codes: self.error_codes,
        }
    }
}

/// The errno's name as in errno(3).
pub(super) fn errno_name(errno: u16) -> String {
    // The kernel's own ENOTSUPP leaks from some file systems and has no name in user space.
    const ENOTSUPP: u16 = 524;
    match Errno::from_raw(errno.into()) {
        Errno::UnknownErrno if errno == ENOTSUPP => "ENOTSUPP".to_owned(),
        Errno::UnknownErrno => format!("errno {errno}"),
        known => format!("{known:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::errno_name;

    #[test]
    fn errors_have_names() {
        assert_eq!(errno_name(5), "EIO");
        assert_eq!(errno_name(122), "EDQUOT");
        assert_eq!(errno_name(524), "ENOTSUPP");
        assert_eq!(errno_name(4095), "errno 4095");
    }
}
