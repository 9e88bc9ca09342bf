//! BPF programs that run, and the kernel's statistics of them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// What the kernel counted of a program, by its id.
pub type Counted = BTreeMap<u32, Program>;

/// What the kernel counted of one program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its name, at most 15 bytes.
    pub name: String,
    /// How often it ran.
    pub runs: u64,
    /// How long, in nanoseconds.
    pub run_ns: u64,
}

/// How many programs that trace are loaded, anybody's.
pub fn tracing(kernel: &Path) -> Result<u32> {
    let output = Command::new(kernel).arg("tracers").output();
    let output = output.with_context(|| format!("{} did not start", kernel.display()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    said.trim().parse().with_context(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// The ids of the programs that a process holds.
pub fn held_by(pid: u32) -> Result<Vec<u32>> {
    let folder = format!("/proc/{pid}/fd");
    let mut ids = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("{folder} can't be read"))? {
        let entry = entry?;
        // It may have been closed meanwhile.
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        if target != Path::new("anon_inode:bpf-prog") {
            continue;
        }
        let info = format!("/proc/{pid}/fdinfo/{}", entry.file_name().to_string_lossy());
        let text = fs::read_to_string(&info).unwrap_or_default();
        ids.extend(text.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse::<u32>().ok()));
    }
    Ok(ids)
}

/// The kernel times programs while this lives.
pub struct Statistics {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Statistics {
    /// Begins, by the program `overhead-kernel`.
    pub fn start(kernel: &Path) -> Result<Self> {
        let mut command = Command::new(kernel);
        command.arg("statistics").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("{} did not start", kernel.display()))?;
        let questions = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("no pipe")?);
        let mut statistics = Self { child, questions, answers };
        // Its first answer comes once the kernel does.
        statistics.read(&[])?;
        Ok(statistics)
    }

    /// What was counted of these programs so far; those that are gone are left out.
    pub fn read(&mut self, ids: &[u32]) -> Result<Counted> {
        let questions = self.questions.as_mut().context("statistics have ended")?;
        let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
        writeln!(questions, "{}", ids.join(" "))?;
        let mut counted = Counted::new();
        loop {
            let mut line = String::new();
            if self.answers.read_line(&mut line)? == 0 {
                bail!("the kernel does not time programs; its message is above");
            }
            let line = line.trim_end();
            if line.is_empty() {
                return Ok(counted);
            }
            let (id, program) = parse(line).with_context(|| format!("{line:?} is no statistics"))?;
            counted.insert(id, program);
        }
    }

    /// Waits until these programs are gone: some are let go of in the background, which would disturb
    /// what is measured next.
    pub fn wait_until_gone(&mut self, ids: &[u32]) -> Result<()> {
        const LONGEST: Duration = Duration::from_secs(30);
        let started = Instant::now();
        while !self.read(ids)?.is_empty() {
            if started.elapsed() > LONGEST {
                bail!("its programs were still there {} s after its end", LONGEST.as_secs());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Statistics {
    fn drop(&mut self) {
        drop(self.questions.take());
        let _ = self.child.wait();
    }
}

fn parse(line: &str) -> Option<(u32, Program)> {
    let mut words = line.splitn(4, ' ');
    let id = words.next()?.parse().ok()?;
    let runs = words.next()?.parse().ok()?;
    let run_ns = words.next()?.parse().ok()?;
    Some((id, Program { name: words.next()?.to_owned(), runs, run_ns }))
}

/// Nanoseconds per call of the programs that ran at each of `calls` calls, between two readings: on
/// entry and on exit. Programs that tell neither by their name count as on exit.
pub fn per_call(before: &Counted, after: &Counted, calls: u64) -> (f64, f64) {
    let (mut enter, mut exit) = (0.0, 0.0);
    for (id, program) in after {
        let (runs, run_ns) = before.get(id).map_or((0, 0), |before| (before.runs, before.run_ns));
        let runs = program.runs.saturating_sub(runs);
        if runs < calls {
            continue;
        }
        let mean = program.run_ns.saturating_sub(run_ns) as f64 / runs as f64;
        if program.name.contains("enter") { enter += mean } else { exit += mean }
    }
    (enter, exit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(runs: u64) -> Counted {
        let program = |name: &str, runs, run_ns| Program { name: name.to_owned(), runs, run_ns };
        BTreeMap::from([
            (1, program("enter_fsync", 5 + runs, 500 + 300 * runs)),
            (2, program("exit_fsync", 5 + runs, 500 + 200 * runs)),
            (3, program("process_fork", 5 + runs / 10, 500 + 900 * runs)),
        ])
    }

    #[test]
    fn programs_of_other_calls_are_left_out() {
        assert_eq!(per_call(&counted(0), &counted(100), 100), (300.0, 200.0));
        assert_eq!(per_call(&counted(0), &counted(100), 101), (0.0, 0.0));
    }

    #[test]
    fn statistics_are_read_line_by_line() {
        let expected = Program { name: "a b".to_owned(), runs: 2, run_ns: 3 };
        assert_eq!(parse("1 2 3 a b"), Some((1, expected)));
        assert_eq!(parse("1 2"), None);
    }
}
