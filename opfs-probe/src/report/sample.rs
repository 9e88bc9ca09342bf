//! A report made by hand, for the tests of every format: odd paths, errors, nulls.

use std::collections::{BTreeMap, HashMap};

use opfs_probe_common::call::{CallTally, FileIdentity, InFlightCall, Op};
use opfs_probe_common::epoch::OpenTotals;
use opfs_probe_common::flushed::FlushTally;
use opfs_probe_common::histogram::{Histogram, bucket};
use opfs_probe_common::performed::{self, Cause};
use serde_json::{Map, json};

use super::build::{FileName, ImageName, Losses, Measured, Naming, completeness, session};
use super::model::{
    Filesystem, Host, Layer, Probe, Report, ResolvedBy, Role, SCHEMA, SessionKind, Tracer, TracerKind,
};
use crate::attribution::totals::{CallKey, FileRef, PerformedKey, Totals};
use crate::attribution::window::{ClientId, Moment, SessionId, Window, WindowId};

/// Names by number.
#[derive(Default)]
pub struct Names {
    pub files: BTreeMap<FileIdentity, FileName>,
    pub images: HashMap<u32, ImageName>,
}

impl Naming for Names {
    fn file(&self, identity: &FileIdentity) -> Option<FileName> {
        self.files.get(identity).cloned()
    }

    fn image(&self, process: u32) -> Option<ImageName> {
        self.images.get(&process).cloned()
    }

    fn device(&self, dev: u32) -> Option<String> {
        (dev == DEV - 1).then(|| "vda".to_owned())
    }
}

const DEV: u32 = 254 << 20 | 1;

pub fn identity(inode: u64) -> FileIdentity {
    FileIdentity { inode_address: inode ^ 0xffff_8880_0000_0000, inode, dev: DEV, generation: 1 }
}

fn name(inode: u64, path: &[u8], deleted: bool) -> (FileIdentity, FileName) {
    let name = FileName {
        path: Some([b"/srv", path].concat()),
        fs_path: Some(path.to_vec()),
        names: vec![[b"/srv", path].concat()],
        dev: DEV,
        inode,
        deleted,
        resolved_by: ResolvedBy::Kernel,
        group: None,
        seen: inode,
        performed_seen: inode != u64::MAX,
    };
    (identity(inode), name)
}

pub fn names() -> Names {
    let files = [
        name(10, b"/data.db", false),
        name(11, b"/data.db-journal", true),
        name(12, b"/data.db-journal", true),
        name(13, b"/odd \xff|`name\n\x1b[31m", false),
        name(u64::MAX, "/ü/\u{202e}big".as_bytes(), true),
    ];
    let image = |pid, comm: &[u8], exe: &[u8], role| ImageName {
        pid,
        ns_pid: Some(pid - 4000),
        started_at: Some("2026-03-01T12:00:00.25Z".parse().unwrap()),
        comm: comm.to_vec(),
        exe: Some(exe.to_vec()),
        role,
        cgroup: Some("/user.slice".into()),
        compat_32_bit: false,
    };
    Names {
        files: files.into(),
        images: HashMap::from([
            (1, image(4001, b"writer", b"/usr/bin/writer", Role::Command)),
            (2, image(4002, b"odd|\xfe", b"/opt/\xfe/odd", Role::Child)),
        ]),
    }
}

/// Adds calls that each take `ns`.
pub fn add(totals: &mut Totals, op: Op, process: u32, file: FileRef, errno: u16, count: u64, ns: u64) {
    let key = CallKey { op, process: (file != FileRef::Lost).then_some(process), file, errno };
    totals.add_call(key, CallTally { count, total_ns: count * ns, max_ns: ns, untimed: 0 });
    totals.histograms.entry(op).or_insert(Histogram::ZERO).buckets[bucket(ns)] += count;
}

fn inner() -> Totals {
    let mut totals = Totals::default();
    add(&mut totals, Op::Fdatasync, 1, FileRef::Known(identity(10)), 0, 1000, 2_000_000);
    add(&mut totals, Op::Fdatasync, 1, FileRef::Known(identity(10)), 0, 10, 15_250_000);
    add(&mut totals, Op::Fsync, 1, FileRef::Known(identity(11)), 0, 120, 1_250_000);
    add(&mut totals, Op::Fsync, 1, FileRef::Known(identity(12)), 5, 2, 800_000);
    totals
}

