//! The mounts that this process sees, and where a file of another mount namespace appears among them.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use super::{PathBytes, kernel_dev};

/// One line of `/proc/PID/mountinfo` (proc(5)), as far as naming files needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Its number, as in `/proc/PID/fdinfo`.
    pub id: u32,
    /// The number of the mount it lies in.
    pub parent: u32,
    /// The superblock's device, in the kernel's own encoding.
    pub dev: u32,
    /// Which directory of the file system is mounted.
    pub root: PathBytes,
    /// Where.
    pub mountpoint: PathBytes,
    /// The file system's type.
    pub fstype: Vec<u8>,
    /// What is mounted: a device, or whatever the file system calls its source.
    pub source: Vec<u8>,
    /// The options of the mount and those of the file system, as mount(8) lists them.
    pub options: Vec<u8>,
}

/// The mounts of this process's mount namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts {
    /// The namespace's number; none if it could not be read.
    pub namespace: Option<u32>,
    /// The mounts, in the kernel's order.
    pub mounts: Vec<Mount>,
}

impl Mounts {
    /// Reads those of this process.
    pub fn read() -> io::Result<Self> {
        Self::of("self")
    }

    /// Reads those of a process, given as in `/proc/PID`.
    pub fn of(process: &str) -> io::Result<Self> {
        let mounts = parse(&fs::read(format!("/proc/{process}/mountinfo"))?);
        // The file behind the link has the number that the kernel keeps as `ns.inum`.
        let namespace = fs::metadata(format!("/proc/{process}/ns/mnt"));
        Ok(Self { namespace: namespace.ok().map(|metadata| metadata.ino() as u32), mounts })
    }

    /// A mount by its number.
    pub fn by_id(&self, id: u32) -> Option<&Mount> {
        self.mounts.iter().find(|mount| mount.id == id)
    }

    /// The shortest path that leads here to `fs_path` of the file system `dev`, through no covered mount.
    pub fn find(&self, dev: u32, fs_path: &[u8]) -> Option<PathBytes> {
        self.mounts
            .iter()
            .filter(|mount| mount.dev == dev)
            .filter_map(|mount| {
                let path = graft(&mount.mountpoint, strip_directory(fs_path, &mount.root)?);
                (self.reached_by(&path)?.id == mount.id).then_some(path)
            })
            .min_by_key(Vec::len)
    }

    /// The mount in which a look-up of `path` ends, if its directories are no symbolic links. None for that
    /// of a chroot which is no mountpoint: it is not listed.
    fn reached_by(&self, path: &[u8]) -> Option<&Mount> {
        let is_top = |mount: &Mount| self.by_id(mount.parent).is_none();
        // The root's parent is not listed, being beyond what this process can reach. Mounts stacked
        // on "/" later are not entered: look-ups start beneath them.
        let mut reached = self.mounts.iter().find(|mount| mount.mountpoint == b"/" && is_top(mount));
        // Each step goes down one mount; the bound is for tables that no kernel writes.
        for _ in 0..=self.mounts.len() {
            let lies_in_reached = |mount: &Mount| match reached {
                Some(reached) => mount.parent == reached.id && mount.id != reached.id,
                None => is_top(mount),
            };
            let next = self
                .mounts
                .iter()
                .filter(|mount| lies_in_reached(mount))
                .filter(|mount| {
                    mount.mountpoint != b"/" && strip_directory(path, &mount.mountpoint).is_some()
                })
                .min_by_key(|mount| mount.mountpoint.len());
            match next {
                Some(mount) => reached = Some(mount),
                None => return reached,
            }
        }
        None
    }
}

/// What of an absolute path follows the directory: empty or with a leading slash. None if it does not
/// lie in the directory.
pub fn strip_directory<'a>(path: &'a [u8], directory: &[u8]) -> Option<&'a [u8]> {
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    let rest = path.strip_prefix(directory)?;
    match rest {
        b"" | b"/" => Some(b""),
        [b'/', ..] => Some(rest),
        _ => None,
    }
}

/// Puts `rest`, as [`strip_directory`] gives it, beneath `directory`.
fn graft(directory: &[u8], rest: &[u8]) -> PathBytes {
    if rest.is_empty() {
        return directory.to_vec();
    }
    [directory.strip_suffix(b"/").unwrap_or(directory), rest].concat()
}

/// Parses a mountinfo file. Lines that don't read as the manual says are left out.
pub fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let mut dev = fields.next()?.splitn(2, |byte| *byte == b':');
    let (major, minor) = (number(dev.next()?)?, number(dev.next()?)?);
    if major > 0xfff || minor > 0xf_ffff {
        return None;
    }
    let root = unescape(fields.next()?);
    let mountpoint = unescape(fields.next()?);
    let own_options = unescape(fields.next()?);
    // Any number of optional fields, up to a dash.
    fields.find(|field| *field == b"-")?;
    let fstype = unescape(fields.next()?);
    let source = unescape(fields.next()?);
    let options = [own_options, unescape(fields.next()?)].join(&b',');
    // Roots of nsfs and the like are no paths.
    Some(Mount { id, parent, dev: kernel_dev(major, minor), root, mountpoint, fstype, source, options })
}

