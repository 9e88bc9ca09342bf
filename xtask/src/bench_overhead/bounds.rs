//! What the project holds itself to, and how it came out.

use super::Turns;
use super::measure::{Column, Turn};
use super::tracers::Tracer;
use crate::statistics::Summary;

/// A figure and its bound.
pub struct Bound {
    /// What is compared.
    pub what: &'static str,
    /// How it is bounded.
    pub limit: Limit,
    /// The figure; none if one of the tracers is not here.
    pub figure: Option<Summary>,
    /// Digits behind the point.
    pub digits: usize,
}

/// A bound.
#[derive(Clone, Copy)]
pub enum Limit {
    /// It may be no greater.
    AtMost(f64),
    /// It may be no less.
    AtLeast(f64),
    /// It is only of interest.
    None,
}

impl Bound {
    /// Whether the median keeps to the bound; none if there is no bound, or no figure.
    pub fn holds(&self) -> Option<bool> {
        let median = self.figure?.median;
        match self.limit {
            Limit::AtMost(most) => Some(median <= most),
            Limit::AtLeast(least) => Some(median >= least),
            Limit::None => None,
        }
    }
}

/// All of them.
pub fn all(turns: &Turns) -> Vec<Bound> {
    let in_kernel = |other, column| {
        paired(turns, Tracer::Probe, other, |probe, other| {
            let sum = |turn: &Turn| turn.in_kernel.get(&column).map(|both| both.enter + both.exit);
            Some(sum(probe)? / sum(other).filter(|sum| *sum > 0.0)?)
        })
    };
    let beside_empty = |column| {
        paired(turns, Tracer::Probe, Tracer::Empty, |probe, empty| {
            Some(probe.cpu_ns.get(&column)? - empty.cpu_ns.get(&column)?)
        })
    };
    let (most, least, any) = (Limit::AtMost, Limit::AtLeast, Limit::None);
    let (fsync, alone, outside) = (Column::Fsync, Column::FsyncAlone, Column::OpenatOutside);
    let (probe, empty, bpftrace, strace) = (Tracer::Probe, Tracer::Empty, Tracer::Bpftrace, Tracer::Strace);
    let rows = [
        ("fsync, in programs: opfs-probe ÷ empty", most(4.5), in_kernel(empty, fsync), 2),
        ("the same in one thread", any, in_kernel(empty, alone), 2),
        ("fsync, in programs: opfs-probe ÷ bpftrace", any, in_kernel(bpftrace, fsync), 2),
        ("the same in one thread", any, in_kernel(bpftrace, alone), 2),
        ("fsync, added: strace ÷ opfs-probe", least(80.0), ratio_of_added(turns, fsync, strace, probe), 0),
        ("the same in one thread", any, ratio_of_added(turns, alone, strace, probe), 0),
        ("openat outside, in programs: opfs-probe ÷ empty", most(2.0), in_kernel(empty, outside), 2),
        (
            "openat outside, added: opfs-probe ÷ empty",
            most(2.0),
            ratio_of_added(turns, outside, probe, empty),
            2,
        ),
        ("getppid: opfs-probe − empty, ns", most(15.0), beside_empty(Column::Getppid), 0),
        ("pread: opfs-probe − empty, ns", most(15.0), beside_empty(Column::Pread), 0),
    ];
    rows.map(|(what, limit, figure, digits)| Bound { what, limit, figure, digits }).into()
}

/// Of medians: in a single round what little is added to an openat drowns in noise.
fn ratio_of_added(turns: &Turns, column: Column, one: Tracer, other: Tracer) -> Option<Summary> {
    let median = |tracer| Some(Summary::of(&added(turns, tracer, column)?)?.median);
    Summary::of(&[median(one)? / median(other).filter(|median| *median > 0.0)?])
}

/// What a tracer adds to a call, round by round.
pub fn added(turns: &Turns, tracer: Tracer, column: Column) -> Option<Vec<f64>> {
    // For a tracer in a process of its own the caller waits, and the wait is in no processor time.
    let waits = column.is_fsync() && !tracer.is_in_kernel();
    let of = |turn: &Turn| (if waits { &turn.wall_ns } else { &turn.cpu_ns }).get(&column).copied();
    let rounds = turns.get(&tracer)?.iter().zip(turns.get(&Tracer::Bare)?);
    rounds.map(|(traced, bare)| Some(of(traced)? - of(bare)?)).collect()
}

/// Compares two tracers round by round.
fn paired(
    turns: &Turns,
    one: Tracer,
    other: Tracer,
    compare: impl Fn(&Turn, &Turn) -> Option<f64>,
) -> Option<Summary> {
    let rounds = turns.get(&one)?.iter().zip(turns.get(&other)?);
    Summary::of(&rounds.map(|(one, other)| compare(one, other)).collect::<Option<Vec<f64>>>()?)
}

#[cfg(test)]
pub mod tests {
    use super::super::measure::InKernel;
    use super::*;

    /// Three rounds that drift, with every tracer adding the same in each; bpftrace is missing.
    pub fn turns() -> Turns {
        let mut turns = Turns::new();
        for (tracer, added, programs) in [
            (Tracer::Bare, 0.0, 0.0),
            (Tracer::Empty, 100.0, 50.0),
            (Tracer::Probe, 112.0, 200.0),
            (Tracer::Perf, 12_000.0, 0.0),
            (Tracer::Strace, 56_000.0, 0.0),
        ] {
            let rounds = [0.0, 500.0, 90.0].map(|drift| Turn {
                cpu_ns: Column::ALL.map(|column| (column, 300.0 + drift + added)).into(),
                wall_ns: Column::ALL.map(|column| (column, 310.0 + drift + 2.0 * added)).into(),
                in_kernel: [Column::Fsync, Column::FsyncAlone, Column::OpenatOutside]
                    .map(|column| (column, InKernel { enter: programs, exit: programs }))
                    .into(),
            });
            turns.insert(tracer, rounds.into());
        }
        turns
    }

    #[test]
    fn a_drift_of_the_machine_cancels_out() {
        assert_eq!(added(&turns(), Tracer::Probe, Column::Fsync), Some(vec![112.0; 3]));
        assert_eq!(added(&turns(), Tracer::Strace, Column::Fsync), Some(vec![112_000.0; 3]));
        assert_eq!(added(&turns(), Tracer::Bpftrace, Column::Fsync), None);
    }

    #[test]
    fn each_figure_is_held_to_its_bound() {
        let found: Vec<_> = all(&turns())
            .iter()
            .map(|bound| (bound.figure.map(|figure| figure.median), bound.holds()))
            .collect();
        assert_eq!(
            found,
            [
                (Some(4.0), Some(true)),
                (Some(4.0), None),
                (None, None),
                (None, None),
                (Some(1000.0), Some(true)),
                (Some(1000.0), None),
                (Some(4.0), Some(false)),
                (Some(1.12), Some(true)),
                (Some(12.0), Some(true)),
                (Some(12.0), Some(true)),
            ]
        );
    }
}
