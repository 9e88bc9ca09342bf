//! What the kernel itself counts of each probe: how often it ran and how long, and how often it was
//! skipped.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use aya::sys::{Stats, enable_stats};
use nix::libc;

use super::bpf::RunCounts;
use super::load::Attached;
use super::plan::{Hook, PLAN, Planned};

/// What is known of one probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// How often it ran while run times were measured, by anybody.
    pub runs: u64,
    /// Time it ran then.
    pub run_ns: u64,
    /// How often it was due and the kernel skipped it, since it was attached; none where the kernel
    /// does not count that.
    pub missed: Option<u64>,
}

/// The kernel measures run times while this exists. That costs each run of each program on the system
/// some 20 to 40 ns.
#[derive(Debug)]
pub struct RunTime {
    _on: OwnedFd,
    since: Instant,
}

impl RunTime {
    /// Switches the measuring on. Fails with what to do about it: the kernel asks for `CAP_SYS_ADMIN`,
    /// which nothing else here needs.
    pub fn measure() -> Result<Self, String> {
        match enable_stats(Stats::RunTime) {
            Ok(on) => Ok(Self { _on: on, since: Instant::now() }),
            Err(error) if error.io_error.kind() == io::ErrorKind::PermissionDenied => {
                Err("the kernel measures the probes' run time for CAP_SYS_ADMIN alone; run as root"
                    .to_owned())
            }
            Err(error) => {
                Err(format!("the kernel does not measure the probes' run time: {}", error.io_error))
            }
        }
    }

    /// For how long it has been measured.
    pub fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }
}

impl Attached {
    /// What the kernel counted of each loaded probe, by the probe's name.
    pub fn statistics(&self) -> HashMap<String, Statistics> {
        PLAN.iter().filter_map(|planned| Some((planned.name(), self.of_planned(planned)?))).collect()
    }

    fn of_planned(&self, planned: &Planned) -> Option<Statistics> {
        let program = self.programs.program(planned.program)?.fd().ok()?;
        let RunCounts { runs, run_ns, missed } = RunCounts::of(program.as_fd())
            .inspect_err(|error| tracing::warn!("asking for what {} did: {error}", planned.program))
            .ok()?;
        let counted = !matches!(planned.hook, Hook::Syscall(_)) || counts_skipped_syscall_probes(&release());
        Some(Statistics { runs, run_ns, missed: missed.filter(|_| counted) })
    }
}

/// Makes calls that fail at once, for every probe of a system call to run some times.
pub(super) fn exercise() {
    const TIMES: u32 = 200;
    const NOT_OPEN: libc::c_int = -1;
    for _ in 0..TIMES {
        // SAFETY: system calls without a file, memory or path to work on; each fails with EBADF, EFAULT
        // or ENOENT, apart from msync(2) of no memory at all, which does nothing.
        unsafe {
            libc::fsync(NOT_OPEN);
            libc::fdatasync(NOT_OPEN);
            libc::syncfs(NOT_OPEN);
            libc::sync_file_range(NOT_OPEN, 0, 0, 0);
            libc::msync(std::ptr::null_mut(), 0, libc::MS_SYNC);
            libc::openat(NOT_OPEN, c"".as_ptr(), libc::O_RDONLY);
        }
    }
}

/// What a report can't say on this kernel of probes that were skipped.
pub fn gap() -> Option<String> {
    (!counts_skipped_syscall_probes(&release())).then(|| {
        "probes of system calls that the kernel skipped while another tool's ran: it counts them since \
         Linux 6.7"
            .to_owned()
    })
}

/// Linux counts the plain tracepoint programs that it skips since 6.7 (`trace_call_bpf()` of
/// `kernel/trace/bpf_trace.c`), and the raw ones for as long as it skips any.
fn counts_skipped_syscall_probes(release: &str) -> bool {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (6, 7),
        _ => false,
    }
}

fn release() -> String {
    nix::sys::utsname::uname().map(|name| name.release().to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::counts_skipped_syscall_probes;

    #[test]
    fn skipped_probes_are_counted_since_6_7() {
        for (release, counts) in [
            ("6.1.0-49-cloud-amd64", false),
            ("6.6.87", false),
            ("6.7", true),
            ("6.12.94+deb13-cloud-amd64", true),
            ("6.18.5", true),
            ("7.0-rc1", true),
            ("10.0", true),
            ("5.15", false),
            ("", false),
            ("next-20260101", false),
        ] {
            assert_eq!(counts_skipped_syscall_probes(release), counts, "{release:?}");
        }
    }
}
