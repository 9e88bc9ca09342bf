//! The walk from a dentry to the roots of its mount, its mount namespace and its file system.

use core::ffi::{c_long, c_void};

use aya_ebpf::helpers::generated::bpf_loop;
use opfs_probe_common::record::{PATH_BYTES, PATH_TRUNCATED};

use crate::file::NO_MOUNT;
use crate::kernel::{offset, read, read_string};
use crate::maps::{COMPONENT_BYTES, Scratch, scratch};

/// Steps a walk may take: components of one byte in a path of `PATH_MAX`, and the mounts on the way.
const MAX_STEPS: u32 = 2_304;

/// What a walk wrote; see `FileRecord` for the three parts.
pub struct Walk {
    pub mount_len: u32,
    pub above_len: u32,
    pub beneath_len: u32,
    /// [`PATH_TRUNCATED`] or 0
    pub flags: u32,
    /// `mnt_namespace.ns.inum`, 0 for none
    pub mount_namespace: u32,
}

/// Where a walk is. It lives in the scratch space, not on the stack: the verifier then takes each
/// field as unknown at every step, and needs to look at one step only.
#[repr(C)]
pub struct Position {
    /// Bytes written.
    length: u64,
    /// The dentry to write next.
    dentry: u64,
    /// The root of the mount that `dentry` is in.
    root: u64,
    /// That mount's `struct mount`.
    mount: u64,
    /// `length` when the first mount's root was reached.
    mount_len: u64,
    left_mount: u64,
    /// The walk reached the top.
    whole: u64,
}

/// What a callback of `bpf_loop` answers.
const GO_ON: c_long = 0;
const STOP: c_long = 1;

/// Writes the components of a path, leaf first, into the scratch space's `path`. With [`NO_MOUNT`] the
/// path is that from the file system's root.
#[inline(always)]
pub fn walk(scratch: &mut Scratch, dentry: u64, vfsmount: u64) -> Walk {
    if vfsmount == NO_MOUNT {
        return walk_without_mount(scratch, dentry);
    }
    let mount = vfsmount - u64::from(offset!(mount_mnt));
    let mount_namespace = read(mount + u64::from(offset!(mount_ns)))
        .and_then(|namespace: u64| read(namespace + u64::from(offset!(mnt_namespace_inum))))
        .unwrap_or(0);
    let root = mount_root(vfsmount);
    let start = Position { length: 0, dentry, root, mount, mount_len: 0, left_mount: 0, whole: 0 };
    let Position { length: namespace_len, mount_len, left_mount, whole, .. } =
        climb(scratch, start, to_namespace_root);
    // A pipe, a memfd and the like are in no mount: their one name is all there is.
    let nameless_mount = mount_namespace == 0 && left_mount == 0;
    let mount_len = if left_mount == 0 { namespace_len } else { mount_len };

    let start =
        Position { length: namespace_len, dentry: root, root, mount, mount_len, left_mount, whole: 0 };
    let Position { length, whole: whole_beneath, .. } = climb(scratch, start, to_file_system_root);
    let whole = (whole != 0 || nameless_mount) && whole_beneath != 0;
    Walk {
        mount_len: mount_len as u32,
        above_len: (namespace_len - mount_len) as u32,
        beneath_len: (length - namespace_len) as u32,
        flags: if whole { 0 } else { PATH_TRUNCATED },
        mount_namespace,
    }
}

#[inline(always)]
fn walk_without_mount(scratch: &mut Scratch, dentry: u64) -> Walk {
    let start = Position { length: 0, dentry, root: 0, mount: 0, mount_len: 0, left_mount: 0, whole: 0 };
    let Position { length, whole, .. } = climb(scratch, start, to_file_system_root);
    Walk {
        mount_len: length as u32,
        above_len: 0,
        beneath_len: 0,
        flags: if whole == 0 { PATH_TRUNCATED } else { 0 },
        mount_namespace: 0,
    }
}

/// Takes steps until one says to stop; gives the position then.
#[inline(always)]
fn climb(
    scratch: &mut Scratch,
    start: Position,
    step: extern "C" fn(u32, *mut c_void) -> c_long,
) -> Position {
    let position = &raw mut scratch.position;
    // SAFETY: a part of this CPU's scratch space. The steps change it unseen by the compiler, hence
    // volatile. The verifier checks the callback.
    unsafe {
        position.write_volatile(start);
        bpf_loop(MAX_STEPS, step as *mut c_void, core::ptr::null_mut(), 0);
        position.read_volatile()
    }
}

/// One step up; at a mount's root, over to where that mount lies in its parent.
extern "C" fn to_namespace_root(_index: u32, _context: *mut c_void) -> c_long {
    let Some(scratch) = scratch() else { return STOP };
    if scratch.position.dentry == scratch.position.root {
        return leave_mount(&mut scratch.position);
    }
    let Some(parent) = write(scratch) else { return STOP };
    if parent == scratch.position.dentry {
        // The top of a tree that is not the mount's root.
        return STOP;
    }
    scratch.position.dentry = parent;
    GO_ON
}

#[inline(always)]
fn leave_mount(position: &mut Position) -> c_long {
    if position.left_mount == 0 {
        position.left_mount = 1;
        position.mount_len = position.length;
    }
    let Some(parent) = read::<u64>(position.mount + u64::from(offset!(mount_parent))) else { return STOP };
    if parent == position.mount {
        position.whole = 1;
        return STOP;
    }
    let Some(mountpoint) = read(position.mount + u64::from(offset!(mount_mountpoint))) else { return STOP };
    position.dentry = mountpoint;
    position.mount = parent;
    position.root = mount_root(parent + u64::from(offset!(mount_mnt)));
    GO_ON
}

/// One step up, to the root of the file system.
extern "C" fn to_file_system_root(_index: u32, _context: *mut c_void) -> c_long {
    let Some(scratch) = scratch() else { return STOP };
    let dentry = scratch.position.dentry;
    let Some(parent) = read::<u64>(dentry + u64::from(offset!(dentry_parent))) else { return STOP };
    if parent == dentry {
        scratch.position.whole = 1;
        return STOP;
    }
    if write(scratch).is_none() {
        return STOP;
    }
    scratch.position.dentry = parent;
    GO_ON
}

/// Copies the current dentry's name; gives its parent, or none if the name does not fit.
#[inline(always)]
fn write(scratch: &mut Scratch) -> Option<u64> {
    let length = scratch.position.length;
    if length > PATH_BYTES as u64 {
        return None;
    }
    let dentry = scratch.position.dentry;
    let name: u64 = read(dentry + u64::from(offset!(dentry_name_name)))?;
    // SAFETY: at most `PATH_BYTES` are in use, so a whole component fits behind them.
    let added =
        unsafe { read_string(scratch.path.as_mut_ptr().add(length as usize), COMPONENT_BYTES as u32, name) }?;
    scratch.position.length = length + u64::from(added);
    read(dentry + u64::from(offset!(dentry_parent)))
}

/// `vfsmount.mnt_root`
#[inline(always)]
fn mount_root(vfsmount: u64) -> u64 {
    read(vfsmount + u64::from(offset!(vfsmount_root))).unwrap_or(0)
}
