//! What each file that was seen is called.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use opfs_probe_common::call::FileIdentity;
use opfs_probe_common::record::{DELETED, FileRecord, OTHER_LINKS, PATH_TRUNCATED};

use super::components::Parts;
use super::mounts::Mounts;
use super::{PathBytes, major_minor, proc, special, stat_major_minor};

/// How many names of one file are kept.
pub const MAX_NAMES: usize = 16;

/// A mount table older than this is read again before it is asked about another namespace's file.
const MOUNTS_AGE: Duration = Duration::from_secs(1);

// linux/magic.h: here stat() reports another device than the superblock's, one for each subvolume or layer.
const BTRFS: u64 = 0x9123_683E;
const OVERLAYFS: u64 = 0x794C_7630;

/// How a file's path was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResolvedBy {
    /// In the kernel, at the time of the call.
    Kernel,
    /// From a descriptor that was still open, in `/proc/PID/fd`.
    Proc,
    /// From an open that was watched.
    Open,
    /// Not at all.
    #[default]
    None,
}

/// What is known of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedFile {
    /// Its latest path, whole, seen from this process's mount namespace unless `foreign_namespace`. A
    /// deleted file has the name it had.
    pub path: Option<PathBytes>,
    /// The same from its file system's root.
    pub fs_path: Option<PathBytes>,
    /// Every path it was seen under, in the order of sight, up to [`MAX_NAMES`].
    pub names: Vec<PathBytes>,
    /// How often it was seen under a name that found no room.
    pub names_dropped: u64,
    /// Its superblock's device, in the kernel's own encoding.
    pub dev: u32,
    /// The device that `stat()` reports: major and minor.
    pub stat_dev: (u32, u32),
    /// Its inode number.
    pub inode: u64,
    /// Its file system's `s_magic`; none before it was seen in the kernel.
    pub magic: Option<u64>,
    /// Its name was gone when it was last seen.
    pub deleted: bool,
    /// The path is only right in another mount namespace: no mount here leads to the file.
    pub foreign_namespace: bool,
    /// How `path` was found.
    pub resolved_by: ResolvedBy,
}

/// Files by identity.
#[derive(Debug, Default)]
pub struct Names {
    files: HashMap<FileIdentity, NamedFile>,
    mounts: Mounts,
    /// When the mounts were read; none if they are given and never read again.
    mounts_read_at: Option<Instant>,
}

/// One sight of a file.
struct Sight {
    path: Option<PathBytes>,
    fs_path: Option<PathBytes>,
    stat_dev: Option<(u32, u32)>,
    deleted: bool,
    /// The name is gone, but the file has others.
    other_links: bool,
    foreign_namespace: bool,
    resolved_by: ResolvedBy,
}

impl Names {
    /// No file yet. Where the mounts of this process can't be read, every path counts as another
    /// namespace's.
    pub fn new() -> Self {
        let mounts = Mounts::read().unwrap_or_default();
        Self { files: HashMap::new(), mounts, mounts_read_at: Some(Instant::now()) }
    }

    /// No file yet, and these mounts for good.
    pub fn with_mounts(mounts: Mounts) -> Self {
        Self { files: HashMap::new(), mounts, mounts_read_at: None }
    }

    /// Takes a record and the component bytes that follow it.
    pub fn see(&mut self, record: &FileRecord, components: &[u8]) {
        if record.file == FileIdentity::NONE {
            return;
        }
        let sight = self.sight(record, components);
        let file = self.file(&record.file);
        file.magic = Some(record.magic);
        file.take(sight);
    }

    /// What is known of a file.
    pub fn get(&self, file: &FileIdentity) -> Option<&NamedFile> {
        self.files.get(file)
    }

    /// Looks for a file that has no path yet among the open descriptors of a process, and says whether
    /// it has one now.
    pub fn resolve_from_proc(&mut self, file: &FileIdentity, tgid: u32) -> bool {
        if self.get(file).is_some_and(|known| known.path.is_some()) {
            return true;
        }
        let Some(found) = proc::find(file, tgid) else { return false };
        let sight = Sight {
            path: Some(found.path),
            fs_path: None,
            stat_dev: Some(found.stat_dev),
            deleted: found.deleted,
            other_links: false,
            foreign_namespace: found.namespace != self.mounts.namespace,
            resolved_by: ResolvedBy::Proc,
        };
        self.file(file).take(sight);
        true
    }

