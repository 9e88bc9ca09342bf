//! File systems of the tests' own.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use super::text;

/// Past the capture of the tests' output: what was not tested is to be seen.
pub fn skipped(what: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}: {why}");
}

/// An image of a file system, mounted over a loop device until this is dropped.
pub struct Image {
    folder: TempDir,
}

impl Image {
    /// Makes and mounts one. None, loudly, where there is no mkfs for it.
    pub fn of(filesystem: &str) -> Option<Self> {
        Self::within(&std::env::temp_dir(), filesystem)
    }

    /// The same with the file in a folder of this one.
    pub fn within(place: &Path, filesystem: &str) -> Option<Self> {
        Self::made_with(place, filesystem, &[])
    }

    /// The same with options for mkfs.
    pub fn made_with(place: &Path, filesystem: &str, options: &[&str]) -> Option<Self> {
        // The smallest that XFS takes.
        const BYTES: u64 = 320 << 20;
        let folder = TempDir::new_in(place).unwrap();
        let image = folder.path().join("image");
        File::create(&image).unwrap().set_len(BYTES).unwrap();
        let mkfs = format!("mkfs.{filesystem}");
        let Ok(made) = Command::new(&mkfs).arg("-q").args(options).arg(&image).output() else {
            skipped(filesystem, &format!("{mkfs} is not installed"));
            return None;
        };
        assert!(made.status.success(), "{mkfs}: {}", text(&made.stderr));
        let image = Self { folder };
        fs::create_dir(image.dir()).unwrap();
        let mounted =
            Command::new("mount").args(["-o", "loop"]).arg(image.path()).arg(image.dir()).output().unwrap();
        if !mounted.status.success() {
            skipped(filesystem, &format!("it can't be mounted: {}", text(&mounted.stderr)));
            return None;
        }
        Some(image)
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    /// Where it is mounted.
    pub fn dir(&self) -> PathBuf {
        self.folder.path().join("mounted")
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // A ring's files are closed a moment after its process has ended.
        const TRIES: u32 = 50;
        for _ in 0..TRIES {
            if Command::new("umount").arg(self.dir()).output().is_ok_and(|ended| ended.status.success()) {
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
        let _ = writeln!(std::io::stderr(), "{} can't be unmounted: it stays", self.dir().display());
    }
}
