//! Every op, with the arguments it takes and the errors it gives.

use std::os::fd::{AsRawFd, RawFd};

use anyhow::{Context as _, Result, ensure};

use crate::Case;
use crate::scene::{self, PlaceTruth, Scene, Verdict};
use crate::sys::{self, Errno};

pub const CASES: &[Case] = &[
    ("fsync", "fsync and fdatasync on a file, read-only too", fsync),
    ("sync", "sync, twice", sync),
    ("syncfs", "syncfs on a file, a directory and a pipe; EBADF", syncfs),
    ("sync-file-range", "each flag; EINVAL, ESPIPE and EBADF", sync_file_range),
    ("msync", "MS_SYNC counts, MS_ASYNC doesn't; ENOMEM and EINVAL", msync),
    (
        "synchronous-writes",
        "writes with O_SYNC and O_DSYNC, which are no calls, and one fsync",
        synchronous_writes,
    ),
];

const PAGE: usize = 4096;

fn fsync(scene: &mut Scene) -> Result<Verdict> {
    let (place, fd) = scene.create("file")?;
    for _ in 0..7 {
        scene.board.fsync(place, fd.as_raw_fd())?;
    }
    let again = scene::open(scene.board, &scene.path("file"), libc::O_RDONLY)?;
    for _ in 0..5 {
        scene.board.fdatasync(place, again.as_raw_fd())?;
    }
    scene.board.fsync(place, again.as_raw_fd())?;
    Ok(Verdict::Done)
}

fn sync(scene: &mut Scene) -> Result<Verdict> {
    let nowhere = scene.nowhere();
    scene.board.sync(nowhere)?;
    scene.board.sync(nowhere)?;
    Ok(Verdict::Done)
}

fn syncfs(scene: &mut Scene) -> Result<Verdict> {
    let (place, fd) = scene.create("file")?;
    scene.board.syncfs(place, fd.as_raw_fd())?;
    scene.board.syncfs(place, fd.as_raw_fd())?;
    let path = scene.make_dir("directory")?;
    let (directory, dir) =
        (scene.file(&path), scene::open(scene.board, &path, libc::O_RDONLY | libc::O_DIRECTORY)?);
    scene.board.syncfs(directory, dir.as_raw_fd())?;
    // The file system of pipes has nothing to sync, and says so with 0.
    let (pipe, _end) = sys::pipe()?;
    let shown = scene.as_shown(&pipe)?;
    scene.board.syncfs(shown, pipe.as_raw_fd())?;
    let nowhere = scene.nowhere();
    let _ = scene.board.syncfs(nowhere, -1);
    Ok(Verdict::Done)
}

fn sync_file_range(scene: &mut Scene) -> Result<Verdict> {
    const EACH: [u32; 5] = [
        0,
        libc::SYNC_FILE_RANGE_WRITE,
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE,
        libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER,
        libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER,
    ];
    let (place, fd) = scene.create("file")?;
    for flags in EACH {
        scene.board.sync_file_range(place, fd.as_raw_fd(), 0, 4096, flags)?;
    }
    let fails = |answer, wanted| ensure_errno(answer, wanted);
    fails(scene.board.sync_file_range(place, fd.as_raw_fd(), 0, 0, 0x80), libc::EINVAL)?;
    fails(scene.board.sync_file_range(place, fd.as_raw_fd(), -1, 1, EACH[1]), libc::EINVAL)?;
    let (pipe, _end) = sys::pipe()?;
    let shown = scene.as_shown(&pipe)?;
    fails(scene.board.sync_file_range(shown, pipe.as_raw_fd(), 0, 0, EACH[1]), libc::ESPIPE)?;
    let nowhere = scene.nowhere();
    fails(scene.board.sync_file_range(nowhere, -1, 0, 0, EACH[1]), libc::EBADF)?;
    Ok(Verdict::Done)
}

/// The answer is on the board anyway; a case checks it where another answer would mean that it misses its point.
pub fn ensure_errno(answer: Result<(), Errno>, wanted: i32) -> Result<()> {
    ensure!(answer == Err(Errno(wanted)), "{} was expected, not {answer:?}", Errno(wanted));
    Ok(())
}

fn msync(scene: &mut Scene) -> Result<Verdict> {
    let (place, fd) = scene.create("mapped")?;
    let raw: Option<RawFd> = Some(fd.as_raw_fd());
    sys::truncate(&fd, 4 * PAGE)?;
    let mapping = sys::map_shared(&fd, 4 * PAGE).context("mapping the file")?;
    let address = mapping as usize;
    let board = scene.board;
    for page in 0..4 {
        // SAFETY: within the mapping, which nothing else uses, of a file that is as long.
        unsafe { mapping.byte_add(page * PAGE).cast::<u8>().write_volatile(1) };
        board.msync(place, raw, address + page * PAGE, PAGE, libc::MS_SYNC)?;
    }
    board.msync(place, raw, address, 4 * PAGE, libc::MS_SYNC | libc::MS_INVALIDATE)?;
    for flags in [libc::MS_ASYNC, libc::MS_INVALIDATE, 0] {
        board.msync(place, raw, address, 4 * PAGE, flags)?;
    }
    scene.note("3 calls of msync without MS_SYNC were made and are not in the truth");

    // Refused before any mapping is looked up.
    let refused = scene.variant(place, |truth| truth.path_uncertain = true);
    ensure_errno(board.msync(refused, raw, address, PAGE, libc::MS_SYNC | libc::MS_ASYNC), libc::EINVAL)?;
    ensure_errno(board.msync(refused, raw, address + 1, PAGE, libc::MS_SYNC), libc::EINVAL)?;

    // No file: an anonymous mapping, and then none at all.
    let nowhere = scene.place(PlaceTruth::default());
    let anonymous = sys::map_anonymous(PAGE).context("an anonymous mapping")?;
    board.msync(nowhere, None, anonymous as usize, PAGE, libc::MS_SYNC)?;
    // SAFETY: this mapping is from just above, and only its address was used.
    unsafe { sys::unmap(anonymous, PAGE) }?;
    ensure_errno(board.msync(nowhere, None, anonymous as usize, PAGE, libc::MS_SYNC), libc::ENOMEM)?;

    // The mapped half is synced before the hole is noticed.
    // SAFETY: the upper half of the mapping, to which nothing points.
    unsafe { sys::unmap(mapping.byte_add(2 * PAGE), 2 * PAGE) }?;
    ensure_errno(board.msync(refused, raw, address, 4 * PAGE, libc::MS_SYNC), libc::ENOMEM)?;
    // SAFETY: the lower half, likewise.
    unsafe { sys::unmap(mapping, 2 * PAGE) }?;
    Ok(Verdict::Done)
}

fn synchronous_writes(scene: &mut Scene) -> Result<Verdict> {
    for (name, flags) in [("o-sync", libc::O_SYNC), ("o-dsync", libc::O_DSYNC)] {
        let (place, _plain) = scene.create(name)?;
        let fd = scene::open(scene.board, &scene.path(name), libc::O_RDWR | flags)?;
        for _ in 0..5 {
            sys::write_all(&fd, &[b'y'; PAGE])?;
        }
        scene.board.fsync(place, fd.as_raw_fd())?;
    }
    scene.note("10 synchronous writes were made, which are no calls");
    Ok(Verdict::Done)
}
