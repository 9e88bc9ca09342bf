//! The running kernel's layout of what the programs read.

use opfs_probe_common::offsets::{Offsets, UNKNOWN};

use super::btf::{BtfError, Layout};

/// Looks every offset up. Registers are those of the architecture this program was built for.
pub fn find(layout: &impl Layout) -> Result<Offsets, BtfError> {
    let at = |structure: &str, path: &str| layout.offset(structure, path);
    let register = |index: usize| at("pt_regs", ARGUMENT_REGISTERS[index]);
    Ok(Offsets {
        task_files: at("task_struct", "files")?,
        task_flags: at("task_struct", "flags")?,
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
        upid_size: layout.size("upid")?,
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
        inode_dentries: at("inode", "i_dentry.first")?,
        sb_dev: at("super_block", "s_dev")?,
        sb_magic: at("super_block", "s_magic")?,
        dentry_parent: at("dentry", "d_parent")?,
        dentry_name_hash_len: at("dentry", "d_name.hash_len")?,
        dentry_name_name: at("dentry", "d_name.name")?,
        dentry_hash_pprev: at("dentry", "d_hash.pprev")?,
        // The union around it may have a name or none.
        dentry_alias: at("dentry", "d_u.d_alias").or_else(|_| at("dentry", "d_alias"))?,
        mount_mnt: at("mount", "mnt")?,
        mount_parent: at("mount", "mnt_parent")?,
        mount_mountpoint: at("mount", "mnt_mountpoint")?,
        mount_ns: at("mount", "mnt_ns")?,
        vfsmount_root: at("vfsmount", "mnt_root")?,
        mnt_namespace_inum: at("mnt_namespace", "ns.inum")?,
        pt_regs_di: register(0)?,
        pt_regs_si: register(1)?,
        pt_regs_dx: register(2)?,
        request_queue: at("request", "q")?,
        request_cmd_flags: at("request", "cmd_flags")?,
        request_data_len: at("request", "__data_len")?,
        queue_disk: at("request_queue", "disk")?,
        disk_major: at("gendisk", "major")?,
        disk_first_minor: at("gendisk", "first_minor")?,
        uring_opcode: at("io_kiocb", "opcode").unwrap_or(UNKNOWN),
        uring_flags: at("io_kiocb", "flags").unwrap_or(UNKNOWN),
        uring_file: at("io_kiocb", "file").unwrap_or(UNKNOWN),
        // Linux 5.19 made it part of `struct io_cqe`.
        uring_fd: at("io_kiocb", "cqe.fd").unwrap_or(UNKNOWN),
        uring_ring: at("io_kiocb", "ctx").unwrap_or(UNKNOWN),
        uring_user_data: at("io_kiocb", "cqe.user_data").unwrap_or(UNKNOWN),
        uring_result: at("io_kiocb", "cqe.res").unwrap_or(UNKNOWN),
        xfs_inode_vnode: at("xfs_inode", "i_vnode").unwrap_or(UNKNOWN),
    })
}

/// Members of `struct pt_regs` with the first three arguments of a system call, as they still are
/// when it returns.
#[cfg(target_arch = "x86_64")]
const ARGUMENT_REGISTERS: [&str; 3] = ["di", "si", "dx"];

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::path::PathBuf;
    use std::{env, fs};

    use super::super::btf::{Btf, cut};
    use super::*;

    /// What these kernels say, cut to what was asked: `cargo xtask test-kernels --update-fixtures`, run
    /// under 6.18 for the last. The numbers are right if the verifier took them there.
    #[test]
    fn each_kernel_has_its_own_offsets() {
        let fixtures: [(&str, &[u8]); 3] = [
            ("6.1", include_bytes!("fixtures/6.1.btf")),
            ("6.12", include_bytes!("fixtures/6.12.btf")),
            ("6.18", include_bytes!("fixtures/6.18.btf")),
        ];
        for (series, fixture) in fixtures {
            let found = find(&Btf::parse(fixture.to_vec()).expect("the fixture is BTF"));
            insta::assert_debug_snapshot!(series, found.expect("the fixture was cut for these offsets"));
        }
    }

    /// Notes what is asked of a layout.
    struct Noting<'a> {
        btf: &'a Btf,
        asked: RefCell<Vec<(String, String)>>,
    }

    impl Noting<'_> {
        fn note(&self, structure: &str, path: &str) {
            self.asked.borrow_mut().push((structure.to_owned(), path.to_owned()));
        }
    }

    impl Layout for Noting<'_> {
        fn offset(&self, structure: &str, path: &str) -> Result<u32, BtfError> {
            self.note(structure, path);
            self.btf.offset(structure, path)
        }

        fn size(&self, structure: &str) -> Result<u32, BtfError> {
            self.note(structure, "");
            self.btf.size(structure)
        }
    }

    #[test]
    #[ignore = "makes a fixture FIXTURE of a kernel's whole BTF: `cargo xtask test-kernels --update-fixtures`"]
    fn cut_fixture() {
        let path = |name| env::var_os(name).map(PathBuf::from).expect(name);
        let whole = Btf::parse(fs::read(path("BTF")).expect("BTF is a file")).expect("BTF is BTF");
        let noting = Noting { btf: &whole, asked: RefCell::default() };
        let found = find(&noting).expect("this kernel has all that is asked");
        let fixture = cut::cut(&whole, &noting.asked.into_inner());
        assert_eq!(find(&Btf::parse(fixture.clone()).expect("what was cut is BTF")), Ok(found));
        fs::write(path("FIXTURE"), fixture).expect("FIXTURE can be written");
    }
}
