//! The guest's disk: an ext4 image with our programs, the ones they call, and their libraries.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::packages::{self, Kernel};
use super::programs::Programs;
use crate::command::{self, which};

/// Programs of this machine that the tests or the guest's first process call. busybox has the rest.
const CALLED: [&str; 15] = [
    "btrfs",
    "dd",
    "losetup",
    "mkfs.btrfs",
    "mkfs.ext4",
    "mkfs.xfs",
    "modprobe",
    "mount",
    "setsid",
    "sh",
    "sleep",
    "strace",
    "sync",
    "umount",
    "unshare",
];

const INIT: &str = include_str!("init.sh");

/// `nobody` is whom a test runs the generator as.
const USERS: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n";
const GROUPS: &str = "root:x:0:\nnogroup:x:65534:\n";

/// Lays the guests' common file system out, in a folder.
pub fn populate(folder: &Path, kernels: &[Kernel], programs: &Programs, test: Option<&str>) -> Result<()> {
    let root = root(folder);
    packages::remove(&root)?;
    let tree = Tree { root };
    for name in ["usr/bin", "usr/sbin", "usr/lib", "usr/lib64"] {
        tree.make_dir(name)?;
        let link = name.trim_start_matches("usr/");
        symlink(name, tree.at(link)).with_context(|| format!("/{link} can't be linked"))?;
    }
    for name in ["dev", "mnt", "proc", "results", "root", "run", "sys", "tmp", "var/tmp", "usr/lib/modules"] {
        tree.make_dir(name)?;
    }
    for name in ["tmp", "var/tmp"] {
        fs::set_permissions(tree.at(name), PermissionsExt::from_mode(0o1777))?;
    }
    tree.write("etc/passwd", USERS, 0o644)?;
    tree.write("etc/group", GROUPS, 0o644)?;
    tree.write("init", INIT, 0o755)?;
    let (probe, generator) = (programs.probe.display(), programs.generator.display());
    let only = test.unwrap_or_default();
    tree.write(
        "results/programs",
        &format!("PROBE='{probe}'\nGENERATOR='{generator}'\nONLY='{only}'\n"),
        0o644,
    )?;
    let tests: Vec<String> = programs.tests.iter().map(|test| test.display().to_string()).collect();
    tree.write("results/tests", &(tests.join("\n") + "\n"), 0o644)?;

    let mut libraries = BTreeSet::new();
    for program in programs.all() {
        libraries.extend(libraries_of(program)?);
        tree.copy_stripped(program)?;
    }
    let busybox = which("busybox").context("busybox is missing")?;
    libraries.extend(libraries_of(&busybox)?);
    tree.copy(&busybox, Path::new("/bin/busybox"))?;
    for name in CALLED {
        let program = which(name).with_context(|| format!("{name} is missing; install it"))?;
        libraries.extend(libraries_of(&program)?);
        tree.copy(&program, &program)?;
    }
    for library in libraries {
        tree.copy(&library, &library)?;
    }
    for kernel in kernels {
        let mut copy = Command::new("cp");
        copy.args(["--recursive", "--reflink=auto"]).arg(kernel.modules()).arg(tree.at("usr/lib/modules"));
        command::run(&mut copy)?;
    }
    Ok(())
}

/// Makes the disk of one guest. The image is sparse.
pub fn make_image(folder: &Path, image: &Path) -> Result<()> {
    const BYTES: u64 = 4 << 30;
    let _ = fs::remove_file(image);
    let file = fs::File::create(image).with_context(|| format!("{} can't be made", image.display()))?;
    file.set_len(BYTES)?;
    let mut make = command::tool("mke2fs");
    // root's, whoever we are: only then may the guest's users do what they may on a real system.
    make.args(["-q", "-t", "ext4", "-E", "root_owner=0:0", "-d"]).arg(root(folder)).arg(image);
    command::run(&mut make)
}

/// Reads a file of an image that no guest is using.
pub fn read(image: &Path, path: &str) -> Result<Vec<u8>> {
    let mut dump = command::tool("debugfs");
    let output = dump.args(["-R", &format!("cat {path}")]).arg(image).output();
    let output = output.context("debugfs did not start")?;
    // It prints its version, and any error, to stderr, and always succeeds.
    let said = String::from_utf8_lossy(&output.stderr);
    if said.lines().count() > 1 {
        bail!("{path} can't be read from {}: {}", image.display(), said.trim());
    }
    Ok(output.stdout)
}

fn root(folder: &Path) -> PathBuf {
    folder.join("root")
}

/// A file system that grows in a folder.
struct Tree {
    root: PathBuf,
}

impl Tree {
    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn make_dir(&self, path: &str) -> Result<()> {
        fs::create_dir_all(self.at(path)).with_context(|| format!("/{path} can't be made"))
    }

    fn write(&self, path: &str, text: &str, mode: u32) -> Result<()> {
        let file = self.at(path);
        self.place(&file)?;
        fs::write(&file, text).with_context(|| format!("/{path} can't be written"))?;
        fs::set_permissions(&file, PermissionsExt::from_mode(mode))?;
        Ok(())
    }

    /// Copies what a path leads to; a link becomes what it leads to.
    fn copy(&self, from: &Path, to: &Path) -> Result<()> {
        let to = self.root.join(to.strip_prefix("/").unwrap_or(to));
        self.place(&to)?;
        fs::copy(from, &to).with_context(|| format!("{} can't be copied", from.display()))?;
        Ok(())
    }

    /// Debugging information is most of a program, and of no use in the guest.
    fn copy_stripped(&self, program: &Path) -> Result<()> {
        let to = self.root.join(program.strip_prefix("/").unwrap_or(program));
        self.place(&to)?;
        let mut strip = Command::new("strip");
        command::run(strip.arg("--strip-debug").arg("-o").arg(to).arg(program))
    }

    fn place(&self, file: &Path) -> Result<()> {
        let parent = file.parent().unwrap_or(&self.root);
        fs::create_dir_all(parent).with_context(|| format!("{} can't be made", parent.display()))
    }
}

/// The shared libraries of a program and its interpreter, by ldd.
fn libraries_of(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output().context("ldd did not start")?;
    let printed = String::from_utf8_lossy(&output.stdout);
    if printed.contains("not found") {
        bail!("{} lacks a library:\n{printed}", program.display());
    }
    Ok(parse_ldd(&printed))
}

/// `NAME => /PATH (0x…)`, or `/PATH (0x…)` for the interpreter. Of a static program it says so, without paths.
fn parse_ldd(printed: &str) -> Vec<PathBuf> {
    let paths = printed.lines().filter_map(|line| {
        let path = line.rsplit("=> ").next()?.trim().split(" (").next()?;
        path.starts_with('/').then(|| PathBuf::from(path))
    });
    paths.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_ldd() {
        let printed = "\tlinux-vdso.so.1 (0x00007ffd)\n\
            \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f2a)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f2b)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(parse_ldd(printed), expected.map(PathBuf::from));
        assert!(parse_ldd("\tnot a dynamic executable\n").is_empty());
    }
}
