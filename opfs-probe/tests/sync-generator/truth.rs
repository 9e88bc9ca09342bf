//! From the calls on the board to the truth file. The format is described in `main.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;

use serde_json::{Map, Value, json};

use crate::line::{Call, Op};
use crate::scene::{PlaceTruth, Scene};
use crate::sys::Errno;

/// Calls that differ in nothing that a report could show.
#[derive(Default)]
struct Group {
    returned: u64,
    unreturned: u64,
    elapsed_ns: u64,
}

/// What one process called, and its names meanwhile.
#[derive(Default)]
struct Process {
    group: Group,
    comms: BTreeSet<[u8; 16]>,
    thread_comms: BTreeSet<[u8; 16]>,
}

/// Sums over all cases.
#[derive(Default)]
pub struct Totals {
    ops: BTreeMap<(bool, Op), OpTotal>,
}

#[derive(Default)]
struct OpTotal {
    group: Group,
    errors: BTreeMap<String, u64>,
}

impl Group {
    fn add(&mut self, call: &Call) {
        self.elapsed_ns += call.elapsed_ns;
        if call.answer.is_some() {
            self.returned += 1;
        } else {
            self.unreturned += 1;
        }
    }

    /// `count`, and the range if there is one.
    fn describe(&self, object: &mut Map<String, Value>) {
        object.insert("count".into(), self.returned.into());
        if self.unreturned > 0 {
            object.insert("count_min".into(), self.returned.into());
            object.insert("count_max".into(), (self.returned + self.unreturned).into());
        }
    }
}

impl Totals {
    fn add(&mut self, call: &Call) {
        let total = self.ops.entry((call.compat, call.op)).or_default();
        total.group.add(call);
        if let Some(Err(errno)) = call.answer {
            *total.errors.entry(errno.name()).or_default() += 1;
        }
    }

    /// The totals of the ordinary calls, or of those through the 32-bit entry.
    pub fn describe(&self, compat: bool) -> Value {
        let mut ops = Map::new();
        for ((_, op), total) in self.ops.iter().filter(|((is_compat, _), _)| *is_compat == compat) {
            let mut object = Map::new();
            total.group.describe(&mut object);
            object.insert("errors".into(), json!(total.errors));
            ops.insert(op.name().into(), object.into());
        }
        ops.into()
    }
}

/// One case, as the truth file has it.
pub fn describe_case(
    name: &str,
    scene: &Scene,
    skipped: Option<&str>,
    failed: Option<&str>,
    totals: &mut Totals,
) -> Value {
    let board = scene.board.calls();
    let (opens, calls): (Vec<Call>, Vec<Call>) = board.into_iter().partition(|call| call.op == Op::Open);
    for call in &calls {
        totals.add(call);
    }
    let files = describe_files(scene, &calls);
    let (compat, ordinary): (Vec<Call>, Vec<Call>) = calls.into_iter().partition(|call| call.compat);
    let mut case = json!({
        "name": name,
        "skipped": skipped,
        "failed": failed,
        "mount_namespace": if scene.own_mount_namespace { "own" } else { "initial" },
        "calls": describe_calls(scene, &ordinary),
        "files": files,
        "processes": describe_processes(&ordinary),
        "opens": if scene.opens_unknown.is_none() { describe_opens(&opens) } else { Value::Null },
        "opens_unknown": scene.opens_unknown,
        "notes": scene.notes,
    });
    if !compat.is_empty() {
        case["calls32"] = describe_calls(scene, &compat);
    }
    case
}

/// What each file was called at its last call: the board is in the order in which calls were made.
fn describe_files(scene: &Scene, calls: &[Call]) -> Value {
    let mut last: BTreeMap<u32, &PlaceTruth> = BTreeMap::new();
    for call in calls {
        let place = &scene.places[call.place.0 as usize];
        if let (Some(file), Some(_)) = (place.file, &place.path) {
            last.insert(file, place);
        }
    }
    let describe = |(file, place): (&u32, &&PlaceTruth)| {
        let mut object = Map::new();
        object.insert("file".into(), (*file).into());
        insert_text(&mut object, "path", place.path.as_deref());
        object.insert("deleted".into(), place.deleted.into());
        Value::from(object)
    };
    last.iter().map(describe).collect()
}

/// What the calls of a group have in common: place, op, error, the two names, and identity.
type Key = (u32, Op, Option<Errno>, [[u8; 16]; 2], Option<((u32, u32), u64)>);

fn describe_calls(scene: &Scene, calls: &[Call]) -> Value {
    let mut groups: BTreeMap<Key, Group> = BTreeMap::new();
    let mut names: BTreeMap<u32, BTreeSet<&[u8]>> = BTreeMap::new();
    for call in calls {
        let errno = call.answer.and_then(Result::err);
        let key = (call.place.0, call.op, errno, [call.comm, call.process_comm], call.identity);
        groups.entry(key).or_default().add(call);
        let place = &scene.places[call.place.0 as usize];
        if let (Some(file), Some(path)) = (place.file, &place.path) {
            names.entry(file).or_default().insert(path);
        }
    }
    // A call that was cut off has no answer: it belongs to those of its kind that succeeded.
    let describe = |(key, group): (&Key, &Group)| {
        let place = &scene.places[key.0 as usize];
        let names = place.file.and_then(|file| names.get(&file));
        describe_call(key, group, place, names)
    };
    groups.iter().map(describe).collect()
}

