//! Lines as strace 6.1 writes them, and real logs of programs whose calls are known.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::*;
use crate::strace::command::Strace;

fn parse_text(text: &str) -> Log {
    parse(text.as_bytes(), DeletedMark::Beside)
}

fn only(text: &str) -> Call {
    let log = parse_text(text);
    assert_eq!((log.unreadable_lines, log.calls.len()), (0, 1), "{text}");
    log.calls[0].clone()
}

#[test]
fn a_whole_line() {
    let call = only("11823 1796069767.077828 fsync(34</p/cookies.sqlite-journal>) = 0 <0.000623>\n");
    assert_eq!(
        call,
        Call {
            tid: 11823,
            started_ns: 1_796_069_767_077_828_000,
            duration_ns: Some(623_000),
            op: Op::Fsync,
            path: Some(b"/p/cookies.sqlite-journal".to_vec()),
            deleted: false,
            outcome: Outcome::Success,
        }
    );
}

#[test]
fn a_call_in_two_parts_with_others_between() {
    let log = parse_text(
        "7 1.100000 fdatasync(60</a/b> <unfinished ...>\n\
         8 1.200000 fsync(3</a/c>)      = 0 <0.000432>\n\
         8 1.300000 fsync(3</a/c> <unfinished ...>\n\
         7 1.400000 <... fdatasync resumed>)        = 0 <0.300000>\n\
         8 1.500000 <... fsync resumed>) = -1 EIO (Input/output error) <0.200000>\n",
    );
    let ends: Vec<_> = log.calls.iter().map(|call| (call.tid, call.duration_ns, call.outcome)).collect();
    assert_eq!(
        ends,
        [
            (7, Some(300_000_000), Outcome::Success),
            (8, Some(432_000), Outcome::Success),
            (8, Some(200_000_000), Outcome::Error(5)),
        ]
    );
    assert_eq!(log.unreadable_lines, 0);
}

#[test]
fn strange_names() {
    let path = |text: &str| only(text).path.unwrap();
    assert_eq!(path(r"1 1.0 fsync(3</w/x) = 0 \0740.1\76>) = 0 <0.000417>"), b"/w/x) = 0 <0.1>");
    assert_eq!(path(r"1 1.0 fsync(3</w/a \74unfinished ...\76>) = 0 <0.000122>"), b"/w/a <unfinished ...>");
    assert_eq!(path(r"1 1.0 fsync(3</w/u\303\251\n> <unfinished ...>"), b"/w/u\xc3\xa9\n");
    let called_so = only("1 1.0 fsync(3</w/end (deleted)>) = 0 <0.000138>");
    assert_eq!((called_so.path.as_deref(), called_so.deleted), (Some(&b"/w/end (deleted)"[..]), false));
}

#[test]
fn deleted_files_of_newer_and_older_versions() {
    for (mark, text) in [
        (DeletedMark::Beside, "1 1.0 fdatasync(3</w/a>(deleted)) = 0 <0.000204>"),
        (DeletedMark::Inside, "1 1.0 fdatasync(3</w/a (deleted)>) = 0 <0.000204>"),
    ] {
        let call = parse(text.as_bytes(), mark).calls.remove(0);
        assert_eq!((call.path.as_deref(), call.deleted), (Some(&b"/w/a"[..]), true), "{mark:?}");
    }
}

#[test]
fn descriptors_without_a_path() {
    for text in [
        "1 1.0 fsync(3<pipe:[177052]>) = -1 EINVAL (Invalid argument) <0.000029>",
        "1 1.0 fsync(999)      = -1 EBADF (Bad file descriptor) <0.000029>",
        "1 1.0 fsync(3)        = 0 <0.000029>",
        "1 1.0 fsync(-1)       = -1 EBADF (Bad file descriptor) <0.000029>",
        "1 1.0 sync()          = 0 <0.120091>",
    ] {
        assert_eq!(only(text).path, None, "{text}");
    }
    assert_eq!(
        only("1 1.0 fsync(999)      = -1 EBADF (Bad file descriptor) <0.1>").outcome,
        Outcome::Error(9)
    );
}

#[test]
fn msync_counts_with_ms_sync_only() {
    let log = parse_text(
        "1 1.0 msync(0x7f67bb283000, 8192, MS_SYNC) = 0 <0.002107>\n\
         1 1.1 msync(0x7f67bb283000, 4096, MS_ASYNC) = 0 <0.000032>\n\
         1 1.2 msync(0x7f67bb283000, 4096, MS_ASYNC <unfinished ...>\n\
         1 1.3 <... msync resumed>) = 0 <0.1>\n\
         1 1.4 msync(0x7f67bb283000, 4096, MS_SYNC|MS_INVALIDATE <unfinished ...>\n\
         1 1.5 <... msync resumed>) = 0 <0.1>\n",
    );
    assert_eq!((log.calls.len(), log.unreadable_lines), (2, 0));
    assert!(log.calls.iter().all(|call| call.op == Op::Msync && call.duration_ns.is_some()));
}

#[test]
fn calls_that_did_not_end_as_calls_do() {
    let outcome = |text: &str| only(text).outcome;
    assert_eq!(outcome("1 1.0 fsync(3</a>) = ?"), Outcome::Unfinished);
    assert_eq!(outcome("1 1.0 fsync(3</a> <unfinished ...>) = ?"), Outcome::Unfinished);
    assert_eq!(only("1 1.0 fsync(3</a> <unfinished ...>) = ?").path.as_deref(), Some(&b"/a"[..]));
    assert_eq!(
        outcome("1 1.0 fsync(3</a> <unfinished ...>\n1 1.1 +++ killed by SIGKILL +++"),
        Outcome::Unfinished
    );
    assert_eq!(
        outcome("1 1.0 fsync(3</a> <unfinished ...>\n1 1.1 <... fsync resumed> <unfinished ...>) = ?"),
        Outcome::Unfinished
    );
    assert_eq!(
        outcome("1 1.0 fsync(3</a>) = ? ERESTARTSYS (To be restarted if SA_RESTART is set) <0.1>"),
        Outcome::Restarted
    );
}

