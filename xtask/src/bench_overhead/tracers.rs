//! The tracers that are laid side by side: how each is put around the caller, and its own word on how
//! many calls it saw.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command::which;

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tracer {
    /// None.
    Bare,
    /// This project.
    Probe,
    /// Programs that do nothing, on every hook of the probe.
    Empty,
    /// A script that counts, sums and keeps a histogram by process.
    Bpftrace,
    /// `perf trace -s`
    Perf,
    /// `strace -f -c --seccomp-bpf`
    Strace,
}

/// What the tracers that trace sync calls alone are told to trace.
const SYNC_CALLS: &str = "fsync,fdatasync,sync,syncfs,sync_file_range,msync";

/// What a bpftrace user would write.
const SCRIPT: &str = "\
tracepoint:syscalls:sys_enter_fsync { @start[tid] = nsecs; }
tracepoint:syscalls:sys_exit_fsync /@start[tid]/ {
  $ns = nsecs - @start[tid];
  @calls[pid] = count(); @total[pid] = sum($ns); @durations[pid] = hist($ns);
  delete(@start[tid]);
}";

/// What a command line is made of.
pub struct Parts<'a> {
    /// The probe.
    pub probe: &'a Path,
    /// The program that attaches empty programs.
    pub kernel: &'a Path,
    /// The hooks that these go to.
    pub hooks: &'a [String],
    /// The caller and its arguments, as the shell has it: words without blanks.
    pub caller: [&'a str; 2],
    /// Where the tracer writes.
    pub output: &'a str,
}

impl Tracer {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Bare, Self::Probe, Self::Empty, Self::Bpftrace, Self::Perf, Self::Strace];

    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bare => "no tracer: the call itself",
            Self::Probe => "opfs-probe",
            Self::Empty => "empty programs on the same hooks",
            Self::Bpftrace => "bpftrace: count, sum, histogram by pid",
            Self::Perf => "`perf trace -s`",
            Self::Strace => "`strace -f -c --seccomp-bpf`",
        }
    }

    /// Whether it does its work in the caller's own time, and so in the kernel.
    pub fn is_in_kernel(self) -> bool {
        !matches!(self, Self::Perf | Self::Strace)
    }

    /// What to install, if it is not there.
    pub fn missing(self) -> Option<String> {
        let (program, package) = match self {
            Self::Bpftrace => ("bpftrace", "bpftrace"),
            Self::Perf => ("perf", "linux-perf"),
            Self::Strace => ("strace", "strace"),
            Self::Bare | Self::Probe | Self::Empty => return None,
        };
        which(program).is_none().then(|| format!("not installed: apt install {package}"))
    }

    /// The command line, to be run in the folder of the caller and the output.
    pub fn command_line(self, parts: &Parts<'_>) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        let mut add = |more: &[&str]| words.extend(more.iter().map(OsString::from));
        match self {
            Self::Bare => {}
            Self::Probe => {
                words.push(parts.probe.into());
                let options = ["run", "--format", "json", "--output", parts.output, "--"];
                words.extend(options.map(OsString::from));
            }
            Self::Empty => {
                words.push(parts.kernel.into());
                words.push("empty".into());
                words.extend(parts.hooks.iter().map(OsString::from));
                words.push("--".into());
            }
            Self::Bpftrace => {
                add(&["bpftrace", "-o", parts.output, "-e", SCRIPT, "-c", &parts.caller.join(" ")]);
                return words;
            }
            Self::Perf => add(&["perf", "trace", "-s", "-o", parts.output, "-e", SYNC_CALLS, "--"]),
            Self::Strace => {
                let traced = format!("trace={SYNC_CALLS}");
                add(&["strace", "-f", "-c", "--seccomp-bpf", "-o", parts.output, "-e", &traced]);
            }
        }
        words.extend(parts.caller.map(OsString::from));
        words
    }

    /// Compares what it says to have counted with the truth: proof that it did trace. `perf trace` may lose calls.
    pub fn verify(self, output: &str, caller: u32, fsyncs: u64) -> Result<()> {
        let counted = match self {
            Self::Bare | Self::Empty => return Ok(()),
            Self::Probe => {
                let report: Value = serde_json::from_str(output).context("its report is no JSON")?;
                report["sessions"][0]["windows"][0]["total"]["ops"]["fsync"]["count"].as_u64()
            }
            Self::Bpftrace => {
                let name = format!("@calls[{caller}]:");
                output.lines().find_map(|line| line.strip_prefix(&name)?.trim().parse().ok())
            }
            Self::Perf => numbers_before_fsync(output, |words| {
                let ["fsync", calls, ..] = words else { return None };
                calls.parse().ok()
            }),
            Self::Strace => numbers_before_fsync(output, |words| {
                let [_, _, _, calls, .., "fsync"] = words else { return None };
                calls.parse().ok()
            }),
        };
        let counted = counted.context("it says nothing of fsync")?;
        if counted == fsyncs || (self == Self::Perf && (1..fsyncs).contains(&counted)) {
            return Ok(());
        }
        bail!("it counted {counted} calls of fsync, and there were {fsyncs}");
    }
}

/// The sum of what is found in the lines' words; none if nothing is.
fn numbers_before_fsync(output: &str, find: impl Fn(&[&str]) -> Option<u64>) -> Option<u64> {
    let lines = output.lines().filter_map(|line| find(&line.split_whitespace().collect::<Vec<_>>()));
    lines.reduce(|sum, calls| sum + calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tracer_is_held_to_what_was_called() {
        let report = r#"{"sessions": [{"windows": [{"total": {"ops": {"fsync": {"count": 7}}}}]}]}"#;
        let strace = "100.00    0.122634          34         7           fsync\n\
                      100.00    0.122634          34         9           total\n";
        let perf =
            " caller (959), 4 events\n   fsync   3   0  10.0\n\n caller (960)\n   fsync   4   0  8.1\n";
        let outputs = [
            (Tracer::Probe, report),
            (Tracer::Bpftrace, "Attaching 2 probes...\n@calls[41]: 3\n@calls[42]: 7\n"),
            (Tracer::Perf, perf),
            (Tracer::Strace, strace),
        ];
        for (tracer, output) in outputs {
            assert!(tracer.verify(output, 42, 7).is_ok(), "{tracer:?}");
            assert!(tracer.verify(output, 42, 6).is_err(), "{tracer:?}");
            assert_eq!(tracer.verify(output, 42, 8).is_ok(), tracer == Tracer::Perf);
            assert!(tracer.verify("", 42, 7).is_err(), "{tracer:?}");
        }
    }

    #[test]
    fn the_caller_comes_last() {
        let hooks = ["syscalls:sys_enter_fsync".to_owned()];
        let parts = Parts {
            probe: Path::new("opfs-probe"),
            kernel: Path::new("overhead-kernel"),
            hooks: &hooks,
            caller: ["./caller", "files"],
            output: "out",
        };
        let line = |tracer: Tracer| {
            let words = tracer.command_line(&parts);
            words.join(" ".as_ref()).into_string().unwrap()
        };
        assert_eq!(line(Tracer::Bare), "./caller files");
        assert_eq!(line(Tracer::Empty), "overhead-kernel empty syscalls:sys_enter_fsync -- ./caller files");
        for tracer in Tracer::ALL {
            assert!(line(tracer).ends_with("./caller files"), "{tracer:?}");
        }
    }
}
