//! Processes that are made, and end, in all manner of ways.

use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Result, ensure};

use crate::Case;
use crate::operations::ensure_errno;
use crate::process::{self, Child};
use crate::scene::{self, Scene, Verdict};
use crate::sys::{self, Errno};

pub const CASES: &[Case] = &[
    ("short-lived", "200 children that make 1 to 3 calls and end at once", short_lived),
    ("storm", "2000 children of 8 processes at once, each of one call", storm),
    ("inherited", "a descriptor of the parent, synced by a child and a grandchild", inherited),
    ("passed", "a descriptor passed by SCM_RIGHTS; its opener never syncs and is gone", passed),
    ("daemon", "a grandchild that outlives its parent", daemon),
    ("clone-parent", "a child made with CLONE_PARENT, so that its maker is its sibling", clone_parent),
    (
        "shared-table",
        "two processes with one descriptor table, one closing what the other syncs",
        shared_table,
    ),
    ("odd-comm", "process names with odd characters, and an empty one", odd_comm),
];

fn short_lived(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let paths: Vec<_> = (0..10).map(|number| scene.path(format!("file-{number}"))).collect();
    let places: Vec<_> = paths.iter().map(|path| scene.file(path)).collect();
    for batch in 0..20 {
        let start = |number: usize| {
            process::child(|| {
                let fd = scene::create(board, &paths[number])?;
                for _ in 0..=(batch + number) % 3 {
                    board.fsync(places[number], fd.as_raw_fd())?;
                }
                Ok(())
            })
        };
        let children: Vec<Child> = (0..10).map(start).collect::<Result<_>>()?;
        children.into_iter().try_for_each(Child::finish)?;
    }
    Ok(Verdict::Done)
}

fn storm(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let (place, fd) = scene.create("file")?;
    let one_call = || process::child(|| Ok(board.fsync(place, fd.as_raw_fd())?))?.finish();
    let makers: Vec<Child> =
        (0..8).map(|_| process::child(|| (0..250).try_for_each(|_| one_call()))).collect::<Result<_>>()?;
    makers.into_iter().try_for_each(Child::finish)?;
    Ok(Verdict::Done)
}

fn inherited(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let (place, fd) = scene.create("file")?;
    let sync = || board.fsync(place, fd.as_raw_fd());
    let child = process::child(|| {
        sync()?;
        sync()?;
        process::child(|| Ok(board.fdatasync(place, fd.as_raw_fd())?))?.finish()
    })?;
    sync()?;
    child.finish()?;
    Ok(Verdict::Done)
}

fn passed(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let path = scene.path("file");
    let place = scene.file(&path);
    let (near, far) = sys::socket_pair()?;
    let opener = process::child(|| {
        let fd = scene::create(board, &path)?;
        process::send_descriptor(&near, &fd)?;
        Ok(())
    })?;
    // The message lies in the socket: by now nobody has the file open.
    opener.finish()?;
    let receiver = process::child(|| {
        let fd = process::receive_descriptor(&far)?;
        for _ in 0..4 {
            board.fdatasync(place, fd.as_raw_fd())?;
        }
        Ok(())
    })?;
    receiver.finish()?;
    Ok(Verdict::Done)
}

/// Waits until every writing end of the pipe is closed: all who held one have ended.
fn until_closed(reader: &OwnedFd) -> Result<()> {
    while sys::read(reader, &mut [0; 1])? != 0 {}
    Ok(())
}

fn daemon(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let (place, fd) = scene.create("file")?;
    let (reader, writer) = sys::pipe()?;
    let (go, start) = sys::pipe()?;
    process::become_subreaper(true)?;
    let parent = process::child(|| {
        // SAFETY: starts a session; no arguments.
        unsafe { libc::setsid() };
        let daemon = process::child(|| {
            sys::read(&go, &mut [0; 1])?;
            for _ in 0..3 {
                board.fsync(place, fd.as_raw_fd())?;
            }
            sys::write_all(&writer, b"x")?;
            Ok(())
        })?;
        // The daemon is left to whoever adopts it.
        let Child(_) = daemon;
        Ok(())
    })?;
    parent.finish()?;
    drop(writer);
    sys::write_all(&start, b"x")?;
    until_closed(&reader)?;
    // SAFETY: waits for any child: the daemon, which is ours now.
    let adopted = unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) };
    ensure!(adopted > 0, "the daemon was not adopted");
    process::become_subreaper(false)?;
    Ok(Verdict::Done)
}

fn clone_parent(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let (place, fd) = scene.create("file")?;
    let maker = process::child(|| {
        let Child(_) = process::child_with(libc::CLONE_PARENT, || {
            for _ in 0..3 {
                board.fsync(place, fd.as_raw_fd())?;
            }
            Ok(())
        })?;
        Ok(board.fdatasync(place, fd.as_raw_fd())?)
    })?;
    maker.finish()?;
    let mut status = 0;
    // SAFETY: waits for any child: the maker's sibling; the kernel writes one number.
    let sibling = unsafe { libc::waitpid(-1, &raw mut status, 0) };
    ensure!(sibling > 0 && status == 0, "the sibling ended with {status}");
    Ok(Verdict::Done)
}

fn shared_table(scene: &mut Scene) -> Result<Verdict> {
    const ROUNDS: usize = 300;
    let board = scene.board;
    let (place, spare) = scene.create("file")?;
    // Between a tracer's look at the table and the kernel's own, the descriptor may come or go.
    let raced = scene.variant(place, |truth| truth.path_uncertain = true);
    let shared = sys::duplicate_from(spare.as_raw_fd(), 100)?;
    let number = shared.as_raw_fd();
    std::mem::forget(shared);
    let (reader, writer) = sys::pipe()?;
    let child = process::child_with(libc::CLONE_FILES, || {
        for _ in 0..ROUNDS {
            match board.fsync(raced, number) {
                Ok(()) | Err(Errno(libc::EBADF)) => {}
                Err(other) => return Err(other.into()),
            }
        }
        sys::write_all(&writer, b"x")?;
        Ok(())
    })?;
    // The only file that this number ever leads to is this one.
    while board.returned() < ROUNDS {
        sys::close(number)?;
        std::thread::yield_now();
        sys::duplicate_to(spare.as_raw_fd(), number)?;
        sys::pause();
    }
    sys::read(&reader, &mut [0; 1])?;
    child.finish()?;

    // Without a race: what one closes is closed for the other.
    sys::close(number)?;
    let nowhere = scene.nowhere();
    process::child_with(libc::CLONE_FILES, || {
        ensure_errno(board.fsync(nowhere, number), libc::EBADF)?;
        sys::duplicate_to(spare.as_raw_fd(), number)?;
        Ok(())
    })?
    .finish()?;
    board.fsync(place, number)?;
    sys::close(number)?;
    Ok(Verdict::Done)
}

fn odd_comm(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let (place, fd) = scene.create("file")?;
    let names = [
        c"a b\tc",
        c"new\nline",
        c"quo\"te\\'",
        c") R 1 (",
        c"-rf {}$(x)`",
        c"\xc3\xa9\xe2\x82\xac",
        c"bad\xff\xfe",
        c"",
    ];
    for name in names {
        process::child(|| {
            process::set_comm(name)?;
            board.fsync(place, fd.as_raw_fd())?;
            board.fsync(place, fd.as_raw_fd())?;
            Ok(())
        })?
        .finish()?;
    }
    Ok(Verdict::Done)
}
