//! Many threads of one process.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Barrier;
use std::thread;

use anyhow::{Result, bail};

use crate::Case;
use crate::board::Board;
use crate::line::Place;
use crate::process;
use crate::scene::{self, Scene, Verdict};
use crate::sys::Answer;

pub const CASES: &[Case] = &[
    ("threads", "8 threads, each on the same 4 files with descriptors of its own, mixed ops", threads),
    ("threads-one-descriptor", "16 threads at once on one descriptor", one_descriptor),
    ("thread-names", "threads that have names of their own in a process that has another", thread_names),
    ("threads-own-files", "6 threads that open, sync and close a file each, over and over", own_files),
];

/// Runs the body in that many threads, which all start at once.
fn at_once(count: usize, body: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    let barrier = Barrier::new(count);
    thread::scope(|scope| {
        let start = |index| {
            let (barrier, body) = (&barrier, &body);
            scope.spawn(move || {
                barrier.wait();
                body(index)
            })
        };
        let running: Vec<_> = (0..count).map(start).collect();
        running.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(_) => bail!("a thread panicked"),
        })
    })
}

/// One of the ops on a file, chosen by number.
fn some_op(board: Board, place: Place, fd: &OwnedFd, number: usize) -> Answer {
    let raw = fd.as_raw_fd();
    match number % 4 {
        0 | 1 => board.fsync(place, raw),
        2 => board.fdatasync(place, raw),
        _ => board.sync_file_range(place, raw, 0, 0, libc::SYNC_FILE_RANGE_WRITE),
    }
}

fn threads(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let mut files = Vec::new();
    for number in 0..4 {
        let name = format!("file-{number}");
        let (place, _) = scene.create(&name)?;
        files.push((place, scene.path(name)));
    }
    at_once(8, |thread| {
        for (number, (place, path)) in files.iter().enumerate() {
            let fd = scene::open(board, path, libc::O_RDWR)?;
            for round in 0..10 {
                some_op(board, *place, &fd, thread + number + round)?;
            }
        }
        Ok(())
    })?;
    Ok(Verdict::Done)
}

fn one_descriptor(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let (place, fd) = scene.create("file")?;
    at_once(16, |_| {
        for _ in 0..25 {
            board.fsync(place, fd.as_raw_fd())?;
        }
        Ok(())
    })?;
    Ok(Verdict::Done)
}

fn own_files(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let paths: Vec<_> = (0..6).map(|number| scene.path(format!("file-{number}"))).collect();
    let places: Vec<_> = paths.iter().map(|path| scene.file(path)).collect();
    at_once(6, |thread| {
        for _ in 0..20 {
            let fd = scene::create(board, &paths[thread])?;
            board.fdatasync(places[thread], fd.as_raw_fd())?;
        }
        Ok(())
    })?;
    Ok(Verdict::Done)
}

fn thread_names(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let (place, fd) = scene.create("file")?;
    process::child(|| {
        process::set_comm(c"the-process")?;
        board.fsync(place, fd.as_raw_fd())?;
        at_once(3, |number| {
            process::set_comm([c"thread-one", c"thread-two", c"thread-three"][number])?;
            for _ in 0..=number {
                board.fsync(place, fd.as_raw_fd())?;
            }
            Ok(())
        })
    })?
    .finish()?;
    Ok(Verdict::Done)
}