fn all() -> Totals {
    let mut totals = inner();
    add(&mut totals, Op::Fsync, 2, FileRef::Known(identity(13)), 0, 3, 900);
    add(&mut totals, Op::Fsync, 2, FileRef::Known(identity(u64::MAX)), 28, 1, 70_000);
    add(&mut totals, Op::Fsync, 2, FileRef::None, 9, 4, 300);
    add(&mut totals, Op::Sync, 99, FileRef::None, 0, 1, 44_000_000);
    add(&mut totals, Op::Msync, 2, FileRef::Unseen, 0, 2, 5_000);
    add(&mut totals, Op::Fsync, 1, FileRef::Known(identity(77)), 0, 1, 1_000);
    add(&mut totals, Op::Fsync, 0, FileRef::Lost, 0, 1, 6_000);
    // A seccomp filter answered: no time is known.
    let refused = CallKey { op: Op::Syncfs, process: Some(2), file: FileRef::Known(identity(10)), errno: 1 };
    totals.add_call(refused, CallTally { count: 2, untimed: 2, ..CallTally::default() });
    totals.opens =
        Some(OpenTotals { count: 130, errors: 3, create: 121, excl: 1, dsync: 2, ..OpenTotals::default() });
    for (cause, process, inode, count) in [
        (Cause::Explicit, 1, 10, 1010),
        (Cause::Explicit, 1, 11, 120),
        (Cause::Implicit, 2, 10, 7),
        (Cause::Uring, 1, 13, 1),
    ] {
        let file = FileRef::Known(identity(inode));
        let key =
            PerformedKey { filesystem: performed::Filesystem::Ext4, cause, process: Some(process), file };
        totals.add_performed(key, count);
    }
    let flushed = FlushTally { flushes: 640, fua: 12, errors: 1, total_ns: 310_000_000, max_ns: 9_000_000 };
    let other = FlushTally { flushes: 2, total_ns: 400_000, max_ns: 300_000, ..FlushTally::default() };
    totals.flushes = Some([(DEV - 1, flushed), (8 << 20, other)].into());
    totals.straddling = 1;
    totals.restarted = 1;
    totals.in_flight = 1;
    totals
}

fn moment(monotonic_ns: u64) -> Moment {
    let start: jiff::Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
    Moment { monotonic_ns, realtime: start + jiff::SignedDuration::from_nanos(monotonic_ns as i64) }
}

fn windows() -> Vec<Window> {
    let window = |id, parent: Option<u32>, name: &str, total: Totals| Window {
        id: WindowId(id),
        client: ClientId(1),
        client_id: format!("c{id}"),
        parent: parent.map(WindowId),
        name: name.into(),
        attrs: Map::new(),
        calls: None,
        entries: 1,
        started_at: moment(100_000_000),
        open_since: None,
        open_ns: 2_800_000_000,
        aborted: false,
        own: Totals::default(),
        total,
    };
    vec![
        window(1, None, "load", inner()),
        Window {
            calls: Some(1010),
            entries: 2,
            attrs: json!({"table": "t|1"}).as_object().cloned().unwrap_or_default(),
            own: inner(),
            ..window(2, Some(1), "rows|\u{1b}", inner())
        },
        Window { open_since: Some(moment(3_000_000_000)), ..window(3, None, "check", Totals::default()) },
        Window { aborted: true, ..window(4, Some(3), "again", Totals::default()) },
    ]
}

fn report_of(counted: bool) -> Report {
    let windows = windows();
    let (total, outside) = (all(), Totals::default());
    let command: Vec<Vec<u8>> =
        ["writer", "--rows", "it's", "1010"].map(|word| word.as_bytes().to_vec()).into();
    let waiting = InFlightCall {
        file: identity(10),
        start_ns: 1_000_000_000,
        epoch: 1,
        slot: 1,
        process: 1,
        op: Op::Fdatasync as u16,
        flags: 0,
    };
    let measured = Measured {
        id: SessionId(1),
        name: "load test",
        kind: SessionKind::Command,
        root_pid: Some(4001),
        command: Some(&command),
        started_at: moment(0),
        ended_at: moment(3_200_000_000),
        exit_status: Some(0),
        browser: None,
        windows: &windows,
        outside: &outside,
        total: &total,
        in_flight: if counted { std::slice::from_ref(&waiting) } else { &[] },
        counted,
    };
    let sessions = vec![session(&measured, &names())];
    let losses = Losses {
        coverage_gaps: vec!["syncs through io_uring".into()],
        warnings: vec!["/srv is on tmpfs: a flush costs nothing there".into()],
        ..Losses::default()
    };
    Report {
        schema: SCHEMA.into(),
        generated_at: "2026-03-01T12:00:04Z".parse().unwrap(),
        host: Host {
            hostname: "box_1".into(),
            kernel: "6.12.1".into(),
            arch: "x86_64".into(),
            cpu: None,
            cpus: Some(2),
            memory_bytes: Some(8_000_000_000),
        },
        tracer: Tracer {
            kind: if counted { TracerKind::Ebpf } else { TracerKind::None },
            version: Some("0.1.0".into()),
            probes: vec![
                Probe {
                    name: "syscalls:sys_enter_fsync".into(),
                    layer: Layer::Syscall,
                    attached: counted,
                    reason: None,
                    runs: counted.then_some(1_234),
                    run_ns: counted.then_some(800_000),
                    missed: counted.then_some(0),
                },
                Probe {
                    name: "block_rq_issue".into(),
                    layer: Layer::Block,
                    attached: false,
                    reason: Some("not asked for".into()),
                    runs: None,
                    run_ns: None,
                    missed: None,
                },
            ],
            run_time_over_ns: counted.then_some(4_000_000_000),
        },
        narrowed_to: Vec::new(),
        filesystems: vec![Filesystem {
            dev: "254:1".into(),
            mount: "/srv".into(),
            fstype: "ext4".into(),
            options: "rw,relatime".into(),
            device: Some("/dev/vda1".into()),
            write_cache: Some("write back".into()),
            journal: Some(true),
            barrier: Some(true),
            durable: Some(true),
            note: None,
        }],
        completeness: completeness(&sessions, &losses),
        sessions,
    }
}

/// A report with something of everything.
pub fn report() -> Report {
    report_of(true)
}

/// The same run with nothing counting.
pub fn untraced() -> Report {
    report_of(false)
}
