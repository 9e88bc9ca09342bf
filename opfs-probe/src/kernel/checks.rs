//! What this kernel allows this process, each answered by doing it, with the smallest program there is.

use std::fs;
use std::io;
use std::path::Path;

use nix::errno::Errno;
use nix::libc;

use super::bpf::{TinyProgram, create_map};
use super::btf::{Btf, Kind};
use super::offsets;
use super::privileges::{in_user_namespace, missing};
use super::tracefs;
use super::types::KERNEL_BTF;

/// An answer to "can this kernel do that?"
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It can; with a remark, where there is one to make.
    Yes(Option<String>),
    /// It can't, and why.
    No(String),
    /// This process may not ask, and why.
    Unknown(String),
}

impl Answer {
    /// Whether it surely can.
    pub fn is_yes(&self) -> bool {
        matches!(self, Self::Yes(_))
    }
}

/// The answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checks {
    /// The kernel describes its own types, and has those that the probes read.
    pub btf: Answer,
    /// The kernel's list of tracepoints can be read.
    pub tracefs: Answer,
    /// Programs on tracepoints.
    pub tracepoint: Answer,
    /// Programs on tracepoints, with bare arguments.
    pub raw_tracepoint: Answer,
    /// Programs on tracepoints, with arguments that BTF describes.
    pub btf_tracepoint: Answer,
    /// Programs on almost any kernel function, through a breakpoint.
    pub kprobe: Answer,
    /// Programs on almost any kernel function, through its entry.
    pub fentry: Answer,
    /// Programs on security hooks.
    pub lsm: Answer,
    /// Buffers from the kernel to us, shared by all CPUs.
    pub ring_buffer: Answer,
}

// enum bpf_prog_type, enum bpf_attach_type and enum bpf_map_type of include/uapi/linux/bpf.h.
const KPROBE: u32 = 2;
const TRACEPOINT: u32 = 5;
const RAW_TRACEPOINT: u32 = 17;
const TRACING: u32 = 26;
const LSM: u32 = 29;
const TRACE_RAW_TP: u32 = 23;
const TRACE_FENTRY: u32 = 24;
const LSM_MAC: u32 = 27;
const RINGBUF: u32 = 27;

/// An error code of the kernel's own that gets out all the same (include/linux/errno.h).
const ENOTSUPP: i32 = 524;

/// Where the kernel lists the kinds of events that programs can be attached to, kprobes among them.
const KPROBE_EVENTS: &str = "/sys/bus/event_source/devices/kprobe/type";

impl Checks {
    /// Asks the kernel everything. Takes some milliseconds, and leaves nothing behind.
    pub fn run() -> Self {
        let btf = read_btf();
        let plain = |program_type| answer(TinyProgram { program_type, ..TinyProgram::default() }.load());
        let typed = |program_type, attach_type, kind, name| {
            let program = |attach_btf_id| TinyProgram {
                program_type,
                attach_type,
                attach_btf_id,
                ..TinyProgram::default()
            };
            match btf.as_ref().map(|btf| btf.type_id(kind, name)) {
                Ok(Ok(id)) => answer(program(id).load()),
                Ok(Err(error)) => Answer::No(error.to_string()),
                Err(why) => Answer::No(why.clone()),
            }
        };
        Self {
            tracefs: tracefs_answer(),
            tracepoint: plain(TRACEPOINT),
            raw_tracepoint: plain(RAW_TRACEPOINT),
            btf_tracepoint: typed(TRACING, TRACE_RAW_TP, Kind::Typedef, "btf_trace_sched_process_fork"),
            kprobe: if Path::new(KPROBE_EVENTS).exists() { plain(KPROBE) } else { no_kprobes() },
            fentry: typed(TRACING, TRACE_FENTRY, Kind::Function, "vfs_fsync_range"),
            lsm: typed(LSM, LSM_MAC, Kind::Function, "bpf_lsm_file_open"),
            ring_buffer: answer(create_map(RINGBUF, page_size())),
            btf: btf_answer(&btf),
        }
    }
}

fn read_btf() -> Result<Btf, String> {
    let data = fs::read(KERNEL_BTF).map_err(|error| {
        format!("{KERNEL_BTF}: {error}; the kernel must be built with CONFIG_DEBUG_INFO_BTF")
    })?;
    Btf::parse(data).map_err(|error| format!("{KERNEL_BTF}: {error}"))
}

fn btf_answer(btf: &Result<Btf, String>) -> Answer {
    match btf.as_ref().map(offsets::find) {
        Ok(Ok(_)) => Answer::Yes(Some(KERNEL_BTF.to_owned())),
        Ok(Err(error)) => Answer::No(error.to_string()),
        Err(why) => Answer::No(why.clone()),
    }
}

fn tracefs_answer() -> Answer {
    if let Some(place) = tracefs::events() {
        return Answer::Yes(Some(place.display().to_string()));
    }
    match tracefs::with_tracefs(|| Ok(tracefs::events().is_some())) {
        Ok(true) => {
            Answer::Yes(Some("not mounted: the probe mounts it for itself, unseen by others".to_owned()))
        }
        Ok(false) => {
            Answer::No("it can be mounted, but lists no system calls (CONFIG_FTRACE_SYSCALLS)".to_owned())
        }
        Err(error) => {
            let why = format!("not mounted, or not readable by this user: {}", error.root_cause());
            if missing().is_empty() { Answer::No(why) } else { Answer::Unknown(why) }
        }
    }
}

fn no_kprobes() -> Answer {
    Answer::No(format!("not configured: there is no {KPROBE_EVENTS} (CONFIG_KPROBE_EVENTS)"))
}

/// What an attempt says of the kernel, and what only of our rights.
fn answer<T>(outcome: io::Result<T>) -> Answer {
    let Err(error) = outcome else { return Answer::Yes(None) };
    let missing = missing();
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) if !missing.is_empty() => {
            Answer::Unknown(format!("this process lacks {}", missing.join(" and ")))
        }
        Some(libc::EPERM | libc::EACCES) if in_user_namespace() => {
            Answer::Unknown("refused at load: capabilities in a user namespace don't count".to_owned())
        }
        Some(code @ (libc::EPERM | libc::EACCES)) => Answer::No(format!(
            "refused at load ({:?}) although the capabilities are there: this kernel, or what confines this \
             system, forbids it",
            Errno::from_raw(code)
        )),
        Some(libc::EINVAL | libc::EOPNOTSUPP | ENOTSUPP) => {
            Answer::No(format!("refused at load ({error}): this kernel is too old, or built without it"))
        }
        _ => Answer::No(format!("refused at load: {error}")),
    }
}

/// A ring buffer is at least a page.
fn page_size() -> u32 {
    nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)
        .ok()
        .flatten()
        .and_then(|size| u32::try_from(size).ok())
        .unwrap_or(4096)
}
