//! The report for the person at the terminal: what `opfs-probe run` prints.

use std::fmt::Write;

use comfy_table::{CellAlignment, ContentArrangement, presets};

use super::escape::one_line;
use super::model::{Report, Session, Totals, TracerKind};
use super::tables::{self, Table};

/// Escape codes, or nothing.
struct Style {
    colour: bool,
}

impl Style {
    fn bold(&self, text: &str) -> String {
        self.wrap("1", text)
    }

    fn wrap(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// The report as text, with colours if `colour` is set.
pub fn render(report: &Report, colour: bool) -> String {
    let style = Style { colour };
    let mut text = String::new();
    for session in &report.sessions {
        render_session(&mut text, session, !report.narrowed_to.is_empty(), &style);
        text.push('\n');
    }
    if report.sessions.is_empty() {
        text.push_str("No session fits.\n\n");
    }
    if let Some(line) = tables::self_cost(&report.tracer) {
        let _ = writeln!(text, "{line}");
    }
    let (verdict, points) =
        tables::completeness(&report.completeness, report.tracer.kind != TracerKind::None);
    let good = report.completeness.is_perfect();
    let _ = writeln!(text, "{}", style.wrap(if good { "32" } else { "33" }, &verdict));
    for point in points {
        let _ = writeln!(text, "  {}", one_line(&point));
    }
    text
}

fn render_session(text: &mut String, session: &Session, narrowed: bool, style: &Style) {
    // Writing to a string can't fail, here and below.
    let _ = writeln!(text, "{}", style.bold(&tables::headline(session, one_line)));
    if narrowed {
        for window in tables::outermost(session) {
            let name = one_line(&window.place());
            let _ = writeln!(text, "\n{}", style.bold(&format!("in the window {name}:")));
            render_totals(text, window.total.as_ref());
        }
    } else {
        render_totals(text, session.total.as_ref());
    }
    for line in tables::in_flight(session, one_line) {
        let _ = writeln!(text, "{line}");
    }
    let (windows, more) = tables::windows(session, "  ", one_line);
    section(text, &windows, more, "windows");
}

fn render_totals(text: &mut String, total: Option<&Totals>) {
    let Some(total) = total.filter(|total| !tables::is_quiet(total)) else { return };
    if let Some(line) = tables::ledger(total) {
        let _ = writeln!(text, "{line}");
    }
    section(text, &tables::ops(total), 0, "");
    let (files, more) = tables::files(total, one_line);
    section(text, &files, more, "files");
    let (processes, more) = tables::processes(total, one_line);
    section(text, &processes, more, "processes");
}

fn section(text: &mut String, table: &Table, more: usize, what: &str) {
    if table.rows.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{}", layout(table));
    if more > 0 {
        let _ = writeln!(text, "  and {more} more {what}: see --format json");
    }
}

/// A table as lines, without a line end.
pub(crate) fn layout(table: &Table) -> String {
    let mut grid = comfy_table::Table::new();
    // Lines are not wrapped: a path broken in two can be neither copied nor searched for.
    grid.load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(table.columns.iter().map(|(title, _)| title.as_str()));
    for row in &table.rows {
        grid.add_row(row);
    }
    for (column, (_, numeric)) in grid.column_iter_mut().zip(&table.columns) {
        column.set_padding((0, 2));
        column.set_cell_alignment(if *numeric { CellAlignment::Right } else { CellAlignment::Left });
    }
    let lines: Vec<_> = grid.lines().map(|line| format!("  {}", line.trim_end())).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::render;
    use crate::report::sample;

    #[test]
    fn all_of_a_report() {
        insta::assert_snapshot!(render(&sample::report(), false));
    }

    #[test]
    fn colour_only_where_asked_for() {
        let coloured = render(&sample::report(), true);
        let plain = coloured.replace("\u{1b}[1m", "").replace("\u{1b}[33m", "").replace("\u{1b}[0m", "");
        assert_ne!(coloured, plain);
        assert_eq!(plain, render(&sample::report(), false));
    }

    #[test]
    fn nothing_measured() {
        insta::assert_snapshot!(render(&sample::untraced(), false));
    }
}