    /// Forgets the files that nothing counted refers to any more.
    pub fn retain(&mut self, mut keep: impl FnMut(&FileIdentity) -> bool) {
        self.files.retain(|file, _| keep(file));
    }

    fn file(&mut self, file: &FileIdentity) -> &mut NamedFile {
        self.files.entry(*file).or_insert_with(|| NamedFile {
            dev: file.dev,
            stat_dev: major_minor(file.dev),
            inode: file.inode,
            ..NamedFile::default()
        })
    }

    fn sight(&mut self, record: &FileRecord, components: &[u8]) -> Sight {
        let mut sight = Sight {
            path: None,
            fs_path: None,
            stat_dev: None,
            deleted: record.flags & DELETED != 0,
            other_links: record.flags & OTHER_LINKS != 0,
            foreign_namespace: false,
            resolved_by: ResolvedBy::None,
        };
        if let Some(special) = special::name(record, components) {
            sight.path = Some(special.name);
            sight.deleted = special.deleted;
            sight.resolved_by = ResolvedBy::Kernel;
            return sight;
        }
        if record.flags & PATH_TRUNCATED != 0 {
            return sight;
        }
        let lengths = (record.mount_len, record.above_len, record.beneath_len);
        let Some(parts) = Parts::decode(components, lengths.0, lengths.1, lengths.2) else { return sight };
        let fs_path = parts.fs_path();
        if record.mount_namespace == 0 {
            // A mount in no namespace has no place, an overlay's layer for one; and a name that is
            // known by its inode alone has no mount. Another mount here may lead there.
            sight.path = self.fresh_mounts().find(record.file.dev, &fs_path);
        } else if Some(record.mount_namespace) == self.mounts.namespace {
            sight.path = Some(parts.path());
        } else {
            let here = self.fresh_mounts().find(record.file.dev, &fs_path);
            sight.foreign_namespace = here.is_none();
            sight.path = Some(here.unwrap_or_else(|| parts.path()));
        }
        if sight.path.is_some() {
            sight.resolved_by = ResolvedBy::Kernel;
        }
        sight.fs_path = Some(fs_path);
        if let (Some(path), false, false) = (&sight.path, sight.deleted, sight.foreign_namespace)
            && matches!(record.magic, BTRFS | OVERLAYFS)
        {
            sight.stat_dev = stat_dev(path, record.file.inode);
        }
        sight
    }

    fn fresh_mounts(&mut self) -> &Mounts {
        if self.mounts_read_at.is_some_and(|read_at| read_at.elapsed() > MOUNTS_AGE)
            && let Ok(mounts) = Mounts::read()
        {
            self.mounts = mounts;
            self.mounts_read_at = Some(Instant::now());
        }
        &self.mounts
    }
}

impl NamedFile {
    /// A sight without a path takes none away: the file had that name.
    fn take(&mut self, sight: Sight) {
        // The file lives on under another name if it was seen there last.
        let lives_on = sight.other_links && !self.deleted && self.path.is_some() && self.path != sight.path;
        if !lives_on {
            self.deleted = sight.deleted;
        }
        self.stat_dev = sight.stat_dev.unwrap_or(self.stat_dev);
        if let Some(path) = sight.path {
            if !self.names.contains(&path) {
                if self.names.len() < MAX_NAMES {
                    self.names.push(path.clone());
                } else {
                    self.names_dropped += 1;
                }
            }
            if lives_on {
                return;
            }
            // The two are of one sight, so that they name the same link.
            self.fs_path = sight.fs_path;
            self.path = Some(path);
            self.foreign_namespace = sight.foreign_namespace;
            self.resolved_by = sight.resolved_by;
        } else if self.path.is_none() {
            self.fs_path = sight.fs_path.or(self.fs_path.take());
        }
    }
}

/// The device that `stat()` reports of a path, if that is still the inode.
fn stat_dev(path: &[u8], inode: u64) -> Option<(u32, u32)> {
    let metadata = fs::symlink_metadata(OsStr::from_bytes(path)).ok()?;
    (metadata.ino() == inode).then(|| stat_major_minor(metadata.dev()))
}

#[cfg(test)]
pub(crate) mod tests {
    use opfs_probe_common::record::FILE_RECORD;
    use proptest::prelude::*;

    use super::*;
    use crate::files::components::tests::encode;
    use crate::files::kernel_dev;
    use crate::files::mounts;

