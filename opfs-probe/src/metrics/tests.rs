use std::io::Write;
use std::process::{Command, Stdio};

use opfs_probe_common::call::Op;
use opfs_probe_common::flushed::DeviceTally;
use opfs_probe_common::histogram::{self, Histogram};

use super::families::{capped, errno_name, latencies, of};
use super::{Build, Counts, Device, InFlight, Named, Probe, Snapshot, Tally, exposition};

fn counts(calls: &[(Op, u16, u64, u64)]) -> Counts {
    let mut counts = Counts::default();
    for (op, errno, count, each_ns) in calls {
        let tally = Tally { count: *count, total_ns: count * each_ns };
        counts.calls.insert((*op, *errno), tally);
        let histogram = counts.histograms.entry(*op).or_insert(Histogram::ZERO);
        histogram.buckets[histogram::bucket(*each_ns)] += count;
    }
    counts
}

fn named(name: &str, counts: Counts) -> Named {
    Named { name: name.to_owned(), counts }
}

fn flushed() -> DeviceTally {
    let mut device = DeviceTally { flushes: 5, fua: 1, total_ns: 6_000_000, ..DeviceTally::ZERO };
    device.latencies.buckets[histogram::bucket(1_000_000)] = 6;
    device
}

fn full() -> Snapshot {
    Snapshot {
        sessions: vec![
            named("firefox", counts(&[(Op::Fsync, 0, 21, 5_000_000), (Op::Fsync, 5, 2, 1_000)])),
            named("a \"strange\"\\ name\n", counts(&[(Op::Fdatasync, 0, 3, 2_000_000_000)])),
        ],
        windows: vec![named("append+flush", counts(&[(Op::Fsync, 0, 21, 5_000_000)]))],
        devices: Some(vec![Device { name: "vda".into(), flushed: flushed() }]),
        in_flight: Some(InFlight { calls: 2, oldest_ns: Some(1_500_000_000) }),
        events_lost: Some(0),
        detail_lost: Some(1),
        probes: vec![Probe {
            name: "sys_enter_fsync".into(),
            layer: "syscall".into(),
            attached: true,
            runs: Some(20),
            run_ns: Some(5_000),
            missed: Some(3),
        }],
        windows_open: Some(4),
        windows_total: Some(9),
        build: Some(Build { version: "0.1.0".into(), kernel: "6.18.5".into() }),
    }
}

fn value(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn every_measured_thing_is_said() {
    let text = exposition(&full(), 10);
    for (series, expected) in [
        (r#"opfs_probe_sync_calls_total{op="fsync",result="ok",session="firefox"}"#, 21.0),
        (r#"opfs_probe_sync_calls_total{op="fsync",result="error",session="firefox"}"#, 2.0),
        (r#"opfs_probe_sync_duration_seconds_count{op="fsync",session="firefox"}"#, 23.0),
        (r#"opfs_probe_sync_duration_seconds_sum{op="fsync",session="firefox"}"#, 0.105_002),
        (r#"opfs_probe_device_flushes_total{device="vda",kind="flush"}"#, 5.0),
        (r#"opfs_probe_device_flushes_total{device="vda",kind="fua"}"#, 1.0),
        (r#"opfs_probe_device_flush_duration_seconds_count{device="vda"}"#, 6.0),
        (r#"opfs_probe_device_flush_duration_seconds_sum{device="vda"}"#, 0.006),
        (r#"opfs_probe_window_sync_calls_total{op="fsync",window="append+flush"}"#, 21.0),
        (r#"opfs_probe_window_sync_seconds_total{op="fsync",window="append+flush"}"#, 0.105),
        (r#"opfs_probe_sync_errors_total{errno="EIO",op="fsync"}"#, 2.0),
        ("opfs_probe_in_flight_calls", 2.0),
        ("opfs_probe_in_flight_oldest_seconds", 1.5),
        ("opfs_probe_events_lost_total", 0.0),
        ("opfs_probe_detail_lost_total", 1.0),
        (r#"opfs_probe_probe_attached{layer="syscall",probe="sys_enter_fsync"}"#, 1.0),
        (r#"opfs_probe_probe_runs_total{probe="sys_enter_fsync"}"#, 20.0),
        (r#"opfs_probe_probe_run_seconds_total{probe="sys_enter_fsync"}"#, 0.000_005),
        (r#"opfs_probe_probe_missed_total{probe="sys_enter_fsync"}"#, 3.0),
        ("opfs_probe_windows_open", 4.0),
        ("opfs_probe_windows_total", 9.0),
        (r#"opfs_probe_build_info{kernel="6.18.5",version="0.1.0"}"#, 1.0),
    ] {
        assert_eq!(value(&text, series), Some(expected), "{series}\n{text}");
    }
    assert!(value(&text, "process_resident_memory_bytes").is_some(), "{text}");
}

#[test]
fn what_is_not_measured_is_absent() {
    assert!(of(&Snapshot::default(), 10).is_empty());
    let idle = Snapshot { in_flight: Some(InFlight { calls: 0, oldest_ns: None }), ..Snapshot::default() };
    let text = exposition(&idle, 10);
    assert_eq!(value(&text, "opfs_probe_in_flight_calls"), Some(0.0));
    assert!(!text.contains("opfs_probe_in_flight_oldest_seconds"));
}

#[test]
fn latency_buckets_count_exactly_at_their_bounds() {
    let mut histogram = Histogram::ZERO;
    let exact = [1_u64, 1023, 1024, 1_048_575, 1_048_576, (1 << 36) - 1, 1 << 36, u64::MAX];
    for ns in exact {
        histogram.buckets[histogram::bucket(ns)] += 1;
    }
    let metric = latencies(&[], &histogram, 0);
    let sample = metric.get_histogram();
    for bucket in sample.get_bucket() {
        let truth = exact.iter().filter(|ns| **ns as f64 / 1e9 <= bucket.upper_bound()).count();
        assert_eq!(bucket.cumulative_count(), truth as u64, "le {}", bucket.upper_bound());
    }
    assert_eq!(sample.get_sample_count(), exact.len() as u64);
}

#[test]
fn names_beyond_the_cap_are_added_up() {
    let one = || counts(&[(Op::Fsync, 0, 1, 1_000)]);
    let names = ["a", "b", "a", "c", "d", "b"];
    let all: Vec<_> = names.iter().map(|name| named(name, one())).collect();
    let kept = capped(&all, 2);
    let count = |name| kept[name].calls[&(Op::Fsync, 0)].count;
    assert_eq!(kept.keys().copied().collect::<Vec<_>>(), ["a", "b", "other"]);
    assert_eq!((count("a"), count("b"), count("other")), (2, 2, 2));
}

#[test]
fn an_unknown_errno_keeps_its_number() {
    assert_eq!(errno_name(5), "EIO");
    assert_eq!(errno_name(4000), "4000");
}

/// The judge of names, units and types is Prometheus' own linter.
#[test]
fn promtool_finds_nothing_to_say() {
    let child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        eprintln!("skipped: promtool_finds_nothing_to_say: promtool is not installed (package prometheus)");
        return;
    };
    child.stdin.take().unwrap().write_all(exposition(&full(), 10).as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "promtool: {said}");
}
