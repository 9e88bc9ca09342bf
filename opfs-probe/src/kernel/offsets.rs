//! The running kernel's layout of what the programs read.

use opfs_probe_common::offsets::Offsets;

use super::btf::{Btf, BtfError};

/// Looks every offset up. Registers are those of the architecture this program was built for.
pub fn find(btf: &Btf) -> Result<Offsets, BtfError> {
    let at = |structure: &str, path: &str| btf.offset(structure, path);
    let register = |index: usize| at("pt_regs", ARGUMENT_REGISTERS[index]);
    Ok(Offsets {
        task_files: at("task_struct", "files")?,
        task_group_leader: at("task_struct", "group_leader")?,
        task_tgid: at("task_struct", "tgid")?,
        // Linux 5.5 renamed `real_start_time`; nothing older can load the programs.
        task_start_boottime: at("task_struct", "start_boottime")?,
        task_real_parent: at("task_struct", "real_parent")?,
        task_mm: at("task_struct", "mm")?,
        task_signal: at("task_struct", "signal")?,
        task_thread_pid: at("task_struct", "thread_pid")?,
        task_comm: at("task_struct", "comm")?,
        task_seccomp_mode: at("task_struct", "seccomp.mode")?,
        task_pending_signals: at("task_struct", "pending.signal.sig")?,
        signal_live: at("signal_struct", "live.counter")?,
        pid_level: at("pid", "level")?,
        pid_numbers: at("pid", "numbers")?,
        upid_size: btf.size("upid")?,
        upid_nr: at("upid", "nr")?,
        mm_exe_file: at("mm_struct", "exe_file")?,
        mm_task_size: at("mm_struct", "task_size")?,
        mm_arg_start: at("mm_struct", "arg_start")?,
        mm_arg_end: at("mm_struct", "arg_end")?,
        vma_file: at("vm_area_struct", "vm_file")?,
        files_fdt: at("files_struct", "fdt")?,
        fdt_max_fds: at("fdtable", "max_fds")?,
        fdt_fd: at("fdtable", "fd")?,
        file_inode: at("file", "f_inode")?,
        file_path_mnt: at("file", "f_path.mnt")?,
        inode_mode: at("inode", "i_mode")?,
        inode_sb: at("inode", "i_sb")?,
        inode_ino: at("inode", "i_ino")?,
        inode_nlink: at("inode", "i_nlink")?,
        inode_generation: at("inode", "i_generation")?,
        sb_dev: at("super_block", "s_dev")?,
        sb_magic: at("super_block", "s_magic")?,
        dentry_parent: at("dentry", "d_parent")?,
        dentry_name_hash_len: at("dentry", "d_name.hash_len")?,
        dentry_name_name: at("dentry", "d_name.name")?,
        dentry_hash_pprev: at("dentry", "d_hash.pprev")?,
        mount_mnt: at("mount", "mnt")?,
        mount_parent: at("mount", "mnt_parent")?,
        mount_mountpoint: at("mount", "mnt_mountpoint")?,
        mount_ns: at("mount", "mnt_ns")?,
        vfsmount_root: at("vfsmount", "mnt_root")?,
        mnt_namespace_inum: at("mnt_namespace", "ns.inum")?,
        pt_regs_di: register(0)?,
        pt_regs_si: register(1)?,
        pt_regs_dx: register(2)?,
    })
}

/// Members of `struct pt_regs` with the first three arguments of a system call, as they still are
/// when it returns.
#[cfg(target_arch = "x86_64")]
const ARGUMENT_REGISTERS: [&str; 3] = ["di", "si", "dx"];
