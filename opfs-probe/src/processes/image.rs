//! Process images: what ran under each number that the kernel side counts by.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;

use jiff::Timestamp;
use nix::time::{ClockId, clock_gettime};
use opfs_probe_common::epoch::SYSTEM_SLOT;
use opfs_probe_common::record::{COMPAT_32_BIT, PATH_TRUNCATED, ProcessRecord};
use procfs::process::Process as ProcProcess;

use super::cgroup;
use super::role::{Role, Standing, role};
use super::tree::{self, thread_directories};
use crate::files::PathBytes;
use crate::files::components::Parts;

/// How many cgroups are remembered before they are looked up afresh.
const MAX_CGROUPS: usize = 4096;

/// `task_struct.flags` of a kernel thread (linux/sched.h).
const PF_KTHREAD: u32 = 0x0020_0000;

/// A process between two of fork, exec and exit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its id in the initial PID namespace; from `/proc`: in that mount's.
    pub pid: u32,
    /// Its id in its own PID namespace.
    pub ns_pid: Option<u32>,
    /// When the process started; to 10 ms where it was read from `/proc`.
    pub started_at: Option<Timestamp>,
    /// The name of its first thread, or where a record told of it, of the calling one.
    pub comm: Vec<u8>,
    /// Its executable, seen from its own mount namespace.
    pub exe: Option<PathBytes>,
    /// The start of its arguments; the last may be cut.
    pub args: Vec<Vec<u8>>,
    /// Its part in the session.
    pub role: Role,
    /// Its cgroup (version 2, unless only version 1 is in use).
    pub cgroup: Option<String>,
    /// It runs 32-bit code.
    pub compat_32_bit: bool,
    /// Its parent's id when it was seen.
    pub parent: Option<u32>,
}

/// Images by the number that membership gives them.
#[derive(Debug, Default)]
pub struct Images {
    by_number: HashMap<u32, Image>,
    /// The first process of each slot's session.
    roots: HashMap<u32, u32>,
    /// Cgroups by id, which the kernel never gives twice.
    cgroups: HashMap<u64, Option<String>>,
}

impl Images {
    /// No image yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says for which process the session in a slot was made, so that its images are told from those
    /// of its descendants. Comes before their records.
    pub fn set_root(&mut self, slot: u32, tgid: u32) {
        self.roots.insert(slot, tgid);
    }

    /// Takes a record, the arguments and the executable's components that follow it.
    pub fn see(&mut self, record: &ProcessRecord, args: &[u8], exe_components: &[u8]) {
        let comm = until_nul(&record.comm).to_vec();
        let exe_len = u64::from(record.mount_len) + u64::from(record.above_len);
        let truncated = record.flags & PATH_TRUNCATED != 0;
        // Only a kernel thread has no executable at all.
        let exe = (exe_len > 0 && !truncated)
            .then(|| Parts::decode(exe_components, record.mount_len, record.above_len, 0))
            .flatten()
            .map(|parts| parts.path());
        let args = split_args(args);
        let role = if exe_len == 0 && !truncated && args.is_empty() {
            Role::Kernel
        } else {
            role(exe.as_deref(), &args, &comm, self.standing(record.slot, record.tgid))
        };
        let image = Image {
            pid: record.tgid,
            ns_pid: some_unless_zero(record.ns_pid),
            started_at: after_boot(record.start_boottime_ns),
            comm,
            exe,
            args,
            role,
            cgroup: self.cgroup(record.cgroup_id, record.tgid),
            compat_32_bit: record.flags & COMPAT_32_BIT != 0,
            parent: some_unless_zero(record.parent_tgid),
        };
        self.by_number.insert(record.process, image);
    }

    /// Takes what `/proc` says of a running process, for one that was bound by user space to a slot or
    /// whose record is missing. False if it is gone.
    pub fn see_proc(&mut self, process: u32, slot: u32, pid: u32) -> bool {
        let Some(image) = from_proc(pid, self.standing(slot, pid)) else { return false };
        self.by_number.insert(process, image);
        true
    }

    /// The image of a number.
    pub fn get(&self, process: u32) -> Option<&Image> {
        self.by_number.get(&process)
    }

    /// Forgets the images that nothing counted refers to any more.
    pub fn retain(&mut self, mut keep: impl FnMut(u32) -> bool) {
        self.by_number.retain(|process, _| keep(*process));
    }

    fn standing(&self, slot: u32, tgid: u32) -> Standing {
        if self.roots.get(&slot) == Some(&tgid) {
            Standing::Root
        } else if slot == SYSTEM_SLOT {
            Standing::System
        } else {
            Standing::Member
        }
    }

