//! Holds a report against the truth: one window a case.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use opfs_probe::report::model::{File, Op, Report, ResolvedBy, Session, Totals, Window};

use crate::truth::{Call, Case, Count, Process, Truth, all_bytes, bytes};

/// How the generator was run, as far as it changes what can be compared.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// The generator sees the initial namespace's process ids.
    pub initial_pids: bool,
    /// Nothing but the generator opened files in its session.
    pub only_its_opens: bool,
}

impl How {
    /// By itself, in nobody's namespace.
    pub const PLAIN: Self = Self { initial_pids: true, only_its_opens: true };
}

/// Between and including.
#[derive(Clone, Copy, Debug, Default)]
struct Range {
    min: u64,
    max: u64,
}

impl Range {
    fn add(&mut self, count: Count) {
        self.min += count.min();
        self.max += count.max();
    }

    /// A count that may be here or elsewhere.
    fn allow(&mut self, count: Count) {
        self.max += count.max();
    }

    fn holds(self, value: u64) -> bool {
        (self.min..=self.max).contains(&value)
    }
}

/// Every difference between the report and the truth, in words.
pub fn differences(truth: &Truth, report: &Report, how: How) -> Vec<String> {
    let mut differ = Differences::default();
    let [session] = report.sessions.as_slice() else {
        return vec![format!("{} sessions", report.sessions.len())];
    };
    for case in truth.cases.iter().filter(|case| case.skipped.is_none()) {
        differ.place.clone_from(&case.name);
        let named: Vec<&Window> = session.windows.iter().filter(|window| window.name == case.name).collect();
        let [window] = named.as_slice() else {
            differ.say(format!("{} windows have this name", named.len()));
            continue;
        };
        differ.expect("entries", &window.entries, &1);
        differ.expect("aborted", &window.aborted, &false);
        differ.expect("detail lost", &window.detail_lost, &Some(0));
        match &window.total {
            Some(total) => case_differences(case, total, how, &mut differ),
            None => differ.say("not counted"),
        }
    }
    "the whole session".clone_into(&mut differ.place);
    whole_session(truth, report, session, &mut differ);
    differ.found
}

#[derive(Default)]
struct Differences {
    place: String,
    found: Vec<String>,
}

impl Differences {
    fn say(&mut self, what: impl Display) {
        self.found.push(format!("{}: {what}", self.place));
    }

    fn expect<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, reported: &T, expected: &T) {
        if reported != expected {
            self.say(format!("{what}: {reported:?} reported, {expected:?} expected"));
        }
    }

    fn expect_within(&mut self, what: &str, reported: u64, expected: Range) {
        if !expected.holds(reported) {
            self.say(format!("{what}: {reported} reported, {} to {} expected", expected.min, expected.max));
        }
    }
}

fn case_differences(case: &Case, total: &Totals, how: How, differ: &mut Differences) {
    let mut calls: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    for call in &case.calls {
        calls.entry(&call.op).or_default().push(call);
    }
    let reported: Vec<&String> = total.ops.keys().collect();
    let expected: Vec<&&str> = calls.keys().collect();
    differ.expect("ops", &format!("{reported:?}"), &format!("{expected:?}"));
    for (op, calls) in &calls {
        if let Some(reported) = total.ops.get(*op) {
            op_differences(op, calls, reported, differ);
        }
    }
    differ.expect("straddling", &total.straddling, &0);
    differ.expect("restarted", &total.restarted, &0);
    differ.expect("in flight", &total.in_flight, &0);
    differ.expect("detail lost", &total.detail_lost, &0);
    files(case, total, differ);
    processes(&case.processes, total, how, differ);
    if let Some(opens) = case.opens.filter(|_| how.only_its_opens) {
        differ.expect("opens", &total.opens, &Some(opens));
    }
}

fn op_differences(name: &str, calls: &[&Call], reported: &Op, differ: &mut Differences) {
    let mut count = Range::default();
    let mut errors: BTreeMap<String, u64> = BTreeMap::new();
    let mut untimed = 0;
    for call in calls {
        count.add(call.count);
        if let Some(errno) = &call.errno {
            *errors.entry(errno.clone()).or_default() += call.count.min();
        }
        if call.answered_by.is_some() {
            untimed += call.count.min();
        }
    }
    differ.expect_within(name, reported.count, count);
    differ.expect(&format!("{name}'s errors"), &reported.error_codes, &errors);
    differ.expect(&format!("{name}'s error count"), &reported.errors, &errors.values().sum());
    differ.expect(&format!("{name}'s untimed"), &reported.untimed, &untimed);
    let timed = reported.count - reported.untimed;
    let in_buckets = reported.histogram.iter().flatten().map(|bucket| bucket.1).sum::<u64>();
    differ.expect(&format!("{name}'s histogram"), &in_buckets, &timed);
    let (Some(total_ns), Some(max_ns)) = (reported.total_ns, reported.max_ns) else {
        differ.expect(&format!("{name}'s timed calls"), &timed, &0);
        return;
    };
    if total_ns == 0 || max_ns > total_ns {
        differ.say(format!("{name}: took {total_ns} ns, one of them {max_ns} ns"));
    }
    // The callers saw at least as much time pass as their calls took in the kernel.
    let elapsed = calls.iter().map(|call| call.elapsed_ns).sum::<Option<u64>>();
    if let Some(elapsed) = elapsed.filter(|elapsed| count.min == count.max && total_ns > *elapsed) {
        differ.say(format!("{name}: {total_ns} ns reported, the callers saw {elapsed}"));
    }
}

