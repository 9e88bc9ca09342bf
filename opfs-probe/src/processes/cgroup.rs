//! Control groups: which one a process is in, and which processes are in one.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::tree::{self, Process, Scan};
use crate::files::mounts::Mounts;

/// How deep a walk goes; real hierarchies have under ten levels.
const MAX_DEPTH: usize = 64;

/// The cgroup of a process, from the text of `/proc/PID/cgroup`: the one of version 2, or where that
/// hierarchy is not in use, systemd's of version 1.
pub fn parse(text: &[u8]) -> Option<String> {
    let path_of = |controllers: &[u8]| {
        text.split(|byte| *byte == b'\n').find_map(|line| {
            let mut fields = line.splitn(3, |byte| *byte == b':').skip(1);
            (fields.next()? == controllers).then(|| fields.next())?
        })
    };
    let unified = path_of(b"");
    let path = unified.filter(|path| *path != b"/").or_else(|| path_of(b"name=systemd")).or(unified)?;
    Some(String::from_utf8_lossy(path).into_owned())
}

/// The cgroup of a process, if that can be seen.
pub fn of(pid: u32) -> Option<String> {
    parse(&fs::read(format!("/proc/{pid}/cgroup")).ok()?)
}

/// Where the hierarchy of version 2 is mounted.
pub fn mount() -> Option<PathBuf> {
    mount_among(&Mounts::read().ok()?)
}

fn mount_among(mounts: &Mounts) -> Option<PathBuf> {
    let mount = mounts.mounts.iter().find(|mount| mount.fstype == b"cgroup2" && mount.root == b"/");
    let mount = mount.or_else(|| mounts.mounts.iter().find(|mount| mount.fstype == b"cgroup2"))?;
    Some(PathBuf::from(OsStr::from_bytes(&mount.mountpoint)))
}

/// The directory of a cgroup given by its directory, or by its path in the hierarchy of version 2.
pub fn directory(cgroup: &Path) -> Option<PathBuf> {
    let is_cgroup = |directory: &PathBuf| directory.join("cgroup.procs").is_file();
    let given = cgroup.to_path_buf();
    let within = || Some(mount()?.join(cgroup.strip_prefix("/").unwrap_or(cgroup)));
    Some(given).filter(is_cgroup).or_else(|| within().filter(is_cgroup))
}

/// The directories of a systemd unit's cgroup; more than one if users' managers have the same.
pub fn of_unit(unit: &str) -> Vec<PathBuf> {
    let name = if unit.contains('.') { unit.to_owned() } else { format!("{unit}.service") };
    let systemd_of_version_1 = PathBuf::from("/sys/fs/cgroup/systemd");
    for root in mount().into_iter().chain([systemd_of_version_1]) {
        let mut found = Vec::new();
        walk(&root, &mut |directory| {
            if directory.file_name().is_some_and(|file_name| file_name == name.as_str()) {
                found.push(directory.to_path_buf());
            }
            true
        });
        if !found.is_empty() {
            found.sort();
            return found;
        }
    }
    Vec::new()
}

/// The processes in a cgroup and in those beneath it.
pub fn processes(directory: &Path) -> Vec<u32> {
    let mut pids = BTreeSet::new();
    walk(directory, &mut |directory| {
        // Unreadable where only threads are managed; those processes are listed further up.
        let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
        // 0 stands for a process outside our PID namespace.
        pids.extend(text.lines().filter_map(|line| line.parse().ok()).filter(|pid: &u32| *pid != 0));
        true
    });
    pids.into_iter().collect()
}

/// Calls `bind` for each process in a cgroup and beneath, until nothing new appears.
pub fn scan<E>(directory: &Path, bind: impl FnMut(&Process) -> Result<(), E>) -> Result<Scan, E> {
    tree::scan(|| processes(directory).into_iter().filter_map(Process::of).collect(), bind)
}

/// The cgroup of version 2 with this id, as the kernel gives it for the current task.
pub fn by_id(id: u64) -> Option<String> {
    by_id_under(&mount()?, id)
}

