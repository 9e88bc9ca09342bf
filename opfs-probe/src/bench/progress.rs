//! What the user sees of a run: a bar for each workload on a terminal, a line for each elsewhere.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::host::PageEvent;
use super::options::WorkloadPlan;

/// The last step of a call of new-file: it ends the call.
const LAST_STEP: &str = "delete";

/// Progress of one browser's run, driven by the windows that its page announces.
pub struct Progress {
    label: String,
    plan: Vec<WorkloadPlan>,
    bar: Option<ProgressBar>,
    terminal: bool,
    started: Instant,
    silent: bool,
}

impl Progress {
    /// Progress on stderr, under this label.
    pub fn new(label: &str, plan: Vec<WorkloadPlan>) -> Self {
        let terminal = stderr().is_terminal();
        Self { label: label.to_owned(), plan, bar: None, terminal, started: Instant::now(), silent: false }
    }

    /// No output at all.
    #[must_use]
    pub fn silent(mut self) -> Self {
        self.silent = true;
        self
    }

    /// The browser starts and settles, which is a wait without news.
    pub fn settling(&mut self, settle: Duration) {
        if self.terminal && !self.silent {
            self.show(
                ProgressBar::new_spinner(),
                "{spinner} {prefix} {msg}",
                &format!("settles for {} s", settle.as_secs()),
            );
            if let Some(bar) = &self.bar {
                bar.enable_steady_tick(Duration::from_millis(120));
            }
        } else {
            self.line(&format!("starts, and settles for {} s", settle.as_secs()));
        }
    }

    /// Takes in what the page announced.
    pub fn event(&mut self, event: &PageEvent) {
        match event {
            PageEvent::Began(path) => self.began(path),
            PageEvent::Ended(path) => self.ended(path),
            PageEvent::Connected | PageEvent::Result { .. } | PageEvent::Gone => {}
        }
    }

    /// Takes the bar away.
    pub fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn began(&mut self, path: &[String]) {
        match path {
            [workload] => {
                self.started = Instant::now();
                if self.terminal && !self.silent {
                    let length = self.find(workload).map_or(0, length);
                    self.show(
                        ProgressBar::new(length),
                        "{prefix} {wide_bar} {percent:>3} % {elapsed:>4} {msg}",
                        "",
                    );
                    if let Some(bar) = &self.bar {
                        bar.set_prefix(format!("{}: {workload}", self.label));
                    }
                }
            }
            [_, pass] => {
                if let Some(bar) = &self.bar {
                    bar.set_message(pass.clone());
                }
            }
            _ => {}
        }
    }

    fn ended(&mut self, path: &[String]) {
        let announces_calls =
            path.first().and_then(|name| self.find(name)).is_some_and(|plan| plan.announces_calls);
        let step = match path {
            [workload] => {
                self.finish();
                let text = format!("{workload}: {:.1} s", self.started.elapsed().as_secs_f64());
                self.line(&text);
                return;
            }
            [_, _] => !announces_calls,
            [.., last] => announces_calls && last == LAST_STEP,
            [] => false,
        };
        if let Some(bar) = self.bar.as_ref().filter(|_| step) {
            bar.inc(1);
        }
    }

    fn find(&self, workload: &str) -> Option<&WorkloadPlan> {
        self.plan.iter().find(|plan| plan.name == workload)
    }

    fn show(&mut self, bar: ProgressBar, template: &str, message: &str) {
        self.finish();
        bar.set_draw_target(ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_prefix(self.label.clone());
        bar.set_message(message.to_owned());
        self.bar = Some(bar);
    }

    fn line(&self, text: &str) {
        if !self.silent {
            eprintln!("{}: {text}", self.label);
        }
    }
}

/// Steps of a workload's bar: its passes, or its calls where they are announced one by one.
fn length(plan: &WorkloadPlan) -> u64 {
    plan.passes * if plan.announces_calls { plan.calls } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(name: &str, calls: u64, announces_calls: bool) -> WorkloadPlan {
        WorkloadPlan { name: name.into(), passes: 2, calls, announces_calls }
    }

    fn path(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_bar_is_full_when_its_workload_ends() {
        let mut progress =
            Progress::new("Own 1", vec![plan("small-append", 5, false), plan("new-file", 3, true)]);
        progress.silent = true;
        for (name, steps) in [("small-append", &["loop"][..]), ("new-file", &["loop", LAST_STEP])] {
            let length = length(progress.find(name).unwrap());
            progress.bar = Some(ProgressBar::hidden());
            for pass in ["warm-up", "run 1"] {
                for _ in 0..3 {
                    progress.ended(&path(&[&[name, pass][..], steps].concat()));
                }
                progress.ended(&path(&[name, pass]));
            }
            assert_eq!(progress.bar.as_ref().unwrap().position(), length, "{name}");
        }
    }

    #[test]
    fn windows_it_does_not_know_are_no_trouble() {
        let mut progress = Progress::new("Own 1", Vec::new()).silent();
        for names in [&[][..], &["x"], &["x", "y"], &["x", "y", "z", "delete"]] {
            progress.event(&PageEvent::Began(path(names)));
            progress.event(&PageEvent::Ended(path(names)));
        }
        progress.finish();
    }
}
