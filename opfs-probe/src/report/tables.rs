//! The tables that the text and the Markdown report share, as cells.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use super::escape::shell_word;
use super::model::{
    Completeness, File, InFlight, Op, Performed, Probe, Process, Session, Totals, Tracer, Window,
};
use super::units::{NOT_MEASURED, count, counted, duration, duration_or_dash, rate};

/// How many files and processes a report for people lists.
pub const TOP: usize = 10;

/// How many windows a report for people lists.
pub const MAX_WINDOWS: usize = 60;

/// A table: what its columns are called, and its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Columns: title, and whether they hold numbers (and are set to the right).
    pub columns: Vec<(String, bool)>,
    /// Cells.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows; titles that begin with `<` are those of text columns.
    pub fn new<T: AsRef<str>>(titles: impl IntoIterator<Item = T>) -> Self {
        let columns = titles
            .into_iter()
            .map(|title| {
                let title = title.as_ref();
                match title.strip_prefix('<') {
                    Some(text) => (text.to_owned(), false),
                    None => (title.to_owned(), true),
                }
            })
            .collect();
        Self { columns, rows: Vec::new() }
    }
}

/// By kind of call.
pub fn ops(totals: &Totals) -> Table {
    let mut table = Table::new(["<op", "count", "errors", "total", "mean", "p50", "p99", "max"]);
    let mut ops: Vec<_> = totals.ops.iter().collect();
    ops.sort_by_key(|(name, op)| (Reverse(op.count), Reverse(op.total_ns), *name));
    for (name, op) in ops {
        table.rows.push(vec![
            name.clone(),
            count(op.count),
            errors(op),
            duration_or_dash(op.total_ns),
            duration_or_dash(mean_ns(op)),
            duration_or_dash(op.p50_ns),
            duration_or_dash(op.p99_ns),
            duration_or_dash(op.max_ns),
        ]);
    }
    table
}

fn mean_ns(op: &Op) -> Option<u64> {
    op.total_ns?.checked_div(op.count.saturating_sub(op.untimed))
}

fn errors(op: &Op) -> String {
    if op.errors == 0 {
        return "0".to_owned();
    }
    let codes: Vec<_> = match op.error_codes.len() {
        1 => op.error_codes.keys().cloned().collect(),
        _ => op.error_codes.iter().map(|(code, number)| format!("{} {code}", count(*number))).collect(),
    };
    format!("{} ({})", count(op.errors), codes.join(", "))
}

/// The most-synced files, and how many more there are. `show` makes a path fit the format.
pub fn files(totals: &Totals, show: impl Fn(&str) -> String) -> (Table, usize) {
    let mut table = Table::new(["count", "performed", "errors", "total", "max", "<file"]);
    for file in totals.files.iter().take(TOP) {
        table.rows.push(vec![
            count(file.count),
            performed_or_dash(file.performed),
            count(file.errors),
            duration_or_dash(file.total_ns),
            duration_or_dash(file.max_ns),
            file_name(file, &show),
        ]);
    }
    (table, totals.files.len().saturating_sub(TOP))
}

fn performed_or_dash(performed: Option<Performed>) -> String {
    performed.and_then(|performed| performed.total()).map_or_else(|| NOT_MEASURED.to_owned(), count)
}

/// What was asked for, what the file systems made of it, and the devices of that:
/// `Asked 3, performed 5 (explicit 3, implicit 2). Flushed meanwhile, for anybody: vda 4.`
pub fn ledger(totals: &Totals) -> Option<String> {
    let parts: Vec<String> = asked_performed(totals).into_iter().chain(flushed(totals)).collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}

/// Calls that have not returned, a line each: `In flight for 3.2 s: fsync of /srv/data by postgres (pid 4711).`
pub fn in_flight(session: &Session, show: impl Fn(&str) -> String) -> Vec<String> {
    let line = |call: &InFlight| {
        let file = call.path.as_ref().map(|path| format!(" of {}", show(path))).unwrap_or_default();
        let comm = call.comm.as_deref().map_or_else(|| "an unknown process".to_owned(), &show);
        let pid = call.pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
        format!("In flight for {}: {}{file} by {comm}{pid}.", duration(call.age_ns), call.op)
    };
    let more = session.in_flight.len().saturating_sub(TOP);
    let more = (more > 0).then(|| format!("… and {} more in flight.", count(more as u64)));
    session.in_flight.iter().take(TOP).map(line).chain(more).collect()
}

fn flushed(totals: &Totals) -> Option<String> {
    let flushes = totals.flushes.as_ref().filter(|_| !is_quiet(totals))?;
    let devices: Vec<String> = flushes
        .iter()
        .map(|flush| {
            let fua = if flush.fua > 0 { format!(" + {} FUA", count(flush.fua)) } else { String::new() };
            format!("{} {}{fua}", flush.device.as_ref().unwrap_or(&flush.dev), count(flush.count))
        })
        .collect();
    let devices = if devices.is_empty() { "nothing".to_owned() } else { devices.join(", ") };
    Some(format!("Flushed meanwhile, for anybody: {devices}."))
}