fn by_id_under(root: &Path, id: u64) -> Option<String> {
    let mut found = None;
    walk(root, &mut |directory| {
        // The id is the directory's inode number (kernfs).
        if fs::metadata(directory).is_ok_and(|metadata| metadata.ino() == id) {
            found = directory.strip_prefix(root).ok().map(|path| Path::new("/").join(path));
        }
        found.is_none()
    });
    found.map(|path| String::from_utf8_lossy(&path.into_os_string().into_vec()).into_owned())
}

/// Visits a directory and all beneath it until `visit` says no.
fn walk(root: &Path, visit: &mut dyn FnMut(&Path) -> bool) {
    let mut waiting = vec![(root.to_path_buf(), 0)];
    while let Some((directory, depth)) = waiting.pop() {
        if !visit(&directory) {
            return;
        }
        if depth == MAX_DEPTH {
            continue;
        }
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        waiting.extend(entries.filter(is_directory).map(|entry| (entry.path(), depth + 1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::mounts;

    #[test]
    fn the_cgroup_of_version_2_comes_first_where_it_is_in_use() {
        let of = |text: &str| parse(text.as_bytes());
        assert_eq!(of("0::/system.slice/ssh.service\n").as_deref(), Some("/system.slice/ssh.service"));
        let hybrid = "9:name=systemd:/user.slice\n4:memory:/a\n0::/user.slice/session-1.scope\n";
        assert_eq!(of(hybrid).as_deref(), Some("/user.slice/session-1.scope"));
        assert_eq!(of("9:name=systemd:/user.slice\n4:memory:/a\n0::/\n").as_deref(), Some("/user.slice"));
        assert_eq!(of("9:name=systemd:/\n4:memory:/a\n0::/\n").as_deref(), Some("/"));
        assert_eq!(of("4:memory:/a\n0::/\n").as_deref(), Some("/"));
        assert_eq!(of("0::/with:colon\n").as_deref(), Some("/with:colon"));
        assert_eq!(of("4:memory:/a\n"), None);
        assert_eq!(of(""), None);
        assert_eq!(parse(b"nonsense\n0::/\xff\n").as_deref(), Some("/\u{fffd}"));
        assert!(super::of(std::process::id()).is_some_and(|path| path.starts_with('/')));
        assert_eq!(super::of(u32::MAX), None);
    }

    #[test]
    fn the_mount_is_the_one_of_version_2() {
        let table = b"\
30 21 0:25 / /sys/fs/cgroup ro - tmpfs tmpfs ro
31 30 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
32 30 0:27 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
";
        let mounts = Mounts { namespace: None, mounts: mounts::parse(table) };
        assert_eq!(mount_among(&mounts).as_deref(), Some(Path::new("/sys/fs/cgroup/unified")));
        assert_eq!(mount_among(&Mounts::default()), None);
    }

    /// A tree of plain directories, as a walk sees cgroups.
    #[test]
    fn processes_of_a_subtree_are_collected() {
        let root = tempfile::tempdir().unwrap();
        let unit = root.path().join("system.slice/db.service");
        fs::create_dir_all(unit.join("worker")).unwrap();
        fs::write(root.path().join("cgroup.procs"), "1\n").unwrap();
        fs::write(unit.join("cgroup.procs"), "40\n0\n41\n").unwrap();
        fs::write(unit.join("worker/cgroup.procs"), "41\n7\nx\n").unwrap();
        assert_eq!(processes(&unit), [7, 40, 41]);
        assert_eq!(processes(root.path()), [1, 7, 40, 41]);
        assert_eq!(processes(Path::new("/nonexistent")), [] as [u32; 0]);
        assert_eq!(directory(&unit).as_deref(), Some(unit.as_path()));
        assert_eq!(directory(Path::new("/no/such/cgroup")), None);
        let id = fs::metadata(&unit).unwrap().ino();
        assert_eq!(by_id_under(root.path(), id).as_deref(), Some("/system.slice/db.service"));
        assert_eq!(by_id_under(root.path(), u64::MAX), None);
    }
}
