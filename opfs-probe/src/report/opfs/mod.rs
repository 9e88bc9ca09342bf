//! The report of `bench opfs`, in Markdown: the pages' timings, and what the browsers synced.
//!
//! Its sections, rows and columns keep the order of the strace-based reports that came before it,
//! so that old and new can be laid side by side.

mod costs;
mod result;
mod syncs;
#[cfg(test)]
mod tests;
mod work;

use std::fmt::Write;

use jiff::Timestamp;

pub use result::{Config, Kind, PageResult, ResultError, SCHEMA as RESULT_SCHEMA, Workload};

use super::agreement::{self, Ambiguous};
use super::escape::plain;
use super::markdown::layout;
use super::model::{Completeness, Host, Session};
use super::tables::{self, Table};
use work::Work;

/// What a workload's rows of kind "file" are called as a whole, and its window.
const NEW_FILE: &str = "new-file";

/// A benchmark run: one or several browsers on one machine.
pub struct Bench<'a> {
    /// What the run is called.
    pub name: &'a str,
    /// The machine.
    pub host: &'a Host,
    /// What the profiles lie on: file system and mount point, `ext4 (/)`.
    pub profiles_on: Option<&'a str>,
    /// Which tracers watched.
    pub tracers: Tracers,
    /// When it began.
    pub started_at: Timestamp,
    /// The browsers, in the order of their columns.
    pub browsers: Vec<BrowserRun<'a>>,
    /// What the counts may lack.
    pub completeness: &'a Completeness,
}

/// Which tracers watched a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tracers {
    /// Programs in the kernel.
    pub ebpf: bool,
    /// strace.
    pub strace: bool,
}

/// One browser's part of a run.
pub struct BrowserRun<'a> {
    /// The browser's name.
    pub name: &'a str,
    /// Its version, where it is known.
    pub version: Option<&'a str>,
    /// What its page measured; none if it did not get that far.
    pub result: Option<PageResult>,
    /// What was counted, by the tracer whose counts are shown; none if nothing was.
    pub session: Option<&'a Session>,
    /// What strace counted, where eBPF watched too; its windows have the `id`s of `session`'s.
    pub strace: Option<&'a Session>,
    /// Calls of `strace` that may belong to a neighbouring window.
    pub ambiguous: Ambiguous,
    /// The profile's directory, so that files in it are named from there.
    pub profile_dir: Option<String>,
    /// Whether a path is that of the workload's own files.
    pub is_opfs: &'a dyn Fn(&str) -> bool,
}

/// A browser with what it is called in the report.
struct Run<'a> {
    label: String,
    browser: &'a BrowserRun<'a>,
}

impl Run<'_> {
    fn workloads(&self, kind: Kind) -> impl Iterator<Item = &Workload> {
        let all = self.browser.result.iter().flat_map(|result| &result.workloads);
        all.filter(move |workload| workload.kind == kind)
    }

    /// Names of the workloads' windows: those that were measured, then those that only began.
    fn workload_windows(&self) -> impl Iterator<Item = &str> {
        let writes = self.workloads(Kind::Write).map(|workload| workload.name.as_str());
        let files = self.workloads(Kind::File).take(1).map(|_| NEW_FILE);
        let begun = self.browser.session.into_iter().flat_map(work::workload_windows);
        writes.chain(files).chain(begun.map(|window| window.name.as_str()))
    }

    fn work(&self, workload: &str) -> Option<Work> {
        Work::of(self.browser.session?, workload, self.browser.is_opfs)
    }
}

