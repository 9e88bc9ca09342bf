//! Two tracers on the same run: do they count the same?

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use super::escape::plain;
use super::model::{Session, Totals, Window};
use super::tables::Table;
use super::units::{NOT_MEASURED, count};

/// strace's calls too near a window's edge to be sure of, by window id and op: it stamps a call
/// before the kernel enters it.
pub type Ambiguous = HashMap<(String, String), u64>;

/// One kind of call in one window, as each tracer counted it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    /// The window with those around it; none for the whole session.
    pub window: Option<String>,
    /// The kind of call.
    pub op: String,
    /// Counted by eBPF; none if it lacks the window.
    pub ebpf: Option<u64>,
    /// Counted by strace; none if it lacks the window.
    pub strace: Option<u64>,
    /// strace's calls too near the window's edge to be sure of.
    pub ambiguous: u64,
}

impl Comparison {
    /// Whether both counted the same.
    pub fn equal(&self) -> bool {
        self.ebpf == self.strace && self.ebpf.is_some()
    }

    /// Whether they differ by no more calls than lie near the window's edge.
    pub fn explained_by_edge(&self) -> bool {
        let (Some(ebpf), Some(strace)) = (self.ebpf, self.strace) else { return false };
        !self.equal() && ebpf.abs_diff(strace) <= self.ambiguous
    }
}

/// Lays two tracers' sessions side by side: each window by its `id`, and each kind of call that either
/// tracer saw in it. The whole session comes last.
pub fn agreement(ebpf: &Session, strace: &Session, ambiguous: &Ambiguous) -> Vec<Comparison> {
    let theirs: HashMap<&str, &Window> =
        strace.windows.iter().map(|window| (window.id.as_str(), window)).collect();
    let ours: BTreeSet<&str> = ebpf.windows.iter().map(|window| window.id.as_str()).collect();
    let mut comparisons = Vec::new();
    for window in &ebpf.windows {
        let other = theirs.get(window.id.as_str()).and_then(|other| other.total.as_ref());
        compare(&mut comparisons, Some(window), window.total.as_ref(), other, ambiguous);
    }
    for window in strace.windows.iter().filter(|window| !ours.contains(window.id.as_str())) {
        compare(&mut comparisons, Some(window), None, window.total.as_ref(), ambiguous);
    }
    compare(&mut comparisons, None, ebpf.total.as_ref(), strace.total.as_ref(), ambiguous);
    comparisons
}

fn compare(
    comparisons: &mut Vec<Comparison>,
    window: Option<&Window>,
    ebpf: Option<&Totals>,
    strace: Option<&Totals>,
    ambiguous: &Ambiguous,
) {
    let ops: BTreeSet<&String> =
        ebpf.into_iter().chain(strace).flat_map(|totals| totals.ops.keys()).collect();
    let calls =
        |totals: Option<&Totals>, op| totals.map(|totals| totals.ops.get(op).map_or(0, |op| op.count));
    let near_edge = |op: &String| {
        let key = window.map(|window| (window.id.clone(), op.clone()));
        key.and_then(|key| ambiguous.get(&key)).copied().unwrap_or(0)
    };
    for op in ops {
        comparisons.push(Comparison {
            window: window.map(Window::place),
            op: op.clone(),
            ebpf: calls(ebpf, op),
            strace: calls(strace, op),
            ambiguous: near_edge(op),
        });
    }
}

/// The comparisons as a table.
pub fn table(comparisons: &[Comparison]) -> Table {
    let mut table = Table::new(["<Window", "<op", "eBPF", "strace", "<equal"]);
    let number = |calls: Option<u64>| calls.map_or_else(|| NOT_MEASURED.to_owned(), count);
    for comparison in comparisons {
        table.rows.push(vec![
            comparison.window.as_deref().map_or_else(|| "(whole session)".to_owned(), plain),
            comparison.op.clone(),
            number(comparison.ebpf),
            number(comparison.strace),
            if comparison.equal() {
                "yes".to_owned()
            } else if comparison.explained_by_edge() {
                format!("no: {} near the window's edge", count(comparison.ambiguous))
            } else {
                "**no**".to_owned()
            },
        ]);
    }
    table
}
