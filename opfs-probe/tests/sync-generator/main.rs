//! Issues a known mix of sync calls and writes down what it issued: the truth that reports are held against.
//!
//! ```text
//! sync-generator --dir DIR --truth FILE [--windows] [--keep] [CASE…]
//! sync-generator --list
//! ```
//!
//! Every case works in `DIR/CASE`, removed afterwards unless `--keep`. The exit status is 0 if every case
//! did what it meant to or was skipped; a skipped case is named on stderr and in the truth. Besides the
//! calls in the truth, the program issues no sync call: the truth is written without one.
//!
//! # How the truth is made
//! Each call is written down by its caller, just before and just after, in memory shared by all processes
//! (`board.rs`, `line.rs`): op, place, answer, process, name of the thread, and device and inode as `fstat`
//! gives them. Nothing is deduced from what a case was meant to do. Only `exec-sync-command` counts what another
//! program did, and trusts its exit status.
//!
//! # The truth file
//! ```text
//! {"schema": "sync-generator.truth/1", "pid": n, "executable": "…", "dir": "…",
//!  "cases": [CASE…],
//!  "totals": {"fsync": {"count": n, "errors": {"EINVAL": 3}}, …},
//!  "totals32": {…}}                       the same for calls32
//!
//! CASE = {"name", "skipped": null|"why", "failed": null|"why",
//!   "mount_namespace": "initial"|"own",   own: some callers had their own, and paths
//!                                         are as seen in it
//!   "calls": [CALL…], "calls32": [CALL…], the latter only where there are any
//!   "files": [{"file": n, "path", "deleted"}],
//!   "processes": [{"pid", "ns_pid", "comms": […], "thread_comms": […], "count"}],
//!   "opens": {"count", "errors", "create", "excl", "trunc", "sync", "dsync", "direct"} | null,
//!   "opens_unknown": null|"why",
//!   "notes": […]}
//!
//! CALL = {"op": "fsync|fdatasync|sync|syncfs|sync_file_range|msync",
//!   "path": string|null, "names": […], "file": n|null, "dev": "254:0"|null, "inode": "12"|null,
//!   "deleted": bool, "errno": null|"EBADF", "count": n,
//!   "comm": string, "process_comm": string, "elapsed_ns": n|null}
//! ```
//! - A CALL stands for `count` calls that are alike in everything but time. `elapsed_ns` is the time their
//!   callers saw pass, an upper bound of what they can have taken in the kernel; null if nobody measured.
//! - `path` is the name the file had when the calls were made: absolute, as seen by whoever started the
//!   program, whatever chroot the caller was in. Null where no path applies: `sync`, a bad descriptor, an
//!   anonymous mapping. Pipes and their like are shown as /proc/self/fd shows them.
//! - `names` are all the names under which this file was synced in this case, and `file` is the same
//!   number for the same file. A report that merges names has to be compared by these.
//! - `files` says what each file was called at its last call, and whether that name was gone then.
//! - `dev` and `inode` are what `fstat` says; null without a descriptor to ask.
//! - `deleted`: the name was gone when the calls were made. `path` is then the name it had, undecorated.
//! - Text that isn't UTF-8 has each stray byte as `\xNN`, and its bytes in base64 (RFC 4648, padded) beside
//!   it: `path_bytes`, `comm_bytes`, and `names_bytes` (all the names, in order).
//! - `comm` is the name of the calling thread, `process_comm` that of its process, which is the name of its
//!   first thread. They differ in the case `thread-names` only. A process has several `comms` after exec.
//! - Optional: `count_min` and `count_max` where a caller was killed and some calls may have been cut off
//!   (`count` is then the minimum; they stand with those that succeeded); `path_uncertain: true` if a report
//!   may give this path or none (`O_PATH`, a descriptor closed meanwhile, an `msync` refused at once);
//!   `other_paths`, which a report may rightly give instead; `answered_by: "seccomp"` for calls that a
//!   filter answered, which count as asked all the same.
//! - `calls32` went through the 32-bit entry (`int 0x80`), a stated gap in coverage. They are in no other
//!   count.
//! - `pid` is the process's number where /proc was mounted (outside, then, for a process in a namespace made
//!   since), `ns_pid` the number it has to itself.
//! - `opens` are all open, openat, openat2 and creat calls between the case's marks, by the flags they asked
//!   for, whether they failed or not: `sync` has both bits of `O_SYNC`, `dsync` only `O_DSYNC`. They are
//!   known because the cases open nothing except through the board; in the case `opens` a bare clone makes
//!   only raw system calls. Null, with the reason, where a program is exec'ed: its loader opens libraries.
//!
//! # Telling the cases apart
//! A case lies between two calls `access("/sync-generator/CASE/begin")` and `…/end`: these paths don't
//! exist, the calls open nothing, and every tracer can show them. With `--windows` each case is also a
//! window of its own, announced outside the marks to the socket that `OPFS_PROBE_SOCKET` names.

mod board;
mod children;
mod compat;
mod descriptors;
mod endings;
mod exec;
mod filters;
mod kinds;
mod lifetimes;
mod line;
mod links;
mod names;
mod namespaces;
mod opens;
mod operations;
mod process;
mod scene;
mod sys;
mod threads;
mod truth;
mod windows;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use board::Board;
use scene::{Scene, Verdict};
use truth::Totals;
use windows::Announcer;

/// A case: its name, what it shows, and what it does.
type Case = (&'static str, &'static str, fn(&mut Scene) -> Result<Verdict>);

