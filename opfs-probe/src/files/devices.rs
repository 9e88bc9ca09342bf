//! Block devices by number: their names, what they lie on, and whether they keep what they are given.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::stat_major_minor;

/// How many devices may lie on each other: real stacks are three or four deep.
const DEEPEST: usize = 16;

/// Names of drivers whose devices are memory.
const IN_MEMORY: [&str; 3] = ["ram", "zram", "nullb"];

/// The devices, as sysfs shows them.
pub struct Devices {
    /// Where sysfs is mounted.
    sys: PathBuf,
}

/// What lies at the bottom of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bottom {
    /// From the device down: `loop0`, `/srv/image`, `vda1`, `vda`.
    pub stack: Vec<String>,
    /// The write caches of the disks at the bottom, in the kernel's words; more than one if they differ.
    pub write_caches: BTreeSet<String>,
    /// Some of it is memory.
    pub in_memory: bool,
    /// Some of it belongs to a hypervisor, whose own cache can't be seen.
    pub is_virtual: bool,
}

impl Devices {
    /// Those of this system.
    pub fn here() -> Self {
        Self { sys: "/sys".into() }
    }

    /// The kernel's name of a device, such as `vda1`; none if it is no block device.
    pub fn name(&self, dev: (u32, u32)) -> Option<String> {
        let folder = self.folder(dev)?;
        Some(folder.file_name()?.to_string_lossy().into_owned())
    }

    /// What a device lies on.
    pub fn bottom(&self, dev: (u32, u32)) -> Bottom {
        let mut bottom = Bottom::default();
        if let Some(folder) = self.folder(dev) {
            self.descend(&folder, DEEPEST, &mut bottom);
        }
        bottom
    }

    fn folder(&self, (major, minor): (u32, u32)) -> Option<PathBuf> {
        fs::canonicalize(self.sys.join(format!("dev/block/{major}:{minor}"))).ok()
    }

    fn descend(&self, folder: &Path, depth: usize, bottom: &mut Bottom) {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(depth) = depth.checked_sub(1) else { return };
        bottom.stack.push(match read(&folder.join("dm/name")) {
            Some(mapped) => format!("{name} ({mapped})"),
            None => name.clone(),
        });
        if folder.join("partition").exists() {
            if let Some(disk) = folder.parent() {
                self.descend(disk, depth, bottom);
            }
            return;
        }
        if let Some(file) = read(&folder.join("loop/backing_file")) {
            self.descend_into_file(&file, depth, bottom);
            return;
        }
        let slaves: Vec<PathBuf> = fs::read_dir(folder.join("slaves"))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|slave| fs::canonicalize(slave.path()).ok())
            .collect();
        for slave in &slaves {
            self.descend(slave, depth, bottom);
        }
        if slaves.is_empty() {
            bottom.in_memory |= IN_MEMORY.iter().any(|driver| is_of(&name, driver));
            bottom.is_virtual |= is_virtual(folder);
            bottom.write_caches.extend(read(&folder.join("queue/write_cache")));
        }
    }

    fn descend_into_file(&self, file: &str, depth: usize, bottom: &mut Bottom) {
        bottom.stack.push(file.to_owned());
        // Deleted, or in another mount namespace.
        let Ok(metadata) = fs::metadata(file) else { return };
        let dev = stat_major_minor(metadata.dev());
        match self.folder(dev) {
            Some(folder) => self.descend(&folder, depth, bottom),
            None => bottom.in_memory |= is_in_memory(Path::new(file)),
        }
    }
}

/// `ram0` is of `ram`, `ramses` is not.
fn is_of(name: &str, driver: &str) -> bool {
    name.strip_prefix(driver)
        .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether a disk's driver is that of a hypervisor: virtio, Xen, Hyper-V, or a disk that calls itself QEMU's.
fn is_virtual(folder: &Path) -> bool {
    let path = folder.to_string_lossy();
    let model = read(&folder.join("device/model")).unwrap_or_default();
    ["/virtio", "/vbd-", "/VMBUS"].iter().any(|part| path.contains(part))
        || ["QEMU", "VMware", "VBOX", "Virtual"].iter().any(|part| model.contains(part))
}

fn is_in_memory(file: &Path) -> bool {
    use nix::sys::statfs::{TMPFS_MAGIC, statfs};
    statfs(file).is_ok_and(|found| found.filesystem_type() == TMPFS_MAGIC)
}

fn read(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(text.trim_end_matches('\n').to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A sysfs with a mapped device on two partitions of one disk, and one on itself, which can't be.
    fn sysfs() -> tempfile::TempDir {
        let sys = tempfile::tempdir().unwrap();
        let make = |path: &str, files: &[(&str, &str)]| {
            let folder = sys.path().join("devices").join(path);
            fs::create_dir_all(&folder).unwrap();
            for (name, text) in files {
                let file = folder.join(name);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
            folder
        };
        let disk = make("pci0/virtio1/block/vda", &[("queue/write_cache", "write back\n")]);
        let first = make("pci0/virtio1/block/vda/vda1", &[("partition", "1\n")]);
        let second = make("pci0/virtio1/block/vda/vda2", &[("partition", "2\n")]);
        let mapped = make("virtual/block/dm-0", &[("dm/name", "vg-root\n")]);
        let ring = make("virtual/block/dm-1", &[("dm/name", "ring\n")]);
        for (above, beneath) in [(&mapped, &first), (&mapped, &second), (&ring, &ring)] {
            fs::create_dir_all(above.join("slaves")).unwrap();
            symlink(beneath, above.join("slaves").join(beneath.file_name().unwrap())).unwrap();
        }
        let memory = make("virtual/block/zram0", &[("queue/write_cache", "write through\n")]);
        fs::create_dir_all(sys.path().join("dev/block")).unwrap();
        for (number, folder) in
            [("254:0", &disk), ("254:1", &first), ("253:0", &mapped), ("253:1", &ring), ("252:0", &memory)]
        {
            symlink(folder, sys.path().join("dev/block").join(number)).unwrap();
        }
        sys
    }

    #[test]
    fn stacks_are_followed_to_their_disks() {
        let sys = sysfs();
        let devices = Devices { sys: sys.path().to_owned() };
        assert_eq!(devices.name((254, 1)).as_deref(), Some("vda1"));
        assert_eq!(devices.name((8, 0)), None);
        let mapped = devices.bottom((253, 0));
        let mut stack = mapped.stack.clone();
        stack.sort();
        assert_eq!(stack, ["dm-0 (vg-root)", "vda", "vda", "vda1", "vda2"]);
        assert_eq!(mapped.write_caches, ["write back".to_owned()].into());
        assert!(mapped.is_virtual && !mapped.in_memory);
        assert!(devices.bottom((252, 0)).in_memory);
        assert_eq!(devices.bottom((253, 1)).stack.len(), DEEPEST, "a ring ends");
        assert_eq!(devices.bottom((0, 30)), Bottom::default());
    }

    #[test]
    fn names_of_drivers_end_in_a_number() {
        assert!(is_of("ram0", "ram") && is_of("zram12", "zram"));
        assert!(!is_of("ram", "ram") && !is_of("ramses", "ram"));
    }
}
