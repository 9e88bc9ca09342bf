//! From a descriptor to the file's identity, read from the calling task's own table.

use opfs_probe_common::call::FileIdentity;
use opfs_probe_common::record::{DELETED, OTHER_LINKS};

use crate::kernel::{Typed, offset, read};
use crate::maps::NameKey;

/// `struct path`, whose layout has not changed since it exists.
#[derive(Clone, Copy)]
#[repr(C)]
struct Path {
    mount_address: u64,
    dentry_address: u64,
}

/// The open file behind descriptor `fd` of the current task, or none if there is no such.
#[inline(always)]
pub fn of_descriptor(fd: i32, epoch: u32) -> Option<NameKey> {
    let table = Typed::current_task().follow(offset!(task_files)).follow(offset!(files_fdt));
    let max_fds: u32 = table.load(offset!(fdt_max_fds));
    if fd < 0 || fd as u32 >= max_fds {
        return None;
    }
    let descriptors: u64 = table.load(offset!(fdt_fd));
    let file: u64 = read(descriptors + 8 * u64::from(fd as u32))?;
    if file == 0 {
        return None;
    }
    of_file(file, epoch)
}

/// Identity and name of an open file, from the address of its `struct file`.
#[inline(always)]
pub fn of_file(file: u64, epoch: u32) -> Option<NameKey> {
    let inode: u64 = read(file + u64::from(offset!(file_inode)))?;
    let path: Path = read(file + u64::from(offset!(file_path_mnt)))?;
    let dentry = path.dentry_address;
    let super_block: u64 = read(inode + u64::from(offset!(inode_sb)))?;
    let parent_address: u64 = read(dentry + u64::from(offset!(dentry_parent)))?;
    let identity = FileIdentity {
        // All eventfds, epolls and their like share one inode, but each has a dentry of its own
        // without a parent. So have the roots of file systems, whose dentry stays with the inode.
        inode_address: if parent_address == dentry { dentry } else { inode },
        inode: read(inode + u64::from(offset!(inode_ino)))?,
        dev: read(super_block + u64::from(offset!(sb_dev)))?,
        generation: read(inode + u64::from(offset!(inode_generation)))?,
    };
    let links: u32 = read(inode + u64::from(offset!(inode_nlink)))?;
    // As `d_unlinked()`: a name without a place in the dentry hash is gone, the root excepted.
    let hashed: u64 = read(dentry + u64::from(offset!(dentry_hash_pprev)))?;
    let unlinked = hashed == 0 && parent_address != dentry;
    Some(NameKey {
        file: identity,
        inode_address: inode,
        dentry_address: dentry,
        parent_address,
        name_hash_len: read(dentry + u64::from(offset!(dentry_name_hash_len)))?,
        mount_address: path.mount_address,
        epoch,
        gone: match (links, unlinked) {
            (0, _) => DELETED,
            (_, true) => DELETED | OTHER_LINKS,
            (_, false) => 0,
        },
    })
}
