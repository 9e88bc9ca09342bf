//! Threads and processes that end while others go on, or in the middle of a call.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::thread;

use anyhow::{Context as _, Result, bail, ensure};

use crate::Case;
use crate::board::Board;
use crate::line::Place;
use crate::process;
use crate::scene::{self, Scene, Verdict};
use crate::sys;

pub const CASES: &[Case] = &[
    ("first-thread-ends", "the first thread ends; two others go on syncing and opening", first_thread_ends),
    ("killed", "10 processes killed by SIGKILL while they sync", killed),
    ("killed-threads", "3 processes of 4 threads killed by SIGKILL while they sync", killed_threads),
];

/// Waits until the first thread of this process is a zombie, which nothing but its state shows.
fn until_first_thread_ended(board: Board) -> Result<()> {
    for _ in 0..5000 {
        let file = scene::open(board, Path::new("/proc/self/stat"), libc::O_RDONLY)?;
        let mut text = [0; 512];
        let length = sys::read(&file, &mut text)?;
        let state = String::from_utf8_lossy(&text[..length]);
        if state.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')) {
            return Ok(());
        }
        sys::pause();
    }
    bail!("the first thread does not end")
}

fn first_thread_ends(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let path = scene.path("later");
    let later = scene.file(&path);
    let (place, fd) = scene.create("file")?;
    let child = process::child(|| {
        board.fsync(place, fd.as_raw_fd())?;
        let other: &'static OwnedFd = Box::leak(Box::new(fd.try_clone()?));
        let another = thread::spawn(move || -> Result<()> {
            until_first_thread_ended(board)?;
            for _ in 0..10 {
                board.fdatasync(place, other.as_raw_fd())?;
            }
            Ok(())
        });
        thread::spawn(move || {
            let work = || -> Result<()> {
                until_first_thread_ended(board)?;
                for _ in 0..15 {
                    board.fsync(place, other.as_raw_fd())?;
                }
                let fd = scene::create(board, &path)?;
                for _ in 0..5 {
                    board.fsync(later, fd.as_raw_fd())?;
                }
                drop(fd);
                another.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?
            };
            let status = work().inspect_err(|why| eprintln!("sync-generator: {why:#}"));
            process::exit(status.is_err().into());
        });
        process::exit_thread()
    })?;
    child.finish()?;
    Ok(Verdict::Done)
}

/// Syncs until there is no more, or room on the board.
fn sync_forever(board: Board, place: Place, fd: &OwnedFd) {
    while board.fsync(place, fd.as_raw_fd()).is_ok() {}
}

/// Kills a process once a number of calls have returned.
fn kill_after(scene: &mut Scene, file: &str, calls: usize, body: impl Fn(Place, &OwnedFd)) -> Result<()> {
    let board = scene.board;
    let (place, fd) = scene.create(file)?;
    let before = board.returned();
    let child = process::child(|| {
        body(place, &fd);
        bail!("it was not killed")
    })?;
    while board.returned() < before + calls {
        sys::pause();
    }
    child.kill().context("killing a child")?;
    let status = child.wait()?;
    ensure!(libc::WIFSIGNALED(status), "a child ended before it was killed");
    Ok(())
}

fn killed(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    for number in 0..10 {
        kill_after(scene, &format!("file-{number}"), 15 + number, |place, fd| {
            sync_forever(board, place, fd);
        })?;
    }
    Ok(Verdict::Done)
}

fn killed_threads(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    for number in 0..3 {
        kill_after(scene, &format!("file-{number}"), 40, |place, fd| {
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| sync_forever(board, place, fd));
                }
            });
        })?;
    }
    Ok(Verdict::Done)
}
