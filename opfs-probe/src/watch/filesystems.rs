//! The file systems that synced files lie on.

use std::collections::BTreeSet;
use std::fs;

use crate::files::major_minor;
use crate::files::mounts::Mounts;
use crate::report::model::{Filesystem, Session};

/// Those of the files in these sessions, as mounted here.
pub fn of(sessions: &[Session]) -> Vec<Filesystem> {
    let files = sessions.iter().filter_map(|session| session.total.as_ref()).flat_map(|total| &total.files);
    let devices: BTreeSet<&str> = files.filter_map(|file| file.dev.as_deref()).collect();
    let Ok(mounts) = Mounts::read() else { return Vec::new() };
    let mut filesystems: Vec<Filesystem> = Vec::new();
    for mount in mounts.mounts {
        let (major, minor) = major_minor(mount.dev);
        let dev = format!("{major}:{minor}");
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
