//! From a snapshot to metric families.

use std::collections::BTreeMap;

use nix::errno::Errno;
use opfs_probe_common::call::Op;
use opfs_probe_common::histogram::{self, Histogram};
use opfs_probe_common::performed::{Cause, Filesystem};
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram as HistogramSample, LabelPair, Metric, MetricFamily, MetricType,
};

use super::snapshot::{Counts, Named, Probe, Snapshot};

/// The label of all names beyond the cap.
const OTHER: &str = "other";

const NS_PER_SECOND: f64 = 1e9;

/// Bounds of the latency buckets as powers of two: 1 µs to 69 s. Finer ones are in reports.
const BOUND_EXPONENTS: std::ops::RangeInclusive<u32> = 10..=36;

/// The families of a snapshot, those without a sample left out.
pub(super) fn of(snapshot: &Snapshot, names: usize) -> Vec<MetricFamily> {
    let sessions = capped(&snapshot.sessions, names);
    let windows = capped(&snapshot.windows, names);
    let mut all = Vec::new();
    session_families(&sessions, &mut all);
    window_families(&windows, &mut all);
    error_family(&sessions, &mut all);
    performed_family(&sessions, &mut all);
    device_families(snapshot, &mut all);
    state_families(snapshot, &mut all);
    probe_families(&snapshot.probes, &mut all);
    all.retain(|family| !family.get_metric().is_empty());
    all
}

fn session_families(sessions: &BTreeMap<&str, Counts>, all: &mut Vec<MetricFamily>) {
    let mut calls = Vec::new();
    let mut durations = Vec::new();
    for (session, counts) in sessions {
        let mut by_result: BTreeMap<(Op, &str), u64> = BTreeMap::new();
        for ((op, errno), tally) in &counts.calls {
            let result = if *errno == 0 { "ok" } else { "error" };
            *by_result.entry((*op, result)).or_default() += tally.count;
        }
        for ((op, result), count) in by_result {
            calls.push(counter(&[("op", op.name()), ("result", result), ("session", session)], count as f64));
        }
        for (op, histogram) in &counts.histograms {
            let labels = [("op", op.name()), ("session", session)];
            durations.push(latencies(&labels, histogram, total_ns(counts, *op)));
        }
    }
    all.push(family("opfs_probe_sync_calls_total", "Finished sync calls.", MetricType::COUNTER, calls));
    all.push(family(
        "opfs_probe_sync_duration_seconds",
        "Time inside finished sync calls.",
        MetricType::HISTOGRAM,
        durations,
    ));
}

fn window_families(windows: &BTreeMap<&str, Counts>, all: &mut Vec<MetricFamily>) {
    let mut calls = Vec::new();
    let mut seconds = Vec::new();
    for (window, counts) in windows {
        let mut by_op: BTreeMap<Op, u64> = BTreeMap::new();
        for ((op, _), tally) in &counts.calls {
            *by_op.entry(*op).or_default() += tally.count;
        }
        for (op, count) in by_op {
            let labels = [("op", op.name()), ("window", window)];
            calls.push(counter(&labels, count as f64));
            seconds.push(counter(&labels, total_ns(counts, op) as f64 / NS_PER_SECOND));
        }
    }
    all.push(family(
        "opfs_probe_window_sync_calls_total",
        "Finished sync calls in windows of that name, their children included.",
        MetricType::COUNTER,
        calls,
    ));
    all.push(family(
        "opfs_probe_window_sync_seconds_total",
        "Time inside sync calls in windows of that name, their children included.",
        MetricType::COUNTER,
        seconds,
    ));
}

fn error_family(sessions: &BTreeMap<&str, Counts>, all: &mut Vec<MetricFamily>) {
    let mut by_errno: BTreeMap<(Op, u16), u64> = BTreeMap::new();
    for counts in sessions.values() {
        for ((op, errno), tally) in counts.calls.iter().filter(|((_, errno), _)| *errno != 0) {
            *by_errno.entry((*op, *errno)).or_default() += tally.count;
        }
    }
    let errors = by_errno
        .into_iter()
        .map(|((op, errno), count)| {
            counter(&[("errno", &errno_name(errno)), ("op", op.name())], count as f64)
        })
        .collect();
    all.push(family(
        "opfs_probe_sync_errors_total",
        "Sync calls that returned an error.",
        MetricType::COUNTER,
        errors,
    ));
}

