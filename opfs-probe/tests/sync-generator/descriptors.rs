//! What a descriptor number can be: a copy, very large, closed, or good for nothing.

use std::os::fd::{AsRawFd, IntoRawFd as _, RawFd};

use anyhow::{Context as _, Result};

use crate::Case;
use crate::operations::ensure_errno;
use crate::process;
use crate::scene::{self, Scene, Verdict};
use crate::sys;

pub const CASES: &[Case] = &[
    ("duplicates", "copies of a descriptor, and a second open of the same file", duplicates),
    ("high-descriptor", "descriptors 1500 and 5000", high_descriptor),
    ("closed", "descriptors that are closed, negative or absurd: EBADF", closed),
    ("reused-number", "one number for 10 files in turn", reused_number),
    ("close-range", "close_range between two rounds of calls", close_range),
    ("path-descriptor", "a descriptor opened with O_PATH: EBADF", path_descriptor),
];

fn duplicates(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let (place, fd) = scene.create("file")?;
    let copies = [sys::duplicate_from(fd.as_raw_fd(), 0)?, sys::duplicate_from(fd.as_raw_fd(), 100)?];
    let again = scene::open(board, &scene.path("file"), libc::O_WRONLY)?;
    for fd in [&fd, &copies[0], &copies[1], &again] {
        board.fsync(place, fd.as_raw_fd())?;
        board.fdatasync(place, fd.as_raw_fd())?;
    }
    drop(fd);
    board.fsync(place, copies[0].as_raw_fd())?;
    Ok(Verdict::Done)
}

fn high_descriptor(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let (place, fd) = scene.create("file")?;
    let able = process::child(|| Ok(process::allow_descriptors(8192)?))?.wait()? == 0;
    if !able {
        return Ok(Verdict::Skipped("the limit of open files can't be raised to 8192".to_owned()));
    }
    process::child(|| {
        process::allow_descriptors(8192)?;
        for number in [1500, 5000] {
            sys::duplicate_to(fd.as_raw_fd(), number)?;
            board.fsync(place, number)?;
            board.fdatasync(place, number)?;
        }
        Ok(())
    })?
    .finish()?;
    Ok(Verdict::Done)
}

fn closed(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let nowhere = scene.nowhere();
    let (place, fd) = scene.create("file")?;
    let number = fd.into_raw_fd();
    board.fsync(place, number)?;
    sys::close(number)?;
    for bad in [number, -1, RawFd::MIN, RawFd::MAX, 1_000_000] {
        ensure_errno(board.fsync(nowhere, bad), libc::EBADF)?;
        ensure_errno(board.fdatasync(nowhere, bad), libc::EBADF)?;
    }
    Ok(Verdict::Done)
}

fn reused_number(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let mut numbers = Vec::new();
    for file in 0..10 {
        let (place, fd) = scene.create(format!("file-{file}"))?;
        numbers.push(fd.as_raw_fd());
        board.fsync(place, fd.as_raw_fd())?;
        board.fsync(place, fd.as_raw_fd())?;
    }
    numbers.dedup();
    if numbers.len() > 1 {
        scene.note(format!("{} numbers were used", numbers.len()));
    }
    Ok(Verdict::Done)
}

fn close_range(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let nowhere = scene.nowhere();
    let mut open = Vec::new();
    for (file, number) in (0..6).zip(100..) {
        let (place, fd) = scene.create(format!("file-{file}"))?;
        sys::duplicate_to(fd.as_raw_fd(), number)?;
        open.push((place, number));
    }
    for (place, number) in &open {
        board.fsync(*place, *number)?;
    }
    sys::close_range(100, 103).context("close_range")?;
    for (place, number) in open {
        if number <= 103 {
            ensure_errno(board.fsync(nowhere, number), libc::EBADF)?;
        } else {
            board.fsync(place, number)?;
            sys::close(number)?;
        }
    }
    Ok(Verdict::Done)
}

fn path_descriptor(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let (place, fd) = scene.create("file")?;
    board.fsync(place, fd.as_raw_fd())?;
    // The table has a file for this number, but no sync call takes it (fdget refuses FMODE_PATH).
    let named_only = scene.variant(place, |truth| truth.path_uncertain = true);
    let path_fd = scene::open(board, &scene.path("file"), libc::O_PATH)?;
    ensure_errno(board.fsync(named_only, path_fd.as_raw_fd()), libc::EBADF)?;
    ensure_errno(board.fdatasync(named_only, path_fd.as_raw_fd()), libc::EBADF)?;
    ensure_errno(board.syncfs(named_only, path_fd.as_raw_fd()), libc::EBADF)?;
    ensure_errno(board.sync_file_range(named_only, path_fd.as_raw_fd(), 0, 0, 2), libc::EBADF)?;
    Ok(Verdict::Done)
}