#[test]
fn threads_that_vanish() {
    let log = parse_text("1 1.0 ???( <detached ...>\n2 1.0 ????() = ?\n3 1.0 fsync(3</a> <detached ...>\n");
    assert_eq!((log.unknown_calls, log.unreadable_lines), (2, 0));
    assert_eq!((log.calls[0].path.as_deref(), log.calls[0].outcome), (Some(&b"/a"[..]), Outcome::Unfinished));
}

#[test]
fn lines_that_are_no_calls() {
    let log = parse_text(
        "1 1.0 --- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED} ---\n\
         1 1.0 +++ exited with 0 +++\n\
         1 1.0 openat(AT_FDCWD, \"a) = 0\", O_RDONLY) = 3</a>\n\
         1 1.0 <... futex resumed>) = 0\n\
         1 1.0 <... fsync resumed>) = 0 <0.1>\n\
         strace: something else\n\
         1 1.0 fsync(3</a>\n\
         1 1.",
    );
    assert_eq!((log.calls.len(), log.begun_before, log.unreadable_lines), (0, 1, 3));
}

#[test]
fn a_thread_id_that_comes_again_starts_afresh() {
    let log = parse_text(
        "1 1.0 fsync(3</a> <unfinished ...>\n\
         1 2.0 fsync(3</b> <unfinished ...>\n\
         1 3.0 <... fsync resumed>) = 0 <1.0>\n",
    );
    let outcomes: Vec<_> = log.calls.iter().map(|call| call.outcome).collect();
    assert_eq!(outcomes, [Outcome::Unfinished, Outcome::Success]);
}

proptest::proptest! {
    #[test]
    fn no_bytes_break_it(log in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
        parse(&log, DeletedMark::Beside);
        parse(&log, DeletedMark::Inside);
    }

    #[test]
    fn no_mixture_of_its_own_pieces_breaks_it(pieces in proptest::collection::vec(proptest::sample::select(PIECES), 0..40)) {
        let log = pieces.concat();
        let lines = log.lines().filter(|line| !line.is_empty()).count() as u64;
        let read = parse(log.as_bytes(), DeletedMark::Beside);
        assert!(read.calls.len() as u64 + read.unreadable_lines <= lines);
    }
}

const PIECES: &[&str] = &[
    "1 ",
    "18446744073709551616 ",
    "1.5 ",
    "1.0123456789 ",
    "fsync(",
    "msync(",
    "sync(",
    "3</a>",
    "<",
    ">",
    "(deleted)",
    ") = ",
    "= ?",
    "0 <0.1>",
    "-1 EIO (",
    "ERESTARTSYS",
    "<... ",
    "fsync resumed>",
    " <unfinished ...>",
    ")",
    "\\",
    "\n",
    "MS_SYNC",
];

/// Traces a shell command in a fresh directory, and counts its calls by op, path and outcome.
fn trace(script: &str) -> BTreeMap<(String, Option<String>, bool, Outcome), u64> {
    let strace = Strace::find().expect("strace is part of the development set-up");
    let dir = tempfile::tempdir().unwrap();
    let dir_path = dir.path().canonicalize().unwrap();
    let log = dir_path.join("strace log");
    let mut words = strace.over_command(&log);
    words.extend(["/bin/sh", "-c", script].map(Into::into));
    let output = Command::new(&words[0]).args(&words[1..]).current_dir(&dir_path).output().unwrap();
    assert!(log.exists(), "{}", String::from_utf8_lossy(&output.stderr));
    let log = parse(&std::fs::read(log).unwrap(), strace.deleted_mark());
    assert_eq!(log.unreadable_lines, 0);
    let mut counts = BTreeMap::new();
    for call in log.calls {
        let inside = |path: Vec<u8>| {
            let path = String::from_utf8_lossy(&path).into_owned();
            Path::new(&path)
                .strip_prefix(&dir_path)
                .map(|path| path.display().to_string())
                .unwrap_or(path.clone())
        };
        let key = (call.op.name().to_owned(), call.path.map(inside), call.deleted, call.outcome);
        *counts.entry(key).or_insert(0) += 1;
    }
    counts
}

fn row(op: &str, path: &str) -> (String, Option<String>, bool, Outcome) {
    (op.to_owned(), Some(path.to_owned()), false, Outcome::Success)
}

#[test]
fn a_real_log_of_dd_and_sync() {
    let counts = trace(
        "dd if=/dev/zero of='a b' bs=4k count=1 conv=fsync; dd if=/dev/zero of=c bs=4k count=1 conv=fdatasync; \
         sync 'a b' c; sync -d c; sync -f c; sync",
    );
    let expected = BTreeMap::from([
        (row("fsync", "a b"), 2),
        (row("fsync", "c"), 1),
        (row("fdatasync", "c"), 2),
        (row("syncfs", "c"), 1),
        (("sync".to_owned(), None, false, Outcome::Success), 1),
    ]);
    assert_eq!(counts, expected);
}

#[test]
fn a_real_log_of_threads_and_processes_at_once() {
    // Four processes at once cut each other's lines.
    let counts = trace(
        "for n in 1 2 3 4; do (for i in 1 2 3 4 5; do dd if=/dev/zero of=f$n bs=4k count=1 conv=fsync,notrunc; done) & done; wait",
    );
    assert_eq!(counts, (1..=4).map(|n| (row("fsync", &format!("f{n}")), 5)).collect());
}
