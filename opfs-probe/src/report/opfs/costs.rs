//! The pages' own timings, side by side.

use super::result::{Kind, Workload};
use super::{Run, union};
use crate::report::escape::plain;
use crate::report::tables::Table;
use crate::report::units::NOT_MEASURED;

/// Cost of a call in each browser, for workloads of one kind; the first browser is what the others
/// are compared with.
pub fn costs(runs: &[Run<'_>], kind: Kind) -> Table {
    let labels = || runs.iter().map(|run| plain(&run.label));
    let mut titles = vec!["<Workload".to_owned()];
    titles.extend(labels().map(|label| format!("{label} time/call")));
    titles.extend(
        labels()
            .skip(1)
            .zip(labels().cycle())
            .map(|(other, _)| format!("{other} ÷ {}", plain(&runs[0].label))),
    );
    titles.extend(labels().map(|label| format!("{label} total")));
    let mut table = Table::new(titles);
    for name in union(runs.iter().map(|run| run.workloads(kind).map(|workload| workload.name.as_str()))) {
        let found: Vec<Option<&Workload>> =
            runs.iter().map(|run| run.workloads(kind).find(|workload| workload.name == name)).collect();
        let means: Vec<_> = found.iter().map(|workload| workload.and_then(|found| found.mean_us)).collect();
        let mut row = vec![plain(name)];
        row.extend(means.iter().map(|&mean| or_dash(mean, per_call)));
        row.extend(means.iter().skip(1).map(|&mean| {
            let both = mean.zip(means[0]).filter(|&(_, first)| first > 0.0);
            or_dash(both, |(mean, first)| format!("{:.1}×", mean / first))
        }));
        row.extend(found.iter().map(|workload| or_dash(workload.and_then(|found| found.total_ms), total)));
        table.rows.push(row);
    }
    table
}

fn or_dash<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or_else(|| NOT_MEASURED.to_owned(), show)
}

/// Microseconds: `12.7 µs`, `5142 µs`, `49.1 ms`.
fn per_call(us: f64) -> String {
    if us < 99.95 {
        format!("{us:.1} µs")
    } else if us < 9_999.5 {
        format!("{us:.0} µs")
    } else {
        format!("{:.1} ms", us / 1e3)
    }
}

/// Milliseconds: `51.1 ms`, `10.3 s`.
fn total(ms: f64) -> String {
    if ms < 999.95 { format!("{ms:.1} ms") } else { format!("{:.1} s", ms / 1e3) }
}

#[cfg(test)]
mod tests {
    use super::{per_call, total};

    #[test]
    fn units_change_where_the_numbers_get_long() {
        assert_eq!(
            [12.66, 287.4, 5142.2, 9_999.6, 49_093.0].map(per_call),
            ["12.7 µs", "287 µs", "5142 µs", "10.0 ms", "49.1 ms"]
        );
        assert_eq!([51.08, 607.1, 999.96, 10_284.4].map(total), ["51.1 ms", "607.1 ms", "1.0 s", "10.3 s"]);
    }
}