    fn cgroup(&mut self, id: u64, tgid: u32) -> Option<String> {
        if id == 0 {
            return cgroup::of(tgid);
        }
        if self.cgroups.len() >= MAX_CGROUPS {
            self.cgroups.clear();
        }
        let unified = self.cgroups.entry(id).or_insert_with(|| cgroup::by_id(id));
        // Everything is in the root where only version 1 is in use.
        unified.clone().filter(|path| path != "/").or_else(|| cgroup::of(tgid)).or_else(|| unified.clone())
    }
}

/// What `/proc` says of a running process.
pub fn from_proc(pid: u32, standing: Standing) -> Option<Image> {
    let process = ProcProcess::new(i32::try_from(pid).ok()?).ok()?;
    let stat = process.stat().ok()?;
    let directory = Path::new("/proc").join(pid.to_string());
    let comm = fs::read(directory.join("comm")).unwrap_or_default();
    let comm = comm.strip_suffix(b"\n").unwrap_or(&comm).to_vec();
    let exe = tree::exe(pid);
    // Like the executable, arguments are gone from the process's own files when its first thread ended.
    let args = thread_directories(pid)
        .filter_map(|thread| fs::read(thread.join("cmdline")).ok())
        .find(|args| !args.is_empty())
        .map(|args| split_args(&args))
        .unwrap_or_default();
    let role = if stat.flags & PF_KTHREAD != 0 {
        Role::Kernel
    } else {
        role(exe.as_deref(), &args, &comm, standing)
    };
    let ns_pids = process.status().ok().and_then(|status| status.nspid).unwrap_or_default();
    let ticks_ns = 1_000_000_000 / procfs::ticks_per_second().max(1);
    Some(Image {
        pid,
        ns_pid: ns_pids.last().and_then(|ns_pid| u32::try_from(*ns_pid).ok()),
        started_at: after_boot(stat.starttime.saturating_mul(ticks_ns)),
        comm,
        exe,
        args,
        role,
        cgroup: cgroup::of(pid),
        compat_32_bit: is_32_bit(pid),
        parent: u32::try_from(stat.ppid).ok().and_then(some_unless_zero),
    })
}

/// Whether a process's executable is a 32-bit one, by the class in its ELF header.
fn is_32_bit(pid: u32) -> bool {
    const ELFCLASS32: u8 = 1;
    thread_directories(pid).find_map(|thread| File::open(thread.join("exe")).ok()).is_some_and(|mut exe| {
        let mut header = [0; 5];
        exe.read_exact(&mut header).is_ok() && header == [0x7f, b'E', b'L', b'F', ELFCLASS32]
    })
}

/// A time since boot on the clock of the wall, as that was set when it was first asked for: all images
/// of a process must agree on when it started.
fn after_boot(boottime_ns: u64) -> Option<Timestamp> {
    static BOOT_NS: OnceLock<Option<i128>> = OnceLock::new();
    if boottime_ns == 0 {
        return None;
    }
    let now = |clock| {
        let time = clock_gettime(clock).ok()?;
        Some(i128::from(time.tv_sec()) * 1_000_000_000 + i128::from(time.tv_nsec()))
    };
    let read = || Some(now(ClockId::CLOCK_REALTIME)? - now(ClockId::CLOCK_BOOTTIME)?);
    let boot_ns = (*BOOT_NS.get_or_init(read))?;
    Timestamp::from_nanosecond(boot_ns + i128::from(boottime_ns)).ok()
}

