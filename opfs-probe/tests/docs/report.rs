//! docs/report.md lists the fields of each part of a report, all of them and no other.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use opfs_probe::report::model::{
    Browser, Completeness, File, FileOp, Filesystem, Flush, Host, InFlight, Layer, Op, Opens, Performed,
    Probe, Process, Report, ResolvedBy, Role, SCHEMA, Session, SessionKind, Totals, Tracer, TracerKind,
    Window,
};
use opfs_probe_common::call;
use opfs_probe_common::histogram::PERCENTILE_ERROR;
use serde_json::{Map, Value};

use crate::{codes, page, rows, sections};

#[test]
fn every_field_is_documented_and_no_other() {
    let mut written = BTreeMap::new();
    collect("Report", &serde_json::to_value(report()).unwrap(), &mut written);
    let text = page("docs/report.md");
    let mut documented: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (title, body) in sections(&text) {
        let fields: BTreeSet<String> = rows(&body)
            .iter()
            .filter_map(|row| codes(&row[0]).first().map(|field| (*field).to_owned()))
            .collect();
        if !fields.is_empty() {
            documented.insert(title.to_owned(), fields);
        }
    }
    assert_eq!(documented, written);
}

#[test]
fn words_and_numbers_are_the_codes_own() {
    let text = page("docs/report.md");
    let said: BTreeSet<&str> = codes(&text).into_iter().collect();
    let word = |value: Value| value.as_str().unwrap().to_owned();
    let kinds = [SessionKind::Command, SessionKind::Browser, SessionKind::Attached, SessionKind::System];
    let tracers = [TracerKind::Ebpf, TracerKind::Strace, TracerKind::None];
    let layers = [Layer::Syscall, Layer::Filesystem, Layer::Uring, Layer::Block, Layer::Process];
    let resolved = [ResolvedBy::Kernel, ResolvedBy::Proc, ResolvedBy::Open, ResolvedBy::None];
    let words = kinds
        .map(|one| serde_json::to_value(one).unwrap())
        .into_iter()
        .chain(tracers.map(|one| serde_json::to_value(one).unwrap()))
        .chain(layers.map(|one| serde_json::to_value(one).unwrap()))
        .chain(resolved.map(|one| serde_json::to_value(one).unwrap()))
        .map(word)
        .chain(call::Op::ALL.map(|op| op.name().to_owned()));
    for word in words {
        assert!(said.contains(word.as_str()), "{word:?} is not documented");
    }
    assert!(text.contains(&PERCENTILE_ERROR.to_string()) && said.contains(SCHEMA));
}

/// What the parts are called in the document, by the field that holds them.
fn part(field: &str, inside: &str) -> Option<&'static str> {
    Some(match field {
        "host" => "Host",
        "tracer" => "Tracer",
        "probes" => "Probe",
        "filesystems" => "Filesystem",
        "sessions" => "Session",
        "browser" => "Browser",
        "windows" => "Window",
        "self" | "total" | "outside" => "Totals",
        "ops" if inside == "File" => "File op",
        "ops" => "Op",
        "performed" => "Performed",
        "flushes" => "Flush",
        "in_flight" if inside == "Session" => "In flight",
        "opens" => "Opens",
        "processes" => "Process",
        "files" => "File",
        "completeness" => "Completeness",
        _ => return None,
    })
}

fn collect(name: &str, value: &Value, into: &mut BTreeMap<String, BTreeSet<String>>) {
    let Value::Object(fields) = value else { panic!("{name} is no object: {value}") };
    into.entry(name.to_owned()).or_default().extend(fields.keys().cloned());
    for (field, value) in fields {
        let Some(part) = part(field, name) else { continue };
        match value {
            Value::Null => {}
            Value::Array(all) => all.iter().for_each(|one| collect(part, one, into)),
            // By kind of call.
            Value::Object(all) if field == "ops" => all.values().for_each(|one| collect(part, one, into)),
            one => collect(part, one, into),
        }
    }
}

/// A report with something in every field. Each is named, so that a new one must be added here.
fn report() -> Report {
    let some = |text: &str| Some(text.to_owned());
    let time: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
    Report {
        schema: SCHEMA.to_owned(),
        generated_at: time,
        host: Host::default(),
        tracer: Tracer {
            kind: TracerKind::Ebpf,
            version: None,
            probes: vec![Probe {
                name: String::new(),
                layer: Layer::Syscall,
                attached: true,
                reason: None,
                runs: None,
                run_ns: None,
                missed: None,
            }],
            run_time_over_ns: None,
        },
        narrowed_to: Vec::new(),
        filesystems: vec![Filesystem {
            dev: String::new(),
            mount: String::new(),
            fstype: String::new(),
            options: String::new(),
            device: None,
            write_cache: None,
            journal: None,
            barrier: None,
            durable: None,
            note: None,
        }],
        sessions: vec![Session {
            id: String::new(),
            name: String::new(),
            kind: SessionKind::Command,
            root_pid: None,
            command: None,
            started_at: time,
            duration_ns: 0,
            exit_status: None,
            browser: Some(Browser { name: String::new(), version: None, executable: None }),
            windows: vec![Window {
                id: String::new(),
                client_id: String::new(),
                parent: None,
                within: Vec::new(),
                name: String::new(),
                attrs: Map::new(),
                calls: None,
                entries: 1,
                started_at: time,
                duration_ns: 0,
                open: false,
                aborted: false,
                events_lost: None,
                detail_lost: None,
                own: Some(Totals::default()),
                total: Some(Totals::default()),
            }],
            outside: Some(Totals::default()),
            in_flight: vec![InFlight { op: String::new(), pid: None, comm: None, path: None, age_ns: 0 }],
            total: Some(Totals {
                ops: [("fsync".to_owned(), Op::default())].into(),
                performed: Some(Performed::default()),
                flushes: Some(vec![Flush {
                    dev: String::new(),
                    device: None,
                    count: 0,
                    fua: 0,
                    errors: 0,
                    total_ns: None,
                    max_ns: None,
                }]),
                opens: Some(Opens::default()),
                processes: vec![Process { role: Role::Main, exe_bytes: some(""), ..Process::default() }],
                files: vec![File {
                    path_bytes: some(""),
                    fs_path_bytes: some(""),
                    names_bytes: Some(Vec::new()),
                    ops: [("fsync".to_owned(), FileOp::default())].into(),
                    performed: Some(Performed::default()),
                    ..File::default()
                }],
                ..Totals::default()
            }),
        }],
        completeness: Completeness {
            exact_counts: true,
            events_lost: None,
            detail_lost: 0,
            unresolved_paths: 0,
            unresolved_calls: 0,
            latencies_lost: 0,
            straddling_calls: 0,
            in_flight_calls: 0,
            coverage_gaps: Vec::new(),
            warnings: Vec::new(),
        },
    }
}