fn cases() -> impl Iterator<Item = &'static Case> {
    [
        operations::CASES,
        threads::CASES,
        children::CASES,
        exec::CASES,
        endings::CASES,
        descriptors::CASES,
        kinds::CASES,
        names::CASES,
        links::CASES,
        lifetimes::CASES,
        filters::CASES,
        compat::CASES,
        namespaces::CASES,
        opens::CASES,
    ]
    .into_iter()
    .flatten()
}

/// What the command line asks for.
#[derive(Default)]
struct Options {
    dir: Option<PathBuf>,
    truth: Option<PathBuf>,
    windows: bool,
    keep: bool,
    cases: Vec<String>,
}

fn parse(arguments: &[String]) -> Result<Options> {
    let mut options = Options::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().with_context(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--dir" => options.dir = Some(value()?.into()),
            "--truth" => options.truth = Some(value()?.into()),
            "--windows" => options.windows = true,
            "--keep" => options.keep = true,
            option if option.starts_with('-') => bail!("no such option: {option}; see --list and the source"),
            case if cases().any(|(name, ..)| *name == case) => options.cases.push(case.to_owned()),
            case => bail!("no such case: {case}; --list names them"),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let words = std::env::args_os().skip(1).map(OsString::into_string).collect::<Result<Vec<_>, _>>();
    let Ok(arguments) = words else {
        eprintln!("sync-generator: the arguments must be UTF-8");
        return ExitCode::FAILURE;
    };
    let done = match arguments.first().map(String::as_str) {
        Some(scene::HIDDEN) => scene::run_hidden(&arguments[1..]),
        Some("--list") => {
            cases().for_each(|(name, about, _)| println!("{name:24} {about}"));
            Ok(())
        }
        _ => parse(&arguments).and_then(generate),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("sync-generator: {why:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the cases and writes the truth.
fn generate(options: Options) -> Result<()> {
    sys::use_one_arena();
    let dir = options.dir.context("--dir DIR is missing: where to make files")?;
    let truth = options.truth.context("--truth FILE is missing: where to write the truth")?;
    std::fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    let dir = dir.canonicalize().with_context(|| format!("finding {}", dir.display()))?;
    let mut announcer = if options.windows { Some(Announcer::connect()?) } else { None };

    let board = Board::new()?;
    let mut totals = Totals::default();
    let mut described = Vec::new();
    for case in
        cases().filter(|(name, ..)| options.cases.is_empty() || options.cases.iter().any(|case| case == name))
    {
        described.push(run(case, &dir, board, options.keep, announcer.as_mut(), &mut totals)?);
    }
    let failed = described.iter().filter(|case| !case["failed"].is_null()).count();
    let text = serde_json::to_string_pretty(&json!({
        "schema": "sync-generator.truth/1",
        "pid": line::numbers().0,
        "executable": std::env::current_exe().context("finding the own executable")?.to_string_lossy(),
        "dir": dir.to_string_lossy(),
        "cases": described,
        "totals": totals.describe(false),
        "totals32": totals.describe(true),
    }))?;
    std::fs::write(&truth, text + "\n").with_context(|| format!("writing {}", truth.display()))?;
    if failed > 0 {
        bail!("{failed} cases failed");
    }
    Ok(())
}

/// Runs one case between its marks, and describes it.
fn run(
    (name, _, body): &Case,
    dir: &Path,
    board: Board,
    keep: bool,
    announcer: Option<&mut Announcer>,
    totals: &mut Totals,
) -> Result<Value> {
    let dir = dir.join(name);
    remove(&dir)?;
    std::fs::create_dir(&dir).with_context(|| format!("making {}", dir.display()))?;
    let mark = |end: &str| sys::access(&sys::c_path(format!("/sync-generator/{name}/{end}")));
    board.clear();
    let mut scene = Scene::new(dir.clone(), board);

    let verdict = match announcer {
        Some(announcer) => {
            announcer.begin(name)?;
            let verdict = between(&mark, *body, &mut scene);
            announcer.end(name)?;
            verdict
        }
        None => between(&mark, *body, &mut scene),
    };
    let (skipped, mut failed) = match verdict {
        Ok(Verdict::Done) => (None, None),
        Ok(Verdict::Skipped(why)) => (Some(why), None),
        Err(why) => (None, Some(format!("{why:#}"))),
    };
    if board.overflowed() {
        failed = Some("more calls than the board has lines".to_owned());
    }
    if let Err(why) = if keep { Ok(()) } else { remove(&dir) } {
        failed.get_or_insert(format!("{why:#}"));
    }
    if let Some(why) = &skipped {
        eprintln!("sync-generator: SKIPPED {name}: {why}");
    }
    if let Some(why) = &failed {
        eprintln!("sync-generator: FAILED {name}: {why}");
    }
    Ok(truth::describe_case(name, &scene, skipped.as_deref(), failed.as_deref(), totals))
}

fn between(
    mark: &impl Fn(&str) -> sys::Answer,
    body: fn(&mut Scene) -> Result<Verdict>,
    scene: &mut Scene,
) -> Result<Verdict> {
    // The paths of the marks don't exist, so both calls fail, as they should.
    let _ = mark("begin");
    let verdict = body(scene);
    let _ = mark("end");
    verdict
}

fn remove(dir: &Path) -> Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
            Err(why).with_context(|| format!("removing {}", dir.display()))
        }
        _ => Ok(()),
    }
}
