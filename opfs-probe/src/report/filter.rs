//! Narrows a report to the sessions and windows asked for. What stays is unchanged.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use super::build::add_up;
use super::glob::Glob;
use super::model::{Report, Session, Window};

/// What to keep.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    windows: Vec<Glob>,
    sessions: Vec<Glob>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
}

impl Filter {
    /// Keeps everything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps windows that fit `pattern` or an earlier one, and no session without such a window.
    ///
    /// A pattern fits a window's name, or, if it has a `/`, its name after those of the windows
    /// around it (`append*/run */loop`); there `*` does not stand for a `/`.
    #[must_use]
    pub fn window(mut self, pattern: &str) -> Self {
        self.windows.push(Glob::new(pattern));
        self
    }

    /// Keeps sessions whose name or id fits `pattern` or an earlier one.
    #[must_use]
    pub fn session(mut self, pattern: &str) -> Self {
        self.sessions.push(Glob::new(pattern));
        self
    }

    /// Keeps what went on at `since` or later. Counts are not cut: a window that began before stays whole.
    #[must_use]
    pub fn since(mut self, since: Timestamp) -> Self {
        self.since = Some(since);
        self
    }

    /// Keeps what began at `until` or earlier.
    #[must_use]
    pub fn until(mut self, until: Timestamp) -> Self {
        self.until = Some(until);
        self
    }

    /// The report with what is to be kept.
    ///
    /// Completeness becomes that of what is kept, as far as it can be told apart: what the kernel had
    /// no room for, and what no probe sees, is the whole report's. A window whose parent is dropped gets
    /// the nearest one around it that is kept, if any.
    #[must_use]
    pub fn apply(&self, mut report: Report) -> Report {
        if self.keeps_all() {
            return report;
        }
        report.sessions.retain_mut(|session| self.keep_session(session));
        report.narrowed_to.extend(self.windows.iter().map(|glob| glob.pattern().to_owned()));
        if self.windows.is_empty() {
            let kept = report.sessions.iter().filter_map(|session| session.total.as_ref());
            add_up(&mut report.completeness, kept);
        } else {
            // Children are in their parents' totals.
            let windows = report.sessions.iter().flat_map(|session| &session.windows);
            let kept = windows.filter(|window| window.parent.is_none());
            add_up(&mut report.completeness, kept.filter_map(|window| window.total.as_ref()));
        }
        report
    }

    fn keeps_all(&self) -> bool {
        self.windows.is_empty() && self.sessions.is_empty() && self.since.is_none() && self.until.is_none()
    }

    fn keep_session(&self, session: &mut Session) -> bool {
        let fits = |glob: &Glob| glob.matches(&session.name) || glob.matches(&session.id);
        let named = self.sessions.is_empty() || self.sessions.iter().any(fits);
        if !named || !self.in_time(session.started_at, session.duration_ns) {
            return false;
        }
        let all = std::mem::take(&mut session.windows);
        let (kept, dropped): (Vec<_>, Vec<_>) = all.into_iter().partition(|window| self.keep_window(window));
        session.windows = kept;
        let parents: HashMap<_, _> = dropped.into_iter().map(|window| (window.id, window.parent)).collect();
        for window in &mut session.windows {
            // At most as many steps as there are windows: a chain in circles ends.
            for _ in 0..parents.len() {
                match window.parent.as_ref().and_then(|parent| parents.get(parent)) {
                    Some(above) => window.parent.clone_from(above),
                    None => break,
                }
            }
        }
        self.windows.is_empty() || !session.windows.is_empty()
    }

    fn keep_window(&self, window: &Window) -> bool {
        let path = || {
            let names = window.within.iter().chain([&window.name]);
            names.map(String::as_str).collect::<Vec<_>>().join("/")
        };
        // How long a window lasted says not when it ended if it was entered several times, so
        // only the first entry counts there: at worst one too many stays.
        let named = self.windows.is_empty()
            || self.windows.iter().any(|glob| glob.matches(&window.name) || glob.matches_path(&path()));
        named
            && (window.entries > 1 && self.until.is_none_or(|until| window.started_at <= until)
                || self.in_time(window.started_at, window.duration_ns))
    }

