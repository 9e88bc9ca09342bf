//! From a descriptor to the file's identity, read from the calling task's own table.

use core::ffi::{c_long, c_void};

use aya_ebpf::helpers::generated::{bpf_find_vma, bpf_get_current_task_btf};
use opfs_probe_common::call::FileIdentity;
use opfs_probe_common::record::{DELETED, OTHER_LINKS};

use crate::kernel::{Typed, offset, read};
use crate::maps::{NameKey, scratch};

/// Stands for the mount of a name that was not found through one.
pub const NO_MOUNT: u64 = 0;

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

/// [`mapped_at`] could not look: another thread is changing the process's mappings.
pub const BUSY: u64 = u64::MAX;

/// The address of the `struct file` that the current process has mapped at `address`; 0 for anonymous
/// memory and where nothing is mapped, or [`BUSY`].
#[inline(always)]
pub fn mapped_at(address: u64) -> u64 {
    const ENOENT: c_long = -2;
    let Some(scratch) = scratch() else { return BUSY };
    scratch.mapped_file = 0;
    // SAFETY: the verifier checks the callback. The address is in this CPU's scratch space, where the
    // callback puts it unseen by the compiler.
    unsafe {
        let callback = note_mapped_file as *mut c_void;
        match bpf_find_vma(bpf_get_current_task_btf(), address, callback, core::ptr::null_mut(), 0) {
            0 => (&raw const scratch.mapped_file).read_volatile(),
            ENOENT => 0,
            _ => BUSY,
        }
    }
}

/// Called with the mapping, while it can't go away.
extern "C" fn note_mapped_file(_task: *mut c_void, mapping: *mut c_void, _context: *mut c_void) -> c_long {
    if let Some(scratch) = scratch() {
        // SAFETY: the helper passes a `struct vm_area_struct *` that the verifier knows.
        scratch.mapped_file = unsafe { Typed::new(mapping) }.load(offset!(vma_file));
    }
    0
}

/// Identity and name of an open file, from the address of its `struct file`.
#[inline(always)]
pub fn of_file(file: u64, epoch: u32) -> Option<NameKey> {
    named(inode_of(file)?, read(file + u64::from(offset!(file_path_mnt)))?, epoch)
}

/// The address of an open file's inode.
#[inline(always)]
pub fn inode_of(file: u64) -> Option<u64> {
    read(file + u64::from(offset!(file_inode)))
}

/// Identity and name of an inode, from its address: the name is one of those it has, in no mount.
#[inline(always)]
pub fn of_inode(inode: u64, epoch: u32) -> Option<NameKey> {
    let alias: u64 = read(inode + u64::from(offset!(inode_dentries)))?;
    if alias == 0 {
        return None;
    }
    let dentry_address = alias - u64::from(offset!(dentry_alias));
    named(inode, Path { mount_address: NO_MOUNT, dentry_address }, epoch)
}

#[inline(always)]
fn named(inode: u64, path: Path, epoch: u32) -> Option<NameKey> {
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
