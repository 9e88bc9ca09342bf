//! First-sight records: what a file or a process image is called, sent once through the ring buffer.

use core::mem::size_of;

use crate::call::FileIdentity;

/// Tag in [`FileRecord::kind`].
pub const FILE_RECORD: u32 = 1;
/// Tag in [`ProcessRecord::kind`].
pub const PROCESS_RECORD: u32 = 2;

/// Room for path components in a record: twice `PATH_MAX`, for the part inside the mount and the
/// rest up to the namespace's root.
pub const PATH_BYTES: usize = 8192;

/// Room for the start of a process's argument vector.
pub const ARGS_BYTES: usize = 512;

/// Fixed part of a file record; [`FileRecord::path_len`] bytes of components follow.
///
/// Components are NUL-terminated, leaf first. The first `mount_len` bytes lead from the file to the
/// root of its mount, the next `above_len` from there to the root of the mount namespace, the last
/// `beneath_len` from the mount's root to the file system's root (empty unless it is a bind mount).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRecord {
    /// [`FILE_RECORD`]
    pub kind: u32,
    /// The epoch of the call.
    pub epoch: u32,
    /// Which file.
    pub file: FileIdentity,
    /// `super_block.s_magic`: tells pipes, sockets and file systems whose `stat` differs.
    pub magic: u64,
    /// `mnt_namespace.ns.inum` of the file's mount; 0 for a mount in no namespace.
    pub mount_namespace: u32,
    /// [`DELETED`], [`OTHER_LINKS`], [`PATH_TRUNCATED`]
    pub flags: u32,
    /// Bytes of components inside the mount.
    pub mount_len: u32,
    /// Bytes of components above the mount.
    pub above_len: u32,
    /// Bytes of components beneath a bind mount's root.
    pub beneath_len: u32,
    /// `inode.i_mode`: tells the file's type.
    pub mode: u32,
}

impl FileRecord {
    /// Bytes that follow the fixed part.
    pub const fn path_len(&self) -> usize {
        (self.mount_len + self.above_len + self.beneath_len) as usize
    }
}

/// The name no longer exists: unlinked, replaced, or never linked.
pub const DELETED: u32 = 1;
/// With [`DELETED`]: the file has other names, which still exist.
pub const OTHER_LINKS: u32 = 8;
/// The path did not fit or could not be read whole.
pub const PATH_TRUNCATED: u32 = 2;

/// Fixed part of a process record; the components of the executable's path follow as in
/// [`FileRecord`], then `args_len` bytes of arguments (NUL-separated).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessRecord {
    /// [`PROCESS_RECORD`]
    pub kind: u32,
    /// The image's number, as in the membership table.
    pub process: u32,
    /// Session slot.
    pub slot: u32,
    /// Process id in the initial PID namespace.
    pub tgid: u32,
    /// The parent's.
    pub parent_tgid: u32,
    /// Process id in the process's own PID namespace.
    pub ns_pid: u32,
    /// Start time since boot (`task_struct.start_boottime` of the thread that made the call's leader).
    pub start_boottime_ns: u64,
    /// `bpf_get_current_cgroup_id`: the cgroup v2 directory's inode number.
    pub cgroup_id: u64,
    /// `task_struct.comm` of the calling thread.
    pub comm: [u8; 16],
    /// Bytes of arguments.
    pub args_len: u32,
    /// Bytes of components inside the executable's mount; see [`FileRecord`].
    pub mount_len: u32,
    /// Bytes of components above it.
    pub above_len: u32,
    /// [`DELETED`], [`PATH_TRUNCATED`], [`COMPAT_32_BIT`]
    pub flags: u32,
}

/// The image runs 32-bit code, whose system calls the probes can't see.
pub const COMPAT_32_BIT: u32 = 4;

/// Counters of what the kernel side could not keep, one per CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Calls and performed syncs counted without their process and file, for want of room in the
    /// counters.
    pub detail_lost: u64,
    /// Calls not counted at all: not even the overflow record could be updated.
    pub calls_lost: u64,
    /// Calls counted as they were entered, for want of room among those in flight: their time and
    /// their error, if any, are not known.
    pub enters_lost: u64,
    /// First-sight records that found no room in the ring buffer; tried again at the next call.
    pub records_lost: u64,
    /// Processes whose session could not be kept, for want of room in the membership table.
    pub members_lost: u64,
    /// Latencies missing from the histograms.
    pub histogram_lost: u64,
    /// Exits without an enter that no seccomp filter explains: begun before the watching did.
    pub begun_before: u64,
    /// 32-bit programs that sessions ran, whose system calls are not seen.
    pub compat_images: u64,
    /// Performed syncs not counted at all.
    pub performed_lost: u64,
    /// Flushes and FUA writes of devices not counted at all, or missing from their window.
    pub flushes_lost: u64,
}

const _: () = assert!(size_of::<FileRecord>() == 64);
const _: () = assert!(size_of::<ProcessRecord>() == 72);
const _: () = assert!(size_of::<Losses>() == 80);

crate::pod!(FileRecord, ProcessRecord, Losses);
