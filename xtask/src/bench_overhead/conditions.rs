//! Under what conditions the figures came about, in words.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::time::Duration;

use super::measure::Bench;
use super::tracers::Tracer;

/// One paragraph.
pub fn describe(bench: &Bench, tracers: &[Tracer], rounds: u32) -> String {
    let mut text = format!(
        "Median (quartiles) of {rounds} rounds; in each, every tracer had its turn with blocks of {} ms. Empty \
         programs were on {} tracepoints",
        Duration::as_millis(&bench.block),
        bench.hooks.len(),
    );
    if !bench.hooks_left_out.is_empty() {
        let _ = write!(text, ", but not on {}", bench.hooks_left_out.join(", "));
    }
    if bench.disturbed > 0 {
        let _ = write!(
            text,
            ". **Another program was tracing at the beginning of {} turns**: end it, and measure again",
            bench.disturbed
        );
    }
    let versions = tracers.iter().filter_map(|tracer| version(*tracer)).collect::<Vec<_>>();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let _ = write!(
        text,
        ". Done on {} with {}, Linux {}, {} of {}.",
        said(Command::new("date").args(["--utc", "+%F"])).unwrap_or_default(),
        versions.join(", "),
        kernel.trim(),
        processors(),
        model().unwrap_or_else(|| "an unknown kind".to_owned()),
    );
    text
}

fn processors() -> String {
    match std::thread::available_parallelism() {
        Ok(number) if number.get() > 1 => format!("{number} processors"),
        _ => "one processor".to_owned(),
    }
}

fn model() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let (_, model) = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "))?;
    Some(model.to_owned())
}

/// A foreign tracer's name and version, as it prints it: `perf version 6.1`, `strace -- version 6.1`.
fn version(tracer: Tracer) -> Option<String> {
    let program = match tracer {
        Tracer::Bpftrace => "bpftrace",
        Tracer::Perf => "perf",
        Tracer::Strace => "strace",
        Tracer::Bare | Tracer::Probe | Tracer::Empty => return None,
    };
    let line = said(Command::new(program).arg("--version"))?;
    Some(format!("{program} {}", line.split_whitespace().last()?.trim_start_matches('v')))
}

/// The first line of a command's output.
fn said(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next()?.to_owned())
}
