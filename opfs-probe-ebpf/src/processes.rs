//! Keeps session membership exact from fork to exit, also for processes that live a millisecond.

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::btf_tracepoint;
use aya_ebpf::programs::BtfTracePointContext;
use opfs_probe_common::membership::{RECORDED, SPAWNING};

use crate::kernel::{Typed, is_32_bit, offset};
use crate::maps::{MEMBERS, lose};
use crate::membership::{join, next_image, session};

/// `sched_process_fork(parent, child)`: a child belongs where its parent does.
#[btf_tracepoint(function = "sched_process_fork")]
pub fn process_fork(ctx: BtfTracePointContext) -> i32 {
    // SAFETY: the tracepoint's second argument is the child's `struct task_struct *`.
    let child = unsafe { Typed::new(ctx.arg::<*const core::ffi::c_void>(1)) };
    let parent_tgid = current_tgid();
    let child_tgid: u32 = child.load(offset!(task_tgid));
    if child_tgid == parent_tgid {
        return 0;
    }
    let Some(parent) = MEMBERS.get_ptr(parent_tgid) else {
        // A process that ended just before user space bound it left an entry; the number is another's now.
        let _ = MEMBERS.remove(child_tgid);
        return 0;
    };
    // SAFETY: a valid map value.
    let (slot, flags) = unsafe { ((*parent).slot, (*parent).flags) };
    join(child_tgid, slot);
    if flags & SPAWNING != 0
        && let Some(session) = session(slot)
    {
        // SAFETY: a valid map value; user space spawns one root at a time.
        unsafe {
            if (*session).root_tgid == 0 {
                (*session).root_tgid = child_tgid;
            }
        }
    }
    0
}

/// `sched_process_exec(task, old_pid, bprm)`: another program runs in the process from here on.
#[btf_tracepoint(function = "sched_process_exec")]
pub fn process_exec(_ctx: BtfTracePointContext) -> i32 {
    if let Some(member) = MEMBERS.get_ptr_mut(current_tgid()) {
        // SAFETY: a valid map value; the process has but this thread left.
        unsafe {
            (*member).process = next_image();
            (*member).flags &= !RECORDED;
        }
        if is_32_bit(Typed::current_task().follow(offset!(task_mm))) {
            lose(|losses| &mut losses.compat_images);
        }
    }
    0
}

/// `sched_process_exit(task)`, once a thread: the process ends with its last one.
#[btf_tracepoint(function = "sched_process_exit")]
pub fn process_exit(_ctx: BtfTracePointContext) -> i32 {
    // `do_exit()` counts `signal->live` down before this tracepoint. Two last threads may both see
    // zero: deleting twice does no harm.
    let live: i32 = Typed::current_task().follow(offset!(task_signal)).load(offset!(signal_live));
    if live == 0 {
        let _ = MEMBERS.remove(current_tgid());
    }
    0
}

#[inline(always)]
fn current_tgid() -> u32 {
    (bpf_get_current_pid_tgid() >> 32) as u32
}
