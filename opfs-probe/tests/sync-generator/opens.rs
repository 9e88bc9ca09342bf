//! Opens of every kind, made by a process that does nothing else.

use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::path::Path;

use anyhow::Result;
use libc::{
    AT_FDCWD, O_APPEND, O_CLOEXEC, O_CREAT, O_DIRECT, O_DIRECTORY, O_DSYNC, O_EXCL, O_RDONLY, O_RDWR, O_SYNC,
    O_TMPFILE, O_TRUNC, O_WRONLY,
};

use crate::Case;
use crate::process;
use crate::scene::{Scene, Verdict};
use crate::sys::{OpenCall, c_path};

pub const CASES: &[Case] =
    &[("opens", "every open call and flag, in a bare clone that makes only raw calls", opens)];

/// A name in the case's directory, and the flags to open it with, in an order that matters.
const OPENS: [(&str, i32); 17] = [
    ("new", O_RDWR | O_CREAT | O_EXCL),
    // It is there now.
    ("new", O_RDWR | O_CREAT | O_EXCL),
    ("new", O_RDWR | O_CREAT),
    ("new", O_RDONLY),
    ("new", O_WRONLY | O_TRUNC),
    ("new", O_WRONLY | O_APPEND | O_CLOEXEC),
    ("new", O_WRONLY | O_SYNC),
    ("new", O_WRONLY | O_DSYNC),
    // What a file system without it answers is on the board.
    ("new", O_RDWR | O_DIRECT),
    ("new", O_RDWR | O_DIRECT | O_DSYNC),
    ("all", O_RDWR | O_CREAT | O_EXCL | O_TRUNC | O_SYNC | O_DIRECT),
    ("missing", O_RDONLY),
    ("missing/below", O_WRONLY | O_CREAT),
    ("new/below", O_RDONLY),
    ("new", O_RDONLY | O_DIRECTORY),
    ("", O_RDONLY),
    (".", O_RDWR | O_TMPFILE),
];

fn opens(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let (place, fd) = scene.create("file")?;
    let mut calls = vec![(OpenCall::OpenAt, "at"), (OpenCall::OpenAt2, "at2")];
    #[cfg(target_arch = "x86_64")]
    calls.extend([(OpenCall::Open, "plain"), (OpenCall::Creat, "creat")]);
    // Everything that needs memory is done before the clone.
    let mut wanted: Vec<(OpenCall, CString, i32)> = Vec::new();
    for (call, directory) in calls {
        let directory = scene.make_dir(directory)?;
        for (name, flags) in OPENS {
            let path = if name.is_empty() { Path::new("").to_owned() } else { directory.join(name) };
            wanted.push((call, c_path(path), flags));
        }
    }
    process::child_with(0, || {
        for (call, path, flags) in &wanted {
            // What each answers is on the board.
            let _ = board.open_by(*call, AT_FDCWD, path, *flags, 0o644);
        }
        let _ = board.open_by(OpenCall::OpenAt, fd.as_raw_fd(), c"below-a-file", O_RDONLY, 0);
        Ok(board.fsync(place, fd.as_raw_fd())?)
    })?
    .finish()?;
    Ok(Verdict::Done)
}
