//! What a workload synced, from the windows the page announced: workload › pass › loop › step.

use crate::report::model::{Session, Totals, Window};

/// The window around a pass's timed calls.
const LOOP: &str = "loop";

/// Calls and the time inside them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub count: u64,
    pub ns: u64,
}

/// Calls on the workload's own files, and all the others that the browser made meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    pub own: Tally,
    pub other: Tally,
}

/// One step in the life of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub name: String,
    /// How many files went through it.
    pub files: u64,
    pub syncs: Split,
}

/// A workload in one browser, over all its passes, warm-up included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    pub passes: u64,
    /// Timed calls.
    pub calls: u64,
    pub in_loops: Split,
    /// In the passes, but not in their loops.
    pub outside_loops: Split,
    pub steps: Vec<Step>,
    /// Syncs the file system ran during the loops.
    pub performed: Option<u64>,
    /// Flushes and forced-unit-access writes that devices got during the loops.
    pub flushed: Option<u64>,
}

impl Work {
    /// The workload `name`, or none if it has no whole pass with counts. A pass that was aborted
    /// or still goes on is left out: its calls were not all made.
    pub fn of(session: &Session, name: &str, is_opfs: &dyn Fn(&str) -> bool) -> Option<Self> {
        let mut work = Self { performed: Some(0), flushed: Some(0), ..Self::default() };
        let workloads = workload_windows(session).filter(|window| window.name == name);
        for pass in workloads.flat_map(|workload| children(session, workload)) {
            let loops: Vec<&Window> = children(session, pass).filter(|window| window.name == LOOP).collect();
            let whole = |window: &&Window| !window.aborted && !window.open;
            if whole(&pass) && loops.iter().all(|timed| whole(timed) && timed.calls.is_some()) {
                work.add_pass(session, pass, &loops, is_opfs)?;
            }
        }
        (work.passes > 0).then_some(work)
    }

    fn add_pass(
        &mut self,
        session: &Session,
        pass: &Window,
        loops: &[&Window],
        is_opfs: &dyn Fn(&str) -> bool,
    ) -> Option<()> {
        let mut outside = Split::of(pass.total.as_ref()?, is_opfs);
        for timed in loops {
            let total = timed.total.as_ref()?;
            let split = Split::of(total, is_opfs);
            outside.take_away(split);
            self.in_loops.add(split);
            self.calls += timed.calls?;
            self.performed = self.performed.zip(performed(total)).map(|(sum, more)| sum + more);
            self.flushed = self.flushed.zip(flushed(total)).map(|(sum, more)| sum + more);
            for step in children(session, timed) {
                self.add_step(step, Split::of(step.total.as_ref()?, is_opfs));
            }
        }
        self.outside_loops.add(outside);
        self.passes += 1;
        Some(())
    }

    fn add_step(&mut self, window: &Window, syncs: Split) {
        match self.steps.iter_mut().find(|step| step.name == window.name) {
            Some(step) => {
                step.files += window.entries;
                step.syncs.add(syncs);
            }
            None => self.steps.push(Step { name: window.name.clone(), files: window.entries, syncs }),
        }
    }

    /// What the loops synced outside of all steps.
    pub fn between_steps(&self) -> Split {
        let mut rest = self.in_loops;
        for step in &self.steps {
            rest.take_away(step.syncs);
        }
        rest
    }
}

/// Windows of workloads: those that stand alone and hold passes with a loop.
pub fn workload_windows(session: &Session) -> impl Iterator<Item = &Window> {
    let has_loop = |window: &Window| {
        children(session, window).any(|pass| children(session, pass).any(|inner| inner.name == LOOP))
    };
    session.windows.iter().filter(move |window| window.parent.is_none() && has_loop(window))
}

fn children<'a>(session: &'a Session, parent: &'a Window) -> impl Iterator<Item = &'a Window> {
    session.windows.iter().filter(|window| window.parent.as_ref() == Some(&parent.id))
}

impl Split {
    fn of(totals: &Totals, is_opfs: &dyn Fn(&str) -> bool) -> Self {
        let mut own = Tally::default();
        for file in totals.files.iter().filter(|file| file.path.as_deref().is_some_and(is_opfs)) {
            own.count += file.count;
            own.ns += file.total_ns.unwrap_or(0);
        }
        let mut other = Tally { count: totals.sync_calls, ns: totals.sync_ns.unwrap_or(0) };
        other.take_away(own);
        Self { own, other }
    }

    fn add(&mut self, more: Self) {
        self.own.add(more.own);
        self.other.add(more.other);
    }

    fn take_away(&mut self, less: Self) {
        self.own.take_away(less.own);
        self.other.take_away(less.other);
    }
}

impl Tally {
    fn add(&mut self, more: Self) {
        self.count += more.count;
        self.ns += more.ns;
    }

    // Never below zero, whatever a report read from a file holds.
    fn take_away(&mut self, less: Self) {
        self.count = self.count.saturating_sub(less.count);
        self.ns = self.ns.saturating_sub(less.ns);
    }
}

fn performed(totals: &Totals) -> Option<u64> {
    totals.performed?.total()
}

fn flushed(totals: &Totals) -> Option<u64> {
    let flushes = totals.flushes.as_ref()?;
    Some(flushes.iter().map(|flush| flush.count + flush.fua).sum())
}