fn performed_family(sessions: &BTreeMap<&str, Counts>, all: &mut Vec<MetricFamily>) {
    let mut by_kind: BTreeMap<(Filesystem, Cause), u64> = BTreeMap::new();
    for (kind, count) in sessions.values().flat_map(|counts| &counts.performed) {
        *by_kind.entry(*kind).or_default() += count;
    }
    let performed = by_kind.into_iter().map(|((filesystem, cause), count)| {
        counter(&[("cause", cause.name()), ("fstype", filesystem.name())], count as f64)
    });
    all.push(family(
        "opfs_probe_performed_total",
        "Syncs that file systems performed, by what caused them.",
        MetricType::COUNTER,
        performed.collect(),
    ));
}

fn device_families(snapshot: &Snapshot, all: &mut Vec<MetricFamily>) {
    let (mut counts, mut durations) = (Vec::new(), Vec::new());
    for device in snapshot.devices.iter().flatten() {
        let tally = &device.flushed;
        let name = device.name.as_str();
        for (kind, count) in [("flush", tally.flushes), ("fua", tally.fua)] {
            counts.push(counter(&[("device", name), ("kind", kind)], count as f64));
        }
        durations.push(latencies(&[("device", name)], &tally.latencies, tally.total_ns));
    }
    all.push(family(
        "opfs_probe_device_flushes_total",
        "Cache flushes and forced-unit-access writes that a device was done with, whoever caused them.",
        MetricType::COUNTER,
        counts,
    ));
    all.push(family(
        "opfs_probe_device_flush_duration_seconds",
        "Time that a device took for them.",
        MetricType::HISTOGRAM,
        durations,
    ));
}

fn state_families(snapshot: &Snapshot, all: &mut Vec<MetricFamily>) {
    let mut one = |name, help, kind, value: Option<f64>| {
        let sample = if kind == MetricType::COUNTER { counter } else { gauge };
        all.push(family(name, help, kind, value.map(|value| sample(&[], value)).into_iter().collect()));
    };
    let oldest = snapshot.in_flight.and_then(|calls| calls.oldest_ns);
    one(
        "opfs_probe_in_flight_calls",
        "Sync calls entered and not yet returned.",
        MetricType::GAUGE,
        snapshot.in_flight.map(|calls| calls.calls as f64),
    );
    one(
        "opfs_probe_in_flight_oldest_seconds",
        "How long the oldest sync call in flight has taken so far.",
        MetricType::GAUGE,
        oldest.map(|ns| ns as f64 / NS_PER_SECOND),
    );
    one(
        "opfs_probe_events_lost_total",
        "Events lost between the kernel and the probe; counts never come from events.",
        MetricType::COUNTER,
        snapshot.events_lost.map(|count| count as f64),
    );
    one(
        "opfs_probe_detail_lost_total",
        "Sync calls and performed syncs counted without their file and process.",
        MetricType::COUNTER,
        snapshot.detail_lost.map(|count| count as f64),
    );
    one(
        "opfs_probe_windows_open",
        "Windows open now.",
        MetricType::GAUGE,
        snapshot.windows_open.map(|n| n as f64),
    );
    one(
        "opfs_probe_windows_total",
        "Windows begun.",
        MetricType::COUNTER,
        snapshot.windows_total.map(|n| n as f64),
    );

    let build = snapshot
        .build
        .iter()
        .map(|build| gauge(&[("kernel", build.kernel.as_str()), ("version", build.version.as_str())], 1.0));
    all.push(family("opfs_probe_build_info", "What runs where.", MetricType::GAUGE, build.collect()));
}