    const OURS: u32 = 4_026_531_841;
    const EXT4: u64 = 0xEF53;

    /// A record of an ordinary file of our own mount namespace, all of its path inside the mount.
    pub(crate) fn record(inode: u64, mount_len: u32) -> FileRecord {
        FileRecord {
            kind: FILE_RECORD,
            epoch: 1,
            file: FileIdentity { inode_address: inode << 8, inode, dev: kernel_dev(254, 1), generation: 5 },
            magic: EXT4,
            mount_namespace: OURS,
            flags: 0,
            mount_len,
            above_len: 0,
            beneath_len: 0,
            mode: 0o100_644,
        }
    }

    fn names() -> Names {
        let table = b"\
21 1 254:0 / / rw - ext4 /dev/vda rw
30 21 254:1 / /mnt/disk rw - xfs /dev/vdb rw
";
        Names::with_mounts(Mounts { namespace: Some(OURS), mounts: mounts::parse(table) })
    }

    /// Sees inode 7 at three paths: within the mount, above it, beneath it.
    fn see(names: &mut Names, change: impl Fn(&mut FileRecord), parts: [&str; 3]) -> NamedFile {
        let parts = parts.map(|part| encode(part.as_bytes()));
        let mut record = record(7, parts[0].len() as u32);
        record.above_len = parts[1].len() as u32;
        record.beneath_len = parts[2].len() as u32;
        change(&mut record);
        names.see(&record, &parts.concat());
        names.get(&record.file).unwrap().clone()
    }

    #[test]
    fn a_file_of_our_namespace_is_named_by_its_own_mount() {
        let file = see(&mut names(), |_| (), ["/d/f", "/srv/bind", "/sub"]);
        assert_eq!(file.path.as_deref(), Some(&b"/srv/bind/d/f"[..]));
        assert_eq!(file.fs_path.as_deref(), Some(&b"/sub/d/f"[..]));
        assert_eq!((file.dev, file.stat_dev, file.inode), (kernel_dev(254, 1), (254, 1), 7));
        assert_eq!((file.deleted, file.foreign_namespace), (false, false));
        assert_eq!(file.resolved_by, ResolvedBy::Kernel);
    }

    #[test]
    fn a_file_of_another_namespace_is_named_by_a_mount_of_ours_or_says_so() {
        let foreign = |record: &mut FileRecord| record.mount_namespace = 9;
        let file = see(&mut names(), foreign, ["/d/f", "/", "/containers/1"]);
        assert_eq!(file.path.as_deref(), Some(&b"/mnt/disk/containers/1/d/f"[..]));
        assert!(!file.foreign_namespace);

        let elsewhere = |record: &mut FileRecord| {
            record.mount_namespace = 9;
            record.file.dev = kernel_dev(8, 1);
        };
        let file = see(&mut names(), elsewhere, ["/d/f", "/data", ""]);
        assert_eq!(file.path.as_deref(), Some(&b"/data/d/f"[..]));
        assert_eq!(file.fs_path.as_deref(), Some(&b"/d/f"[..]));
        assert!(file.foreign_namespace);
    }

    #[test]
    fn a_file_in_no_namespace_is_named_by_a_mount_of_ours() {
        let file = see(&mut names(), |record| record.mount_namespace = 0, ["/d/f", "", "/layer"]);
        assert_eq!(file.path.as_deref(), Some(&b"/mnt/disk/layer/d/f"[..]));
        assert_eq!(file.fs_path.as_deref(), Some(&b"/layer/d/f"[..]));
        assert_eq!((file.resolved_by, file.magic), (ResolvedBy::Kernel, Some(EXT4)));
    }

    #[test]
    fn a_path_that_may_be_incomplete_is_none() {
        let in_no_mount_here = |record: &mut FileRecord| {
            record.mount_namespace = 0;
            record.file.dev = kernel_dev(8, 1);
        };
        let file = see(&mut names(), |record| record.flags = PATH_TRUNCATED, ["/d/f", "", ""]);
        assert_eq!((file.path, file.fs_path, file.resolved_by), (None, None, ResolvedBy::None));
        let file = see(&mut names(), in_no_mount_here, ["/d/f", "", ""]);
        assert_eq!((file.path, file.fs_path), (None, Some(b"/d/f".to_vec())));
        assert_eq!(file.resolved_by, ResolvedBy::None);
        let file = see(&mut names(), |record| record.mount_len = 3, ["/d/f", "", ""]);
        assert_eq!((file.path, file.fs_path), (None, None));
        let file = see(&mut names(), |record| record.beneath_len = u32::MAX, ["/d/f", "", ""]);
        assert_eq!((file.path, file.names.len()), (None, 0));
    }

