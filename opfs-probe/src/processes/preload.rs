//! Libraries in a process that keep its sync calls from the kernel.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Debian's wrapper, which starts a program with the library.
const WRAPPER: &str = "eatmydata";

/// What the file of the library is called, whatever its version.
const LIBRARY: &[u8] = b"libeatmydata";

/// The variable from which the dynamic linker takes libraries, see ld.so(8). Children inherit it.
const PRELOAD: &str = "LD_PRELOAD";

/// Whether a running process has libeatmydata mapped. False if it is gone.
pub fn has_eatmydata(pid: u32) -> bool {
    fs::read(Path::new("/proc").join(pid.to_string()).join("maps")).is_ok_and(|maps| maps_eatmydata(&maps))
}

/// Whether a command will be started with libeatmydata: by its own environment, or by the wrapper, if
/// `words` (the command as it was asked for) begins with it.
pub fn starts_with_eatmydata(command: &Command, words: &[Vec<u8>]) -> bool {
    let own =
        command.get_envs().find(|(name, _)| *name == PRELOAD).map(|(_, value)| value.map(OsStr::to_owned));
    let preload = own.unwrap_or_else(|| std::env::var_os(PRELOAD));
    let wrapper = words.first().is_some_and(|program| file_name(program) == WRAPPER.as_bytes());
    wrapper || preload.is_some_and(|libraries| preloads_eatmydata(libraries.as_encoded_bytes()))
}

/// Whether one of the files in the text of `/proc/PID/maps` is the library.
fn maps_eatmydata(maps: &[u8]) -> bool {
    // The path is the sixth field, and the only one with a slash but for the device, which has none.
    let paths = maps.split(|byte| *byte == b'\n').filter_map(|line| {
        let start = line.iter().position(|byte| *byte == b'/')?;
        Some(&line[start..])
    });
    paths.map(file_name).any(|name| name.starts_with(LIBRARY))
}

/// Whether a value of `LD_PRELOAD`, separated by spaces or colons, names the library.
fn preloads_eatmydata(libraries: &[u8]) -> bool {
    libraries.split(|byte| matches!(byte, b' ' | b':')).map(file_name).any(|name| name.starts_with(LIBRARY))
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_known_by_the_name_of_its_file() {
        let map = |path: &str| {
            format!("7f00-7f01 r-xp 00000000 fe:01 131 {path}\n7f02-7f03 rw-p 0 00:00 0 [heap]\n")
        };
        assert!(maps_eatmydata(map("   /usr/lib/x86_64-linux-gnu/libeatmydata.so.1.3.0").as_bytes()));
        assert!(maps_eatmydata(map("/usr/lib/libeatmydata.so (deleted)").as_bytes()));
        assert!(!maps_eatmydata(map("/srv/libeatmydata/other.so").as_bytes()));
        assert!(!maps_eatmydata(map("").as_bytes()) && !maps_eatmydata(b""));
        assert!(
            preloads_eatmydata(b"libeatmydata.so") && preloads_eatmydata(b"/lib/a.so:/lib/libeatmydata.so.1")
        );
        assert!(
            preloads_eatmydata(b"a.so libeatmydata.so")
                && !preloads_eatmydata(b"libc.so")
                && !preloads_eatmydata(b"")
        );
    }

    #[test]
    fn a_command_has_it_by_its_environment_or_by_the_wrapper() {
        let words = |program: &str| vec![program.as_bytes().to_vec(), b"eatmydata".to_vec()];
        let mut command = Command::new("git");
        command.env(PRELOAD, "");
        assert!(!starts_with_eatmydata(&command, &words("git")) && !starts_with_eatmydata(&command, &[]));
        assert!(starts_with_eatmydata(&command, &words("/usr/bin/eatmydata")));
        command.env(PRELOAD, "libeatmydata.so");
        assert!(starts_with_eatmydata(&command, &words("git")));
        command.env_remove(PRELOAD);
        assert!(!starts_with_eatmydata(&command, &words("git")));
        assert!(!has_eatmydata(std::process::id()) && !has_eatmydata(u32::MAX));
    }
}