/// Splits NUL-separated arguments. Those that a process wrote over its own may be padded with NULs.
fn split_args(bytes: &[u8]) -> Vec<Vec<u8>> {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    if end == 0 {
        return Vec::new();
    }
    bytes[..end].split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn some_unless_zero(number: u32) -> Option<u32> {
    (number != 0).then_some(number)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use opfs_probe_common::record::PROCESS_RECORD;
    use proptest::prelude::*;

    use super::*;
    use crate::files::components::tests::encode;
    use crate::processes::tests::wait_for_arguments;

    fn record(mount_len: usize, args_len: usize) -> ProcessRecord {
        let mut comm = [0; 16];
        comm[..4].copy_from_slice(b"db\xff!");
        ProcessRecord {
            kind: PROCESS_RECORD,
            process: 9,
            slot: 3,
            tgid: 4000,
            parent_tgid: 3999,
            ns_pid: 1,
            start_boottime_ns: 5_000_000_000,
            cgroup_id: u64::MAX,
            comm,
            args_len: args_len as u32,
            mount_len: mount_len as u32,
            above_len: 0,
            flags: 0,
        }
    }

    fn see(images: &mut Images, change: impl Fn(&mut ProcessRecord), args: &[u8], exe: &str) -> Image {
        let exe = encode(exe.as_bytes());
        let mut record = record(exe.len(), args.len());
        change(&mut record);
        images.see(&record, args, &exe);
        images.get(record.process).unwrap().clone()
    }

    #[test]
    fn a_record_tells_the_image() {
        let mut images = Images::new();
        let image = see(&mut images, |_| (), b"db\0--path\0/srv\0\0\0", "/usr/bin/db");
        assert_eq!((image.pid, image.ns_pid, image.parent), (4000, Some(1), Some(3999)));
        assert_eq!(
            (image.comm.as_slice(), image.exe.as_deref()),
            (&b"db\xff!"[..], Some(&b"/usr/bin/db"[..]))
        );
        assert_eq!(image.args, [&b"db"[..], b"--path", b"/srv"]);
        assert_eq!((image.role, image.compat_32_bit), (Role::Child, false));
        let age = Timestamp::now().duration_since(image.started_at.unwrap());
        let uptime: f64 =
            fs::read_to_string("/proc/uptime").unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!((age.as_secs_f64() - (uptime - 5.0)).abs() < 0.2, "{age:?} after {uptime}");
    }

    #[test]
    fn the_role_depends_on_the_session() {
        let mut images = Images::new();
        images.set_root(3, 4000);
        assert_eq!(see(&mut images, |_| (), b"db\0", "/usr/bin/db").role, Role::Command);
        assert_eq!(see(&mut images, |record| record.tgid = 4001, b"db\0", "/usr/bin/db").role, Role::Child);
        assert_eq!(
            see(&mut images, |record| record.slot = SYSTEM_SLOT, b"db\0", "/usr/bin/db").role,
            Role::Other
        );
        let kernel = see(&mut images, |record| record.slot = SYSTEM_SLOT, b"", "");
        assert_eq!((kernel.role, kernel.exe), (Role::Kernel, None));
        let cut = see(&mut images, |record| record.flags = PATH_TRUNCATED | COMPAT_32_BIT, b"", "/usr");
        assert_eq!((cut.role, cut.exe, cut.compat_32_bit), (Role::Command, None, true));
        images.retain(|_| false);
        assert_eq!(images.get(9), None);
    }

    #[test]
    fn a_running_process_is_read_from_proc() {
        let mut child = Command::new("/bin/sleep").arg0("sl\u{e9}ep").arg("60").spawn().unwrap();
        wait_for_arguments(child.id());
        let mut images = Images::new();
        images.set_root(3, child.id());
        assert!(images.see_proc(7, 3, child.id()));
        let image = images.get(7).unwrap().clone();
        let program = fs::canonicalize("/bin/sleep").unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(image.pid, child.id());
        assert_eq!(image.parent, Some(std::process::id()));
        assert_eq!(
            (image.comm.as_slice(), image.exe),
            (&b"sleep"[..], Some(program.into_os_string().into_encoded_bytes()))
        );
        assert_eq!(image.args, ["sl\u{e9}ep".as_bytes(), b"60"]);
        assert_eq!((image.role, image.compat_32_bit), (Role::Command, false));
        assert!(image.ns_pid.is_some() && image.cgroup.is_some());
        let age = Timestamp::now().duration_since(image.started_at.unwrap()).as_secs_f64();
        assert!((-0.1..5.0).contains(&age), "{age}");
        assert!(!images.see_proc(8, 3, child.id()), "gone");
        assert!(!images.see_proc(8, 3, u32::MAX));
    }

    #[test]
    fn a_kernel_thread_is_one() {
        let Some(image) = from_proc(2, Standing::System).filter(|image| image.comm == b"kthreadd") else {
            eprintln!("skipped: no kernel threads in this PID namespace");
            return;
        };
        assert_eq!((image.role, image.exe, image.args.len()), (Role::Kernel, None, 0));
    }

    proptest! {
        #[test]
        fn any_record_is_taken(
            exe in prop::collection::vec(prop::sample::select(&b"a/\0\xff"[..]), 0..30),
            args in prop::collection::vec(prop::sample::select(&b"-= \0\xff"[..]), 0..30),
            lengths in any::<(u32, u32)>(),
            flags in 0..8_u32,
            start_boottime_ns in any::<u64>(),
        ) {
            let mut images = Images::new();
            let record = ProcessRecord {
                mount_len: lengths.0,
                above_len: lengths.1,
                flags,
                start_boottime_ns,
                cgroup_id: 0,
                ..record(0, args.len())
            };
            images.see(&record, &args, &exe);
            prop_assert!(images.get(9).is_some());
        }
    }
}
