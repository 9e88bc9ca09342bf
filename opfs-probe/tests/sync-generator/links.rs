//! Files whose names change, or that have several.

use std::fs;
use std::os::fd::AsRawFd;

use anyhow::{Context as _, Result};

use crate::Case;
use crate::process;
use crate::scene::{self, Scene, Verdict};

pub const CASES: &[Case] = &[
    ("renamed", "a file renamed, and moved, between calls", renamed),
    ("renamed-above", "the directory above renamed between calls", renamed_above),
    ("renamed-over", "a file renamed over another that is still open", renamed_over),
    ("swapped", "two files that trade names", swapped),
    ("hard-links", "one file synced under two names in turn", hard_links),
    ("symbolic-link", "a file opened through symbolic links: its own name counts", symbolic_link),
];

fn renamed(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let (first, fd) = scene.create("first")?;
    let directory = scene.make_dir("directory")?;
    board.fsync(first, fd.as_raw_fd())?;
    board.fsync(first, fd.as_raw_fd())?;
    let second = scene.path("second");
    fs::rename(scene.path("first"), &second).context("renaming")?;
    let place = scene.renamed(first, &second);
    board.fsync(place, fd.as_raw_fd())?;
    let third = directory.join("third");
    fs::rename(second, &third).context("moving")?;
    let place = scene.renamed(first, &third);
    board.fdatasync(place, fd.as_raw_fd())?;
    board.fsync(place, fd.as_raw_fd())?;
    board.fsync(place, fd.as_raw_fd())?;
    Ok(Verdict::Done)
}

fn renamed_above(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let before = scene.make_dir("before")?;
    fs::create_dir(before.join("between")).context("making a directory")?;
    let (place, fd) = scene.create("before/between/file")?;
    board.fsync(place, fd.as_raw_fd())?;
    let after = scene.path("after");
    fs::rename(before, &after).context("renaming a directory")?;
    let later = scene.renamed(place, &after.join("between/file"));
    // Nothing about the file itself has changed, so a report may go on giving the earlier name for a while.
    let earlier = scene.path("before/between/file");
    let later = scene.variant(later, |truth| truth.other_paths = vec![earlier]);
    board.fsync(later, fd.as_raw_fd())?;
    board.fsync(later, fd.as_raw_fd())?;
    // Another process, which has not synced it before.
    process::child(|| Ok(board.fdatasync(later, fd.as_raw_fd())?))?.finish()?;
    Ok(Verdict::Done)
}

fn renamed_over(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let (old, old_fd) = scene.create("target")?;
    let (new, new_fd) = scene.create("target.new")?;
    board.fsync(old, old_fd.as_raw_fd())?;
    board.fsync(new, new_fd.as_raw_fd())?;
    fs::rename(scene.path("target.new"), scene.path("target")).context("renaming")?;
    let target = scene.renamed(new, &scene.path("target"));
    board.fsync(target, new_fd.as_raw_fd())?;
    board.fsync(target, new_fd.as_raw_fd())?;
    let gone = scene.deleted(old);
    board.fdatasync(gone, old_fd.as_raw_fd())?;
    Ok(Verdict::Done)
}

fn swapped(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let (left, left_fd) = scene.create("left")?;
    let (right, right_fd) = scene.create("right")?;
    board.fsync(left, left_fd.as_raw_fd())?;
    board.fdatasync(right, right_fd.as_raw_fd())?;
    let (left_path, right_path, aside) = (scene.path("left"), scene.path("right"), scene.path("aside"));
    fs::rename(&left_path, &aside).context("renaming")?;
    fs::rename(&right_path, &left_path).context("renaming")?;
    fs::rename(&aside, &right_path).context("renaming")?;
    let (left, right) = (scene.renamed(left, &right_path), scene.renamed(right, &left_path));
    for _ in 0..2 {
        board.fsync(left, left_fd.as_raw_fd())?;
        board.fdatasync(right, right_fd.as_raw_fd())?;
    }
    Ok(Verdict::Done)
}

fn hard_links(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let (one, one_fd) = scene.create("one")?;
    let directory = scene.make_dir("directory")?;
    let path = directory.join("two");
    fs::hard_link(scene.path("one"), &path).context("linking")?;
    let two = scene.renamed(one, &path);
    let two_fd = scene::open(board, &path, libc::O_RDWR)?;
    for _ in 0..10 {
        board.fsync(one, one_fd.as_raw_fd())?;
        board.fsync(two, two_fd.as_raw_fd())?;
    }
    board.fdatasync(two, two_fd.as_raw_fd())?;
    // One of the names goes; the file lives on under the other.
    fs::remove_file(scene.path("one")).context("removing a name")?;
    let gone = scene.deleted(one);
    board.fsync(gone, one_fd.as_raw_fd())?;
    board.fsync(two, two_fd.as_raw_fd())?;
    Ok(Verdict::Done)
}

fn symbolic_link(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    scene.make_dir("real")?;
    let (place, _) = scene.create("real/file")?;
    std::os::unix::fs::symlink("real", scene.path("link")).context("linking")?;
    std::os::unix::fs::symlink("link/file", scene.path("link-to-file")).context("linking")?;
    for name in ["link/file", "link-to-file", "real/../link/./file"] {
        let fd = scene::open(board, &scene.path(name), libc::O_RDWR)?;
        board.fsync(place, fd.as_raw_fd())?;
    }
    Ok(Verdict::Done)
}
