//! The benchmark's report, from results and sessions made by hand.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Bench, BrowserRun, PageResult, Tracers, render};
use crate::report::agreement::{self, Ambiguous, Comparison};
use crate::report::model::{Completeness, File, Host, Op, Performed, Session, SessionKind, Totals, Window};

const PROFILE: &str = "/tmp/run/profile";

fn is_opfs(path: &str) -> bool {
    path.contains("/File System/") || path.contains("/fs/") || path.ends_with("/fs")
}

fn at() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

/// Calls on files: path, number, milliseconds in each.
type Files<'a> = &'a [(&'a str, u64, u64)];

/// What was counted on `files`.
fn totals(op: &str, files: Files) -> Totals {
    let ns = |&(_, calls, ms): &(&str, u64, u64)| calls * ms * 1_000_000;
    let calls = files.iter().map(|file| file.1).sum();
    let mut totals = Totals {
        sync_calls: calls,
        sync_ns: Some(files.iter().map(ns).sum()),
        files: files
            .iter()
            .map(|file| File {
                path: Some(format!("{PROFILE}/{}", file.0)),
                count: file.1,
                total_ns: Some(ns(file)),
                ..File::default()
            })
            .collect(),
        ..Totals::default()
    };
    if calls > 0 {
        totals.ops.insert(op.into(), Op { count: calls, ..Op::default() });
    }
    totals
}

/// A session whose windows are added one by one.
struct Builder {
    session: Session,
    op: &'static str,
}

impl Builder {
    fn new(op: &'static str) -> Self {
        let session = Session {
            id: "s1".into(),
            name: "bench".into(),
            kind: SessionKind::Browser,
            root_pid: Some(1),
            command: None,
            started_at: at(),
            duration_ns: 60_000_000_000,
            exit_status: Some(0),
            browser: None,
            windows: Vec::new(),
            outside: None,
            total: None,
            in_flight: Vec::new(),
        };
        Self { session, op }
    }

    fn window(&mut self, parent: Option<usize>, name: &str, calls: Option<u64>, files: Files) -> usize {
        let above = parent.map(|index| &self.session.windows[index]);
        let within = above.map(|above| [above.within.as_slice(), std::slice::from_ref(&above.name)].concat());
        let id = format!("w{}", self.session.windows.len() + 1);
        let window = Window {
            client_id: id.clone(),
            parent: above.map(|above| above.id.clone()),
            within: within.unwrap_or_default(),
            id,
            name: name.into(),
            attrs: serde_json::Map::new(),
            calls,
            entries: 1,
            started_at: at(),
            duration_ns: 1_000_000_000,
            open: false,
            aborted: false,
            events_lost: None,
            detail_lost: Some(0),
            own: None,
            total: Some(totals(self.op, files)),
        };
        self.session.windows.push(window);
        self.session.windows.len() - 1
    }

    /// A workload of two passes, each the same.
    fn workload(&mut self, name: &str, calls: u64, in_loop: Files, outside: Files, steps: &[(&str, Files)]) {
        let pass_files = [in_loop, outside].concat();
        let workload = self.window(None, name, None, &[pass_files.as_slice(), &pass_files].concat());
        for pass in ["warm-up", "run 1"] {
            let pass = self.window(Some(workload), pass, None, &pass_files);
            let timed = self.window(Some(pass), "loop", Some(calls), in_loop);
            for (step, files) in steps {
                let step = self.window(Some(timed), step, None, files);
                self.session.windows[step].entries = calls;
            }
        }
    }

    fn finish(mut self, all: Files, outside: Files) -> Session {
        self.session.total = Some(totals(self.op, all));
        self.session.outside = Some(totals(self.op, outside));
        self.session
    }
}

fn chromium() -> Session {
    let mut builder = Builder::new("fdatasync");
    let file = "Default/File System/000/t/00/00000017";
    builder.workload("small-append", 2000, &[("Default/Cookies", 9, 7)], &[], &[]);
    builder.workload("append+flush", 2000, &[(file, 2000, 5), ("Default", 1, 9)], &[(file, 1, 4)], &[]);
    builder.workload("new-file", 200, &[], &[], &[("create+open", &[]), ("delete", &[])]);
    builder
        .finish(&[(file, 4002, 5), ("Default/Cookies", 18, 7), ("Default", 25, 10)], &[("Default", 23, 10)])
}

fn firefox() -> Session {
    let mut builder = Builder::new("fsync");
    let journal = "storage/default/http+++127.0.0.1/fs/metadata.sqlite-journal";
    let directory = "storage/default/http+++127.0.0.1/fs";
    builder.workload("small-append", 2000, &[], &[(journal, 21, 5), ("cookies.sqlite", 5, 6)], &[]);
    builder.workload(
        "new-file",
        200,
        &[(journal, 3000, 5), (directory, 1200, 4), ("cookies.sqlite", 3, 4)],
        &[],
        &[
            ("create+open", &[(journal, 1200, 5), (directory, 600, 4)]),
            ("first write", &[]),
            ("close", &[(journal, 1200, 5), ("cookies.sqlite", 2, 4)]),
            ("delete", &[(journal, 600, 5), (directory, 600, 4)]),
        ],
    );
    builder.finish(&[(journal, 6042, 5), (directory, 2400, 4), ("cookies.sqlite", 16, 5)], &[])
}

fn result(workloads: &Value, markdown: &str) -> PageResult {
    PageResult::from_json(&json!({
        "schema": "opfs-bench.result/1",
        "user_agent": "x",
        "config": {"preset": "quick", "n": 2000, "s": 4096, "chunks": [65536, 1_048_576, 1000], "r": 3, "m": 200,
                   "workloads": ["small-append"]},
        "workloads": workloads,
        "markdown": markdown,
    }))
    .unwrap()
}

fn chromium_result() -> PageResult {
    result(
        &json!([
            {"name": "small-append", "kind": "write", "total_ms": 51.08, "mean_us": 25.54, "calls": 2000},
            {"name": "append+flush", "kind": "write", "total_ms": 10284.4, "mean_us": 5142.2, "calls": 2000},
            {"name": "new-file: create+open", "kind": "file", "total_ms": 338.6, "mean_us": 1693.0, "calls": 200},
            {"name": "new-file: full cycle", "kind": "file", "total_ms": 607.1, "mean_us": 3035.5, "calls": 200},
        ]),
        "**The page's own words**\n\n| a | b |\n|---|---|\n",
    )
}

fn firefox_result() -> PageResult {
    result(
        &json!([
            {"name": "small-append", "kind": "write", "total_ms": 573.5, "mean_us": 286.8, "calls": 2000},
            {"name": "new-file: full cycle", "kind": "file", "total_ms": 22777.8, "mean_us": 113_889.0, "calls": 200},
        ]),
        "",
    )
}

fn browser<'a>(name: &'a str, result: PageResult, session: Option<&'a Session>) -> BrowserRun<'a> {
    BrowserRun {
        name,
        version: Some("152.0.1"),
        result: Some(result),
        session,
        strace: None,
        ambiguous: Ambiguous::default(),
        profile_dir: Some(PROFILE.to_owned()),
        is_opfs: &is_opfs,
    }
}

fn host() -> Host {
    Host {
        hostname: "box".into(),
        kernel: "6.12.1".into(),
        arch: "x86_64".into(),
        cpu: Some("Some CPU".into()),
        cpus: Some(16),
        memory_bytes: Some(64_900_000_000),
    }
}

fn complete() -> Completeness {
    Completeness {
        exact_counts: true,
        events_lost: None,
        detail_lost: 0,
        unresolved_paths: 0,
        unresolved_calls: 0,
        latencies_lost: 0,
        straddling_calls: 2,
        in_flight_calls: 0,
        coverage_gaps: vec![],
        warnings: vec![],
    }
}

fn rendered(tracers: Tracers, browsers: Vec<BrowserRun<'_>>) -> String {
    render(&Bench {
        name: "first_run",
        host: &host(),
        profiles_on: Some("ext4 (/)"),
        tracers,
        started_at: at(),
        browsers,
        completeness: &complete(),
    })
}

const EBPF: Tracers = Tracers { ebpf: true, strace: false };

#[test]
fn two_browsers() {
    let (chromium, firefox) = (chromium(), firefox());
    insta::assert_snapshot!(rendered(
        EBPF,
        vec![
            browser("Chromium", chromium_result(), Some(&chromium)),
            browser("Firefox", firefox_result(), Some(&firefox)),
        ],
    ));
}

#[test]
fn one_browser_with_both_tracers() {
    let mut ebpf = chromium();
    let mut strace = chromium();
    // strace missed a call in one window, and does not have the last one at all.
    if let Some(op) = strace.windows[5].total.as_mut().and_then(|total| total.ops.get_mut("fdatasync")) {
        op.count -= 1;
    }
    ebpf.windows.truncate(10);
    strace.windows.truncate(9);
    let mut run = browser("Chromium", chromium_result(), Some(&ebpf));
    run.strace = Some(&strace);
    insta::assert_snapshot!(rendered(Tracers { ebpf: true, strace: true }, vec![run]));
}

#[test]
fn nothing_traced_and_no_result() {
    let mut failed = browser("Firefox", firefox_result(), None);
    failed.result = None;
    failed.version = None;
    let runs = vec![
        browser("Chromium", chromium_result(), None),
        failed,
        browser("Chromium", chromium_result(), None),
    ];
    insta::assert_snapshot!(rendered(Tracers::default(), runs));
}

#[test]
fn the_ledger_shows_what_was_measured() {
    let mut session = chromium();
    for total in session.windows.iter_mut().filter_map(|window| window.total.as_mut()) {
        let explicit = Some(total.sync_calls);
        total.performed = Some(Performed { explicit, implicit: Some(1000), ..Performed::default() });
    }
    let text = rendered(EBPF, vec![browser("Chromium", chromium_result(), Some(&session))]);
    assert!(text.contains("| append+flush | 1.0 | 1.5 | not measured |"), "{text}");
}

#[test]
fn an_aborted_pass_is_no_pass() {
    let mut session = chromium();
    let pass = session.windows.iter().position(|window| window.name == "run 1").unwrap();
    session.windows[pass].aborted = true;
    session.windows[pass + 1].aborted = true;
    let whole = super::Work::of(&chromium(), "small-append", &is_opfs).unwrap();
    let rest = super::Work::of(&session, "small-append", &is_opfs).unwrap();
    assert_eq!((whole.passes, whole.calls), (2, 4000));
    assert_eq!((rest.passes, rest.calls), (1, 2000));
    assert_eq!(super::Work::of(&session, "chunked", &is_opfs), None);
}

#[test]
fn tracers_that_agree_are_equal_everywhere() {
    let session = firefox();
    let comparisons = agreement::agreement(&session, &session, &Ambiguous::default());
    assert!(comparisons.len() > 3 && comparisons.iter().all(Comparison::equal));
}

#[test]
fn foreign_results_are_refused() {
    let reason = |value: &Value| PageResult::from_json(value).unwrap_err().to_string();
    assert_eq!(
        reason(&json!({"schema": "opfs-bench.result/2"})),
        r#"the page's results have the schema "opfs-bench.result/2"; this version reads "opfs-bench.result/1""#
    );
    assert_eq!(
        reason(&json!([])),
        r#"the page's results have the schema null; this version reads "opfs-bench.result/1""#
    );
    assert_eq!(
        reason(&json!({"schema": "opfs-bench.result/1"})),
        "the page's results do not keep to \"opfs-bench.result/1\": missing field `config`"
    );
}
