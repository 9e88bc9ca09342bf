//! Calls through the 32-bit entry, which a 64-bit process can use, too.

use anyhow::Result;

use crate::Case;
use crate::scene::{Scene, Verdict};

pub const CASES: &[Case] =
    &[("compat-calls", "int 0x80: each op by its 32-bit number (calls32)", compat_calls)];

#[cfg(target_arch = "x86_64")]
fn compat_calls(scene: &mut Scene) -> Result<Verdict> {
    use std::os::fd::{AsRawFd, RawFd};

    use crate::line::Op;
    use crate::process;
    use entry::int80;

    // Without the 32-bit entry the kernel answers int 0x80 with a signal.
    let able =
        process::child(|| int80(entry::GETPID, [0; 5]).map_or_else(|why| Err(why.into()), |_| Ok(())))?
            .wait()?
            == 0;
    if !able {
        return Ok(Verdict::Skipped("this kernel has no 32-bit entry".to_owned()));
    }
    let board = scene.board;
    let (place, fd) = scene.create("file")?;
    let nowhere = scene.nowhere();
    let fd: RawFd = fd.as_raw_fd();
    let number = fd as u32;
    let call =
        |op, number, arguments| board.compat(op, place, Some(fd), || int80(number, arguments).map(drop));
    for _ in 0..4 {
        call(Op::Fsync, entry::FSYNC, [number, 0, 0, 0, 0])?;
    }
    for _ in 0..2 {
        call(Op::Fdatasync, entry::FDATASYNC, [number, 0, 0, 0, 0])?;
    }
    call(Op::Syncfs, entry::SYNCFS, [number, 0, 0, 0, 0])?;
    // Offset and length are two registers each; the flags, in a sixth, happen to be 0.
    call(Op::SyncFileRange, entry::SYNC_FILE_RANGE, [number, 0, 0, 0, 0])?;
    board.compat(Op::Sync, nowhere, None, || int80(entry::SYNC, [0; 5]).map(drop))?;
    let _ = board.compat(Op::Fsync, nowhere, None, || int80(entry::FSYNC, [u32::MAX, 0, 0, 0, 0]).map(drop));
    // Ordinary calls between them, for the difference to show.
    board.fsync(place, fd)?;
    board.fsync(place, fd)?;
    Ok(Verdict::Done)
}

#[cfg(not(target_arch = "x86_64"))]
fn compat_calls(_: &mut Scene) -> Result<Verdict> {
    Ok(Verdict::Skipped("only x86-64 has int 0x80".to_owned()))
}

#[cfg(target_arch = "x86_64")]
mod entry {
    use crate::sys::{Answer, Errno};

    // From the kernel's arch/x86/entry/syscalls/syscall_32.tbl.
    pub const GETPID: u32 = 20;
    pub const SYNC: u32 = 36;
    pub const FSYNC: u32 = 118;
    pub const FDATASYNC: u32 = 148;
    pub const SYNC_FILE_RANGE: u32 = 314;
    pub const SYNCFS: u32 = 344;

    /// A call whose five arguments are numbers; the sixth, in `ebp`, is 0.
    pub fn int80(number: u32, arguments: [u32; 5]) -> Answer<i32> {
        let result: i32;
        // SAFETY: the numbers above take no pointers. The kernel keeps all registers but rax and, as
        // int 0x80 may clear them, r8 to r11. rbx and rbp, which the compiler keeps for itself, are put back.
        unsafe {
            std::arch::asm!(
                "push rbp",
                "push rbx",
                "mov ebx, {first:e}",
                "xor ebp, ebp",
                "int 0x80",
                "pop rbx",
                "pop rbp",
                first = in(reg) arguments[0],
                inlateout("eax") number => result,
                in("ecx") arguments[1],
                in("edx") arguments[2],
                in("esi") arguments[3],
                in("edi") arguments[4],
                out("r8") _,
                out("r9") _,
                out("r10") _,
                out("r11") _,
            );
        }
        if result < 0 { Err(Errno(-result)) } else { Ok(result) }
    }
}