fn describe_call(key: &Key, group: &Group, place: &PlaceTruth, names: Option<&BTreeSet<&[u8]>>) -> Value {
    let (_, op, errno, [comm, process_comm], identity) = key;
    let mut entry = Map::new();
    entry.insert("op".into(), op.name().into());
    insert_text(&mut entry, "path", place.path.as_deref());
    let names: Vec<&[u8]> = names.into_iter().flatten().copied().collect();
    entry.insert("names".into(), names.iter().map(|name| text(name)).collect());
    if names.iter().any(|name| str::from_utf8(name).is_err()) {
        entry.insert("names_bytes".into(), names.iter().map(|name| base64(name)).collect());
    }
    entry.insert("file".into(), json!(place.file));
    entry.insert("dev".into(), identity.map(|((major, minor), _)| format!("{major}:{minor}")).into());
    entry.insert("inode".into(), identity.map(|(_, inode)| inode.to_string()).into());
    entry.insert("deleted".into(), place.deleted.into());
    entry.insert("errno".into(), errno.map(Errno::name).into());
    group.describe(&mut entry);
    insert_text(&mut entry, "comm", Some(name(comm)));
    insert_text(&mut entry, "process_comm", Some(name(process_comm)));
    // No call takes no time: 0 is one whose time nobody took.
    entry.insert("elapsed_ns".into(), Some(group.elapsed_ns).filter(|time| *time > 0).into());
    if !place.other_paths.is_empty() {
        let others = place.other_paths.iter().map(|path| text(path.as_os_str().as_bytes()));
        entry.insert("other_paths".into(), others.collect());
    }
    if place.path_uncertain {
        entry.insert("path_uncertain".into(), true.into());
    }
    if place.answered_by_seccomp {
        entry.insert("answered_by".into(), "seccomp".into());
    }
    entry.into()
}

fn describe_processes(calls: &[Call]) -> Value {
    let mut processes: BTreeMap<(i32, i32), Process> = BTreeMap::new();
    for call in calls {
        let process = processes.entry((call.pid, call.ns_pid)).or_default();
        process.group.add(call);
        process.comms.insert(call.process_comm);
        process.thread_comms.insert(call.comm);
    }
    let describe = |((pid, ns_pid), process): (&(i32, i32), &Process)| {
        let names = |comms: &BTreeSet<[u8; 16]>| comms.iter().map(|comm| text(name(comm))).collect::<Value>();
        let mut object = Map::new();
        object.insert("pid".into(), (*pid).into());
        object.insert("ns_pid".into(), (*ns_pid).into());
        object.insert("comms".into(), names(&process.comms));
        object.insert("thread_comms".into(), names(&process.thread_comms));
        process.group.describe(&mut object);
        Value::from(object)
    };
    processes.iter().map(describe).collect()
}

fn describe_opens(opens: &[Call]) -> Value {
    let with = |wanted: &dyn Fn(i32) -> bool| opens.iter().filter(|call| wanted(call.open_flags)).count();
    json!({
        "count": opens.len(),
        "errors": opens.iter().filter(|call| matches!(call.answer, Some(Err(_)))).count(),
        "create": with(&|flags| flags & libc::O_CREAT != 0),
        "excl": with(&|flags| flags & libc::O_EXCL != 0),
        "trunc": with(&|flags| flags & libc::O_TRUNC != 0),
        "sync": with(&|flags| flags & libc::O_SYNC == libc::O_SYNC),
        "dsync": with(&|flags| flags & libc::O_SYNC == libc::O_DSYNC),
        "direct": with(&|flags| flags & libc::O_DIRECT != 0),
    })
}

/// A comm without the zero bytes that fill it up.
fn name(comm: &[u8; 16]) -> &[u8] {
    comm.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// A name as `key`, with its bytes as `key_bytes` when they aren't UTF-8.
fn insert_text(object: &mut Map<String, Value>, key: &str, bytes: Option<&[u8]>) {
    object.insert(key.into(), bytes.map(text).into());
    if let Some(bytes) = bytes.filter(|bytes| str::from_utf8(bytes).is_err()) {
        object.insert(format!("{key}_bytes"), base64(bytes).into());
    }
}

/// UTF-8 as it is; every byte that belongs to none as `\xNN`.
fn text(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

/// RFC 4648, padded.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut encoded = String::new();
    for group in bytes.chunks(3) {
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let used = digit <= group.len();
            let value = DIGITS[(bits >> (18 - 6 * digit) & 63) as usize];
            encoded.push(if used { char::from(value) } else { '=' });
        }
    }
    encoded
}