    fn in_time(&self, started_at: Timestamp, duration_ns: u64) -> bool {
        let duration = SignedDuration::from_nanos(i64::try_from(duration_ns).unwrap_or(i64::MAX));
        let ended_at = started_at.saturating_add(duration).unwrap_or(Timestamp::MAX);
        self.since.is_none_or(|since| ended_at >= since) && self.until.is_none_or(|until| started_at <= until)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Filter;
    use crate::report::model::{Report, Window};
    use crate::report::sample;

    fn kept(filter: &Filter) -> Vec<(String, Option<String>)> {
        let report = filter.apply(sample::report());
        let windows = report.sessions.into_iter().flat_map(|session| session.windows);
        windows.map(|window| (window.id, window.parent)).collect()
    }

    fn ids(windows: &[(&str, Option<&str>)]) -> Vec<(String, Option<String>)> {
        windows.iter().map(|(id, parent)| ((*id).to_owned(), parent.map(str::to_owned))).collect()
    }

    #[test]
    fn windows_are_chosen_by_name_or_by_place() {
        assert_eq!(kept(&Filter::new().window("row*")), ids(&[("w2", None)]));
        assert_eq!(kept(&Filter::new().window("load/*")), ids(&[("w2", None)]));
        assert_eq!(
            kept(&Filter::new().window("load").window("row*")),
            ids(&[("w1", None), ("w2", Some("w1"))])
        );
        assert_eq!(kept(&Filter::new().window("nothing")), []);
    }

    #[test]
    fn sessions_without_a_match_are_dropped() {
        let sessions = |filter: Filter| filter.apply(sample::report()).sessions.len();
        assert_eq!(sessions(Filter::new().window("nothing")), 0);
        assert_eq!(sessions(Filter::new().session("load*")), 1);
        assert_eq!(sessions(Filter::new().session("s1")), 1);
        assert_eq!(sessions(Filter::new().session("other").session("s1")), 1);
        assert_eq!(sessions(Filter::new().session("other")), 0);
    }

    #[test]
    fn time_keeps_what_went_on_then() {
        let at = |text: &str| text.parse().unwrap();
        let windows = |filter: Filter| kept(&filter).len();
        assert_eq!(windows(Filter::new().since(at("2026-03-01T12:00:01Z"))), 4);
        assert_eq!(windows(Filter::new().since(at("2026-03-01T12:00:09Z"))), 0);
        assert_eq!(windows(Filter::new().until(at("2026-03-01T11:59:59Z"))), 0);
        assert_eq!(windows(Filter::new().until(at("2026-03-01T12:00:00.05Z"))), 0);
    }

    /// A window without its parent, the one thing that a filter may change.
    fn content(window: &Window) -> Window {
        Window { parent: None, ..window.clone() }
    }

    fn is_ancestor<'a>(report: &'a Report, above: &str, mut of: &'a str) -> bool {
        let windows = &report.sessions[0].windows;
        while let Some(parent) =
            windows.iter().find(|window| window.id == of).and_then(|window| window.parent.as_deref())
        {
            if parent == above {
                return true;
            }
            of = parent;
        }
        false
    }

    #[test]
    fn what_others_lack_does_not_count() {
        let mut report = sample::report();
        let mut other = report.sessions[0].clone();
        other.name = "other".to_owned();
        report.sessions[0].total.as_mut().unwrap().in_flight = 0;
        other.total.as_mut().unwrap().in_flight = 7;
        report.sessions.push(other);
        let name = report.sessions[0].name.clone();
        assert_eq!(Filter::new().session("other").apply(report.clone()).completeness.in_flight_calls, 7);
        assert_eq!(Filter::new().session(&name).apply(report).completeness.in_flight_calls, 0);
    }

    proptest! {
        #[test]
        fn nothing_is_invented(names in prop::collection::vec("[*?a-z/\\[\\]]{0,6}", 0..3)) {
            let whole = sample::report();
            let filter = names.iter().fold(Filter::new(), |filter, name| filter.window(name));
            let narrowed = filter.apply(whole.clone());
            let lacks = |report: &Report| {
                let it = &report.completeness;
                [it.detail_lost, it.unresolved_calls, it.straddling_calls, it.in_flight_calls]
            };
            prop_assert!(lacks(&narrowed).iter().zip(lacks(&whole)).all(|(less, more)| *less <= more));
            prop_assert_eq!(&narrowed.completeness.coverage_gaps, &whole.completeness.coverage_gaps);
            for session in &narrowed.sessions {
                prop_assert_eq!(&session.total, &whole.sessions[0].total);
                for window in &session.windows {
                    prop_assert!(whole.sessions[0].windows.iter().any(|one| content(one) == content(window)));
                    if let Some(parent) = &window.parent {
                        prop_assert!(session.windows.iter().any(|one| one.id == *parent));
                        prop_assert!(is_ancestor(&whole, parent, &window.id));
                    }
                }
            }
            if names.is_empty() {
                prop_assert_eq!(narrowed, whole);
            }
        }
    }
}
