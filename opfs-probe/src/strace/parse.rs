//! Reads what `strace -f -y -ttt -T -o FILE` wrote, one call at a time.
//!
//! A call may be cut in two, other threads' lines in between:
//!
//! ```text
//! 17 1796069763.125 fdatasync(60</a/b> <unfinished ...>
//! 18 1796069763.126 fsync(3</a/c>) = 0 <0.000432>
//! 17 1796069763.127 <... fdatasync resumed>) = 0 <0.001530>
//! ```
//!
//! Nothing here trusts the file: a line that can't be read is counted, never fatal.

use std::collections::HashMap;

use nix::errno::Errno;
use opfs_probe_common::call::Op;

use super::unescape::decode;

/// One sync call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The thread that made it. (strace knows threads only; see [`super::attribute`].)
    pub tid: u32,
    /// When strace saw it begin, in nanoseconds of `CLOCK_REALTIME`; strace stamps microseconds.
    pub started_ns: u64,
    /// Time inside; none if it never returned.
    pub duration_ns: Option<u64>,
    /// Its kind.
    pub op: Op,
    /// The file's path, where strace could name the descriptor.
    pub path: Option<Vec<u8>>,
    /// The file had been deleted.
    pub deleted: bool,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It returned 0, or more.
    Success,
    /// It returned this errno.
    Error(u16),
    /// A signal came between; the kernel, or the program, makes the call again.
    Restarted,
    /// Its thread was killed inside, or the log ends before it returned.
    Unfinished,
}

/// How a version of strace marks a deleted file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletedMark {
    /// `3</a/b (deleted)>`, until 5.18: a file that is really called so can't be told apart.
    Inside,
    /// `3</a/b>(deleted)`
    Beside,
}

/// Everything that one log tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The calls in the order in which they began.
    pub calls: Vec<Call>,
    /// Returns of calls that had begun before strace came; they are not in `calls`.
    pub begun_before: u64,
    /// Traced calls of threads that were killed before strace could ask which call it was. The kernel
    /// had not entered them: seccomp, where strace stops a thread, comes first.
    pub unknown_calls: u64,
    /// Lines that make no sense: the log is damaged, or strace's format has changed.
    pub unreadable_lines: u64,
    /// The first of them.
    pub first_unreadable: Option<String>,
}

/// Reads a log of a strace that marks deleted files so ([`super::command::Strace::deleted_mark`]).
pub fn parse(log: &[u8], mark: DeletedMark) -> Log {
    let mut parser = Parser { log: Log::default(), mark, open: HashMap::new() };
    for line in log.split(|byte| *byte == b'\n') {
        if !line.is_empty() && parser.line(line).is_none() {
            parser.log.unreadable_lines += 1;
            parser.log.first_unreadable.get_or_insert_with(|| String::from_utf8_lossy(line).into_owned());
        }
    }
    parser.log
}

struct Parser {
    log: Log,
    mark: DeletedMark,
    /// By thread: the call that it is in, and its position in the log; none for a call that doesn't
    /// count (msync without `MS_SYNC`).
    open: HashMap<u32, (String, Option<usize>)>,
}

impl Parser {
    /// None if the line can't be read.
    fn line(&mut self, line: &[u8]) -> Option<()> {
        let (tid, rest) = number(line)?;
        let tid = u32::try_from(tid).ok()?;
        let (started_ns, rest) = seconds(trim(rest))?;
        let rest = trim(rest);
        if let Some(rest) = rest.strip_prefix(b"<... ") {
            return self.resumed(tid, rest);
        }
        if rest.starts_with(b"---") || rest.starts_with(b"+++") {
            return Some(());
        }
        let name_end = rest.iter().position(|byte| *byte == b'(')?;
        let name = std::str::from_utf8(&rest[..name_end]).ok()?;
        if name.len() >= 3 && name.bytes().all(|byte| byte == b'?') {
            self.log.unknown_calls += 1;
            return Some(());
        }
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return None;
        }
        let Some(op) = op(name) else {
            // Somebody traced more than we asked for.
            return Some(());
        };
        let arguments = &rest[name_end + 1..];
        let (end, finished) = arguments_end(arguments)?;
        let (arguments, tail) = (&arguments[..end], &arguments[end..]);
        let counts = op != Op::Msync || has_flag(arguments, b"MS_SYNC");
        let (path, deleted) =
            if op.takes_descriptor() { descriptor_path(arguments, self.mark) } else { (None, false) };
        let mut call =
            Call { tid, started_ns, duration_ns: None, op, path, deleted, outcome: Outcome::Unfinished };
        if finished {
            (call.outcome, call.duration_ns) = result(tail.strip_prefix(b")")?)?;
        }
        let index = self.log.calls.len();
        if counts {
            self.log.calls.push(call);
        }
        if !finished {
            self.open.insert(tid, (name.to_owned(), counts.then_some(index)));
        }
        Some(())
    }

    fn resumed(&mut self, tid: u32, rest: &[u8]) -> Option<()> {
        let end = find(rest, b" resumed>")?;
        let name = std::str::from_utf8(&rest[..end]).ok()?;
        if op(name).is_none() {
            return Some(());
        }
        let rest = &rest[end + b" resumed>".len()..];
        let (outcome, duration_ns) = result(&rest[find(rest, b")")? + 1..])?;
        let Some((opened, index)) = self.open.remove(&tid) else {
            self.log.begun_before += 1;
            return Some(());
        };
        if opened != name {
            return None;
        }
        if let Some(call) = index.and_then(|index| self.log.calls.get_mut(index)) {
            (call.outcome, call.duration_ns) = (outcome, duration_ns);
        }
        Some(())
    }
}

