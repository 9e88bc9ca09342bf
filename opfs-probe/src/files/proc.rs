//! The fallback: a file that no record named, looked for among a process's open descriptors.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use opfs_probe_common::call::FileIdentity;

use super::mounts::Mounts;
use super::{PathBytes, major_minor, stat_major_minor};

/// What `d_path` in the kernel appends where the name is gone.
const DELETED_SUFFIX: &[u8] = b" (deleted)";

/// A descriptor's file.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// Its path in the process's mount namespace, undecorated.
    pub path: PathBytes,
    /// The name no longer exists.
    pub deleted: bool,
    /// The device that `stat()` reports: major and minor.
    pub stat_dev: (u32, u32),
    /// The process's mount namespace.
    pub namespace: Option<u32>,
}

/// Looks for a file among the open descriptors of a process. None if the process, the descriptor or
/// the right to look is gone.
///
/// Only device and inode number can be compared, so an inode that took a deleted one's number in the
/// meantime would be taken for it.
pub fn find(file: &FileIdentity, tgid: u32) -> Option<Found> {
    // A process whose first thread ended has descriptors in its other threads only.
    find_in(Path::new(&format!("/proc/{tgid}")), file, tgid).or_else(|| {
        let tasks = fs::read_dir(format!("/proc/{tgid}/task")).ok()?;
        tasks.flatten().find_map(|task| find_in(&task.path(), file, tgid))
    })
}

/// Looks through the descriptors of a thread, given its directory in `/proc`.
fn find_in(thread: &Path, file: &FileIdentity, tgid: u32) -> Option<Found> {
    for entry in fs::read_dir(thread.join("fd")).ok()?.flatten() {
        let Ok(metadata) = fs::metadata(entry.path()) else { continue };
        if metadata.ino() != file.inode {
            continue;
        }
        let stat_dev = stat_major_minor(metadata.dev());
        if stat_dev != major_minor(file.dev) {
            // Subvolumes and layers have devices of their own; the mount still tells the superblock's.
            let number = entry.file_name();
            if mount_dev(thread, number.as_bytes()) != Some(file.dev) {
                continue;
            }
        }
        let Ok(link) = fs::read_link(entry.path()) else { continue };
        let (path, deleted) = undecorate(link.into_os_string().into_vec(), &metadata);
        let namespace =
            fs::metadata(format!("/proc/{tgid}/ns/mnt")).ok().map(|metadata| metadata.ino() as u32);
        return Some(Found { path, deleted, stat_dev, namespace });
    }
    None
}

/// The superblock's device of a descriptor's mount.
fn mount_dev(thread: &Path, descriptor: &[u8]) -> Option<u32> {
    let info = fs::read_to_string(thread.join("fdinfo").join(OsStr::from_bytes(descriptor))).ok()?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()?;
    let process = thread.strip_prefix("/proc").ok()?.to_str()?;
    Mounts::of(process).ok()?.by_id(id).map(|mount| mount.dev)
}

/// Takes off what the kernel appends to the name of a deleted file, unless the file is really called so.
pub(crate) fn undecorate(link: PathBytes, metadata: &Metadata) -> (PathBytes, bool) {
    let Some(path) = link.strip_suffix(DELETED_SUFFIX) else { return (link, false) };
    if metadata.nlink() > 0
        && fs::symlink_metadata(OsStr::from_bytes(&link))
            .is_ok_and(|there| (there.dev(), there.ino()) == (metadata.dev(), metadata.ino()))
    {
        return (link, false);
    }
    (path.to_vec(), true)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::files::kernel_dev;
    use crate::files::names::{Names, ResolvedBy};

    fn identity(file: &File) -> FileIdentity {
        let metadata = file.metadata().unwrap();
        let (major, minor) = stat_major_minor(metadata.dev());
        FileIdentity { inode_address: 1, inode: metadata.ino(), dev: kernel_dev(major, minor), generation: 0 }
    }

    fn found(file: &File) -> (Vec<u8>, bool) {
        let found = find(&identity(file), std::process::id()).unwrap();
        (found.path, found.deleted)
    }

    #[test]
    fn open_descriptors_name_their_files() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().canonicalize().unwrap();
        let at = |name: &[u8]| directory.join(OsStr::from_bytes(name));
        let bytes = |name: &[u8]| at(name).into_os_string().into_vec();

        let odd = File::create(at(b"odd\n\xff name")).unwrap();
        assert_eq!(found(&odd), (bytes(b"odd\n\xff name"), false));

        let named_so = File::create(at(b"x (deleted)")).unwrap();
        assert_eq!(found(&named_so), (bytes(b"x (deleted)"), false));
        fs::remove_file(at(b"x (deleted)")).unwrap();
        assert_eq!(found(&named_so), (bytes(b"x (deleted)"), true));

        let linked = File::create(at(b"one")).unwrap();
        fs::hard_link(at(b"one"), at(b"two")).unwrap();
        fs::remove_file(at(b"one")).unwrap();
        assert_eq!(found(&linked), (bytes(b"one"), true), "this name is gone, though another is left");

        let mut names = Names::new();
        let file = identity(&odd);
        assert!(names.resolve_from_proc(&file, std::process::id()));
        let known = names.get(&file).unwrap();
        assert_eq!((known.resolved_by, known.foreign_namespace), (ResolvedBy::Proc, false));
        assert_eq!(known.path, Some(bytes(b"odd\n\xff name")));
    }

    #[test]
    fn what_is_not_open_is_not_found() {
        let file = tempfile::tempfile().unwrap();
        let known = identity(&file);
        assert_eq!(find(&FileIdentity { dev: known.dev + 1, ..known }, std::process::id()), None);
        drop(file);
        assert_eq!(find(&FileIdentity { inode: u64::MAX, ..known }, std::process::id()), None);
        assert_eq!(find(&known, u32::MAX), None, "no such process");
    }
}
