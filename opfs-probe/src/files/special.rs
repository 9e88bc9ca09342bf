//! Files that have no place in any directory tree: pipes, sockets, memory files.

use opfs_probe_common::record::FileRecord;

use super::PathBytes;

// linux/magic.h
const PIPEFS: u64 = 0x5049_5045;
const SOCKFS: u64 = 0x534F_434B;
const ANON_INODEFS: u64 = 0x0904_1934;
const NSFS: u64 = 0x6e73_6673;
const PIDFS: u64 = 0x5049_4446;
const TMPFS: u64 = 0x0102_1994;
const HUGETLBFS: u64 = 0x9584_58f6;

/// The name that stands for a path, and whether the file is one without a directory entry.
#[derive(Debug, PartialEq, Eq)]
pub struct SpecialName {
    /// As `/proc/PID/fd` would show it, but for the ` (deleted)` of memory files.
    pub name: PathBytes,
    /// The file never had a directory entry that one could open it by.
    pub deleted: bool,
}

/// The name of a special file, or none for a file that lies in a directory tree.
pub fn name(record: &FileRecord, components: &[u8]) -> Option<SpecialName> {
    let leaf = components.split(|byte| *byte == 0).next().unwrap_or_default();
    let inode = record.file.inode;
    let kind = match record.magic {
        PIPEFS => "pipe",
        SOCKFS => "socket",
        NSFS => "nsfs",
        PIDFS => "pidfd",
        ANON_INODEFS if !leaf.is_empty() => {
            return Some(SpecialName { name: [b"anon_inode:", leaf].concat(), deleted: false });
        }
        ANON_INODEFS => "anon_inode",
        // The kernel's own mounts of these are in no namespace. Names given to memfd_create may hold slashes.
        TMPFS | HUGETLBFS if record.mount_namespace == 0 && is_memory_file(leaf) => {
            return Some(SpecialName { name: [b"/", leaf].concat(), deleted: true });
        }
        _ => return None,
    };
    Some(SpecialName { name: format!("{kind}:[{inode}]").into_bytes(), deleted: false })
}

/// `memfd_create`, System V shared memory, and shared mappings of `/dev/zero` (`mm/shmem.c`).
fn is_memory_file(leaf: &[u8]) -> bool {
    leaf.starts_with(b"memfd:") || leaf.starts_with(b"SYSV") || leaf == b"dev/zero"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::names::tests::record;

    fn of(magic: u64, mount_namespace: u32, components: &[u8]) -> Option<(String, bool)> {
        let mut record = record(42, components.len() as u32);
        record.magic = magic;
        record.mount_namespace = mount_namespace;
        name(&record, components).map(|special| (String::from_utf8(special.name).unwrap(), special.deleted))
    }

    #[test]
    fn special_file_systems_are_named_as_proc_does() {
        let named = |name: &str, deleted| Some((name.to_owned(), deleted));
        assert_eq!(of(PIPEFS, 0, b""), named("pipe:[42]", false));
        assert_eq!(of(SOCKFS, 0, b""), named("socket:[42]", false));
        assert_eq!(of(SOCKFS, 0, b"TCP\0"), named("socket:[42]", false));
        assert_eq!(of(ANON_INODEFS, 0, b"[eventfd]\0"), named("anon_inode:[eventfd]", false));
        assert_eq!(of(ANON_INODEFS, 0, b""), named("anon_inode:[42]", false));
        assert_eq!(of(TMPFS, 0, b"memfd:x\0"), named("/memfd:x", true));
        assert_eq!(of(HUGETLBFS, 0, b"memfd:a/b\0"), named("/memfd:a/b", true));
        assert_eq!(of(TMPFS, 7, b"memfd:x\0shm\0"), None, "a file that only has such a name");
        assert_eq!(of(TMPFS, 0, b"x\0"), None, "a lazily unmounted tmpfs");
        assert_eq!(of(0xEF53, 7, b"x\0"), None);
    }
}
