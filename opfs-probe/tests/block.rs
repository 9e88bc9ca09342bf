//! What devices flushed, against the kernel's own statistics of a loop device. Needs root.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::linux::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::image::{Image, skipped};
use common::{Daemon, PROBE, as_reported, probe, require_root, text, wait_until};
use opfs_probe::report::model::{Flush, Report, Totals};

/// A mounted image whose device nobody else uses.
struct Disk {
    image: Image,
    /// `major:minor`
    dev: String,
}

impl Disk {
    fn new() -> Option<Self> {
        require_root();
        let image = Image::of("ext4")?;
        let st_dev = fs::metadata(image.dir()).unwrap().st_dev();
        let dev = format!("{}:{}", nix::sys::stat::major(st_dev), nix::sys::stat::minor(st_dev));
        // Until the next commit of the journal by itself, nothing is flushed but what is asked for.
        let mut remount = Command::new("mount");
        remount.args(["-o", "remount,commit=300"]).arg(image.dir());
        assert!(remount.status().unwrap().success());
        assert!(Command::new("sync").arg("-f").arg(image.dir()).status().unwrap().success());
        Some(Self { image, dev })
    }

    /// Flush requests that the device was done with, as the kernel counts them: the 16th of the numbers in
    /// Documentation/block/stat.rst.
    fn flushed(&self) -> u64 {
        let stat = fs::read_to_string(format!("/sys/dev/block/{}/stat", self.dev)).unwrap();
        stat.split_whitespace().nth(15).expect("Linux 5.5 has that number").parse().unwrap()
    }

    /// Runs a script in the mounted folder, and gives its report with what the kernel counted meanwhile.
    fn watch(&self, script: &str) -> (Report, u64) {
        let output = tempfile::NamedTempFile::new().unwrap();
        let mut command = probe(&["run", "--format", "json", "--output"]);
        command.arg(output.path()).args(["--", "sh", "-c", script]);
        let before = self.flushed();
        let ran = command.env("PROBE", PROBE).current_dir(self.image.dir()).output().unwrap();
        let counted = self.flushed() - before;
        assert!(ran.status.success(), "{}\n{}", ran.status, text(&ran.stderr));
        (serde_json::from_slice(&fs::read(output.path()).unwrap()).unwrap(), counted)
    }

    fn of(&self, totals: Option<&Totals>) -> Flush {
        let flushes = totals.unwrap().flushes.as_ref().expect("the block layer is watched");
        let none = Flush {
            dev: self.dev.clone(),
            device: None,
            count: 0,
            fua: 0,
            errors: 0,
            total_ns: Some(0),
            max_ns: Some(0),
        };
        flushes.iter().find(|flush| flush.dev == self.dev).cloned().unwrap_or(none)
    }
}

/// Writes and syncs so many files.
fn syncs(files: u32) -> String {
    format!(
        "for i in $(seq {files}); do dd if=/dev/zero of=file$i bs=4k count=1 conv=fsync 2>/dev/null; done"
    )
}

#[test]
fn flushes_are_counted_as_the_device_is_done_with_them() {
    let Some(disk) = Disk::new() else { return };
    let (report, counted) = disk.watch(&syncs(20));
    let session = &report.sessions[0];
    let flush = disk.of(session.total.as_ref());
    assert!(counted >= 20, "an fsync of a new file flushes: {counted}");
    assert_eq!((flush.count, flush.errors), (counted, 0));
    assert!(flush.device.as_deref().is_some_and(|name| name.starts_with("loop")), "{flush:?}");
    let (total_ns, max_ns) = (flush.total_ns.unwrap(), flush.max_ns.unwrap());
    assert!(0 < max_ns && max_ns <= total_ns && total_ns < session.duration_ns, "{flush:?}");
    let [filesystem] = &report.filesystems[..] else { panic!("{:?}", report.filesystems) };
    assert_eq!((filesystem.journal, filesystem.barrier), (Some(true), Some(true)));
    let image = disk.image.path();
    assert!(filesystem.device.as_ref().unwrap().contains(image.to_str().unwrap()), "{filesystem:?}");
    assert!(report.completeness.is_perfect(), "{:?}", report.completeness);
}

#[test]
fn a_flush_lies_in_the_windows_of_its_time() {
    let Some(disk) = Disk::new() else { return };
    let script = format!(
        "busy=$($PROBE window begin busy --pid $$); {}; $PROBE window end $busy
         idle=$($PROBE window begin idle --pid $$); sleep 0.2; $PROBE window end $idle",
        syncs(5)
    );
    let (report, counted) = disk.watch(&script);
    let window = |name: &str| {
        let windows = &report.sessions[0].windows;
        let window = windows.iter().find(|window| window.name == name);
        disk.of(window.unwrap_or_else(|| panic!("no window {name}")).total.as_ref())
    };
    assert_eq!((window("busy").count, window("idle").count), (counted, 0));
    assert_eq!(disk.of(report.sessions[0].total.as_ref()).count, counted);
}

