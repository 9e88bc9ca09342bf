//! Programs that run with libeatmydata ask the kernel for no sync, and reports say so. Needs root.

mod common;

use std::process::{Command, Stdio};

use serde_json::Value;

use common::{probe, require_root, text};

/// Debian's wrapper, from the package of the same name.
const WRAPPER: &str = "eatmydata";

/// Says loudly that a test can't test here.
fn skipped(test: &str) -> bool {
    let missing = Command::new(WRAPPER).arg("true").stderr(Stdio::null()).status().is_err();
    if missing {
        eprintln!("SKIPPED {test}: {WRAPPER} is not installed; apt-get install eatmydata");
    }
    missing
}

/// A report's warnings of the library, and its sync calls.
fn reported(command: &mut Command) -> (Vec<String>, u64) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report =
        [&output.stdout, &output.stderr].into_iter().find_map(|text| serde_json::from_slice(text).ok());
    let report: Value = report.expect("a report");
    let warnings = report["completeness"]["warnings"].as_array().unwrap().iter();
    let warnings = warnings.filter_map(Value::as_str).filter(|text| text.contains("libeatmydata"));
    // Null where nothing counts.
    let calls = report["sessions"][0]["total"]["sync_calls"].as_u64().unwrap_or(0);
    (warnings.map(str::to_owned).collect(), calls)
}

fn run(words: &[&str]) -> Command {
    let mut command = probe(&["run", "--format", "json", "--"]);
    command.args(words);
    command
}

fn warning(program: &str) -> Vec<String> {
    vec![format!("{program} runs with libeatmydata: its sync calls never reach the kernel")]
}

#[test]
fn a_command_with_the_library_is_warned_of_and_has_no_calls() {
    require_root();
    if skipped("a_command_with_the_library_is_warned_of_and_has_no_calls") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let output = format!("of={}", file.display());
    let dd = ["dd", "if=/dev/zero", &output, "count=1", "conv=fsync", "status=none"];
    assert_eq!(reported(&mut run(&dd)), (vec![], 1), "without it");
    let wrapped: Vec<&str> = [WRAPPER].into_iter().chain(dd).collect();
    assert_eq!(reported(&mut run(&wrapped)), (warning(WRAPPER), 0));
    // Where opfs-probe itself has the library, its probes fail their own test: nothing is counted at all.
    let mut inherited = probe(&["run", "--tracer", "none", "--format", "json", "--"]);
    inherited.args(dd).env("LD_PRELOAD", "libeatmydata.so").env("LD_LIBRARY_PATH", "/usr/lib/libeatmydata");
    assert_eq!(reported(&mut inherited), (warning("dd"), 0));
}

#[test]
fn a_running_process_with_the_library_is_warned_of() {
    require_root();
    if skipped("a_running_process_with_the_library_is_warned_of") {
        return;
    }
    let attach = |child: &std::process::Child| {
        probe(&["attach", "--for", "300ms", "--format", "json", "--pid", &child.id().to_string()])
    };
    let mut shell = Command::new("sh")
        .args(["-c", "read line; eatmydata sleep 60"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(reported(&mut attach(&shell)).0, Vec::<String>::new());
    // What it starts has it, the shell does not.
    drop(shell.stdin.take());
    let children = format!("/proc/{0}/task/{0}/children", shell.id());
    let mut sleeping = String::new();
    common::wait_until("sleep with the library", || {
        sleeping = std::fs::read_to_string(&children).unwrap().trim().to_owned();
        std::fs::read(format!("/proc/{sleeping}/comm")).is_ok_and(|comm| comm == b"sleep\n")
            && std::fs::read_to_string(format!("/proc/{sleeping}/maps"))
                .is_ok_and(|maps| maps.contains("libeatmydata"))
    });
    let program = std::fs::read_link(format!("/proc/{sleeping}/exe")).unwrap();
    let seen = reported(&mut attach(&shell)).0;
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(sleeping.parse().unwrap()),
        nix::sys::signal::Signal::SIGKILL,
    )
    .unwrap();
    shell.wait().unwrap();
    assert_eq!(seen, warning(program.to_str().unwrap()));
}