fn probe_families(probes: &[Probe], all: &mut Vec<MetricFamily>) {
    let attached = probes.iter().map(|probe| {
        let labels = [("layer", probe.layer.as_str()), ("probe", probe.name.as_str())];
        gauge(&labels, f64::from(u8::from(probe.attached)))
    });
    all.push(family(
        "opfs_probe_probe_attached",
        "Whether a probe is attached.",
        MetricType::GAUGE,
        attached.collect(),
    ));
    let mut counters = |name, help, of: fn(&Probe) -> Option<f64>| {
        let measured = probes.iter().filter_map(|probe| Some((probe, of(probe)?)));
        let samples = measured.map(|(probe, value)| counter(&[("probe", probe.name.as_str())], value));
        all.push(family(name, help, MetricType::COUNTER, samples.collect()));
    };
    counters("opfs_probe_probe_runs_total", "How often a probe ran.", |probe| {
        probe.runs.map(|runs| runs as f64)
    });
    counters("opfs_probe_probe_run_seconds_total", "Time a probe ran, over all processors.", |probe| {
        probe.run_ns.map(|run_ns| run_ns as f64 / NS_PER_SECOND)
    });
    counters("opfs_probe_probe_missed_total", "How often the kernel skipped a probe.", |probe| {
        probe.missed.map(|missed| missed as f64)
    });
}

/// Adds up equal names, and all names beyond the first `names`.
pub(super) fn capped(all: &[Named], names: usize) -> BTreeMap<&str, Counts> {
    let mut kept: BTreeMap<&str, Counts> = BTreeMap::new();
    let mut room = names;
    for Named { name, counts } in all {
        let name = if kept.contains_key(name.as_str()) {
            name.as_str()
        } else if room > 0 {
            room -= 1;
            name.as_str()
        } else {
            OTHER
        };
        kept.entry(name).or_default().add(counts);
    }
    kept
}

fn total_ns(counts: &Counts, op: Op) -> u64 {
    counts.calls.iter().filter(|((of, _), _)| *of == op).map(|(_, tally)| tally.total_ns).sum()
}

/// The errno's usual name, or its number if it has none.
pub(super) fn errno_name(errno: u16) -> String {
    match Errno::from_raw(i32::from(errno)) {
        Errno::UnknownErrno => errno.to_string(),
        known => format!("{known:?}"),
    }
}

/// Cumulative buckets. A bound is 2^e - 1 ns, since that is where our own buckets end: so the counts
/// are exact.
pub(super) fn latencies(labels: &[(&str, &str)], histogram: &Histogram, total_ns: u64) -> Metric {
    let mut buckets = Vec::new();
    let mut below = 0;
    let mut next = 0;
    for exponent in BOUND_EXPONENTS {
        let bound_ns = (1_u64 << exponent) - 1;
        while histogram::upper_ns(next).is_some_and(|upper_ns| upper_ns <= bound_ns) {
            below += histogram.buckets[next];
            next += 1;
        }
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(bound_ns as f64 / NS_PER_SECOND);
        bucket.set_cumulative_count(below);
        buckets.push(bucket);
    }
    let mut sample = HistogramSample::default();
    sample.set_bucket(buckets);
    sample.set_sample_count(histogram.buckets.iter().sum());
    sample.set_sample_sum(total_ns as f64 / NS_PER_SECOND);
    let mut metric = labelled(labels);
    metric.set_histogram(sample);
    metric
}

fn counter(labels: &[(&str, &str)], value: f64) -> Metric {
    let mut sample = Counter::default();
    sample.set_value(value);
    let mut metric = labelled(labels);
    metric.set_counter(sample);
    metric
}

fn gauge(labels: &[(&str, &str)], value: f64) -> Metric {
    let mut sample = Gauge::default();
    sample.set_value(value);
    let mut metric = labelled(labels);
    metric.set_gauge(sample);
    metric
}

fn labelled(labels: &[(&str, &str)]) -> Metric {
    let pairs = labels.iter().map(|(name, value)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    });
    let mut metric = Metric::default();
    metric.set_label(pairs.collect());
    metric
}

fn family(name: &str, help: &str, kind: MetricType, metrics: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}