/// The report.
pub fn render(bench: &Bench<'_>) -> String {
    let runs = runs(&bench.browsers);
    let mut text = head(bench, &runs);
    section(
        &mut text,
        "Per-call write cost (median run, mean time per call)",
        &costs::costs(&runs, Kind::Write),
    );
    section(&mut text, "Per-file cost (median run, mean time per call)", &costs::costs(&runs, Kind::File));
    if bench.tracers != Tracers::default() {
        durability(&mut text, bench, &runs);
    }
    for run in &runs {
        let page = run.browser.result.as_ref().map_or("", |result| result.markdown.trim_end());
        let page = if page.is_empty() { "The page did not get as far as a report of its own." } else { page };
        line(&mut text, &format!("\n## {}\n\n{page}", plain(&run.label)));
    }
    text
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

fn section(text: &mut String, title: &str, table: &Table) {
    if !table.rows.is_empty() {
        line(text, &format!("\n## {title}\n\n{}", layout(table).trim_end()));
    }
}

/// Browsers by name and major version; alike ones are numbered.
fn runs<'a>(browsers: &'a [BrowserRun<'a>]) -> Vec<Run<'a>> {
    let mut runs: Vec<Run<'a>> = Vec::new();
    for browser in browsers {
        let major = browser.version.and_then(|version| version.split('.').next());
        let name = match major {
            Some(major) => format!("{} {major}", browser.name),
            None => browser.name.to_owned(),
        };
        let alike = runs
            .iter()
            .filter(|run| run.label == name || run.label.starts_with(&format!("{name} (")))
            .count();
        let label = if alike == 0 { name } else { format!("{name} ({})", alike + 1) };
        runs.push(Run { label, browser });
    }
    runs
}

fn head(bench: &Bench<'_>, runs: &[Run<'_>]) -> String {
    const BYTES_PER_GB: f64 = 1e9;
    let host = bench.host;
    let mut machine = vec![plain(host.cpu.as_deref().unwrap_or("unknown processor"))];
    if let Some(cpus) = host.cpus {
        let _ = write!(machine[0], " ({cpus} threads)");
    }
    machine.extend(host.memory_bytes.map(|bytes| format!("{:.0} GB", bytes as f64 / BYTES_PER_GB)));
    machine.push(format!("linux {} {}", plain(&host.kernel), plain(&host.arch)));

    let labels: Vec<_> = runs.iter().map(|run| plain(&run.label)).collect();
    let mut lines = vec![format!("Host: {}", machine.join(", "))];
    lines.extend(
        runs.iter().find_map(|run| run.browser.result.as_ref()).map(|result| config_line(&result.config)),
    );
    lines.push(format!("Browsers: {}", labels.join(", ")));
    lines.extend(bench.profiles_on.map(|filesystem| format!("Profiles on: {}", plain(filesystem))));
    lines.push(tracer_line(bench.tracers).to_owned());
    lines.push(format!("Date: {}", bench.started_at));
    format!("# OPFS sync write benchmark: {}\n\n{}\n", plain(bench.name), lines.join("  \n"))
}

fn config_line(config: &Config) -> String {
    let chunks: Vec<_> = config.chunks.iter().map(|&bytes| binary_size(bytes)).collect();
    format!(
        "Config: preset={}, N={}, S={} B, chunks={}, R={}, M={}",
        plain(&config.preset),
        config.n,
        config.s,
        chunks.join(" / "),
        config.r,
        config.m
    )
}

/// `64 KiB`, where that is exact.
fn binary_size(bytes: u64) -> String {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    match bytes {
        0 => "0 B".to_owned(),
        _ if bytes.is_multiple_of(MIB) => format!("{} MiB", bytes / MIB),
        _ if bytes.is_multiple_of(KIB) => format!("{} KiB", bytes / KIB),
        _ => format!("{bytes} B"),
    }
}

fn tracer_line(tracers: Tracers) -> &'static str {
    match (tracers.ebpf, tracers.strace) {
        (true, false) => {
            "Traced with eBPF: durability syscalls are counted below, in the kernel; no process is stopped for it."
        }
        (false, true) => {
            "Traced with strace: durability syscalls are counted below; ptrace slows the whole browser, not only \
             those calls, so the timings here are not those of an untraced run."
        }
        (true, true) => {
            "Traced with eBPF and strace at once: eBPF's counts are shown below and strace's laid beside them; \
             ptrace slows the whole browser, so the timings here are not those of an untraced run."
        }
        (false, false) => "Not traced: durability syscalls are not counted.",
    }
}

