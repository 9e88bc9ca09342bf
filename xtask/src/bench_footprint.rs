//! What the daemon takes of memory, processor and time, and how long `run` makes people wait: one table.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use crate::bench;
use crate::command::is_root;
use crate::workspace::Workspace;

/// Arguments of `cargo xtask bench-footprint`.
#[derive(clap::Args)]
pub struct Arguments {
    /// How long the idle daemon is watched, in seconds.
    #[arg(long, default_value_t = 60)]
    idle: u64,
    /// How often it and `run` are started: times are medians, memory is the worst.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    starts: u32,
}

/// Runs the task. Exits with an error where a bound is exceeded.
pub fn run(arguments: &Arguments) -> Result<()> {
    if !is_root() {
        bail!("measuring the daemon needs root, to read its /proc; run this as root");
    }
    let probe = bench::build(&Workspace::find()?)?;
    let folder = std::env::temp_dir().join(format!("opfs-probe-footprint-{}", std::process::id()));
    fs::create_dir(&folder).with_context(|| format!("making {}; set TMPDIR", folder.display()))?;
    let measured = measure(arguments, &probe, &folder);
    fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    let rows = measured?;
    println!("| measured | unit | value | at most |\n|---|---|---:|---:|");
    for Row { what, unit, value, bound } in &rows {
        println!("| {what} | {unit} | {value:.2} | {bound:.2} |");
    }
    let over: Vec<&str> = rows.iter().filter(|row| row.value > row.bound).map(|row| row.what).collect();
    if !over.is_empty() {
        bail!("over the bound: {}", over.join("; "));
    }
    Ok(())
}

/// A line of the table.
struct Row {
    what: &'static str,
    unit: &'static str,
    value: f64,
    bound: f64,
}

fn measure(arguments: &Arguments, probe: &Path, folder: &Path) -> Result<Vec<Row>> {
    let mut attached = Vec::new();
    let mut resident = 0.0_f64;
    for _ in 1..arguments.starts {
        let daemon = Daemon::start(probe, folder)?;
        attached.push(daemon.attached_ms);
        resident = resident.max(daemon.resident_mib()?);
    }
    let daemon = Daemon::start(probe, folder)?;
    attached.push(daemon.attached_ms);
    resident = resident.max(daemon.resident_mib()?);
    let maps = daemon.maps_mib()?;
    // What it does when it starts is not idling.
    thread::sleep(Duration::from_secs(2));
    let (before, began) = (daemon.processor_ns()?, Instant::now());
    thread::sleep(Duration::from_secs(arguments.idle));
    let idle = (daemon.processor_ns()? - before) as f64 * 100.0 / began.elapsed().as_nanos() as f64;
    resident = resident.max(daemon.resident_mib()?);
    drop(daemon);
    let ended = (0..arguments.starts).map(|_| end_of_run_ms(probe, folder)).collect::<Result<Vec<_>>>()?;
    let row = |what, unit, value, bound| Row { what, unit, value, bound };
    Ok(vec![
        row("daemon: resident", "MiB", resident, 25.0),
        row("daemon: maps in the kernel", "MiB", maps, 8.0 + 0.25 * possible_cpus()?),
        row("daemon: idle", "% of a processor", idle, 0.2),
        row("daemon: from its start until it is attached", "ms", median(attached), 300.0),
        row("run: from its command's end to its own", "ms", median(ended), 300.0),
    ])
}

/// A daemon that counts; it ends when dropped.
struct Daemon {
    child: Child,
    attached_ms: f64,
}

impl Daemon {
    fn start(probe: &Path, folder: &Path) -> Result<Self> {
        let began = Instant::now();
        let mut command = Command::new(probe);
        command.args(["daemon", "--listen", "127.0.0.1:0", "--socket"]).arg(folder.join("probe.sock"));
        let child = command.stdout(Stdio::piped()).spawn().context("starting the daemon")?;
        let mut daemon = Self { child, attached_ms: 0.0 };
        let output = daemon.child.stdout.take().context("the daemon has no output")?;
        // It says where it listens once all is attached; the token comes last.
        if !BufReader::new(output).lines().map_while(Result::ok).any(|line| line.starts_with("token ")) {
            bail!("the daemon ended at once; what it says is above");
        }
        daemon.attached_ms = began.elapsed().as_secs_f64() * 1e3;
        Ok(daemon)
    }

    fn read(&self, file: &str) -> Result<String> {
        let path = format!("/proc/{}/{file}", self.child.id());
        fs::read_to_string(&path).with_context(|| format!("reading {path}"))
    }

    fn resident_mib(&self) -> Result<f64> {
        let kib = field(&self.read("status")?, "VmRSS:").context("the kernel does not tell VmRSS")?;
        Ok(kib / 1024.0)
    }

    /// What the kernel charges for the daemon's BPF maps.
    fn maps_mib(&self) -> Result<f64> {
        let mut bytes = 0.0;
        for entry in fs::read_dir(format!("/proc/{}/fdinfo", self.child.id()))? {
            let name = entry?.file_name();
            let about = self.read(&format!("fdinfo/{}", name.to_string_lossy()))?;
            if field(&about, "map_type:").is_some() {
                bytes += field(&about, "memlock:").unwrap_or_default();
            }
        }
        Ok(bytes / f64::from(1 << 20))
    }

    /// Time that its threads ran so far: first number of Documentation/scheduler/sched-stats.rst, by thread.
    fn processor_ns(&self) -> Result<u64> {
        let mut sum = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let text = self.read(&format!("task/{}/schedstat", thread?.file_name().to_string_lossy()))?;
            let ran = text.split(' ').next().and_then(|number| number.parse::<u64>().ok());
            sum += ran.context("schedstat is not as documented")?;
        }
        Ok(sum)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Nothing that is measured depends on how it ends.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Time from the end of a command's work to the end of the `run` over it.
fn end_of_run_ms(probe: &Path, folder: &Path) -> Result<f64> {
    let stamp = folder.join("ended");
    let mut command = Command::new(probe);
    command.args(["run", "--output"]).arg(folder.join("report")).args(["--", "sh", "-c"]);
    command.arg("date +%s%N > \"$0\"").arg(&stamp);
    if !command.status().context("starting opfs-probe run")?.success() {
        bail!("opfs-probe run failed; what it says is above");
    }
    let returned_ns = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let ended_ns: u128 = fs::read_to_string(&stamp)?.trim().parse().context("date gives no nanoseconds")?;
    Ok(returned_ns.saturating_sub(ended_ns) as f64 / 1e6)
}

/// The number behind a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

/// Processors that there may ever be: per-CPU maps have room for each.
fn possible_cpus() -> Result<f64> {
    let path = "/sys/devices/system/cpu/possible";
    let text = fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    let last = text.trim().rsplit(['-', ',']).next().and_then(|number| number.parse::<f64>().ok());
    Ok(last.with_context(|| format!("{path} is not as documented"))? + 1.0)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_name() {
        let text = "Name:\tx\nVmHWM:\t   99 kB\nVmRSS:\t   1234 kB\n";
        assert_eq!(field(text, "VmRSS:"), Some(1234.0));
        assert_eq!(field(text, "map_type:"), None);
    }

    #[test]
    fn the_median_is_a_value_in_the_middle() {
        assert!((4.9..5.1).contains(&median(vec![9.0, 1.0, 5.0])));
        assert!((6.9..7.1).contains(&median(vec![7.0])));
    }
}
