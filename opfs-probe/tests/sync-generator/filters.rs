//! Seccomp filters that answer sync calls, so that the kernel never runs them.

use std::os::fd::AsRawFd;

use anyhow::{Context as _, Result};
use libc::{c_long, sock_filter, sock_fprog};

use crate::Case;
use crate::process;
use crate::scene::{Scene, Verdict};
use crate::sys::Answer;

pub const CASES: &[Case] = &[
    ("seccomp-errno", "a filter that answers fsync with EPERM after 3 real calls", seccomp_errno),
    ("seccomp-silent", "a filter that answers fsync with success after 3 real calls", seccomp_silent),
    ("seccomp-other", "a filter on fdatasync alone, inherited by a child", seccomp_other),
];

/// The field of `struct seccomp_data` that holds the call's number.
const NUMBER: u32 = 0;

/// Answers one call with an error number (0: success), for this process and its children.
fn answer_with(call: c_long, errno: i32) -> Answer {
    let step = |code: u32, operand: u32, if_equal: u8, otherwise: u8| sock_filter {
        code: code as u16,
        jt: if_equal,
        jf: otherwise,
        k: operand,
    };
    let mut program = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, NUMBER, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32, 0, 1),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32, 0, 0),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let filter = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    process::install_filter(&filter)
}

/// Three real calls, then five answered ones, in a child; what each answered is on the board.
fn filtered_fsync(scene: &mut Scene, errno: i32) -> Result<Verdict> {
    let board = scene.board;
    let (place, fd) = scene.create("file")?;
    let answered = scene.variant(place, |truth| truth.answered_by_seccomp = true);
    process::child(|| {
        for _ in 0..3 {
            board.fsync(place, fd.as_raw_fd())?;
        }
        answer_with(libc::SYS_fsync, errno).context("installing a seccomp filter")?;
        for _ in 0..5 {
            let _ = board.fsync(answered, fd.as_raw_fd());
            board.fdatasync(place, fd.as_raw_fd())?;
        }
        Ok(())
    })?
    .finish()?;
    Ok(Verdict::Done)
}

fn seccomp_errno(scene: &mut Scene) -> Result<Verdict> {
    filtered_fsync(scene, libc::EPERM)
}

fn seccomp_silent(scene: &mut Scene) -> Result<Verdict> {
    filtered_fsync(scene, 0)
}

fn seccomp_other(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let (place, fd) = scene.create("file")?;
    let answered = scene.variant(place, |truth| truth.answered_by_seccomp = true);
    process::child(|| {
        answer_with(libc::SYS_fdatasync, libc::EIO).context("installing a seccomp filter")?;
        let round = || -> Result<()> {
            board.fsync(place, fd.as_raw_fd())?;
            let _ = board.fdatasync(answered, fd.as_raw_fd());
            board.fsync(place, fd.as_raw_fd())?;
            Ok(())
        };
        round()?;
        process::child(round)?.finish()
    })?
    .finish()?;
    Ok(Verdict::Done)
}
