//! What watching costs: the same benchmark under no tracer, eBPF and strace, in alternating runs, so
//! that a machine's slow drift meets all three alike.

mod picture;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::bench;
use crate::command;
use crate::setup;
use crate::workspace::Workspace;

/// Arguments of `cargo xtask bench-browsers`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Runs under each tracer.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Folder for the table, its picture, and each run's results.
    #[arg(long, default_value = "opfs-bench/browsers")]
    out: PathBuf,
    /// Run nothing: table and picture of the results that are in the folder.
    #[arg(long)]
    again: bool,
    /// Answer yes to the set-up's question.
    #[arg(long)]
    yes: bool,
}

const TRACERS: [&str; 3] = ["none", "ebpf", "strace"];

/// The rows: what is compared, and the workload whose mean it is.
const MEASURES: [(&str, &str); 3] =
    [("append", "small-append"), ("append+flush", "append+flush"), ("new file", "new-file")];

/// µs per call, by browser and measure, then by tracer: one value a run.
type Samples = BTreeMap<(String, usize), BTreeMap<&'static str, Vec<f64>>>;

/// Runs the task.
pub fn run(arguments: &Arguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let out = workspace.root.join(&arguments.out);
    if !arguments.again {
        setup::ensure(&workspace, arguments.yes)?;
        measure(&workspace, arguments.rounds, &out)?;
    }
    let mut samples = Samples::new();
    for round in 0..arguments.rounds {
        for tracer in TRACERS {
            read_results(&run_folder(&out, tracer, round), tracer, &mut samples)?;
        }
    }
    let table = table(&samples);
    println!("{table}");
    for (name, text) in [("table.md", table), ("tracer-cost.svg", picture::draw(&samples))] {
        let file = out.join(name);
        fs::write(&file, text).with_context(|| format!("{} can't be written", file.display()))?;
    }
    Ok(())
}

fn measure(workspace: &Workspace, rounds: u32, out: &Path) -> Result<()> {
    let probe = bench::build(workspace)?;
    fs::create_dir_all(out).with_context(|| format!("{} can't be made", out.display()))?;
    for round in 0..rounds {
        for tracer in order(round) {
            let mut bench = bench::bench_command(workspace, &probe)?;
            bench.args(["--tracer", tracer, "--preset", "quick", "--out"]);
            command::run(bench.arg(run_folder(out, tracer, round)))?;
        }
    }
    Ok(())
}

fn run_folder(out: &Path, tracer: &str, round: u32) -> PathBuf {
    out.join(format!("{tracer}-{}", round + 1))
}

/// Each round begins with another tracer.
fn order(round: u32) -> [&'static str; 3] {
    let mut tracers = TRACERS;
    tracers.rotate_left(round as usize % TRACERS.len());
    tracers
}

fn read_results(folder: &Path, tracer: &'static str, samples: &mut Samples) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("{} can't be read", folder.display()))?;
    let mut found = false;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Some(browser) = name.strip_suffix(".result.json") else { continue };
        found = true;
        let text = fs::read_to_string(&path).with_context(|| format!("{} can't be read", path.display()))?;
        let result: Value =
            serde_json::from_str(&text).with_context(|| format!("{} is no JSON", path.display()))?;
        for (measure, (_, workload)) in MEASURES.iter().enumerate() {
            let mean = mean_us(&result, workload)
                .with_context(|| format!("{} has no mean_us of {workload}", path.display()))?;
            let by_tracer = samples.entry((browser.to_owned(), measure)).or_default();
            by_tracer.entry(tracer).or_default().push(mean);
        }
    }
    if !found {
        bail!("{} has no *.result.json", folder.display());
    }
    Ok(())
}

/// The mean of one workload. Some results list a workload's parts, such as `new-file: full cycle`
/// beside its steps: then that of the whole.
fn mean_us(result: &Value, workload: &str) -> Option<f64> {
    let whole = format!("{workload}: full cycle");
    let workloads = result["workloads"].as_array()?;
    let named = |name: &str| workloads.iter().find(|entry| entry["name"] == name);
    named(workload).or_else(|| named(&whole))?["mean_us"].as_f64()
}

fn table(samples: &Samples) -> String {
    let mut text = String::from(
        "| browser | µs per call | none | ebpf | strace | ebpf ÷ none | strace ÷ none |\n\
         |---|---|---:|---:|---:|---:|---:|\n",
    );
    for ((browser, measure), by_tracer) in samples {
        let spreads = TRACERS.map(|tracer| by_tracer.get(tracer).and_then(|values| Spread::of(values)));
        let shown = spreads.map(|spread| spread.map_or_else(|| "—".to_owned(), Spread::show));
        let ratio = |tracer: usize| match (spreads[tracer], spreads[0]) {
            (Some(spread), Some(base)) if base.median > 0.0 => {
                format!("{:.2}", spread.median / base.median)
            }
            _ => "—".to_owned(),
        };
        let (name, _) = MEASURES[*measure];
        let _ =
            writeln!(text, "| {browser} | {name} | {} | {} | {} |", shown.join(" | "), ratio(1), ratio(2));
    }
    text.push_str("\nMedian (least to greatest) of alternating runs.\n");
    text
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Some(Self { median, min, max })
    }

    fn show(self) -> String {
        let number = |value: f64| {
            if value < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") }
        };
        format!("{} ({}–{})", number(self.median), number(self.min), number(self.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_begin_with_each_tracer_in_turn() {
        assert_eq!(order(0), ["none", "ebpf", "strace"]);
        assert_eq!(order(1), ["ebpf", "strace", "none"]);
        assert_eq!(order(4), ["ebpf", "strace", "none"]);
    }

    #[test]
    fn medians_of_odd_and_even_runs() {
        assert_eq!(Spread::of(&[3.0, 1.0, 2.0]).unwrap().show(), "2.0 (1.0–3.0)");
        assert_eq!(Spread::of(&[100.0, 300.0]).unwrap().show(), "200 (100–300)");
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn results_are_read_and_laid_side_by_side() {
        let folder = std::env::temp_dir().join(format!("xtask-bench-browsers-{}", std::process::id()));
        let mut samples = Samples::new();
        for (tracer, factor) in [("none", 1.0), ("ebpf", 1.1), ("strace", 30.0)] {
            fs::create_dir_all(&folder).unwrap();
            let result = serde_json::json!({"workloads": [
                {"name": "small-append", "mean_us": 20.0 * factor},
                {"name": "append+flush", "mean_us": 200.0 * factor},
                {"name": "new-file: full cycle", "mean_us": 2000.0 * factor},
            ]});
            fs::write(folder.join("chromium.result.json"), result.to_string()).unwrap();
            read_results(&folder, tracer, &mut samples).unwrap();
            fs::remove_dir_all(&folder).unwrap();
        }
        let table = table(&samples);
        let append =
            "| chromium | append | 20.0 (20.0–20.0) | 22.0 (22.0–22.0) | 600 (600–600) | 1.10 | 30.00 |";
        assert!(table.contains(append), "{table}");
        assert!(table.contains("| chromium | new file | 2000 (2000–2000) |"), "{table}");
    }
}
