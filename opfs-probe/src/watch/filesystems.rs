//! The file systems that synced files lie on, and whether a sync means anything there.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use crate::files::devices::{Bottom, Devices};
use crate::files::mounts::{Mount, Mounts};
use crate::files::{major_minor, stat_major_minor};
use crate::report::model::{Filesystem, Session};

/// Those of the files in these sessions, as mounted here.
pub fn of(sessions: &[Session]) -> Vec<Filesystem> {
    let files = sessions.iter().filter_map(|session| session.total.as_ref()).flat_map(|total| &total.files);
    let wanted: BTreeSet<&str> = files.filter_map(|file| file.dev.as_deref()).collect();
    let Ok(mounts) = Mounts::read() else { return Vec::new() };
    let devices = Devices::here();
    let mut filesystems: Vec<Filesystem> = Vec::new();
    for mount in mounts.mounts {
        let dev = dev_of(&mount);
        if wanted.contains(dev.as_str()) && !filesystems.iter().any(|known| known.dev == dev) {
            filesystems.push(describe(&mount, dev, &devices));
        }
    }
    filesystems
}

/// The device as `stat()` reports it, and so files have it: of Btrfs each subvolume has its own, which
/// the kernel's list of mounts does not show.
fn dev_of(mount: &Mount) -> String {
    let (major, minor) = btrfs_stat(mount).unwrap_or_else(|| major_minor(mount.dev));
    format!("{major}:{minor}")
}

fn btrfs_stat(mount: &Mount) -> Option<(u32, u32)> {
    let metadata = (mount.fstype == b"btrfs").then(|| fs::metadata(OsStr::from_bytes(&mount.mountpoint)));
    Some(stat_major_minor(metadata?.ok()?.dev()))
}

fn describe(mount: &Mount, dev: String, devices: &Devices) -> Filesystem {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let bottom = devices.bottom(block_device(mount));
    let fstype = lossy(&mount.fstype);
    let options = distinct(&lossy(&mount.options));
    let journal = journal(&fstype, mount, devices);
    let barrier = barrier(&fstype, &options);
    let (durable, note) = durability(&fstype, barrier, &bottom);
    Filesystem {
        dev,
        mount: lossy(&mount.mountpoint),
        fstype,
        options,
        device: Some(device_in_words(&lossy(&mount.source), &bottom)),
        write_cache: (!bottom.write_caches.is_empty())
            .then(|| bottom.write_caches.iter().cloned().collect::<Vec<_>>().join(", ")),
        journal,
        barrier,
        durable,
        note,
    }
}

/// The number of the block device that is mounted. A file system over several has a number of its own, and its
/// source names one of them.
fn block_device(mount: &Mount) -> (u32, u32) {
    let own = major_minor(mount.dev);
    if own.0 != 0 {
        return own;
    }
    let source = fs::metadata(OsStr::from_bytes(&mount.source));
    source.map_or(own, |metadata| stat_major_minor(metadata.rdev()))
}

/// Options of the mount and of its file system, each once.
fn distinct(options: &str) -> String {
    let mut seen = BTreeSet::new();
    let words: Vec<&str> = options.split(',').filter(|word| seen.insert(*word)).collect();
    words.join(",")
}

/// `/dev/loop0 on /srv/image on vda1 on vda`
fn device_in_words(source: &str, bottom: &Bottom) -> String {
    let beneath = bottom.stack.iter().skip(1).filter(|name| !source.ends_with(name.as_str()));
    beneath.fold(source.to_owned(), |words, name| format!("{words} on {name}"))
}

/// Whether it has a journal, where that can be told.
fn journal(fstype: &str, mount: &Mount, devices: &Devices) -> Option<bool> {
    match fstype {
        // Only with a journal is there a mode of journalling (`_ext4_show_options()` in fs/ext4/super.c).
        "ext4" | "ext3" => {
            let name = devices.name(major_minor(mount.dev))?;
            let options = fs::read_to_string(format!("/proc/fs/ext4/{name}/options")).ok()?;
            Some(options.lines().any(|option| option.starts_with("data=")))
        }
        "ext2" => Some(false),
        "xfs" => Some(true),
        _ => None,
    }
}

