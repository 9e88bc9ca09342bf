//! The file systems that synced files lie on.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use crate::files::mounts::{Mount, Mounts};
use crate::files::{major_minor, stat_major_minor};
use crate::report::model::{Filesystem, Session};

/// Those of the files in these sessions, as mounted here.
pub fn of(sessions: &[Session]) -> Vec<Filesystem> {
    let files = sessions.iter().filter_map(|session| session.total.as_ref()).flat_map(|total| &total.files);
    let devices: BTreeSet<&str> = files.filter_map(|file| file.dev.as_deref()).collect();
    let Ok(mounts) = Mounts::read() else { return Vec::new() };
    let mut filesystems: Vec<Filesystem> = Vec::new();
    for mount in mounts.mounts {
        let dev = dev_of(&mount);
        if !devices.contains(dev.as_str()) || filesystems.iter().any(|known| known.dev == dev) {
            continue;
        }
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let volatile = matches!(mount.fstype.as_slice(), b"tmpfs" | b"ramfs");
        filesystems.push(Filesystem {
            write_cache: fs::read_to_string(format!("/sys/dev/block/{dev}/queue/write_cache"))
                .ok()
                .map(|mode| mode.trim().to_owned()),
            dev,
            mount: lossy(&mount.mountpoint),
            fstype: lossy(&mount.fstype),
            options: lossy(&mount.options),
            device: Some(lossy(&mount.source)),
            durable: volatile.then_some(false),
            note: volatile.then(|| "kept in memory: a sync does nothing here".to_owned()),
        });
    }
    filesystems
}

/// The device as `stat()` reports it, and so files have it: of Btrfs each subvolume has its own, which
/// the kernel's list of mounts does not show.
fn dev_of(mount: &Mount) -> String {
    let of_subvolume = (mount.fstype == b"btrfs")
        .then(|| fs::metadata(OsStr::from_bytes(&mount.mountpoint)).ok())
        .flatten()
        .map(|metadata| stat_major_minor(metadata.dev()));
    let (major, minor) = of_subvolume.unwrap_or_else(|| major_minor(mount.dev));
    format!("{major}:{minor}")
}
