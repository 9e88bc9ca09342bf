//! Which strace is there, and the command line that makes it count sync calls.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use opfs_probe_common::call::Op;

use super::parse::DeletedMark;

/// The first version with `--seccomp-bpf`, which leaves other system calls alone.
const SECCOMP_SINCE: (u32, u32) = (5, 3);
/// The first version that marks deleted files beside their path (its NEWS file says so).
const MARK_BESIDE_SINCE: (u32, u32) = (5, 19);
/// The first version whose `-y` prints paths in the form that we read.
const OLDEST: (u32, u32) = (4, 26);

/// An strace that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strace {
    version: (u32, u32),
    /// It stops at every system call, not only at those it counts.
    stops_at_all: bool,
}

/// Why strace can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StraceError {
    /// It doesn't start.
    #[error("strace can't be started: {0}; install strace, or use another --tracer")]
    Missing(#[from] std::io::Error),
    /// Its version is too old, or not understood.
    #[error("strace says it is {0:?}; version {old}.{older} or newer is needed", old = OLDEST.0, older = OLDEST.1)]
    Version(String),
}

impl Strace {
    /// Asks the strace on the `PATH` for its version.
    pub fn find() -> Result<Self, StraceError> {
        let output = Command::new("strace").arg("--version").output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let line = said.lines().next().unwrap_or_default();
        match parse_version(line) {
            Some(version) if version >= OLDEST => Ok(Self { version, stops_at_all: false }),
            _ => Err(StraceError::Version(line.to_owned())),
        }
    }

    /// Its version: "6.1".
    pub fn version(&self) -> String {
        format!("{}.{}", self.version.0, self.version.1)
    }

    /// How its logs mark a deleted file.
    pub fn deleted_mark(&self) -> DeletedMark {
        if self.version >= MARK_BESIDE_SINCE { DeletedMark::Beside } else { DeletedMark::Inside }
    }

    /// The same strace, slower, but without its filter: with a filter, no program of the command can
    /// gain privileges (`PR_SET_NO_NEW_PRIVS`), as sudo and Chromium's older sandbox must.
    #[must_use]
    pub fn letting_gain_privileges(mut self) -> Self {
        self.stops_at_all = true;
        self
    }

    /// The words to put before a command's own, so that it and all it starts are traced.
    pub fn over_command(&self, output: &Path) -> Vec<OsString> {
        let mut words = Self::common(output);
        if self.version >= SECCOMP_SINCE && !self.stops_at_all {
            words.push("--seccomp-bpf".into());
        }
        // A command may begin with a dash.
        words.push("--".into());
        words
    }

    /// The whole command that traces running processes and all that they start.
    pub fn over_processes(&self, pids: &[u32], output: &Path) -> Vec<OsString> {
        // strace refuses its filter for processes that already run.
        let mut words = Self::common(output);
        for pid in pids {
            words.extend(["-p".into(), pid.to_string().into()]);
        }
        words
    }

    fn common(output: &Path) -> Vec<OsString> {
        let calls = Op::ALL.iter().filter(|op| op.is_system_call());
        let names: Vec<&str> = calls.map(|op| op.name()).collect();
        // The name that some architectures have instead is unknown to strace elsewhere, hence the `?`.
        let trace = format!("trace={},?sync_file_range2", names.join(","));
        // No word on attaching, exits and signals: browsers have thousands.
        let mut words: Vec<OsString> =
            ["strace", "-f", "-qq", "-y", "-ttt", "-T", "-e", "signal=none", "-e"].map(OsString::from).into();
        words.extend([trace.into(), "-o".into(), output.into()]);
        words
    }
}

fn parse_version(line: &str) -> Option<(u32, u32)> {
    let number = line.rsplit(' ').next()?;
    let mut parts = number.split(['.', '-']).map(str::parse);
    let major = parts.next()?.ok()?;
    Some((major, parts.next().and_then(Result::ok).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(parse_version("strace -- version 6.1"), Some((6, 1)));
        assert_eq!(parse_version("strace -- version 5.10-dirty"), Some((5, 10)));
        assert_eq!(parse_version("strace -- version UNKNOWN"), None);
        assert_eq!(parse_version(""), None);
    }

    #[test]
    fn an_old_strace_does_without_its_filter() {
        let words = |version, pids: &[u32]| {
            let strace = Strace { version, stops_at_all: false };
            let words = if pids.is_empty() {
                strace.over_command(Path::new("log"))
            } else {
                strace.over_processes(pids, Path::new("log"))
            };
            words.join(&OsString::from(" ")).into_string().unwrap()
        };
        let common = "strace -f -qq -y -ttt -T -e signal=none -e \
                      trace=fsync,fdatasync,sync,syncfs,sync_file_range,msync,?sync_file_range2 -o log";
        assert_eq!(words((6, 1), &[]), format!("{common} --seccomp-bpf --"));
        assert_eq!(words((5, 2), &[]), format!("{common} --"));
        assert_eq!(words((6, 1), &[7, 8]), format!("{common} -p 7 -p 8"));
    }
}