/// Whether its syncs flush the device's cache.
fn barrier(fstype: &str, options: &str) -> Option<bool> {
    let known = matches!(fstype, "ext4" | "ext3" | "xfs" | "btrfs" | "f2fs");
    let off = options.split(',').any(|option| matches!(option, "nobarrier" | "barrier=0"));
    known.then_some(!off)
}

/// Whether what was synced survives a power cut, where that can be told, and why not.
fn durability(fstype: &str, barrier: Option<bool>, bottom: &Bottom) -> (Option<bool>, Option<String>) {
    let said = |durable, note: &str| (durable, Some(note.to_owned()));
    match fstype {
        "tmpfs" | "ramfs" => return said(Some(false), "kept in memory: a sync does nothing here"),
        "overlay" => return said(None, "its upper layer's file system keeps the data"),
        "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "ceph" | "virtiofs" => {
            return said(None, "a server keeps the data: what it does with a sync can't be seen from here");
        }
        _ if fstype.starts_with("fuse") => {
            return said(None, "a program keeps the data: what it does with a sync is its own affair");
        }
        _ => {}
    }
    if bottom.in_memory {
        return said(Some(false), "its device is in memory: nothing of it survives a power cut");
    }
    let write_back = bottom.write_caches.iter().any(|cache| cache == "write back");
    if barrier == Some(false) && write_back {
        return said(
            Some(false),
            "mounted without barriers: a sync does not flush the device's write cache, and what is in it is \
             lost in a power cut",
        );
    }
    if bottom.write_caches.is_empty() || barrier.is_none() {
        return (None, None);
    }
    if !write_back {
        return said(
            None,
            "the kernel takes the device for one without a volatile cache, and flushes nothing; whether that \
             is so, or was set by hand, can't be told",
        );
    }
    if bottom.is_virtual {
        return said(None, "a virtual disk: whether its host keeps what is flushed can't be seen from here");
    }
    (Some(true), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bottom(caches: &[&str]) -> Bottom {
        Bottom { write_caches: caches.iter().map(|cache| (*cache).to_owned()).collect(), ..Bottom::default() }
    }

    #[test]
    fn where_a_sync_means_nothing_it_is_said() {
        let durable = |fstype, options, bottom: &Bottom| {
            let (durable, note) = durability(fstype, barrier(fstype, options), bottom);
            assert!(durable == Some(true) || note.is_some() || barrier(fstype, options).is_none());
            durable
        };
        let disk = bottom(&["write back"]);
        assert_eq!(durable("tmpfs", "rw", &Bottom::default()), Some(false));
        assert_eq!(durable("ext4", "rw,nobarrier", &disk), Some(false));
        assert_eq!(durable("ext4", "rw,barrier=0", &disk), Some(false));
        assert_eq!(durable("ext4", "rw", &disk), Some(true));
        assert_eq!(durable("ext4", "rw", &bottom(&["write through"])), None);
        assert_eq!(durable("ext4", "rw", &Bottom { in_memory: true, ..disk.clone() }), Some(false));
        assert_eq!(durable("ext4", "rw", &Bottom { is_virtual: true, ..disk.clone() }), None);
        assert_eq!(durable("fuse.sshfs", "rw", &Bottom::default()), None);
        assert_eq!(durable("vfat", "rw", &disk), None);
    }

    #[test]
    fn options_are_said_once_and_stacks_in_words() {
        assert_eq!(distinct("rw,relatime,rw,discard,relatime"), "rw,relatime,discard");
        let stack = |names: &[&str]| Bottom {
            stack: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Bottom::default()
        };
        assert_eq!(device_in_words("/dev/vda", &stack(&["vda"])), "/dev/vda");
        let image = stack(&["loop0", "/srv/image", "vda1", "vda"]);
        assert_eq!(device_in_words("/dev/loop0", &image), "/dev/loop0 on /srv/image on vda1 on vda");
        assert_eq!(device_in_words("tmpfs", &stack(&[])), "tmpfs");
    }
}
