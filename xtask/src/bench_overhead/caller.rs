//! The program that makes the calls, bare or with a tracer around it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The kinds of call, by the names that the caller knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Fsync,
    FsyncAlone,
    Getppid,
    Pread,
    Openat,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::FsyncAlone => "fsync-alone",
            Self::Getppid => "getppid",
            Self::Pread => "pread",
            Self::Openat => "openat",
        }
    }
}

/// What came of a block of calls.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// How many.
    pub calls: u64,
    /// Nanoseconds that passed.
    pub wall_ns: u64,
    /// Nanoseconds of the caller's own processor time.
    pub cpu_ns: u64,
}

/// A caller that waits for orders.
pub struct Caller {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// The caller's own process, which may be a child of the one that was started.
    pub pid: u32,
    /// How often it has called fsync.
    pub fsyncs: u64,
}

impl Caller {
    /// Starts it by a command that ends with it.
    pub fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("no pipe")?);
        let mut caller = Self { child, orders, answers, pid: 0, fsyncs: 0 };
        caller.pid = caller.answer()?.trim().parse().context("the caller did not say its process id")?;
        Ok(caller)
    }

    /// The process that was started.
    pub fn wrapper(&self) -> u32 {
        self.child.id()
    }

    /// Has it call for that long.
    pub fn run(&mut self, kind: Kind, time: Duration) -> Result<Block> {
        let orders = self.orders.as_mut().context("the caller has ended")?;
        writeln!(orders, "{} {}", kind.name(), time.as_millis())?;
        let answer = self.answer()?;
        let numbers: Vec<u64> = answer.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [calls, wall_ns, cpu_ns] = numbers[..] else { bail!("the caller answered {answer:?}") };
        if matches!(kind, Kind::Fsync | Kind::FsyncAlone) {
            self.fsyncs += calls;
        }
        Ok(Block { calls, wall_ns, cpu_ns })
    }

    fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            bail!("the caller, or the tracer around it, ended too early; its own message is above");
        }
        Ok(line)
    }

    /// Lets it end, and the tracer with it.
    pub fn finish(mut self) -> Result<()> {
        const LONGEST: Duration = Duration::from_secs(30);
        drop(self.orders.take());
        let started = Instant::now();
        while started.elapsed() < LONGEST {
            if let Some(status) = self.child.try_wait()? {
                return if status.success() { Ok(()) } else { bail!("it ended with {status}") };
            }
            thread::sleep(Duration::from_millis(5));
        }
        bail!("it did not end within {} s after its caller", LONGEST.as_secs())
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        // The caller ends with its input; what is around it has ended by then, or is stuck.
        drop(self.orders.take());
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
