//! Where the running kernel keeps what the programs read: byte offsets from its BTF.

use core::mem::size_of;

/// A member of a file system that is not there, or not described.
pub const UNKNOWN: u32 = u32::MAX;

/// Byte offsets of members of kernel structures, filled in before the programs are loaded.
///
/// The verifier checks those used in typed loads: one that hits no member is refused.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each field is named after the kernel structure and member it locates")]
pub struct Offsets {
    pub task_files: u32,
    pub task_flags: u32,
    pub task_group_leader: u32,
    pub task_tgid: u32,
    pub task_start_boottime: u32,
    pub task_real_parent: u32,
    pub task_mm: u32,
    pub task_signal: u32,
    pub task_thread_pid: u32,
    pub task_comm: u32,
    pub task_seccomp_mode: u32,
    pub task_pending_signals: u32,
    pub signal_live: u32,
    pub pid_level: u32,
    pub pid_numbers: u32,
    /// Size of `struct upid`.
    pub upid_size: u32,
    pub upid_nr: u32,
    pub mm_exe_file: u32,
    pub mm_task_size: u32,
    pub mm_arg_start: u32,
    pub mm_arg_end: u32,
    pub vma_file: u32,
    pub files_fdt: u32,
    pub fdt_max_fds: u32,
    pub fdt_fd: u32,
    pub file_inode: u32,
    pub file_path_mnt: u32,
    pub inode_mode: u32,
    pub inode_sb: u32,
    pub inode_ino: u32,
    pub inode_nlink: u32,
    pub inode_generation: u32,
    /// `inode.i_dentry.first`: a `dentry.d_alias` of one of its names.
    pub inode_dentries: u32,
    pub sb_dev: u32,
    pub sb_magic: u32,
    pub dentry_parent: u32,
    pub dentry_name_hash_len: u32,
    pub dentry_name_name: u32,
    pub dentry_hash_pprev: u32,
    pub dentry_alias: u32,
    /// `mount.mnt`: from a `struct vfsmount *` back to its `struct mount`.
    pub mount_mnt: u32,
    pub mount_parent: u32,
    pub mount_mountpoint: u32,
    pub mount_ns: u32,
    pub vfsmount_root: u32,
    pub mnt_namespace_inum: u32,
    pub pt_regs_di: u32,
    pub pt_regs_si: u32,
    pub pt_regs_dx: u32,
    pub request_queue: u32,
    pub request_cmd_flags: u32,
    pub request_data_len: u32,
    pub queue_disk: u32,
    pub disk_major: u32,
    pub disk_first_minor: u32,
    /// `io_kiocb.opcode`; of these and the next six, [`UNKNOWN`] where there is no `io_uring`, or an older one.
    pub uring_opcode: u32,
    /// `io_kiocb.flags`
    pub uring_flags: u32,
    /// `io_kiocb.file`
    pub uring_file: u32,
    /// `io_kiocb.cqe.fd`: the descriptor that the request was submitted with.
    pub uring_fd: u32,
    /// `io_kiocb.ctx`
    pub uring_ring: u32,
    /// `io_kiocb.cqe.user_data`
    pub uring_user_data: u32,
    /// `io_kiocb.cqe.res`
    pub uring_result: u32,
    /// The VFS inode in a `struct xfs_inode`, or [`UNKNOWN`].
    pub xfs_inode_vnode: u32,
}

const _: () = assert!(size_of::<Offsets>() == 63 * 4);

crate::pod!(Offsets);
