//! Mounts, roots and process numbers that differ from those of whoever started the program.

use std::ffi::CString;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use libc::c_ulong;

use crate::Case;
use crate::line;
use crate::process;
use crate::scene::{self, Scene, Verdict};
use crate::sys::c_path;

pub const CASES: &[Case] = &[
    ("overlay", "an overlay mount: files of its lower and upper layer, and a new one", overlay),
    ("bind-mount", "a directory and a file bound to other places", bind_mount),
    ("own-tmpfs", "a tmpfs that only the caller's mount namespace has", own_tmpfs),
    ("chroot", "a child in a chroot", chroot),
    ("pid-namespace", "a process that is number 1 to itself, and its child", pid_namespace),
    ("user-namespace", "a process in a user namespace of its own", user_namespace),
];

/// Mounts, for this process's namespace.
fn mount(source: &Path, target: &Path, kind: &str, flags: c_ulong, options: &str) -> Result<()> {
    let [source_c, target_c] = [source, target].map(c_path);
    let [kind, options] = [kind, options].map(|text| CString::new(text).expect("no zero bytes"));
    // SAFETY: four C strings that outlive the call.
    let result = unsafe {
        libc::mount(source_c.as_ptr(), target_c.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast())
    };
    if result < 0 {
        return Err(std::io::Error::last_os_error())
            .with_context(|| format!("mounting {}", target.display()));
    }
    Ok(())
}

/// Gives this process a mount namespace from which nothing spreads.
fn own_mounts() -> Result<()> {
    // SAFETY: flags only.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } < 0 {
        return Err(std::io::Error::last_os_error()).context("a mount namespace");
    }
    mount(Path::new("none"), Path::new("/"), "", libc::MS_REC | libc::MS_PRIVATE, "")
}

/// Why a mount can't be made here, tried in a child so that nothing of it stays.
fn refused(mounts: impl FnOnce() -> Result<()>) -> Result<Option<String>> {
    if !process::is_root() {
        return Ok(Some("mounting needs root".to_owned()));
    }
    let status = process::child(|| own_mounts().and_then(|()| mounts()))?.wait()?;
    Ok((status != 0).then(|| "the mount is refused (its reason is on stderr)".to_owned()))
}

fn overlay(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let [lower, upper, work, merged] = ["lower", "upper", "work", "merged"].map(|name| scene.make_dir(name));
    let (lower, upper, work, merged) = (lower?, upper?, work?, merged?);
    drop(scene::create(board, &lower.join("from-lower"))?);
    drop(scene::create(board, &upper.join("from-upper"))?);
    let shown = |path: &PathBuf| path.display().to_string();
    let options = format!("lowerdir={},upperdir={},workdir={}", shown(&lower), shown(&upper), shown(&work));
    let mount_it = || mount(Path::new("overlay"), &merged, "overlay", 0, &options);
    if let Some(why) = refused(mount_it)? {
        return Ok(Verdict::Skipped(why));
    }
    scene.own_mount_namespace = true;
    let names = ["from-lower", "from-upper", "new"];
    let places = names.map(|name| {
        let place = scene.file(&merged.join(name));
        // Where the upper layer has the file, as everybody else sees it.
        scene.variant(place, |truth| truth.other_paths = vec![upper.join(name)])
    });
    let read_only = scene.file(&lower.join("from-lower"));
    let read_only = scene.renamed(read_only, &merged.join("from-lower"));
    let read_only = scene.variant(read_only, |truth| truth.other_paths = vec![lower.join("from-lower")]);
    process::child(|| {
        own_mounts()?;
        mount_it()?;
        let unchanged = scene::open(board, &merged.join("from-lower"), libc::O_RDONLY)?;
        board.fsync(read_only, unchanged.as_raw_fd())?;
        for (name, place) in names.iter().zip(places) {
            // Opening a file of the lower layer to write copies it up.
            let fd = scene::create(board, &merged.join(name))?;
            board.fsync(place, fd.as_raw_fd())?;
            board.fsync(place, fd.as_raw_fd())?;
            board.fdatasync(place, fd.as_raw_fd())?;
        }
        Ok(())
    })?
    .finish()?;
    scene.note("from-lower is two files: before it is copied up, and after");
    Ok(Verdict::Done)
}

