//! The tables, as docs/overhead.md has them.

use std::fmt::Write as _;

use super::Turns;
use super::bounds::{self, Limit, added};
use super::measure::{Column, InKernel, Turn};
use super::tracers::Tracer;
use crate::statistics::Summary;

/// All tables and how they were made.
pub fn print(turns: &Turns, conditions: &str) -> String {
    let mut text = String::from("```console\n$ cargo xtask bench-overhead\n```\n\n");
    calls(&mut text, turns);
    in_kernel(&mut text, turns);
    held_to(&mut text, turns);
    text.push_str(conditions);
    text
}

/// Nanoseconds that each tracer adds to a call.
fn calls(text: &mut String, turns: &Turns) {
    text.push_str(
        "| ns added to a call | fsync | fsync, one thread | getppid | pread | openat | openat outside |\n\
         |---|---:|---:|---:|---:|---:|---:|\n",
    );
    for tracer in Tracer::ALL {
        let _ = write!(text, "| {} |", tracer.name());
        if let Some(missing) = tracer.missing().filter(|_| !turns.contains_key(&tracer)) {
            let _ = writeln!(text, " {missing} | | | | | |");
            continue;
        }
        for column in Column::ALL {
            let values = if tracer == Tracer::Bare {
                of_each(turns, tracer, |turn| turn.cpu_ns.get(&column).copied())
            } else {
                added(turns, tracer, column)
            };
            let _ = write!(text, " {} |", cell(values.and_then(|values| Summary::of(&values)), 0));
        }
        text.push('\n');
    }
    text.push('\n');
}

type Part = fn(&InKernel) -> f64;

/// Nanoseconds in programs, by the kernel's own statistics.
fn in_kernel(text: &mut String, turns: &Turns) {
    text.push_str(
        "| ns in programs, a call | fsync, on entry | on exit | both | both, one thread | openat | openat outside |\n\
         |---|---:|---:|---:|---:|---:|---:|\n",
    );
    let both: Part = |ns| ns.enter + ns.exit;
    let columns: [(Column, Part); 6] = [
        (Column::Fsync, |ns| ns.enter),
        (Column::Fsync, |ns| ns.exit),
        (Column::Fsync, both),
        (Column::FsyncAlone, both),
        (Column::Openat, both),
        (Column::OpenatOutside, both),
    ];
    for tracer in [Tracer::Probe, Tracer::Empty, Tracer::Bpftrace] {
        if !turns.contains_key(&tracer) {
            continue;
        }
        let _ = write!(text, "| {} |", tracer.name());
        for (column, part) in columns {
            let values = of_each(turns, tracer, |turn| turn.in_kernel.get(&column).map(part));
            // What no program runs at has no figure.
            let values = values.filter(|values| values.iter().any(|value| *value > 0.0));
            let _ = write!(text, " {} |", cell(values.and_then(|values| Summary::of(&values)), 0));
        }
        text.push('\n');
    }
    text.push('\n');
}

fn held_to(text: &mut String, turns: &Turns) {
    text.push_str("| held to | bound | measured | |\n|---|---:|---:|---|\n");
    for bound in bounds::all(turns) {
        let limit = match bound.limit {
            Limit::AtMost(most) => format!("≤ {most}"),
            Limit::AtLeast(least) => format!("≥ {least}"),
            Limit::None => "—".to_owned(),
        };
        let verdict = match bound.holds() {
            Some(true) => "holds",
            Some(false) => "**exceeded**",
            None => "",
        };
        let measured = cell(bound.figure, bound.digits);
        let _ = writeln!(text, "| {} | {limit} | {measured} | {verdict} |", bound.what);
    }
    text.push('\n');
}

fn of_each(turns: &Turns, tracer: Tracer, value: impl Fn(&Turn) -> Option<f64>) -> Option<Vec<f64>> {
    turns.get(&tracer)?.iter().map(value).collect()
}

/// A median with its quartiles, unless there was but one value.
fn cell(summary: Option<Summary>, digits: usize) -> String {
    let Some(Summary { median, lower, upper }) = summary else { return "—".to_owned() };
    let number = |value| number(value, digits);
    if lower < upper {
        format!("{} ({} to {})", number(median), number(lower), number(upper))
    } else {
        number(median)
    }
}

/// Thousands apart, and no zero below zero.
fn number(value: f64, digits: usize) -> String {
    let text = format!("{:.digits$}", value.abs());
    let sign = if value < 0.0 && text.contains(|digit| ('1'..='9').contains(&digit)) { "−" } else { "" };
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{fraction}")
}

#[cfg(test)]
mod tests {
    use super::super::bounds::tests::turns;
    use super::*;

    #[test]
    fn numbers_are_readable() {
        let shown = [0.4, -0.4, -12.0, 999.6, 1_234_567.0].map(|value| number(value, 0));
        assert_eq!(shown, ["0", "0", "−12", "1,000", "1,234,567"]);
        assert_eq!(number(1234.5678, 2), "1,234.57");
    }

    #[test]
    fn medians_have_their_quartiles_beside_them() {
        assert_eq!(cell(None, 0), "—");
        assert_eq!(cell(Summary::of(&[7.0]), 0), "7");
        assert_eq!(cell(Summary::of(&[1.0, 2.0, 3.0, 4.0, 5.0]), 1), "3.0 (2.0 to 4.0)");
    }

    #[test]
    fn the_tables_have_every_tracer() {
        let text = print(&turns(), "Conditions.");
        for line in [
            "| no tracer: the call itself | 390 (345 to 595) |",
            "| `strace -f -c --seccomp-bpf` | 112,000 | 112,000 | 56,000 |",
            "| opfs-probe | 200 | 200 | 400 | 400 | — | 400 |",
            "| fsync, in programs: opfs-probe ÷ empty | ≤ 4.5 | 4.00 | holds |",
            "| openat outside, in programs: opfs-probe ÷ empty | ≤ 2 | 4.00 | **exceeded** |",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("\n\nConditions."));
    }
}
