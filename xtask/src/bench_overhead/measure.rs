//! One turn of one tracer, and the turns in rounds.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use super::caller::{Block, Caller, Kind};
use super::programs::{self, Statistics};
use super::scene::{CALLER, OUTSIDE, Scene};
use super::tracers::{Parts, Tracer};

/// What is called, and by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Column {
    /// By the caller that is traced, in all its threads.
    Fsync,
    /// In one of them.
    FsyncAlone,
    /// In all; no tracer traces it.
    Getppid,
    /// Likewise.
    Pread,
    /// In all; only the probe counts it.
    Openat,
    /// By a process that nobody watches.
    OpenatOutside,
}

impl Column {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Fsync, Self::FsyncAlone, Self::Getppid, Self::Pread, Self::Openat, Self::OpenatOutside];

    /// Whether every tracer traces it.
    pub fn is_fsync(self) -> bool {
        matches!(self, Self::Fsync | Self::FsyncAlone)
    }

    fn kind(self) -> Kind {
        match self {
            Self::Fsync => Kind::Fsync,
            Self::FsyncAlone => Kind::FsyncAlone,
            Self::Getppid => Kind::Getppid,
            Self::Pread => Kind::Pread,
            Self::Openat | Self::OpenatOutside => Kind::Openat,
        }
    }
}

/// What the kernel's statistics tell of a call: nanoseconds in programs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InKernel {
    /// On entry.
    pub enter: f64,
    /// On exit.
    pub exit: f64,
}

/// What came of one turn.
#[derive(Default)]
pub struct Turn {
    /// Nanoseconds of the caller's own processor time that a call took.
    pub cpu_ns: BTreeMap<Column, f64>,
    /// Nanoseconds that passed for a call, on each of the processors that the caller had.
    pub wall_ns: BTreeMap<Column, f64>,
    /// By the kernel's statistics, in other blocks, since taking them takes time, too.
    pub in_kernel: BTreeMap<Column, InKernel>,
}

/// Runs turns.
pub struct Bench {
    /// Where.
    pub scene: Scene,
    /// The probe's hooks that an empty program can have.
    pub hooks: Vec<String>,
    /// Those that it can't have.
    pub hooks_left_out: Vec<String>,
    /// How long each block lasts.
    pub block: Duration,
    /// How many turns began although somebody else was tracing.
    pub disturbed: u32,
    outside: Caller,
}

impl Bench {
    /// Asks the probe for its hooks, and starts the caller that nobody watches.
    pub fn new(scene: Scene, block: Duration) -> Result<Self> {
        let (hooks, hooks_left_out) = hooks(&scene)?;
        let outside = Caller::start(scene.command(CALLER[0].as_ref()).arg(OUTSIDE))
            .context("starting the caller that nobody watches")?;
        Ok(Self { scene, hooks, hooks_left_out, block, disturbed: 0, outside })
    }

    /// One turn: a new caller with the tracer around it, a block of each column.
    pub fn turn(&mut self, tracer: Tracer, columns: &[Column]) -> Result<Turn> {
        self.wait_for_others()?;
        let parts = Parts {
            probe: &self.scene.probe,
            kernel: &self.scene.kernel,
            hooks: &self.hooks,
            caller: CALLER,
            output: "output",
        };
        let words = tracer.command_line(&parts);
        let [program, arguments @ ..] = words.as_slice() else { bail!("an empty command") };
        let messages = self.scene.folder.join("messages");
        let mut command = self.scene.command(program);
        command.args(arguments).stderr(File::create(&messages).context("no room for messages")?);
        let result = Caller::start(&mut command)
            .context("it did not start")
            .and_then(|caller| self.measure(tracer, columns, caller));
        result.map_err(|error| {
            let said = fs::read_to_string(&messages).unwrap_or_default();
            let said = said.trim();
            let said = if said.is_empty() { String::new() } else { format!("; it said: {said}") };
            anyhow!("measuring {}: {error:#}{said}", tracer.name())
        })
    }