fn op(name: &str) -> Option<Op> {
    match name {
        "sync_file_range2" => Some(Op::SyncFileRange),
        _ => Op::ALL.into_iter().find(|op| op.name() == name),
    }
}

/// Where a call's arguments end, and whether it returned on the same line. A path in them can hold
/// `) = 0`, but no angle brackets, which strace escapes.
fn arguments_end(arguments: &[u8]) -> Option<(usize, bool)> {
    if let Some(rest) = arguments.strip_suffix(UNFINISHED).or_else(|| arguments.strip_suffix(DETACHED)) {
        return Some((rest.len(), false));
    }
    // The last one, because a result never holds it. strace pads what is left of the `=`.
    let ends = (0..arguments.len()).rev().filter(|at| arguments[*at..].starts_with(b") "));
    ends.into_iter().find(|at| trim(&arguments[at + 1..]).starts_with(b"= ")).map(|at| (at, true))
}

/// What strace writes where a line is cut; before a `)`, the call never returned.
const UNFINISHED: &[u8] = b" <unfinished ...>";
/// What it writes where the thread vanished within the line.
const DETACHED: &[u8] = b" <detached ...>";

/// The path in `3</a/b>`, and whether the file is deleted.
fn descriptor_path(arguments: &[u8], mark: DeletedMark) -> (Option<Vec<u8>>, bool) {
    const NONE: (Option<Vec<u8>>, bool) = (None, false);
    let arguments = arguments.strip_suffix(UNFINISHED).unwrap_or(arguments);
    let Some(rest) = number(arguments).and_then(|(_, rest)| rest.strip_prefix(b"<")) else { return NONE };
    let Some(end) = rest.iter().rposition(|byte| *byte == b'>') else { return NONE };
    let (raw, after) = (&rest[..end], &rest[end + 1..]);
    if !raw.starts_with(b"/") {
        // A pipe, a socket: not a path.
        return NONE;
    }
    match mark {
        DeletedMark::Beside => (Some(decode(raw)), after.starts_with(b"(deleted)")),
        DeletedMark::Inside => match raw.strip_suffix(b" (deleted)") {
            Some(name) => (Some(decode(name)), true),
            None => (Some(decode(raw)), false),
        },
    }
}

/// `= 0 <0.000432>`, `= -1 EIO (Input/output error) <0.1>`, `= ?`, `= ? ERESTARTSYS (…)`
fn result(text: &[u8]) -> Option<(Outcome, Option<u64>)> {
    let text = trim(trim(text).strip_prefix(b"=")?);
    let duration = duration(text);
    if let Some(rest) = text.strip_prefix(b"?") {
        let restarted = trim(rest).starts_with(b"ERESTART");
        let outcome = if restarted { Outcome::Restarted } else { Outcome::Unfinished };
        return Some((outcome, duration));
    }
    if let Some(rest) = text.strip_prefix(b"-1 ") {
        let name = rest.split(|byte| !byte.is_ascii_alphanumeric()).next()?;
        return Some((Outcome::Error(errno(name)?), duration));
    }
    text.first()?.is_ascii_digit().then_some((Outcome::Success, duration))
}

/// The time at the end of a line, in angle brackets.
fn duration(text: &[u8]) -> Option<u64> {
    let inner = text.strip_suffix(b">")?;
    let start = inner.iter().rposition(|byte| *byte == b'<')?;
    let (ns, rest) = seconds(&inner[start + 1..])?;
    rest.is_empty().then_some(ns)
}

/// `EHWPOISON` of `asm-generic/errno.h`.
const LAST_ERRNO: u16 = 133;

fn errno(name: &[u8]) -> Option<u16> {
    let name = std::str::from_utf8(name).ok()?;
    (1..=LAST_ERRNO).find(|number| format!("{:?}", Errno::from_raw(i32::from(*number))) == name)
}

fn has_flag(arguments: &[u8], flag: &[u8]) -> bool {
    arguments.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_').any(|word| word == flag)
}

fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let value = std::str::from_utf8(&text[..end]).ok()?.parse().ok()?;
    Some((value, &text[end..]))
}

/// `1796069763.125497` in nanoseconds.
fn seconds(text: &[u8]) -> Option<(u64, &[u8])> {
    let (whole, rest) = number(text)?;
    let rest = rest.strip_prefix(b".")?;
    let digits = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
    if digits == 0 || digits > 9 {
        return None;
    }
    let (fraction, rest) = number(rest)?;
    let scale = 10_u64.pow(9 - digits as u32);
    Some((whole.checked_mul(1_000_000_000)?.checked_add(fraction * scale)?, rest))
}

fn trim(text: &[u8]) -> &[u8] {
    text.trim_ascii_start()
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests;