/// What one path's entry should hold.
#[derive(Default)]
struct Expected {
    count: Range,
    ops: BTreeMap<String, (Range, BTreeMap<String, u64>)>,
    names: BTreeSet<Vec<u8>>,
    identities: BTreeSet<(Option<String>, Option<String>)>,
    files: u64,
    deleted: bool,
    layered: bool,
    /// Another of its names was expected first: then `names` need not hold that one.
    by_other_name: bool,
}

impl Expected {
    fn add(&mut self, call: &Call) {
        let (range, errors) = self.ops.entry(call.op.clone()).or_default();
        if call.path_uncertain {
            self.count.allow(call.count);
            range.allow(call.count);
        } else {
            self.count.add(call.count);
            range.add(call.count);
        }
        if let Some(errno) = call.errno.as_ref().filter(|_| !call.path_uncertain) {
            *errors.entry(errno.clone()).or_default() += call.count.min();
        }
        self.layered |= !call.other_paths.is_empty();
        self.names.extend(all_bytes(&call.names, call.names_bytes.as_ref()));
        self.identities.insert((call.dev.clone(), call.inode.clone()));
    }
}

fn files(case: &Case, total: &Totals, differ: &mut Differences) {
    let mut without_file = Range::default();
    let mut without_path = Range::default();
    for call in &case.calls {
        if call.path.is_none() {
            without_file.add(call.count);
        } else if call.path_uncertain {
            // With the path, without one, or without a file.
            without_file.allow(call.count);
            without_path.allow(call.count);
        }
    }
    let mut expected: BTreeMap<Vec<u8>, Expected> = BTreeMap::new();
    for last in &case.files {
        let calls: Vec<&Call> = case.calls.iter().filter(|call| call.file == Some(last.file)).collect();
        if calls.is_empty() {
            continue;
        }
        let latest = bytes(&last.path, last.path_bytes.as_ref());
        let path = entry_of(&latest, &calls, total).unwrap_or_else(|| latest.clone());
        let entry =
            expected.entry(path.clone()).or_insert_with(|| Expected { deleted: true, ..Expected::default() });
        for call in &calls {
            entry.add(call);
        }
        entry.files += 1;
        entry.deleted &= last.deleted;
        entry.by_other_name |= path != latest;
    }
    differ.expect_within("calls without a file", total.no_file, without_file);
    let mut pathless = 0;
    // Others are there for what file systems performed.
    for file in total.files.iter().filter(|file| file.count > 0) {
        let Some(text) = &file.path else {
            pathless += file.count;
            continue;
        };
        match expected.remove(&bytes(text, file.path_bytes.as_ref())) {
            Some(expected) => file_differences(file, text, &expected, differ),
            None => differ.say(format!("{text:?} is reported, {} calls, and not expected", file.count)),
        }
    }
    differ.expect_within("calls without a path", pathless, without_path);
    for (path, missing) in expected.into_iter().filter(|(_, missing)| missing.count.min > 0) {
        differ.say(format!("{:?} is missing, {} calls", String::from_utf8_lossy(&path), missing.count.min));
    }
}

/// The path under which the report has a file: its latest, or another that is right too. Another file's
/// entry may have that name in another mount namespace, so one with its inode is preferred.
fn entry_of(latest: &[u8], calls: &[&Call], total: &Totals) -> Option<Vec<u8>> {
    let others = calls.iter().flat_map(|call| &call.other_paths).map(String::as_bytes);
    let right: Vec<&[u8]> = [latest].into_iter().chain(others).collect();
    let path = |file: &File| Some(bytes(file.path.as_ref()?, file.path_bytes.as_ref()));
    let entries =
        || total.files.iter().filter(|file| path(file).is_some_and(|path| right.contains(&&path[..])));
    let inodes: Vec<&Option<String>> = calls.iter().map(|call| &call.inode).collect();
    let with_inode = entries().find(|file| inodes.contains(&&file.inode));
    with_inode.or_else(|| entries().next()).and_then(path)
}

