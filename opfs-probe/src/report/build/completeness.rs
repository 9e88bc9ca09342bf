//! What a report lacks, from what was lost and what it shows itself.

use crate::report::model::{Completeness, Probe, Session, Totals};

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

impl Losses {
    /// Takes note of the probes that the kernel skipped: what they would have counted is not known.
    pub fn add_missed(&mut self, probes: &[Probe]) {
        for probe in probes {
            let Some(missed) = probe.missed.filter(|missed| *missed > 0) else { continue };
            self.inexact = true;
            let times = if missed == 1 { "once".to_owned() } else { format!("{missed} times") };
            self.warnings.push(format!(
                "the kernel skipped {} {times}, while another program of its kind ran on that processor",
                probe.name
            ));
        }
    }
}

/// Completeness of a report on `sessions`.
pub fn completeness(sessions: &[Session], losses: &Losses) -> Completeness {
    let mut completeness = Completeness {
        // Where nothing was counted there is nothing exact either.
        exact_counts: !losses.inexact && sessions.iter().all(|session| session.total.is_some()),
        events_lost: losses.events_lost,
        detail_lost: 0,
        unresolved_paths: 0,
        unresolved_calls: 0,
        latencies_lost: losses.latencies_lost,
        straddling_calls: 0,
        in_flight_calls: 0,
        coverage_gaps: losses.coverage_gaps.clone(),
        warnings: losses.warnings.clone(),
    };
    add_up(&mut completeness, sessions.iter().filter_map(|session| session.total.as_ref()));
    completeness
}

/// Takes what these totals show to be missing for all that is missing in the report.
pub fn add_up<'a>(completeness: &mut Completeness, totals: impl Iterator<Item = &'a Totals>) {
    let totals: Vec<&Totals> = totals.collect();
    let sum = |field: fn(&Totals) -> u64| totals.iter().map(|totals| field(totals)).sum();
    let unresolved = || totals.iter().flat_map(|totals| &totals.files).filter(|file| file.path.is_none());
    completeness.detail_lost = sum(|totals| totals.detail_lost + totals.performed_detail_lost);
    // Calls whose file was never seen have an entry and no inode.
    completeness.unresolved_paths = unresolved().map(|file| file.inodes.max(1)).sum();
    completeness.unresolved_calls = unresolved().map(|file| file.count).sum();
    completeness.straddling_calls = sum(|totals| totals.straddling);
    completeness.in_flight_calls = sum(|totals| totals.in_flight);
}
