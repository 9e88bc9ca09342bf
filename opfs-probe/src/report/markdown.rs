//! The report as Markdown, to paste into an issue.

use std::fmt::Write;

use super::escape::{code, plain};
use super::model::{Report, Session, Totals, TracerKind};
use super::tables::{self, Table};

/// The report as Markdown.
pub fn render(report: &Report) -> String {
    let mut text = String::from("# Durability report\n\n");
    let host = &report.host;
    // Writing to a string can't fail, here and below.
    let _ = writeln!(
        text,
        "Host: {}, Linux {} {}  ",
        plain(&host.hostname),
        plain(&host.kernel),
        plain(&host.arch)
    );
    let _ = writeln!(text, "Counted by: {}  ", tracer(report.tracer.kind));
    let _ = writeln!(text, "Date: {}", report.generated_at);
    for session in &report.sessions {
        render_session(&mut text, session, !report.narrowed_to.is_empty());
    }
    if !report.filesystems.is_empty() {
        let mut table = Table::new(["<dev", "<mount", "<type", "<device", "<write cache", "<note"]);
        for filesystem in &report.filesystems {
            let or_blank = |text: &Option<String>| text.as_deref().map(plain).unwrap_or_default();
            table.rows.push(vec![
                filesystem.dev.clone(),
                code(&filesystem.mount),
                plain(&filesystem.fstype),
                or_blank(&filesystem.device),
                or_blank(&filesystem.write_cache),
                or_blank(&filesystem.note),
            ]);
        }
        section(&mut text, "## File systems", &table, 0);
    }
    if let Some(line) = tables::self_cost(&report.tracer) {
        let _ = writeln!(text, "\n{line}");
    }
    let (verdict, points) =
        tables::completeness(&report.completeness, report.tracer.kind != TracerKind::None);
    let _ = writeln!(text, "\n## Completeness\n\n{verdict}");
    if !points.is_empty() {
        text.push('\n');
    }
    for point in points {
        let _ = writeln!(text, "- {}", plain(&point));
    }
    text
}

fn tracer(kind: TracerKind) -> &'static str {
    match kind {
        TracerKind::Ebpf => "eBPF, in the kernel",
        TracerKind::Strace => "strace",
        TracerKind::None => "nothing",
    }
}

fn render_session(text: &mut String, session: &Session, narrowed: bool) {
    let _ = writeln!(text, "\n## {}\n\n{}", plain(&session.name), tables::headline(session, code));
    if narrowed {
        for window in tables::outermost(session) {
            render_totals(text, window.total.as_ref(), &format!(" in {}", plain(&window.place())));
        }
    } else {
        render_totals(text, session.total.as_ref(), "");
    }
    for line in tables::in_flight(session, plain) {
        let _ = writeln!(text, "\n{line}");
    }
    let (windows, more) = tables::windows(session, "&emsp;", plain);
    section(text, "### Windows", &windows, more);
}

fn render_totals(text: &mut String, total: Option<&Totals>, place: &str) {
    let Some(total) = total.filter(|total| !tables::is_quiet(total)) else { return };
    if let Some(line) = tables::ledger(total) {
        let _ = writeln!(text, "\n{line}");
    }
    section(text, &format!("### By kind of call{place}"), &tables::ops(total), 0);
    let (files, more) = tables::files(total, code);
    section(text, &format!("### Most-synced files{place}"), &files, more);
    let (processes, more) = tables::processes(total, plain);
    section(text, &format!("### Processes{place}"), &processes, more);
}

fn section(text: &mut String, title: &str, table: &Table, more: usize) {
    if table.rows.is_empty() {
        return;
    }
    let _ = write!(text, "\n{title}\n\n{}", layout(table));
    if more > 0 {
        let _ = writeln!(text, "\nAnd {more} more: see the JSON report.");
    }
}

/// A table in Markdown; its cells are Markdown already.
pub(super) fn layout(table: &Table) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    // A code span keeps a backslash; only the table takes one away, in spans too.
    let cell = |text: &String| text.replace('|', r"\|");
    let mut text = line(table.columns.iter().map(|(title, _)| cell(title)).collect());
    text.push('|');
    for (_, numeric) in &table.columns {
        text.push_str(if *numeric { "---:|" } else { "---|" });
    }
    text.push('\n');
    for row in &table.rows {
        text.push_str(&line(row.iter().map(cell).collect()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::render;
    use crate::report::sample;

    #[test]
    fn all_of_a_report() {
        insta::assert_snapshot!(render(&sample::report()));
    }

    #[test]
    fn nothing_measured() {
        insta::assert_snapshot!(render(&sample::untraced()));
    }
}
