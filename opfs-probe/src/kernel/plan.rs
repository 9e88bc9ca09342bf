//! Which program goes where, and what a report can't see where it does not.

use opfs_probe_common::performed::Filesystem;

/// A layer of what a probe watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// What programs asked for.
    Syscall,
    /// What file systems performed.
    Filesystem,
    /// What programs asked for through `io_uring`.
    Uring,
    /// What devices were given to make durable.
    Block,
    /// Which processes belong to a session.
    Process,
}

impl Layer {
    /// The layer's name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Syscall => "syscall",
            Self::Filesystem => "filesystem",
            Self::Uring => "uring",
            Self::Block => "block",
            Self::Process => "process",
        }
    }
}

/// How a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// A tracepoint of the category `syscalls`, by name.
    Syscall(&'static str),
    /// A tracepoint of the scheduler whose arguments BTF describes, by name.
    Btf(&'static str),
    /// A tracepoint of a file system, by name, without a described layout: modules have theirs, too.
    Raw(Filesystem, &'static str),
    /// A tracepoint of `io_uring`, by the names it has in different kernels, without a described layout.
    Uring(&'static [&'static str]),
    /// A tracepoint of the block layer, by name, without a described layout.
    Block(&'static str),
}

/// A program and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The program's name in the object.
    pub program: &'static str,
    /// Its place.
    pub hook: Hook,
    /// Its layer.
    pub layer: Layer,
    /// Whether every kernel has the hook. Others depend on the architecture, and where one is
    /// missing, so is the system call.
    pub everywhere: bool,
    /// What can't be seen without it.
    pub gap: &'static str,
}

impl Planned {
    /// The probe's name in reports: `category:event`.
    pub fn name(&self) -> String {
        match self.hook {
            Hook::Syscall(event) => format!("syscalls:{event}"),
            Hook::Btf(event) => format!("sched:{event}"),
            Hook::Raw(filesystem, event) => format!("{}:{event}", filesystem.name()),
            Hook::Uring(names) => format!("io_uring:{}", names[0]),
            Hook::Block(event) => format!("block:{event}"),
        }
    }
}

/// Everything to attach.
pub const PLAN: [Planned; 30] = [
    syscall("enter_fsync", "sys_enter_fsync", true, "fsync is not seen"),
    syscall("exit_fsync", "sys_exit_fsync", true, "fsync is not seen"),
    syscall("enter_fdatasync", "sys_enter_fdatasync", true, "fdatasync is not seen"),
    syscall("exit_fdatasync", "sys_exit_fdatasync", true, "fdatasync is not seen"),
    syscall("enter_sync", "sys_enter_sync", true, "sync is not seen"),
    syscall("exit_sync", "sys_exit_sync", true, "sync is not seen"),
    syscall("enter_syncfs", "sys_enter_syncfs", true, "syncfs is not seen"),
    syscall("exit_syncfs", "sys_exit_syncfs", true, "syncfs is not seen"),
    syscall("enter_sync_file_range", SYNC_FILE_RANGE.0, true, "sync_file_range is not seen"),
    syscall("exit_sync_file_range", SYNC_FILE_RANGE.1, true, "sync_file_range is not seen"),
    syscall("enter_msync", "sys_enter_msync", true, "msync is not seen"),
    syscall("exit_msync", "sys_exit_msync", true, "msync is not seen"),
    syscall("exit_openat", "sys_exit_openat", true, "openat is not counted"),
    syscall("exit_openat2", "sys_exit_openat2", true, "openat2 is not counted"),
    syscall("exit_open", "sys_exit_open", false, "open is not counted"),
    syscall("exit_creat", "sys_exit_creat", false, "creat is not counted"),
    process("process_fork", "sched_process_fork"),
    process("process_exec", "sched_process_exec"),
    process("process_exit", "sched_process_exit"),
    performed("performed_ext4", Filesystem::Ext4, "ext4_sync_file_enter"),
    performed("performed_btrfs", Filesystem::Btrfs, "btrfs_sync_file"),
    performed("performed_xfs", Filesystem::Xfs, "xfs_file_fsync"),
    performed("performed_xfs_dir", Filesystem::Xfs, "xfs_dir_fsync"),
    performed("performed_f2fs", Filesystem::F2fs, "f2fs_sync_file_enter"),
    // Linux 6.3 renamed the first.
    uring("uring_submitted", &["io_uring_submit_req", "io_uring_submit_sqe"]),
    uring("uring_completed", &["io_uring_complete"]),
    uring("uring_overflowed", &["io_uring_cqe_overflow"]),
    uring("uring_refused", &["io_uring_req_failed"]),
    block("flush_issued", "block_rq_issue"),
    block("flush_completed", "block_rq_complete"),
];

/// The programs of the tail-call arrays, by their index in them: a program goes on only in one of its own
/// type.
pub const DESCRIBING: [&str; 2] = ["describe_process", "describe_file"];
/// Those of calls of which one end was seen.
pub const UNMATCHED: [&str; 2] = ["unmatched_enter", "unmatched_exit"];
/// Those of raw tracepoints.
pub const DESCRIBING_RAW: [&str; 2] = ["describe_process_raw", "describe_file_raw"];

/// The call is named `sync_file_range2` where 64-bit arguments must be aligned.
const SYNC_FILE_RANGE: (&str, &str) = if cfg!(any(target_arch = "arm", target_arch = "powerpc64")) {
    ("sys_enter_sync_file_range2", "sys_exit_sync_file_range2")
} else {
    ("sys_enter_sync_file_range", "sys_exit_sync_file_range")
};

const fn syscall(program: &'static str, event: &'static str, everywhere: bool, gap: &'static str) -> Planned {
    Planned { program, hook: Hook::Syscall(event), layer: Layer::Syscall, everywhere, gap }
}

const fn process(program: &'static str, event: &'static str) -> Planned {
    let gap = "processes can't be followed from fork to exit";
    Planned { program, hook: Hook::Btf(event), layer: Layer::Process, everywhere: true, gap }
}

/// What can't be seen without it depends on the others, too: see [`super::performed::gaps`].
const fn performed(program: &'static str, filesystem: Filesystem, event: &'static str) -> Planned {
    let hook = Hook::Raw(filesystem, event);
    Planned { program, hook, layer: Layer::Filesystem, everywhere: false, gap: "" }
}

const fn uring(program: &'static str, names: &'static [&'static str]) -> Planned {
    let hook = Hook::Uring(names);
    let gap = "syncs through io_uring are not seen";
    Planned { program, hook, layer: Layer::Uring, everywhere: true, gap }
}

const fn block(program: &'static str, event: &'static str) -> Planned {
    let gap = "cache flushes and forced-unit-access writes that devices got are not measured";
    Planned { program, hook: Hook::Block(event), layer: Layer::Block, everywhere: true, gap }
}
