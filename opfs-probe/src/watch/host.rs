//! The machine that was watched.

use std::fs;
use std::thread::available_parallelism;

use nix::sys::utsname::uname;

use crate::report::model::Host;

/// What is known of this machine.
pub fn host() -> Host {
    let (hostname, kernel, arch) = uname().map_or_else(
        |_| Default::default(),
        |name| {
            let text = |part: &std::ffi::OsStr| part.to_string_lossy().into_owned();
            (text(name.nodename()), text(name.release()), text(name.machine()))
        },
    );
    Host {
        hostname,
        kernel,
        arch,
        cpu: field("/proc/cpuinfo", "model name"),
        cpus: available_parallelism().ok().map(|cpus| cpus.get() as u32),
        memory_bytes: field("/proc/meminfo", "MemTotal")
            .and_then(|size| size.strip_suffix(" kB")?.parse::<u64>().ok())
            .map(|kibibytes| kibibytes * 1024),
    }
}

/// The value of the first `name: value` line of a file.
fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let (_, value) =
        text.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.trim() == name)?;
    Some(value.trim().to_owned())
}