fn number(field: &[u8]) -> Option<u32> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Undoes the kernel's `mangle`: space, tab, newline and backslash (and `#`) are written as `\ooo`.
fn unescape(field: &[u8]) -> PathBytes {
    let mut bytes = PathBytes::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        if let [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] = rest {
            bytes.push(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'));
            rest = tail;
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::*;
    use crate::files::components::tests::name;

    const TABLE: &str = "\
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
22 21 0:20 / /proc rw,nosuid - proc proc rw
30 21 254:16 / /mnt/disk rw shared:7 master:2 - xfs /dev/vdb rw
31 21 254:16 /sub /data rw - xfs /dev/vdb rw
32 21 254:16 /sub/deep /covered/deep rw - xfs /dev/vdb rw
33 21 0:40 / /covered rw - tmpfs none rw
34 21 0:41 /@home /with\\040space\\134and\\012line rw - btrfs /dev/vdc rw
35 34 0:42 / /with\\040space\\134and\\012line/over rw - overlay overlay rw
not a line
36 21 nonsense / /x rw - a b c
37 21 0:4 net:[4026531840] /run/netns/x rw - nsfs nsfs rw
";

    fn table() -> Mounts {
        Mounts { namespace: Some(1), mounts: parse(TABLE.as_bytes()) }
    }

    #[test]
    fn fields_are_read_and_broken_lines_left_out() {
        let mounts = table();
        assert_eq!(mounts.mounts.len(), 9);
        let home = mounts.by_id(34).unwrap();
        assert_eq!((home.root.as_slice(), home.fstype.as_slice()), (&b"/@home"[..], &b"btrfs"[..]));
        assert_eq!(home.mountpoint, b"/with space\\and\nline");
        assert_eq!((home.dev, home.parent), (41, 21));
        assert_eq!(mounts.by_id(30).unwrap().dev, kernel_dev(254, 16));
    }

    #[test]
    fn the_shortest_uncovered_way_is_found() {
        let mounts = table();
        let find = |major, minor, path: &str| {
            let found = mounts.find(kernel_dev(major, minor), path.as_bytes());
            found.map(|path| String::from_utf8(path).unwrap())
        };
        assert_eq!(find(254, 0, "/etc/x").as_deref(), Some("/etc/x"));
        assert_eq!(find(254, 0, "/").as_deref(), Some("/"));
        assert_eq!(find(254, 16, "/other/f").as_deref(), Some("/mnt/disk/other/f"));
        assert_eq!(find(254, 16, "/sub/f").as_deref(), Some("/data/f"));
        assert_eq!(find(254, 16, "/sub").as_deref(), Some("/data"));
        assert_eq!(find(254, 16, "/submarine").as_deref(), Some("/mnt/disk/submarine"));
        assert_eq!(find(254, 16, "/sub/deep/f").as_deref(), Some("/data/deep/f"), "/covered/deep is covered");
        assert_eq!(find(0, 41, "/@home/f").as_deref(), Some("/with space\\and\nline/f"));
        assert_eq!(find(0, 41, "/@home/over/f"), None, "another file system is mounted there");
        assert_eq!(find(0, 41, "/@root/f"), None, "that subvolume is not mounted");
        assert_eq!(find(254, 0, "/proc/1"), None, "covered by proc");
        assert_eq!(find(8, 1, "/f"), None);
    }

    #[test]
    fn a_chroot_that_is_no_mountpoint_has_no_root_listed() {
        let table = "63 43 0:21 / /proc rw - proc proc rw\n\
                     64 43 0:22 / /sys rw - sysfs sysfs rw\n\
                     65 64 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n";
        let mounts = Mounts { namespace: None, mounts: parse(table.as_bytes()) };
        let find = |minor, fs_path: &[u8]| mounts.find(kernel_dev(0, minor), fs_path);
        assert_eq!(find(21, b"/self").as_deref(), Some(&b"/proc/self"[..]));
        assert_eq!(find(28, b"/unified").as_deref(), Some(&b"/sys/fs/cgroup/unified"[..]));
        assert_eq!(find(22, b"/fs/cgroup/x"), None, "covered");
        assert_eq!(mounts.reached_by(b"/home"), None);
    }

    #[test]
    fn this_process_sees_its_own_root() {
        let mounts = Mounts::read().unwrap();
        assert!(mounts.namespace.is_some_and(|inum| inum > 0));
        // In a chroot that is no mount of its own, there is none.
        if let Some(root) = mounts.reached_by(b"/") {
            assert_eq!(root.mountpoint, b"/");
        }
        let proc = mounts.mounts.iter().find(|mount| mount.mountpoint == b"/proc").unwrap();
        assert_eq!(mounts.find(proc.dev, b"/self").as_deref(), Some(&b"/proc/self"[..]));
    }

    proptest! {
        #[test]
        fn any_mountpoint_is_read_back(name in name()) {
            let mut escaped = String::from("/");
            for byte in &name {
                write!(escaped, "\\{byte:03o}").unwrap();
            }
            let line = format!("2 1 8:1 / {escaped} rw shared:1 - ext4 /dev/sda rw");
            let mounts = parse(line.as_bytes());
            prop_assert_eq!(&mounts[0].mountpoint, &[b"/", name.as_slice()].concat());
        }

        #[test]
        fn any_text_is_taken(text in prop::collection::vec(prop::sample::select(&b"12 :/\\-0\nab"[..]), 0..200)) {
            let mounts = Mounts { namespace: None, mounts: parse(&text) };
            for mount in &mounts.mounts {
                let _ = mounts.find(mount.dev, b"/a/b");
            }
        }
    }
}
