//! File names that are hard to carry or to print.

use std::ffi::{CString, OsStr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

use crate::Case;
use crate::process;
use crate::scene::{self, Scene, Verdict};
use crate::sys;

pub const CASES: &[Case] = &[
    (
        "strange-names",
        "spaces, newlines, quotes, backslashes, dashes, UTF-8, bytes that aren't",
        strange_names,
    ),
    ("long-name", "names of 255 bytes", long_name),
    ("deep-path", "a path of 4095 bytes", deep_path),
    ("many-components", "a path of 500 directories of one letter", many_components),
    ("beyond-path-max", "a path of more than 4096 bytes, which a report may not have", beyond_path_max),
    ("many-files", "1000 files, one call each", many_files),
];

const NAMES: [&[u8]; 22] = [
    b" leading and trailing ",
    b"two\nlines",
    b"\n",
    b"tab\tand\rreturn",
    b"\"double\" and 'single'",
    b"back\\slash\\",
    b"\\n\\x41\\012",
    b"-rf",
    b"--",
    b".hidden",
    b"...",
    b"$HOME `id` $(id) ;&|<>*?[]{}~#!",
    b"%s%n%d {} {0}",
    b"name (deleted)",
    b"pipe:[123]",
    "é, 漢字, 🗃, e\u{301}, \u{202e}reversed".as_bytes(),
    b"latin-1 \xe9",
    b"\xff\xfe\xfd",
    b"cut off \xe2\x82",
    b"surrogate \xed\xa0\x80",
    b"control \x01\x1b[31m\x7f",
    b",=\"a\": 1, <b>&amp;<i>|",
];

fn strange_names(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    for name in NAMES {
        let (place, fd) = scene.create(OsStr::from_bytes(name))?;
        board.fsync(place, fd.as_raw_fd())?;
        board.fdatasync(place, fd.as_raw_fd())?;
    }
    // The same in the name of a directory.
    for name in [b"dir \xff\n".as_slice(), b"dir\\\"".as_slice()] {
        let dir = scene.path(OsStr::from_bytes(name));
        std::fs::create_dir(&dir).context("making a directory")?;
        let (place, fd) = scene.create(dir.join("file"))?;
        board.fsync(place, fd.as_raw_fd())?;
    }
    Ok(Verdict::Done)
}

fn long_name(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let two_bytes_each = "é".repeat(127);
    let names = ["n".repeat(255), "n".repeat(254), format!("{two_bytes_each}x")];
    for name in names {
        let (place, fd) = scene.create(&name)?;
        board.fsync(place, fd.as_raw_fd())?;
        board.fsync(place, fd.as_raw_fd())?;
    }
    Ok(Verdict::Done)
}

/// Goes down through new directories, one step at a time, so that no call needs the whole path.
fn descend(scene: &Scene, names: &[CString]) -> Result<OwnedFd> {
    let mut dir = scene::open(scene.board, &scene.dir, libc::O_RDONLY | libc::O_DIRECTORY)?;
    for name in names {
        sys::make_dir_at(&dir, name).context("mkdirat")?;
        dir = scene
            .board
            .open_at(dir.as_raw_fd(), name, libc::O_RDONLY | libc::O_DIRECTORY)
            .context("openat")?;
    }
    Ok(dir)
}

/// Syncs a file at the end of these directories, by a descriptor and in a child, and the last directory.
fn sync_below(scene: &mut Scene, directories: &[String], name: &str) -> Result<()> {
    let board = scene.board;
    let names: Vec<CString> = directories.iter().map(sys::c_path).collect();
    let dir = descend(scene, &names)?;
    let above = directories.iter().fold(scene.dir.clone(), |path, name| path.join(name));
    let fd =
        board.open_at(dir.as_raw_fd(), &sys::c_path(name), libc::O_RDWR | libc::O_CREAT).context("openat")?;
    sys::write_all(&fd, b"x")?;
    let (place, directory) = (scene.file(&above.join(name)), scene.file(&above));
    board.fsync(place, fd.as_raw_fd())?;
    board.fdatasync(place, fd.as_raw_fd())?;
    process::child(|| Ok(board.fsync(place, fd.as_raw_fd())?))?.finish()?;
    board.fsync(directory, dir.as_raw_fd())?;
    Ok(())
}

fn deep_path(scene: &mut Scene) -> Result<Verdict> {
    /// `PATH_MAX` counts the zero byte at the end.
    const LENGTH: usize = libc::PATH_MAX as usize - 1;
    let name = "file";
    let mut missing = LENGTH.saturating_sub(scene.dir.as_os_str().len() + 1 + name.len());
    let mut directories = Vec::new();
    while missing > 0 {
        // A step costs a slash; none may be left that has room for nothing else.
        let mut length = (missing - 1).min(255);
        if missing - 1 - length == 1 {
            length -= 1;
        }
        directories.push("d".repeat(length));
        missing -= length + 1;
    }
    sync_below(scene, &directories, name)?;
    let longest = scene.places.iter().filter_map(|place| place.path.as_ref()).map(Vec::len).max();
    ensure!(longest == Some(LENGTH), "the path has {longest:?} bytes");
    Ok(Verdict::Done)
}

fn many_components(scene: &mut Scene) -> Result<Verdict> {
    let directories: Vec<String> =
        (b'a'..=b'z').cycle().take(500).map(|letter| char::from(letter).into()).collect();
    let whole: PathBuf = directories.iter().collect();
    scene.note(format!("{} bytes below the directory of the case", whole.as_os_str().len()));
    sync_below(scene, &directories, "f")?;
    Ok(Verdict::Done)
}

fn beyond_path_max(scene: &mut Scene) -> Result<Verdict> {
    let directories: Vec<String> = (0..24).map(|number| format!("{number}-").repeat(66)).collect();
    sync_below(scene, &directories, "file")?;
    for place in &mut scene.places {
        place.path_uncertain = true;
    }
    Ok(Verdict::Done)
}

fn many_files(scene: &mut Scene) -> Result<Verdict> {
    for number in 0..1000 {
        let (place, fd) = scene.create(format!("file-{number}"))?;
        scene.board.fsync(place, fd.as_raw_fd())?;
    }
    Ok(Verdict::Done)
}