    /// Somebody else's tracer would be in every figure. Some machines have one that stays.
    fn wait_for_others(&mut self) -> Result<()> {
        const LONGEST: Duration = Duration::from_secs(10);
        const PAUSE: Duration = Duration::from_millis(100);
        let started = Instant::now();
        while programs::tracing(&self.scene.kernel)? > 0 {
            if started.elapsed() > if self.disturbed == 0 { LONGEST } else { Duration::ZERO } {
                self.disturbed += 1;
                break;
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn measure(&mut self, tracer: Tracer, columns: &[Column], mut caller: Caller) -> Result<Turn> {
        const WARM_UP: Duration = Duration::from_millis(2);
        let mut turn = Turn::default();
        for column in columns {
            self.run(&mut caller, *column, WARM_UP)?;
        }
        for column in columns {
            let block = self.run(&mut caller, *column, self.block)?;
            let processors = if *column == Column::FsyncAlone { 1.0 } else { processors() };
            turn.cpu_ns.insert(*column, block.cpu_ns as f64 / block.calls as f64);
            turn.wall_ns.insert(*column, block.wall_ns as f64 * processors / block.calls as f64);
        }
        let held = if tracer.is_in_kernel() { programs::held_by(caller.wrapper())? } else { Vec::new() };
        let (pid, mut gone) = (caller.pid, None);
        if !held.is_empty() {
            let mut statistics = Statistics::start(&self.scene.kernel)?;
            for column in columns.iter().filter(|column| !matches!(column, Column::Getppid | Column::Pread)) {
                let before = statistics.read(&held)?;
                let block = self.run(&mut caller, *column, self.block / 2)?;
                let after = statistics.read(&held)?;
                let (enter, exit) = programs::per_call(&before, &after, block.calls);
                turn.in_kernel.insert(*column, InKernel { enter, exit });
            }
            gone = Some(statistics);
        }
        let fsyncs = caller.fsyncs;
        caller.finish()?;
        if let Some(mut statistics) = gone {
            statistics.wait_until_gone(&held)?;
        }
        let output = fs::read(self.scene.folder.join("output")).unwrap_or_default();
        tracer.verify(&String::from_utf8_lossy(&output), pid, fsyncs)?;
        Ok(turn)
    }

    fn run(&mut self, caller: &mut Caller, column: Column, time: Duration) -> Result<Block> {
        let caller = if column == Column::OpenatOutside { &mut self.outside } else { caller };
        caller.run(column.kind(), time)
    }
}

/// How many processors the caller's threads have.
fn processors() -> f64 {
    const THREADS: usize = 8;
    thread::available_parallelism().map_or(1, |number| number.get().min(THREADS)) as f64
}

/// The hooks that the probe has programs on here, and those of them that can't have an empty one: the
/// latter are functions, not tracepoints.
fn hooks(scene: &Scene) -> Result<(Vec<String>, Vec<String>)> {
    let mut command = scene.command(scene.probe.as_os_str());
    let output = command.args(["run", "--format", "json", "--output", "hooks", "--", "true"]).output();
    let output = output.with_context(|| format!("{} did not start", scene.probe.display()))?;
    if !output.status.success() {
        bail!("the probe does not run here:\n{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let report = fs::read(scene.folder.join("hooks")).context("the probe's report")?;
    let report: Value = serde_json::from_slice(&report).context("the probe's report is no JSON")?;
    let probes = report["tracer"]["probes"].as_array().context("the probe's report names no probes")?;
    let attached = probes.iter().filter(|probe| probe["attached"] == true);
    let names = attached.filter_map(|probe| Some(probe["name"].as_str()?.to_owned()));
    let (hooks, left_out): (Vec<_>, Vec<_>) = names.partition(|name| is_tracepoint(name));
    if hooks.is_empty() {
        bail!("the probe has no program on any tracepoint; `opfs-probe doctor` says why");
    }
    Ok((hooks, left_out))
}

fn is_tracepoint(hook: &str) -> bool {
    hook.split_once(':').is_some_and(|(category, _)| !matches!(category, "fentry" | "fexit" | "kprobe"))
}
