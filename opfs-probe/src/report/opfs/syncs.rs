//! What the workloads synced: per call, per step, and on which files.

use std::fmt::Write;

use super::work::{Split, Tally, Work};
use super::{Run, union};
use crate::report::escape::{code, plain};
use crate::report::model::Session;
use crate::report::tables::Table;
use crate::report::units::{NOT_MEASURED, rate};

/// How many files a browser's list names.
const MOST_SYNCED: usize = 8;

const NS_PER_MS: f64 = 1e6;
const NS_PER_S: f64 = 1e9;

/// A workload in every browser.
pub struct Row<'a> {
    name: &'a str,
    work: Vec<Option<Work>>,
}

/// The workloads that any browser ran, in the order they ran.
pub fn rows<'a>(runs: &'a [Run<'a>]) -> Vec<Row<'a>> {
    union(runs.iter().map(Run::workload_windows))
        .into_iter()
        .map(|name| Row { name, work: runs.iter().map(|run| run.work(name)).collect() })
        .collect()
}

fn table(runs: &[Run<'_>], first: &str, per_browser: &[&str]) -> Table {
    let mut titles = vec![format!("<{first}")];
    for run in runs {
        titles.extend(per_browser.iter().map(|title| format!("{} {title}", plain(&run.label))));
    }
    Table::new(titles)
}

/// Cells of one browser, or dashes.
fn cells<T, const N: usize>(value: Option<T>, show: impl Fn(T) -> [String; N]) -> [String; N] {
    value.map_or_else(|| [const { NOT_MEASURED }; N].map(str::to_owned), show)
}

fn per(count: u64, divisor: u64) -> String {
    if divisor == 0 {
        return NOT_MEASURED.to_owned();
    }
    rate(count as f64 / divisor as f64)
}

fn ms_per(tally: Tally, divisor: u64) -> String {
    if divisor == 0 {
        return NOT_MEASURED.to_owned();
    }
    format!("{:.2}", tally.ns as f64 / NS_PER_MS / divisor as f64)
}

/// Syncs per timed call, and per pass outside of them.
pub fn durability(runs: &[Run<'_>], rows: &[Row<'_>]) -> Table {
    let mut table = table(
        runs,
        "Workload",
        &[
            "syncs/call",
            "elsewhere/call",
            "ms in sync/call",
            "outside loop, per pass",
            "elsewhere outside loop, per pass",
        ],
    );
    for row in rows {
        let mut line = vec![plain(row.name)];
        for work in &row.work {
            line.extend(cells(work.as_ref(), |work| {
                [
                    per(work.in_loops.own.count, work.calls),
                    per(work.in_loops.other.count, work.calls),
                    ms_per(work.in_loops.own, work.calls),
                    per(work.outside_loops.own.count, work.passes),
                    per(work.outside_loops.other.count, work.passes),
                ]
            }));
        }
        table.rows.push(line);
    }
    table
}

/// Syncs per file in each step of the workloads that announce steps.
pub fn steps(runs: &[Run<'_>], rows: &[Row<'_>]) -> Table {
    let mut table = table(runs, "Step", &["syncs/file", "elsewhere/file", "ms in sync/file"]);
    let show = |(syncs, files): (Split, u64)| {
        [per(syncs.own.count, files), per(syncs.other.count, files), ms_per(syncs.own, files)]
    };
    for row in rows {
        let with_steps = |work: &Option<Work>| work.clone().filter(|work| !work.steps.is_empty());
        let work: Vec<Option<Work>> = row.work.iter().map(with_steps).collect();
        let mut add = |name: &str, value: &dyn Fn(&Work) -> Option<(Split, u64)>| {
            let mut line = vec![format!("{}: {}", plain(row.name), plain(name))];
            line.extend(work.iter().flat_map(|work| cells(work.as_ref().and_then(value), show)));
            table.rows.push(line);
        };
        let names = union(
            work.iter().map(|work| work.iter().flat_map(|work| &work.steps).map(|step| step.name.as_str())),
        );
        if names.is_empty() {
            continue;
        }
        for name in names {
            add(name, &|work| {
                work.steps.iter().find(|step| step.name == name).map(|step| (step.syncs, step.files))
            });
        }
        add("between the steps", &|work| Some((work.between_steps(), work.calls)));
        add("full cycle", &|work| Some((work.in_loops, work.calls)));
    }
    table
}

/// Asked, performed and flushed, per timed call.
pub fn ledger(runs: &[Run<'_>], rows: &[Row<'_>]) -> Table {
    let mut table = table(runs, "Workload", &["asked/call", "performed/call", "flushed/call"]);
    for row in rows {
        let mut line = vec![plain(row.name)];
        for work in &row.work {
            line.extend(cells(work.as_ref(), |work| {
                let measured = |count: Option<u64>| {
                    count.map_or_else(|| "not measured".to_owned(), |count| per(count, work.calls))
                };
                let asked = work.in_loops.own.count + work.in_loops.other.count;
                [per(asked, work.calls), measured(work.performed), measured(work.flushed)]
            }));
        }
        table.rows.push(line);
    }
    table
}

/// How much one browser synced, and the files it synced most, as a paragraph and a list.
pub fn most_synced(label: &str, session: &Session, profile_dir: Option<&str>) -> Option<String> {
    let total = session.total.as_ref()?;
    let outside = session.outside.as_ref().map_or(0, |outside| outside.sync_calls);
    let seconds = |ns: Option<u64>, decimals: usize| {
        ns.map_or_else(|| "an unknown time".to_owned(), |ns| format!("{:.decimals$} s", ns as f64 / NS_PER_S))
    };
    let mut text = format!(
        "{}: {} calls, {} inside them, {outside} outside any workload.",
        plain(label),
        total.sync_calls,
        seconds(total.sync_ns, 1),
    );
    let mut files = total.files.iter().filter(|file| file.count > 0).take(MOST_SYNCED).peekable();
    text.push_str(if files.peek().is_none() { " No file was synced.\n" } else { " Most-synced files:\n" });
    for file in files {
        let name = match &file.path {
            Some(path) => code(&in_profile(path, profile_dir)),
            None => "(unknown)".to_owned(),
        };
        // Writing to a string can't fail.
        let _ = writeln!(text, "- {name}: {} calls, {}", file.count, seconds(file.total_ns, 2));
    }
    Some(text)
}

/// A path as seen from the profile, `profile/…`, if it lies there.
fn in_profile(path: &str, profile_dir: Option<&str>) -> String {
    let inside = profile_dir.and_then(|dir| path.strip_prefix(dir.trim_end_matches('/')));
    match inside {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("profile{rest}"),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::in_profile;

    #[test]
    fn paths_are_named_from_the_profile() {
        let named = |path| in_profile(path, Some("/tmp/p/"));
        assert_eq!(named("/tmp/p/Default/x"), "profile/Default/x");
        assert_eq!(named("/tmp/p"), "profile");
        assert_eq!(named("/tmp/p2/x"), "/tmp/p2/x");
        assert_eq!(in_profile("/tmp/p", None), "/tmp/p");
    }
}
