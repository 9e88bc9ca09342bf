//! `opfs-probe report`: what a running probe has counted, or a report from a file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use jiff::Timestamp;

use super::output::{Options, Stream};
use super::when;
use super::window::Probe;
use crate::report::filter::Filter;
use crate::report::model::Report;
use crate::report::read::from_json;
use crate::server::protocol;

/// Report what a running probe has counted, or show a saved report
///
/// Windows are chosen by name (`append*`) or by place (`append*/run */loop`); a report holds the sessions
/// they belong to. Counts are never cut: a window that was open at --since or --until is shown whole.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    opfs-probe report --since 10m\n  \
    opfs-probe report --window 'append*' --format json | jq '.sessions[].windows[].total.sync_calls'\n  \
    opfs-probe report --input report.json --session firefox --format markdown")]
pub struct Arguments {
    /// Only windows whose name or place fits the pattern; any of several.
    #[arg(long = "window", value_name = "GLOB")]
    windows: Vec<String>,
    /// Only sessions whose name or id fits the pattern; any of several.
    #[arg(long = "session", value_name = "GLOB")]
    sessions: Vec<String>,
    /// Only what still went on at that time: `10m` (ago), `today`, `14:30`, `2026-03-01T14:30:00Z`.
    #[arg(long, value_name = "WHEN", value_parser = when::moment)]
    since: Option<Timestamp>,
    /// Only what had begun by that time.
    #[arg(long, value_name = "WHEN", value_parser = when::moment)]
    until: Option<Timestamp>,
    /// Read a JSON report from this file instead of asking a probe.
    #[arg(long, value_name = "FILE", conflicts_with = "socket")]
    input: Option<PathBuf>,
    #[command(flatten)]
    output: Options,
    #[command(flatten)]
    probe: Probe,
}

/// Gets the report and writes it.
pub fn main(arguments: Arguments) -> Result<ExitCode> {
    let Arguments { windows, sessions, since, until, input, output, probe } = arguments;
    let filter = protocol::Filter { windows, sessions, since, until };
    let report = match &input {
        Some(file) => Filter::from(&filter).apply(read(file)?),
        None => ask(&probe, &filter)?,
    };
    // Opened only now: a mistyped window must not cost an older report.
    let file = output.open()?;
    output.write(&report, file, Stream::Output)?;
    Ok(output.verdict(&report))
}

fn read(file: &Path) -> Result<Report> {
    let bytes = fs::read(file).with_context(|| format!("can't read the report {}", file.display()))?;
    from_json(&bytes).with_context(|| format!("can't read the report {}", file.display()))
}

fn ask(probe: &Probe, filter: &protocol::Filter) -> Result<Report> {
    let answer = probe.connect()?.report(filter)?;
    from_json(answer.to_string().as_bytes())
        .context("the probe's report can't be read; is it of another version?")
}
