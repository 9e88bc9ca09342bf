//! Debian's kernel packages: found by apt, unpacked into the target folder, never installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{self, is_root};

/// An unpacked kernel.
pub struct Kernel {
    /// What `uname -r` says under it.
    pub release: String,
    /// Where the package's files are.
    root: PathBuf,
}

impl Kernel {
    /// The newest of a series that apt knows; one that was unpacked before where apt knows none.
    pub fn get(series: &str, folder: &Path) -> Result<Self> {
        let known = known(series);
        let unpacked = unpacked(series, folder)?;
        let Some(release) = newest(known).or_else(|| newest(unpacked)) else {
            bail!(
                "apt knows no linux-image-{series}…-cloud-amd64: run `apt-get update`, or add the Debian release \
                 that has it (6.1: bookworm; 6.12: trixie, bookworm-security) to apt's sources"
            );
        };
        let kernel = Self { root: folder.join(&release), release };
        if !kernel.image().exists() {
            kernel.download(folder)?;
        }
        Ok(kernel)
    }

    /// The file that boots.
    pub fn image(&self) -> PathBuf {
        self.root.join(format!("boot/vmlinuz-{}", self.release))
    }

    /// The folder of its modules.
    pub fn modules(&self) -> PathBuf {
        self.root.join(format!("lib/modules/{}", self.release))
    }

    fn download(&self, folder: &Path) -> Result<()> {
        let package = package(&self.release);
        // Unpacked beside its place, so that one that was cut off is not taken for a whole one.
        let partial = folder.join("partial");
        remove(&partial)?;
        fs::create_dir(&partial).with_context(|| format!("{} can't be made", partial.display()))?;
        let mut download = Command::new("apt-get");
        if is_root() {
            // apt's own user can't write here.
            download.args(["-o", "APT::Sandbox::User=root"]);
        }
        command::run(download.args(["download", "--quiet", &package]).current_dir(&partial))?;
        let archive =
            fs::read_dir(&partial)?.next().with_context(|| format!("{package} did not arrive"))??;
        let mut unpack = Command::new("dpkg");
        command::run(unpack.arg("-x").arg(archive.path()).arg(partial.join("root")))?;
        let mut depmod = command::tool("depmod");
        command::run(depmod.arg("--basedir").arg(partial.join("root")).arg(&self.release))?;
        remove(&self.root)?;
        fs::rename(partial.join("root"), &self.root)
            .with_context(|| format!("{} can't be made", self.root.display()))?;
        remove(&partial)
    }
}

fn package(release: &str) -> String {
    format!("linux-image-{release}")
}

/// The releases of a series that apt has packages of.
fn known(series: &str) -> Vec<String> {
    let pattern = format!(r"^linux-image-{}\..*-cloud-amd64$", series.replace('.', r"\."));
    let search = Command::new("apt-cache").args(["search", "--names-only", &pattern]).output();
    let Ok(search) = search else { return Vec::new() };
    let printed = String::from_utf8_lossy(&search.stdout);
    let names = printed.lines().filter_map(|line| line.split(' ').next());
    names.filter_map(|name| Some(name.strip_prefix("linux-image-")?.to_owned())).collect()
}

/// The releases of a series that are here.
fn unpacked(series: &str, folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| format!("{} can't be read", folder.display()))?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let of_series = |name: &String| name.starts_with(&format!("{series}.")) && name.ends_with("-cloud-amd64");
    Ok(names.filter(of_series).collect())
}

/// By the numbers in its name: 6.1.0-57 is newer than 6.1.0-9.
fn newest(releases: Vec<String>) -> Option<String> {
    releases.into_iter().max_by_key(|release| {
        let numbers = release.split(|c: char| !c.is_ascii_digit());
        numbers.filter_map(|number| number.parse().ok()).collect::<Vec<u64>>()
    })
}

/// Removes a folder if it is there.
pub fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("{} can't be removed", folder.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_so_by_number() {
        let releases = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let named = ["6.1.0-9-cloud-amd64", "6.1.0-57-cloud-amd64", "6.1.0-48-cloud-amd64"];
        assert_eq!(newest(releases(&named)).as_deref(), Some(named[1]));
        let named = ["6.12.117+deb12-cloud-amd64", "6.12.48+deb13-cloud-amd64"];
        assert_eq!(newest(releases(&named)).as_deref(), Some(named[0]));
        assert_eq!(newest(Vec::new()), None);
    }
}
