//! Everything a descriptor can lead to besides a plain file.

use std::os::fd::AsRawFd;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::Case;
use crate::scene::{self, Scene, Verdict};
use crate::sys;

pub const CASES: &[Case] = &[
    ("unsyncable", "pipe, FIFO, socket, eventfd, epoll, device: EINVAL", unsyncable),
    ("directory", "a directory, and the files made in it", directory),
    ("unnamed-file", "O_TMPFILE", unnamed_file),
    ("memory-file", "memfd_create", memory_file),
    ("tmpfs", "a file in /dev/shm", tmpfs),
];

fn unsyncable(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let (pipe_out, pipe_in) = sys::pipe()?;
    let (socket, _other) = sys::socket_pair()?;
    let fifo = scene.path("fifo");
    // SAFETY: the path is a C string that outlives the call.
    let made = unsafe { libc::mkfifo(sys::c_path(&fifo).as_ptr(), 0o600) };
    anyhow::ensure!(made == 0, "mkfifo: {}", std::io::Error::last_os_error());
    let all = [
        pipe_out,
        pipe_in,
        socket,
        sys::event_fd()?,
        sys::epoll()?,
        scene::open(board, &fifo, libc::O_RDWR)?,
        scene::open(board, Path::new("/dev/null"), libc::O_RDWR)?,
    ];
    for fd in &all {
        let shown = scene.as_shown(fd)?;
        for _ in 0..3 {
            // What each answers is on the board.
            let _ = board.fsync(shown, fd.as_raw_fd());
        }
        let _ = board.fdatasync(shown, fd.as_raw_fd());
    }
    Ok(Verdict::Done)
}

fn directory(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let path = scene.make_dir("directory")?;
    let (place, dir) = (scene.file(&path), scene::open(board, &path, libc::O_RDONLY | libc::O_DIRECTORY)?);
    for number in 0..3 {
        let (file, fd) = scene.create(format!("directory/file-{number}"))?;
        board.fdatasync(file, fd.as_raw_fd())?;
        board.fsync(place, dir.as_raw_fd())?;
    }
    board.fdatasync(place, dir.as_raw_fd())?;
    Ok(Verdict::Done)
}

fn unnamed_file(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let flags = libc::O_TMPFILE | libc::O_RDWR;
    let fd = match board.open_at(libc::AT_FDCWD, &sys::c_path(&scene.dir), flags) {
        Ok(fd) => fd,
        Err(why) => return Ok(Verdict::Skipped(format!("O_TMPFILE is refused: {why}"))),
    };
    sys::write_all(&fd, b"x")?;
    let shown = scene.as_shown(&fd)?;
    scene.note("before it has a name, the kernel calls the file # and its inode number");
    board.fsync(shown, fd.as_raw_fd())?;
    board.fsync(shown, fd.as_raw_fd())?;

    // A name makes it a file like any other.
    let path = scene.path("named");
    let (from, to) = (sys::c_path(format!("/proc/self/fd/{}", fd.as_raw_fd())), sys::c_path(&path));
    // SAFETY: two C strings that outlive the call.
    let linked = unsafe {
        libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW)
    };
    anyhow::ensure!(linked == 0, "linkat: {}", std::io::Error::last_os_error());
    let again = scene::open(board, &path, libc::O_RDWR)?;
    let named = scene.variant(shown, |truth| truth.deleted = false);
    let named = scene.renamed(named, &path);
    board.fdatasync(named, again.as_raw_fd())?;
    Ok(Verdict::Done)
}

fn memory_file(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let fd = sys::memory_file(c"a memory file", libc::MFD_CLOEXEC).context("memfd_create")?;
    sys::write_all(&fd, b"x")?;
    let shown = scene.as_shown(&fd)?;
    for _ in 0..3 {
        board.fsync(shown, fd.as_raw_fd())?;
    }
    board.fdatasync(shown, fd.as_raw_fd())?;
    Ok(Verdict::Done)
}

fn tmpfs(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let dir = match tempfile::Builder::new().prefix("sync-generator-").tempdir_in("/dev/shm") {
        Ok(dir) => dir.keep(),
        Err(why) => return Ok(Verdict::Skipped(format!("no directory in /dev/shm: {why}"))),
    };
    let path = dir.join("file");
    let fd = scene::create(board, &path)?;
    let place = scene.file(&path);
    for _ in 0..100 {
        board.fsync(place, fd.as_raw_fd())?;
    }
    for _ in 0..50 {
        board.fdatasync(place, fd.as_raw_fd())?;
    }
    // Step by step: remove_dir_all would open the directory, uncounted.
    std::fs::remove_file(&path).context("removing the file in /dev/shm")?;
    std::fs::remove_dir(&dir).context("removing the directory in /dev/shm")?;
    Ok(Verdict::Done)
}
