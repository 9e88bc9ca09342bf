//! Programs that are exec'ed, from forks, vforks and threads.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::thread;

use anyhow::{Result, bail};

use crate::Case;
use crate::line::{Op, Place};
use crate::process::{self, Program};
use crate::scene::{Scene, Verdict};
use crate::sys;

pub const CASES: &[Case] = &[
    ("exec", "this program again, which opens a file and syncs it", exec),
    ("exec-inherited", "a descriptor kept across fork and exec", exec_inherited),
    ("exec-sync-command", "/bin/sync -d FILE", exec_sync_command),
    ("vfork", "a vforked child that syncs and ends", vfork),
    ("vfork-exec", "a vforked child that syncs and execs", vfork_exec),
    (
        "exec-from-thread",
        "a thread that isn't the first syncs, then execs; the new program syncs",
        exec_from_thread,
    ),
];

fn arguments(how: &str, what: &str, count: u32) -> [String; 3] {
    [how.to_owned(), what.to_owned(), count.to_string()]
}

fn by_path(scene: &mut Scene, place: Place, path: &Path, count: u32) -> Result<Program> {
    let Some(path) = path.to_str() else { bail!("the directory's name must be UTF-8 to exec") };
    scene.itself(place, &arguments("path", path, count))
}

fn exec(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let (place, fd) = scene.create("file")?;
    let program = by_path(scene, place, &scene.path("file"), 3)?;
    for _ in 0..3 {
        process::child(|| {
            board.fsync(place, fd.as_raw_fd())?;
            Err(program.exec().into())
        })?
        .finish()?;
    }
    Ok(Verdict::Done)
}

fn exec_inherited(scene: &mut Scene) -> Result<Verdict> {
    let (place, fd) = scene.create("file")?;
    let program = scene.itself(place, &arguments("fd", &fd.as_raw_fd().to_string(), 4))?;
    process::child(|| {
        sys::keep_on_exec(&fd)?;
        Err(program.exec().into())
    })?
    .finish()?;
    Ok(Verdict::Done)
}

fn exec_sync_command(scene: &mut Scene) -> Result<Verdict> {
    let sync = Path::new("/bin/sync");
    if !sync.exists() {
        return Ok(Verdict::Skipped("there is no /bin/sync".to_owned()));
    }
    let (place, fd) = scene.create("file")?;
    let Some(path) = scene.path("file").to_str().map(str::to_owned) else {
        bail!("the directory's name must be UTF-8 to exec");
    };
    scene.opens_unknown = Some("a program that is exec'ed opens its libraries".to_owned());
    scene.note("the call is sync's own: one fdatasync, by its manual and its exit status");
    let program = Program::new(sync, &["-d".to_owned(), path]);
    let child = process::child(|| Err(program.exec().into()))?;
    let pid = child.0;
    child.finish()?;
    scene.board.seen_elsewhere(Op::Fdatasync, place, fd.as_raw_fd(), pid, *b"sync\0\0\0\0\0\0\0\0\0\0\0\0");
    Ok(Verdict::Done)
}

fn vfork(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let (place, fd) = scene.create("file")?;
    let fd = fd.as_raw_fd();
    for _ in 0..5 {
        process::vfork_child(|| {
            i32::from(board.fsync(place, fd).is_err() || board.fdatasync(place, fd).is_err())
        })?
        .finish()?;
    }
    board.fsync(place, fd)?;
    Ok(Verdict::Done)
}

fn vfork_exec(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let (place, fd) = scene.create("file")?;
    let fd = fd.as_raw_fd();
    let program = by_path(scene, place, &scene.path("file"), 2)?;
    for _ in 0..3 {
        process::vfork_child(|| {
            if board.fsync(place, fd).is_ok() {
                program.exec();
            }
            1
        })?
        .finish()?;
    }
    Ok(Verdict::Done)
}

fn exec_from_thread(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let (place, fd) = scene.create("file")?;
    let fd = fd.as_raw_fd();
    let program = by_path(scene, place, &scene.path("file"), 4)?;
    process::child(|| {
        board.fsync(place, fd)?;
        thread::scope(|scope| {
            // One more thread, asleep, for the kernel to clear away.
            scope.spawn(|| {
                loop {
                    thread::park();
                }
            });
            scope.spawn(|| -> Result<()> {
                board.fsync(place, fd)?;
                board.fsync(place, fd)?;
                eprintln!("sync-generator: exec from a thread: {}", program.exec());
                process::exit(1)
            });
        });
        Ok(())
    })?
    .finish()?;
    Ok(Verdict::Done)
}