    #[test]
    fn several_names_are_kept_and_the_latest_is_the_path() {
        let mut names = names();
        see(&mut names, |_| (), ["/a", "", ""]);
        see(&mut names, |_| (), ["/b", "", ""]);
        let file = see(&mut names, |record| record.flags = DELETED, ["/a", "", ""]);
        assert_eq!((file.path.as_deref(), file.deleted), (Some(&b"/a"[..]), true));
        assert_eq!(file.names, [b"/a", b"/b"]);
        let file = see(&mut names, |record| record.flags = PATH_TRUNCATED, ["/x", "", ""]);
        assert_eq!((file.path.as_deref(), file.deleted), (Some(&b"/a"[..]), false));
        for name in 0..20 {
            see(&mut names, |_| (), [&format!("/n{name}"), "", ""]);
        }
        let file = see(&mut names, |_| (), ["/last", "", ""]);
        assert_eq!((file.names.len(), file.names_dropped), (MAX_NAMES, 7));
        assert_eq!(file.path.as_deref(), Some(&b"/last"[..]));
        names.retain(|_| false);
        assert_eq!(names.get(&record(7, 0).file), None);
    }

    #[test]
    fn a_file_that_loses_one_of_its_names_goes_by_the_other() {
        let mut names = names();
        let gone = |record: &mut FileRecord| record.flags = DELETED | OTHER_LINKS;
        see(&mut names, |_| (), ["/one", "", ""]);
        see(&mut names, |_| (), ["/two", "", ""]);
        let file = see(&mut names, gone, ["/one", "", ""]);
        assert_eq!((file.path.as_deref(), file.deleted), (Some(&b"/two"[..]), false));
        assert_eq!(file.names, [b"/one", b"/two"]);
        // The name it went by: who else knows it is not known here.
        let file = see(&mut names, gone, ["/two", "", ""]);
        assert_eq!((file.path.as_deref(), file.deleted), (Some(&b"/two"[..]), true));
        let file = see(&mut names, |_| (), ["/three", "", ""]);
        assert_eq!((file.path.as_deref(), file.deleted), (Some(&b"/three"[..]), false));
    }

    #[test]
    fn no_file_has_no_name() {
        let mut names = names();
        let mut nothing = record(0, 2);
        nothing.file = FileIdentity::NONE;
        names.see(&nothing, b"a\0");
        assert_eq!(names.get(&FileIdentity::NONE), None);
    }

    #[test]
    fn stat_tells_the_device_of_subvolumes_and_layers() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let metadata = file.as_file().metadata().unwrap();
        let path = file.path().as_os_str().as_bytes();
        let seen = |magic, inode| {
            let mut names = names();
            let components = encode(path);
            let mut record = record(inode, components.len() as u32);
            record.magic = magic;
            names.see(&record, &components);
            names.get(&record.file).unwrap().stat_dev
        };
        assert_eq!(seen(BTRFS, metadata.ino()), stat_major_minor(metadata.dev()));
        assert_eq!(seen(OVERLAYFS, metadata.ino() + 1), (254, 1), "another file is there now");
        assert_eq!(seen(EXT4, metadata.ino()), (254, 1));
    }

    proptest! {
        #[test]
        fn any_record_is_taken(
            components in prop::collection::vec(prop::sample::select(&b"a/\0\xff"[..]), 0..30),
            lengths in any::<[u32; 3]>(),
            small in any::<bool>(),
            flags in 0..4_u32,
            mount_namespace in prop::sample::select(&[0, 9, OURS][..]),
        ) {
            let lengths = if small { lengths.map(|length| length % 16) } else { lengths };
            let mut names = names();
            let record = FileRecord {
                flags,
                mount_namespace,
                mount_len: lengths[0],
                above_len: lengths[1],
                beneath_len: lengths[2],
                ..record(7, 0)
            };
            names.see(&record, &components);
            let file = names.get(&record.file).unwrap();
            prop_assert_eq!(file.path.is_some(), file.resolved_by == ResolvedBy::Kernel);
            if flags & PATH_TRUNCATED != 0 {
                prop_assert_eq!(&file.path, &None);
            }
        }
    }
}
