//! Where the kernel describes its tracepoints.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::statfs::{TRACEFS_MAGIC, statfs};

/// Where tracefs belongs.
const TRACING: &str = "/sys/kernel/tracing";
/// Where older systems have it.
const DEBUG_TRACING: &str = "/sys/kernel/debug/tracing";
/// Its folders are root's alone unless they are mounted otherwise.
const UNREADABLE: &str =
    "tracefs is mounted, but this process may not read it: CAP_DAC_READ_SEARCH lets it, or sudo";

/// Runs `work` on a thread that can see tracefs.
///
/// Where it is not mounted, the thread mounts it in a mount namespace of its own: nothing changes
/// for anybody else, and nothing is left behind.
pub fn with_tracefs<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    if events().is_some() {
        return work();
    }
    if is_mounted() {
        bail!("{UNREADABLE}");
    }
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            mount_privately().context(
                "tracefs can't be mounted by this process: mount it with \
                 `mount -t tracefs none /sys/kernel/tracing` as root",
            )?;
            work()
        });
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The folder of all tracepoints, if tracefs is there.
pub fn events() -> Option<&'static Path> {
    [TRACING, DEBUG_TRACING]
        .into_iter()
        .map(Path::new)
        .find(|tracing| tracing.join("events/syscalls").is_dir())
}

/// Whether a tracepoint exists.
pub fn has_event(category: &str, name: &str) -> bool {
    events().is_some_and(|tracing| tracing.join("events").join(category).join(name).is_dir())
}

/// Byte offset of the first field behind the system call number, from a tracepoint's `format` file.
pub fn first_field_offset(category: &str, name: &str) -> Result<u32> {
    let tracing = events().context(if is_mounted() { UNREADABLE } else { "tracefs is not mounted" })?;
    let file = tracing.join("events").join(category).join(name).join("format");
    let format = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    parse_first_field_offset(&format)
        .with_context(|| format!("{} has no field behind __syscall_nr", file.display()))
}

/// `format` lists the fields in order, each as `field:TYPE NAME;` with `offset:N;` and more behind it.
fn parse_first_field_offset(format: &str) -> Option<u32> {
    let mut fields = format.lines().map(str::trim).filter(|line| line.starts_with("field:"));
    fields.find(|line| line.contains("__syscall_nr;"))?;
    let offset = fields.next()?.split("offset:").nth(1)?;
    offset.split(';').next()?.parse().ok()
}

/// Whether tracefs is where it belongs, readable or not.
fn is_mounted() -> bool {
    statfs(TRACING).is_ok_and(|found| found.filesystem_type() == TRACEFS_MAGIC)
}

fn mount_privately() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_FS)?;
    keep_private(Path::new(TRACING))?;
    let nothing: Option<&str> = None;
    mount(Some("tracefs"), TRACING, Some("tracefs"), MsFlags::empty(), nothing)?;
    Ok(())
}

/// Keeps what is mounted at `place` from this namespace's peers: a mount spreads by the one it lies on. That is
/// the nearest above that is one; in a chroot, `/` need not be.
fn keep_private(place: &Path) -> io::Result<()> {
    let nothing: Option<&str> = None;
    for above in place.ancestors() {
        match mount(nothing, above, nothing, MsFlags::MS_PRIVATE, nothing) {
            // Not a mountpoint.
            Err(Errno::EINVAL) => {}
            done => return Ok(done?),
        }
    }
    Err(Errno::EINVAL.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_the_first_argument_is_read_from_the_format() {
        let format = "name: sys_enter_fsync\nID: 700\nformat:\n\
            \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
            \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
            \tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;\n\
            \tfield:unsigned int fd;\toffset:16;\tsize:8;\tsigned:0;\n\n\
            print fmt: \"fd: 0x%08lx\", ((unsigned long)(REC->fd))\n";
        assert_eq!(parse_first_field_offset(format), Some(16));
        assert_eq!(parse_first_field_offset(&format.replace("offset:16", "offset:24")), Some(24));
        assert_eq!(parse_first_field_offset("field:int __syscall_nr; offset:8;"), None);
        assert_eq!(parse_first_field_offset(""), None);
    }
}
