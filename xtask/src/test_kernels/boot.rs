//! Boots a kernel and waits for what its tests say.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::budget::Counts;
use super::disk;
use super::packages::Kernel;
use crate::command;

/// A kernel with its disk.
pub struct Guest {
    /// What `uname -r` says under it.
    pub release: String,
    kernel: PathBuf,
    disk: PathBuf,
    /// Everything that it printed.
    pub console: PathBuf,
}

/// What came of a guest.
pub struct Ran {
    took: Duration,
    /// Seconds from power-on until its first process had mounted everything.
    booted: Option<f64>,
    /// The tests' own summary.
    summary: String,
    /// What its tests could not test.
    skipped: BTreeSet<String>,
    failure: Option<String>,
    /// What each kernel program cost its verifier.
    pub counts: Option<Counts>,
}

/// On a busy machine the emulated timer may tick too late for the kernel's check of it, which then panics.
const COMMAND_LINE: &str = "console=ttyS0 root=/dev/nvme0n1 rw init=/init panic=-1 loglevel=4 no_timer_check";

/// How much of the console is shown after a failure.
const SHOWN_LINES: usize = 60;

impl Guest {
    /// Makes its disk.
    pub fn new(folder: &Path, kernel: &Kernel) -> Result<Self> {
        let release = kernel.release.clone();
        let disk = folder.join(format!("{release}.img"));
        disk::make_image(folder, &disk)?;
        let console = folder.join(format!("{release}.log"));
        Ok(Self { release, kernel: kernel.image(), disk, console })
    }

    /// Boots it and runs the tests to their end.
    pub fn run(&self, accel: &str, timeout: Duration) -> Ran {
        eprintln!("booting {}; its console: {}", self.release, self.console.display());
        let started = Instant::now();
        let ended = self.boot(accel, timeout);
        let took = started.elapsed();
        let text = |path: &str| {
            disk::read(&self.disk, path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        };
        let console = fs::read(&self.console).unwrap_or_default();
        let console = String::from_utf8_lossy(&console);
        let status = text("/results/status");
        let counts = disk::read(&self.disk, "/results/doctor.json");
        let counts = counts.and_then(|json| Counts::parse(&self.release, &json));
        let failure = match (ended, status.as_deref().map(str::trim), &counts) {
            (Err(error), ..) => Some(format!("{error:#}")),
            (Ok(()), Err(error), _) => Some(format!("it ended before its tests: {error:#}")),
            (Ok(()), Ok("0"), Err(error)) => Some(format!("{error:#}")),
            (Ok(()), Ok("0"), Ok(_)) => None,
            (Ok(()), Ok(status), _) => Some(format!("tests failed with status {status}")),
        };
        Ran {
            took,
            booted: text("/results/booted").ok().and_then(|seconds| seconds.trim().parse().ok()),
            summary: summary(&console),
            skipped: skipped(&console),
            failure,
            counts: counts.ok(),
        }
    }

    /// Its whole BTF, as a file, once it ran.
    pub fn btf(&self) -> Result<PathBuf> {
        let file = self.disk.with_extension("btf");
        let btf = disk::read(&self.disk, "/results/btf")?;
        fs::write(&file, btf).with_context(|| format!("{} can't be written", file.display()))?;
        Ok(file)
    }

    fn boot(&self, accel: &str, timeout: Duration) -> Result<()> {
        let console = File::create(&self.console)
            .with_context(|| format!("{} can't be written", self.console.display()))?;
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args([
            "-accel",
            accel,
            "-smp",
            "2",
            "-m",
            "2G",
            "-display",
            "none",
            "-no-reboot",
            "-nic",
            "none",
        ]);
        qemu.args(["-serial", "stdio", "-monitor", "none"]);
        // The disk is thrown away: what its cache says it has written need not be on ours.
        let drive = format!("file={},if=none,id=disk,format=raw,cache=unsafe", self.disk.display());
        qemu.args(["-drive", &drive, "-device", "nvme,drive=disk,serial=disk"]);
        qemu.arg("-kernel").arg(&self.kernel);
        qemu.args(["-append", COMMAND_LINE]);
        let mut child = qemu
            .stdin(Stdio::null())
            .stderr(console.try_clone()?)
            .stdout(console)
            .spawn()
            .context("qemu-system-x86_64 did not start")?;
        let Some(status) = wait(&mut child, timeout)? else {
            // It may just have ended by itself.
            let _ = child.kill();
            child.wait()?;
            bail!("it took longer than {} s", timeout.as_secs());
        };
        if !status.success() {
            bail!("`{}` failed: {status}", command::show(&qemu));
        }
        Ok(())
    }
}

impl Ran {
    /// Its line in the table.
    pub fn line(&self, guest: &Guest) -> String {
        let booted = self.booted.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1}"));
        let verdict = if self.failure.is_some() { "FAILED" } else { "passed" };
        let mut line = format!(
            "{:<28} {booted:>9} {:>9.1}  {verdict}  {}",
            guest.release,
            self.took.as_secs_f64(),
            self.summary
        );
        for skipped in &self.skipped {
            // Writing to a string can't fail.
            let _ = write!(line, "\n{:<28} SKIPPED: {skipped}", "");
        }
        line
    }

    /// Why it failed, with the end of its console on stderr.
    pub fn failure(&self, guest: &Guest) -> Option<String> {
        let failure = self.failure.as_ref()?;
        let console = fs::read(&guest.console).unwrap_or_default();
        let console = String::from_utf8_lossy(&console);
        let lines: Vec<&str> = console.lines().collect();
        eprintln!("\n-- the end of {}:", guest.console.display());
        for line in &lines[lines.len().saturating_sub(SHOWN_LINES)..] {
            eprintln!("{line}");
        }
        Some(format!("{}: {failure}; see {}", guest.release, guest.console.display()))
    }
}

/// Waits for a process to end, at most so long.
fn wait(child: &mut Child, timeout: Duration) -> Result<Option<ExitStatus>> {
    let started = Instant::now();
    while started.elapsed() < timeout {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(Duration::from_millis(100));
    }
    Ok(None)
}

/// What the tests said they could not test. The first of a test is on the test's own line.
fn skipped(console: &str) -> BTreeSet<String> {
    console.lines().filter_map(|line| Some(line.trim().split_once("SKIPPED: ")?.1.to_owned())).collect()
}

/// The sum of what each test program says last: `test result: ok. 6 passed; 0 failed; …`.
fn summary(console: &str) -> String {
    let results = || console.lines().filter(|line| line.starts_with("test result: "));
    let sum = |what: &str| -> u64 {
        let numbers =
            results().filter_map(|line| line.split(what).next()?.rsplit(' ').next()?.parse::<u64>().ok());
        numbers.sum()
    };
    format!("{} passed, {} failed", sum(" passed;"), sum(" failed;"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_console_says_is_found() {
        let console = "test a ... SKIPPED: one\r\nSKIPPED: two\r\nSKIPPED: one\r\nok\r\n\
            test result: ok. 12 passed; 0 failed; 0 ignored\r\n\
            test result: FAILED. 3 passed; 1 failed; 0 ignored\r\n[ 9.1] reboot: Power down\r\n";
        assert_eq!(skipped(console), ["one".to_owned(), "two".to_owned()].into());
        assert_eq!(summary(console), "15 passed, 1 failed");
    }
}