/// Another tool's programs on the same tracepoints, and in interrupts everywhere.
struct Bpftrace(Child);

impl Bpftrace {
    fn start() -> Option<Self> {
        const SCRIPT: &str = "BEGIN { printf(\"ready\\n\"); }
            tracepoint:block:block_rq_issue, tracepoint:block:block_rq_complete { @requests = count(); }
            tracepoint:syscalls:sys_enter_fsync, tracepoint:syscalls:sys_exit_fsync { @syncs[comm] = count(); }
            tracepoint:irq:softirq_entry, tracepoint:sched:sched_switch { @busy[cpu] = count(); }
            profile:hz:4999 { @samples[kstack] = count(); }";
        if Command::new("bpftrace").arg("--version").output().is_err() {
            skipped("bpftrace", "it is not installed");
            return None;
        }
        // It wants to see tracefs, and nobody else need.
        let script = "mount --make-private /sys && { mountpoint -q /sys/kernel/tracing ||
            mount -t tracefs none /sys/kernel/tracing; } && exec bpftrace -B line -e \"$0\"";
        let mut child = Command::new("unshare")
            .args(["--mount", "--propagation", "unchanged", "sh", "-c", script, SCRIPT])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.any(|line| line.unwrap() == "ready");
        let bpftrace = Self(child);
        assert!(ready, "bpftrace ended before its programs ran");
        Some(bpftrace)
    }
}

impl Drop for Bpftrace {
    fn drop(&mut self) {
        // Only our child, not yet waited for: its id can't be another's.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn nothing_is_lost_while_another_tool_is_busy_on_the_same_cpus() {
    let Some(disk) = Disk::new() else { return };
    let Some(_busy) = Bpftrace::start() else { return };
    let writers = format!("for w in 1 2 3 4 5 6 7 8; do (mkdir $w; cd $w; {}) & done; wait", syncs(40));
    let (report, counted) = disk.watch(&writers);
    assert!(counted >= 40, "{counted}");
    let total = report.sessions[0].total.as_ref().unwrap();
    assert_eq!(disk.of(Some(total)).count, counted);
    assert_eq!(total.sync_calls, 8 * 40);
    assert!(report.completeness.is_perfect(), "{:?}", report.completeness);
}

/// A file system whose device can't write: that lies in a file of one that is frozen.
struct Stuck {
    inner: Image,
    outer: Image,
}

impl Stuck {
    fn new() -> Option<Self> {
        let outer = Image::of("ext4")?;
        Some(Self { inner: Image::within(&outer.dir(), "ext4")?, outer })
    }

    fn freeze(&self, how: &str) {
        let frozen = Command::new("fsfreeze").arg(how).arg(self.outer.dir()).output().unwrap();
        assert!(frozen.status.success(), "{}", text(&frozen.stderr));
    }
}

#[test]
fn a_call_that_hangs_is_shown_while_it_does() {
    require_root();
    let Some(stuck) = Stuck::new() else { return };
    let daemon = Daemon::start(&[]);
    let file = stuck.inner.dir().join("file");
    fs::write(&file, "data").unwrap();
    stuck.freeze("--freeze");
    let mut hanging = Command::new("sync").arg(&file).spawn().unwrap();
    let pid = hanging.id();
    let in_flight = || {
        let report = daemon.report(&[]);
        let sessions = report["sessions"].as_array().unwrap().clone();
        let calls = sessions.iter().flat_map(|session| session["in_flight"].as_array().unwrap().clone());
        calls.filter(|call| call["pid"] == pid).collect::<Vec<_>>()
    };
    // Whatever comes of it, nothing may stay frozen.
    let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        wait_until("the call", || !in_flight().is_empty());
        std::thread::sleep(Duration::from_millis(300));
        (in_flight(), daemon.scrape())
    }));
    stuck.freeze("--unfreeze");
    assert!(hanging.wait().unwrap().success());
    let (calls, metrics) = seen.unwrap();
    let [call] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!((&call["op"], &call["comm"]), (&"fsync".into(), &"sync".into()));
    assert_eq!(
        call["path"].as_str().map(Path::new),
        Some(as_reported(&file.canonicalize().unwrap()).as_path())
    );
    assert!(call["age_ns"].as_u64().unwrap() >= 300_000_000, "{call}");
    let oldest = metrics.lines().find_map(|line| line.strip_prefix("opfs_probe_in_flight_oldest_seconds "));
    assert!(oldest.unwrap().parse::<f64>().unwrap() >= 0.3, "{oldest:?}");
    assert!(in_flight().is_empty(), "it has returned");
}