fn file_differences(file: &File, path: &str, expected: &Expected, differ: &mut Differences) {
    let what = |aspect: &str| format!("{path:?}: {aspect}");
    differ.expect_within(&what("count"), file.count, expected.count);
    for (op, (count, errors)) in &expected.ops {
        let Some(reported) = file.ops.get(op) else {
            if count.min > 0 {
                differ.say(what(&format!("{op} is missing")));
            }
            continue;
        };
        differ.expect_within(&what(op), reported.count, *count);
        if count.min == count.max {
            differ.expect(&what(&format!("{op}'s errors")), &reported.error_codes, errors);
        }
    }
    if let Some(op) = file.ops.keys().find(|op| !expected.ops.contains_key(*op)) {
        differ.say(what(&format!("{op} was not called")));
    }
    differ.expect(&what("deleted"), &file.deleted, &expected.deleted);
    differ.expect(&what("resolved by"), &file.resolved_by, &ResolvedBy::Kernel);
    // Several files of the truth may be one to the kernel where layers or mounts lie over another.
    let fewest = if expected.layered { 1 } else { expected.files };
    differ.expect_within(&what("inodes"), file.inodes, Range { min: fewest, max: expected.files });
    if !expected.identities.contains(&(file.dev.clone(), file.inode.clone())) {
        differ.say(what(&format!(
            "dev {:?} and inode {:?} are not of {:?}",
            file.dev, file.inode, expected.identities
        )));
    }
    let names: BTreeSet<Vec<u8>> = all_bytes(&file.names, file.names_bytes.as_ref()).into_iter().collect();
    if !expected.by_other_name && !names.is_superset(&expected.names) {
        differ.say(what(&format!("names {:?} lack one of {} expected", file.names, expected.names.len())));
    }
}

fn processes(expected: &[Process], total: &Totals, how: How, differ: &mut Differences) {
    let mut reported: BTreeMap<u32, (u64, BTreeSet<String>)> = BTreeMap::new();
    for process in total.processes.iter().filter(|process| process.count > 0) {
        let (Some(pid), Some(ns_pid)) = (process.pid, process.ns_pid) else {
            differ.say(format!("{} calls of an unknown process", process.count));
            continue;
        };
        let id = if how.initial_pids { pid } else { ns_pid };
        let (count, comms) = reported.entry(id).or_default();
        *count += process.count;
        comms.extend(process.comm.clone());
        if !how.initial_pids && pid == ns_pid {
            differ.say(format!("process {pid} has the initial namespace's id inside its own"));
        }
    }
    // Ids inside several namespaces may coincide.
    let mut truth: BTreeMap<u32, (Range, BTreeSet<String>)> = BTreeMap::new();
    for process in expected {
        let id = if how.initial_pids { process.pid } else { process.ns_pid };
        let (range, comms) = truth.entry(id).or_default();
        range.add(process.count);
        comms.extend(process.comms.iter().cloned());
    }
    for (id, (range, comms)) in &truth {
        let Some((count, seen)) = reported.remove(id) else {
            if range.min > 0 {
                differ.say(format!("process {id} is missing, {} calls", range.min));
            }
            continue;
        };
        differ.expect_within(&format!("calls of process {id}"), count, *range);
        if !seen.is_subset(comms) {
            differ.say(format!("process {id} is called {seen:?}, not {comms:?}"));
        }
    }
    for (id, (count, comms)) in reported {
        differ.say(format!("process {id} {comms:?}, {count} calls, is none of the case"));
    }
    if how.initial_pids {
        for process in expected {
            let ns_pids: BTreeSet<u32> = total
                .processes
                .iter()
                .filter(|reported| reported.pid == Some(process.pid))
                .filter_map(|reported| reported.ns_pid)
                .collect();
            if ns_pids.iter().any(|ns_pid| *ns_pid != process.ns_pid) {
                differ
                    .say(format!("process {} is {ns_pids:?} to itself, not {}", process.pid, process.ns_pid));
            }
        }
    }
}

fn whole_session(truth: &Truth, report: &Report, session: &Session, differ: &mut Differences) {
    let done = || truth.cases.iter().filter(|case| case.skipped.is_none()).flat_map(|case| &case.calls);
    let mut all = Range::default();
    let mut unnamed = Range::default();
    for call in done() {
        all.add(call.count);
        if call.path_uncertain {
            unnamed.allow(call.count);
        }
    }
    differ.expect_within("calls", session.total.as_ref().map_or(0, |total| total.sync_calls), all);
    differ.expect("calls outside", &session.outside.as_ref().map(|outside| outside.sync_calls), &Some(0));
    let completeness = &report.completeness;
    differ.expect("exact", &completeness.exact_counts, &true);
    differ.expect("detail lost", &completeness.detail_lost, &0);
    differ.expect("latencies lost", &completeness.latencies_lost, &0);
    differ.expect("straddling", &completeness.straddling_calls, &0);
    differ.expect("in flight", &completeness.in_flight_calls, &0);
    differ.expect("warnings", &completeness.warnings, &Vec::new());
    differ.expect_within("calls without a path", completeness.unresolved_calls, unnamed);
}
