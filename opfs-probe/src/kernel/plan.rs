//! Which program goes where, and what a report can't see where it does not.

/// A layer of what a probe watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// What programs asked for.
    Syscall,
    /// Which processes belong to a session.
    Process,
}

impl Layer {
    /// The layer's name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Syscall => "syscall",
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
        }
    }
}

/// Everything to attach.
pub const PLAN: [Planned; 19] = [
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
];

/// The programs of the tail-call array, by their index in it.
pub const DESCRIBING: [&str; 2] = ["describe_process", "describe_file"];

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