fn asked_performed(totals: &Totals) -> Option<String> {
    let performed = totals.performed.filter(|_| !is_quiet(totals))?;
    let causes = [
        ("explicit", performed.explicit, true),
        ("implicit", performed.implicit, true),
        ("kernel", performed.kernel, false),
        ("uring", performed.uring, false),
    ];
    let causes: Vec<_> = causes
        .into_iter()
        .filter_map(|(name, number, always)| Some((name, number.filter(|&number| always || number > 0)?)))
        .map(|(name, number)| format!("{name} {}", count(number)))
        .collect();
    let unseen: u64 =
        totals.files.iter().filter(|file| file.performed.is_none()).map(|file| file.count).sum();
    let unseen = match unseen {
        0 => String::new(),
        number => format!("; for {} of the calls that can't be seen", count(number)),
    };
    let (asked, total) = (count(totals.sync_calls), count(performed.total()?));
    Some(format!("Asked {asked}, performed {total} ({}){unseen}.", causes.join(", ")))
}

/// Whether nothing was synced, asked for or not.
pub fn is_quiet(totals: &Totals) -> bool {
    totals.sync_calls == 0 && totals.performed.and_then(|performed| performed.total()).unwrap_or(0) == 0
}

/// A file as a reader sees it.
pub fn file_name(file: &File, show: impl Fn(&str) -> String) -> String {
    let Some(path) = &file.path else {
        return "(unknown)".to_owned();
    };
    let deleted = if file.deleted { " (deleted)" } else { "" };
    format!("{}{deleted}", show(path))
}

/// The processes that synced most, and how many more there are.
pub fn processes(totals: &Totals, show: impl Fn(&str) -> String) -> (Table, usize) {
    let mut table = Table::new(["count", "performed", "total", "pid", "<role", "<process"]);
    for process in totals.processes.iter().take(TOP) {
        table.rows.push(vec![
            count(process.count),
            performed_or_dash(process.performed),
            duration_or_dash(process.total_ns),
            process.pid.map_or_else(|| NOT_MEASURED.to_owned(), |pid| pid.to_string()),
            process.role.name().to_owned(),
            process_name(process, &show),
        ]);
    }
    (table, totals.processes.len().saturating_sub(TOP))
}

fn process_name(process: &Process, show: impl Fn(&str) -> String) -> String {
    process.comm.as_deref().map_or_else(|| "(unknown)".to_owned(), show)
}

/// The windows, each under its parent, and how many more there are.
pub fn windows(session: &Session, indent: &str, show: impl Fn(&str) -> String) -> (Table, usize) {
    let mut table = Table::new(["<window", "calls", "syncs", "syncs/call", "in sync", "open", "<"]);
    let in_order = in_tree_order(&session.windows);
    for (depth, window) in in_order.iter().take(MAX_WINDOWS) {
        let total = window.total.as_ref();
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| NOT_MEASURED.to_owned());
        let per_call = total.zip(window.calls.filter(|&calls| calls > 0));
        table.rows.push(vec![
            format!("{}{}", indent.repeat(*depth), window_name(*depth, window, &show)),
            or_dash(window.calls.map(count)),
            or_dash(total.map(|total| count(total.sync_calls))),
            or_dash(per_call.map(|(total, calls)| rate(total.sync_calls as f64 / calls as f64))),
            duration_or_dash(total.and_then(|total| total.sync_ns)),
            duration(window.duration_ns),
            flags(window),
        ]);
    }
    (table, in_order.len().saturating_sub(MAX_WINDOWS))
}

/// A window whose parents a filter dropped is shown with their names.
fn window_name(depth: usize, window: &Window, show: impl Fn(&str) -> String) -> String {
    if depth > 0 || window.within.is_empty() {
        return show(&window.name);
    }
    show(&window.place())
}

fn flags(window: &Window) -> String {
    let mut flags = Vec::new();
    if window.aborted {
        flags.push("aborted".to_owned());
    }
    if window.open {
        flags.push("still open".to_owned());
    }
    if window.entries > 1 {
        flags.push(format!("entered {} times", count(window.entries)));
    }
    flags.join(", ")
}