fn bind_mount(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let (source, target) = (scene.make_dir("source")?, scene.make_dir("target")?);
    fs::create_dir(source.join("below")).context("making a directory")?;
    let (place, fd) = scene.create("source/below/file")?;
    let (bound_file, _) = scene.create("target-file")?;
    let path = scene.path("source/below/file");
    let single = scene.path("target-file");
    let mounts = || {
        mount(&source, &target, "", libc::MS_BIND, "")?;
        mount(&path, &single, "", libc::MS_BIND, "")
    };
    if let Some(why) = refused(mounts)? {
        return Ok(Verdict::Skipped(why));
    }
    scene.own_mount_namespace = true;
    let targets = [target.join("below/file"), single.clone()];
    let places = targets.clone().map(|target| {
        let place = scene.renamed(place, &target);
        scene.variant(place, |truth| truth.other_paths = vec![path.clone()])
    });
    process::child(|| {
        board.fsync(place, fd.as_raw_fd())?;
        own_mounts()?;
        mounts()?;
        for (path, place) in targets.iter().zip(places) {
            let bound = scene::open(board, path, libc::O_RDWR)?;
            board.fsync(place, bound.as_raw_fd())?;
            board.fsync(place, bound.as_raw_fd())?;
            board.fdatasync(place, bound.as_raw_fd())?;
        }
        Ok(())
    })?
    .finish()?;
    // Out here the name leads to the file that was there all along.
    let fd = scene::open(board, &single, libc::O_RDWR)?;
    board.fsync(bound_file, fd.as_raw_fd())?;
    scene.note("names under target and target-file are bind mounts of source, which other_paths has");
    Ok(Verdict::Done)
}

fn own_tmpfs(scene: &mut Scene) -> Result<Verdict> {
    let board = scene.board;
    let target = scene.make_dir("target")?;
    let mount_it = || mount(Path::new("none"), &target, "tmpfs", 0, "size=1m");
    if let Some(why) = refused(mount_it)? {
        return Ok(Verdict::Skipped(why));
    }
    scene.own_mount_namespace = true;
    let path = target.join("file");
    let place = scene.file(&path);
    process::child(|| {
        own_mounts()?;
        mount_it()?;
        let fd = scene::create(board, &path)?;
        for _ in 0..5 {
            board.fsync(place, fd.as_raw_fd())?;
        }
        Ok(())
    })?
    .finish()?;
    Ok(Verdict::Done)
}

fn chroot(scene: &mut Scene) -> Result<Verdict> {
    if !process::is_root() {
        return Ok(Verdict::Skipped("chroot needs root".to_owned()));
    }
    let board = scene.board;
    let root = scene.make_dir("root")?;
    fs::create_dir(root.join("inner")).context("making a directory")?;
    let place = scene.file(&root.join("inner/file"));
    let (outside, outside_fd) = scene.create("outside")?;
    process::child(|| {
        // There is no /proc in there to ask.
        line::ask_for_numbers();
        let path = c_path(&root);
        // SAFETY: a C string that outlives the calls.
        let changed = unsafe { libc::chroot(path.as_ptr()) == 0 && libc::chdir(c"/".as_ptr()) == 0 };
        anyhow::ensure!(changed, "chroot: {}", std::io::Error::last_os_error());
        let fd = scene::create(board, Path::new("/inner/file"))?;
        for _ in 0..3 {
            board.fsync(place, fd.as_raw_fd())?;
        }
        // A descriptor from before, of a file that has no name in here.
        board.fdatasync(outside, outside_fd.as_raw_fd())?;
        Ok(())
    })?
    .finish()?;
    Ok(Verdict::Done)
}

/// Whether a namespace of this kind can be had.
fn can_unshare(flags: i32) -> Result<bool> {
    // SAFETY: flags only.
    let status = process::child(|| match unsafe { libc::unshare(flags) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()).context("unshare"),
    });
    Ok(status?.wait()? == 0)
}

fn pid_namespace(scene: &mut Scene) -> Result<Verdict> {
    if !can_unshare(libc::CLONE_NEWPID)? {
        return Ok(Verdict::Skipped("a PID namespace is refused (its reason is on stderr)".to_owned()));
    }
    let board = scene.board;
    let (place, fd) = scene.create("file")?;
    process::child_with(libc::CLONE_NEWPID, || {
        line::ask_for_numbers();
        process::set_comm(c"number-one")?;
        anyhow::ensure!(line::numbers().1 == 1, "the process is not number 1 to itself");
        for _ in 0..4 {
            board.fsync(place, fd.as_raw_fd())?;
        }
        process::child(|| {
            process::set_comm(c"number-two")?;
            board.fdatasync(place, fd.as_raw_fd())?;
            board.fdatasync(place, fd.as_raw_fd())?;
            Ok(())
        })?
        .finish()
    })?
    .finish()?;
    Ok(Verdict::Done)
}

fn user_namespace(scene: &mut Scene) -> Result<Verdict> {
    if !can_unshare(libc::CLONE_NEWUSER)? {
        return Ok(Verdict::Skipped("a user namespace is refused (its reason is on stderr)".to_owned()));
    }
    let board = scene.board;
    let (place, fd) = scene.create("file")?;
    process::child_with(libc::CLONE_NEWUSER | libc::CLONE_NEWPID, || {
        line::ask_for_numbers();
        for _ in 0..3 {
            board.fsync(place, fd.as_raw_fd())?;
        }
        Ok(())
    })?
    .finish()?;
    Ok(Verdict::Done)
}
