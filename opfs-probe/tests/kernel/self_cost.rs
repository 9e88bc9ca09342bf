//! What the probes cost, as the kernel measures it.

use opfs_probe::report::model::{Layer, Probe, Report};

use crate::run::Run;

const SYNCS: &str = "f=$(mktemp -p .) && for i in 1 2 3; do sync $f; done; rm $f";

fn probe<'a>(report: &'a Report, name: &str) -> &'a Probe {
    report.tracer.probes.iter().find(|probe| probe.name == name).expect("a planned probe")
}

#[test]
fn runs_are_counted_where_asked_for() {
    let ran = Run::new(&["--self-cost"]).of(&["sh", "-c", SYNCS]);
    let report = &ran.report;
    let over_ns = report.tracer.run_time_over_ns.expect("it was measured");
    assert!(over_ns >= report.sessions[0].duration_ns, "{over_ns} ns");
    for name in ["syscalls:sys_enter_fsync", "syscalls:sys_exit_fsync", "sched:sched_process_exit"] {
        let probe = probe(report, name);
        let (runs, run_ns) = (probe.runs.expect("measured"), probe.run_ns.expect("measured"));
        assert!(runs >= 3, "{name} ran {runs} times");
        // Less than nothing or more than the whole time would be no measurement.
        assert!(run_ns > runs && run_ns < over_ns, "{name}: {runs} runs, {run_ns} ns");
    }
    for probe in report.tracer.probes.iter().filter(|probe| !probe.attached) {
        assert_eq!((probe.runs, probe.run_ns, probe.missed), (None, None, None), "{}", probe.name);
    }
    assert!(report.completeness.is_perfect(), "{:?}", report.completeness);
}

#[test]
fn nothing_is_measured_unless_asked_for() {
    let report = Run::new(&[]).of(&["sh", "-c", SYNCS]).report;
    assert_eq!(report.tracer.run_time_over_ns, None);
    assert!(report.tracer.probes.iter().all(|probe| probe.runs.is_none() && probe.run_ns.is_none()));
}

/// Which needs no privilege, but a kernel that counts.
#[test]
fn skipped_probes_are_counted_or_said_not_to_be() {
    let report = Run::new(&[]).of(&["sh", "-c", SYNCS]).report;
    let attached = |layer| move |probe: &&Probe| probe.attached && probe.layer == layer;
    let syscalls = || report.tracer.probes.iter().filter(attached(Layer::Syscall));
    let said = report.completeness.coverage_gaps.iter().any(|gap| gap.contains("the kernel skipped"));
    if said {
        assert!(syscalls().all(|probe| probe.missed.is_none()));
    } else {
        assert!(syscalls().all(|probe| probe.missed == Some(0)));
    }
    let others = report.tracer.probes.iter().filter(attached(Layer::Process));
    assert!(others.map(|probe| probe.missed).all(|missed| missed == Some(0)));
}

#[test]
fn without_the_privilege_that_is_said() {
    // With tracefs mounted beforehand, which takes the same privilege.
    let script = "mount --make-private /sys && \
                  { mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing; } && \
                  exec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin \"$@\"";
    let without = ["unshare", "--mount", "--propagation", "unchanged", "sh", "-c", script, "sh"];
    let ran = Run::new(&["--self-cost"]).inside(&without).of(&["sh", "-c", SYNCS]);
    assert_eq!(ran.report.tracer.run_time_over_ns, None);
    assert!(ran.report.tracer.probes.iter().all(|probe| probe.runs.is_none()));
    let warnings = &ran.report.completeness.warnings;
    assert!(warnings.iter().any(|warning| warning.contains("CAP_SYS_ADMIN")), "{warnings:?}");
}