/// Depth first, siblings in the order they came; each with its depth.
fn in_tree_order(windows: &[Window]) -> Vec<(usize, &Window)> {
    let known: HashSet<&str> = windows.iter().map(|window| window.id.as_str()).collect();
    let mut children: HashMap<Option<&str>, Vec<&Window>> = HashMap::new();
    for window in windows {
        let parent = window.parent.as_deref().filter(|parent| known.contains(parent));
        children.entry(parent).or_default().push(window);
    }
    let mut ordered = Vec::with_capacity(windows.len());
    let mut waiting: Vec<(usize, &Window)> = Vec::new();
    let mut enter = |waiting: &mut Vec<_>, depth, parent| {
        let below = children.remove(&parent).unwrap_or_default();
        waiting.extend(below.into_iter().rev().map(|child| (depth, child)));
    };
    enter(&mut waiting, 0, None);
    while let Some((depth, window)) = waiting.pop() {
        ordered.push((depth, window));
        enter(&mut waiting, depth + 1, Some(window.id.as_str()));
    }
    ordered
}

/// The windows that lie in no other one of the report.
pub fn outermost(session: &Session) -> impl Iterator<Item = &Window> {
    session.windows.iter().filter(|window| window.parent.is_none())
}

/// `COMMAND: 1,234 syncs in 3.20 s, 81 % of that time inside them (2.59 s)`
pub fn headline(session: &Session, show: impl Fn(&str) -> String) -> String {
    let name = show(&command(session).unwrap_or_else(|| session.name.clone()));
    let lasted = duration(session.duration_ns);
    let Some(total) = &session.total else {
        return format!("{name}: ran for {lasted}; nothing was counted");
    };
    let calls = counted(total.sync_calls, "sync");
    let mut line = format!("{name}: {calls} in {lasted}");
    if let Some(sync_ns) = total.sync_ns.filter(|_| total.sync_calls > 0) {
        // Writing to a string can't fail. Threads wait at the same time: beyond 100 % a share of the wall time says nothing.
        let share = sync_ns as f64 / session.duration_ns.max(1) as f64;
        if share <= 1.0 {
            let _ = write!(line, ", {:.0} % of that time inside them ({})", share * 100.0, duration(sync_ns));
        } else {
            let _ = write!(line, ", {} inside them over all threads", duration(sync_ns));
        }
    }
    if total.errors > 0 {
        let _ = write!(line, ", {} failed", count(total.errors));
    }
    line
}

/// What the probes cost, where that was measured: `The probes ran 1,234 times, 0.8 ms in all: 0.03 % of
/// one processor's time.`
pub fn self_cost(tracer: &Tracer) -> Option<String> {
    let over_ns = tracer.run_time_over_ns?;
    let sum = |field: fn(&Probe) -> Option<u64>| tracer.probes.iter().filter_map(field).sum::<u64>();
    let (runs, run_ns) = (sum(|probe| probe.runs), sum(|probe| probe.run_ns));
    Some(format!(
        "The probes ran {} times, {} in all: {:.3} % of one processor's time in {}.",
        count(runs),
        duration(run_ns),
        100.0 * run_ns as f64 / over_ns.max(1) as f64,
        duration(over_ns)
    ))
}

/// Whether the report is complete, and if not, what it lacks and what that means: a verdict, then
/// one line for each point.
pub fn completeness(completeness: &Completeness, counted: bool) -> (String, Vec<String>) {
    let mut points = Vec::new();
    let mut point = |number: u64, text: &str| {
        if number > 0 {
            points.push(format!("{text}: {}", count(number)));
        }
    };
    point(completeness.detail_lost, "calls counted without their process and file");
    point(completeness.unresolved_calls, "calls on files whose path is not known");
    point(completeness.latencies_lost, "calls missing from the percentiles");
    point(completeness.in_flight_calls, "calls that had not returned, and are not counted");
    point(completeness.events_lost.unwrap_or(0), "events lost (counts do not come from events)");
    point(
        completeness.straddling_calls,
        "calls that returned after a window had begun or ended (each counts where it began)",
    );
    points.extend(completeness.coverage_gaps.iter().map(|gap| format!("not seen by any probe: {gap}")));
    points.extend(completeness.warnings.iter().map(|warning| format!("warning: {warning}")));
    let verdict = match (completeness.is_perfect(), completeness.exact_counts) {
        _ if !counted => "Nothing was counted.",
        (true, _) if completeness.coverage_gaps.is_empty() => {
            "Complete: every call counted, every path named."
        }
        (true, _) => "Complete within what the probes see: every such call counted, every path named.",
        (false, true) => "Incomplete: the counts are exact, but some detail is missing.",
        (false, false) => "Incomplete: the counts are not exact.",
    };
    (verdict.to_owned(), points)
}

/// What a command is called: its words as a shell takes them, cut to a line.
fn command(session: &Session) -> Option<String> {
    const MAX_CHARACTERS: usize = 72;
    let words = session.command.as_ref()?;
    let line = words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ");
    if line.chars().count() <= MAX_CHARACTERS {
        return Some(line);
    }
    Some(line.chars().take(MAX_CHARACTERS - 1).chain(['…']).collect())
}