fn durability(text: &mut String, bench: &Bench<'_>, runs: &[Run<'_>]) {
    let (tracer, how) = match (bench.tracers.ebpf, bench.tracers.strace) {
        (true, true) => ("ebpf, strace", "in the kernel with eBPF"),
        (true, false) => ("ebpf", "in the kernel with eBPF"),
        _ => ("strace", "with strace"),
    };
    let attributed = if bench.tracers.ebpf {
        "attributed to workloads by the windows that the page announces: a call belongs to those that are open when \
         it begins"
    } else {
        "attributed to workloads by wall-clock window"
    };
    let rows = syncs::rows(runs);
    let table = syncs::durability(runs, &rows);
    line(
        text,
        &format!(
            "\n## Durability syscalls per call ({tracer})\n\nCounted {how} (fsync, fdatasync, sync, syncfs, \
             sync\\_file\\_range, msync), {attributed}. \"Per call\" divides by all timed calls of all passes, warm-up \
             included. \"Syncs/call\", \"ms in sync/call\" and \"outside loop\" are of the workload's own files \
             (OPFS paths); \"elsewhere\" is everything else the browser synced meanwhile."
        ),
    );
    if !table.rows.is_empty() {
        line(text, &format!("\n{}", layout(&table).trim_end()));
    }
    line(
        text,
        "\n\"Outside the loop\" is what a pass does around its timed calls: it creates and deletes its file there. \
         new-file has those steps inside the loop.",
    );
    for run in runs {
        let list = run
            .browser
            .session
            .and_then(|session| syncs::most_synced(&run.label, session, run.browser.profile_dir.as_deref()))
            .unwrap_or_else(|| format!("{}: not counted.\n", plain(&run.label)));
        let _ = write!(text, "\n{list}");
    }
    section(text, "Durability syscalls per file, by step", &syncs::steps(runs, &rows));
    let ledger = syncs::ledger(runs, &rows);
    section(text, "Asked, performed, flushed", &ledger);
    if !ledger.rows.is_empty() {
        line(
            text,
            "\nAsked: sync calls, on any file. Performed: syncs that the file system ran. Flushed: cache flushes and \
             forced-unit-access writes that reached a device, whoever caused them. All during the loops.",
        );
    }
    against_strace(text, runs);
    completeness(text, bench.completeness);
}

fn against_strace(text: &mut String, runs: &[Run<'_>]) {
    for run in runs {
        let Some((ebpf, strace)) = run.browser.session.zip(run.browser.strace) else {
            continue;
        };
        let comparisons = agreement::agreement(ebpf, strace, &run.browser.ambiguous);
        let equal = comparisons.iter().filter(|comparison| comparison.equal()).count();
        section(
            text,
            &format!("eBPF against strace: {}", plain(&run.label)),
            &agreement::table(&comparisons),
        );
        if !comparisons.is_empty() {
            line(text, &format!("\n{equal} of {} counts are equal.", comparisons.len()));
        }
    }
}

fn completeness(text: &mut String, completeness: &Completeness) {
    let (verdict, points) = tables::completeness(completeness, true);
    line(text, &format!("\n## Completeness\n\n{verdict}"));
    if !points.is_empty() {
        text.push('\n');
    }
    for point in points {
        line(text, &format!("- {}", plain(&point)));
    }
}

/// Every name once, in the order of the first list, then what the others add.
fn union<'a, Names: Iterator<Item = &'a str>>(lists: impl Iterator<Item = Names>) -> Vec<&'a str> {
    let mut all = Vec::new();
    for name in lists.flatten() {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}
