//! What a report lacks, from what was lost and what it shows itself.

use crate::report::model::{Completeness, Session, Totals};

/// What went missing on the way, and what could not be seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Calls not counted at all, calls counted that may have no place here, or a known kind of
    /// call that no probe saw: anything that makes the counts inexact.
    pub inexact: bool,
    /// Events that found no room; none where none were taken.
    pub events_lost: Option<u64>,
    /// Calls missing from the histograms.
    pub latencies_lost: u64,
    /// Kinds of sync that no attached probe can see.
    pub coverage_gaps: Vec<String>,
    /// Anything else to know before the numbers are relied on.
    pub warnings: Vec<String>,
}

/// Completeness of a report on `sessions`.
pub fn completeness(sessions: &[Session], losses: &Losses) -> Completeness {
    let totals = || sessions.iter().filter_map(|session| session.total.as_ref());
    let sum = |field: fn(&Totals) -> u64| totals().map(field).sum();
    let unresolved = || totals().flat_map(|total| &total.files).filter(|file| file.path.is_none());
    Completeness {
        // Where nothing was counted there is nothing exact either.
        exact_counts: !losses.inexact && sessions.iter().all(|session| session.total.is_some()),
        events_lost: losses.events_lost,
        detail_lost: sum(|total| total.detail_lost),
        // Calls whose file was never seen have an entry and no inode.
        unresolved_paths: unresolved().map(|file| file.inodes.max(1)).sum(),
        unresolved_calls: unresolved().map(|file| file.count).sum(),
        latencies_lost: losses.latencies_lost,
        straddling_calls: sum(|total| total.straddling),
        in_flight_calls: sum(|total| total.in_flight),
        coverage_gaps: losses.coverage_gaps.clone(),
        warnings: losses.warnings.clone(),
    }
}
