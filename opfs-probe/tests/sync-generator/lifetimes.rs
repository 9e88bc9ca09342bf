//! Files that are deleted, and inode numbers that come back.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsRawFd;

use anyhow::{Context as _, Result};

use crate::Case;
use crate::process;
use crate::scene::{Scene, Verdict};
use crate::sys;

pub const CASES: &[Case] = &[
    ("deleted", "a file unlinked before its first call", deleted),
    ("deleted-between", "a file unlinked between two calls", deleted_between),
    ("deleted-above", "a file and its directory gone before the call", deleted_above),
    ("deleted-and-remade", "a name that is a new file after the old one was unlinked", deleted_and_remade),
    ("inode-reuse-same-name", "50 files made, synced and deleted in turn, one name", inode_reuse_same_name),
    (
        "inode-reuse-new-names",
        "50 files made, synced and deleted in turn, each its own name",
        inode_reuse_new_names,
    ),
];

fn deleted(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let (place, fd) = scene.create("file")?;
    fs::remove_file(scene.path("file")).context("deleting")?;
    let gone = scene.deleted(place);
    for _ in 0..4 {
        board.fsync(gone, fd.as_raw_fd())?;
    }
    process::child(|| Ok(board.fdatasync(gone, fd.as_raw_fd())?))?.finish()?;
    Ok(Verdict::Done)
}

fn deleted_between(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let (place, fd) = scene.create("file")?;
    board.fsync(place, fd.as_raw_fd())?;
    board.fsync(place, fd.as_raw_fd())?;
    fs::remove_file(scene.path("file")).context("deleting")?;
    let gone = scene.deleted(place);
    board.fsync(gone, fd.as_raw_fd())?;
    board.fdatasync(gone, fd.as_raw_fd())?;
    Ok(Verdict::Done)
}

fn deleted_above(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let directory = scene.make_dir("directory")?;
    let (place, fd) = scene.create("directory/file")?;
    fs::remove_file(directory.join("file")).context("deleting")?;
    fs::remove_dir(directory).context("deleting a directory")?;
    let gone = scene.deleted(place);
    board.fsync(gone, fd.as_raw_fd())?;
    Ok(Verdict::Done)
}

fn deleted_and_remade(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let (old, old_fd) = scene.create("file")?;
    board.fsync(old, old_fd.as_raw_fd())?;
    fs::remove_file(scene.path("file")).context("deleting")?;
    let (new, new_fd) = scene.create("file")?;
    let gone = scene.deleted(old);
    for _ in 0..3 {
        board.fsync(gone, old_fd.as_raw_fd())?;
        board.fdatasync(new, new_fd.as_raw_fd())?;
    }
    Ok(Verdict::Done)
}

fn in_turn(scene: &mut Scene, name: impl Fn(u32) -> String) -> Result<Verdict> {
    let board = scene.board;
    let mut inodes = BTreeSet::new();
    for number in 0..50 {
        let name = name(number);
        let (place, fd) = scene.create(&name)?;
        inodes.insert(sys::identity(fd.as_raw_fd())?);
        board.fsync(place, fd.as_raw_fd())?;
        if number % 2 == 0 {
            board.fdatasync(place, fd.as_raw_fd())?;
        }
        drop(fd);
        fs::remove_file(scene.path(name)).context("deleting")?;
    }
    scene.note(format!("50 files had {} inode numbers", inodes.len()));
    Ok(Verdict::Done)
}

fn inode_reuse_same_name(scene: &mut Scene) -> Result<Verdict> {
    in_turn(scene, |_| "file".to_owned())
}

fn inode_reuse_new_names(scene: &mut Scene) -> Result<Verdict> {
    in_turn(scene, |number| format!("file-{number}"))
}
