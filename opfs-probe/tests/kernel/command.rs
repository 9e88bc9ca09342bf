//! `run` stands in for its command: status, output and signals are the command's own.

use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::pty::openpty;
use nix::sys::signal::{SigHandler, Signal, kill, killpg};
use nix::unistd::Pid;

use crate::common::{PROBE, require_root};
use crate::run::Run;

fn shell(script: &str) -> [&str; 3] {
    ["sh", "-c", script]
}

#[test]
fn the_status_is_the_commands_own() {
    let ran = Run::new(&[]).of(&shell("exit 7"));
    assert_eq!(ran.output.status.code(), Some(7));
    assert_eq!(ran.report.sessions[0].exit_status, Some(7));
    for (signal, status) in [("TERM", 143), ("KILL", 137), ("SEGV", 139)] {
        let ran = Run::new(&[]).of(&shell(&format!("kill -{signal} $$")));
        assert_eq!(ran.output.status.code(), Some(status), "{signal}");
        assert_eq!(ran.report.sessions[0].exit_status, Some(status));
    }
}

#[test]
fn what_can_not_be_started_has_the_shells_status() {
    require_root();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let in_folder = |name: &str| folder.path().join(name).into_os_string().into_string().expect("UTF-8");
    let plain = in_folder("plain");
    fs::write(&plain, "#!/bin/sh\n").expect("a file");
    let bad_interpreter = in_folder("bad-interpreter");
    fs::write(&bad_interpreter, "#!/nonexistent/interpreter\n").expect("a file");
    fs::set_permissions(&bad_interpreter, Permissions::from_mode(0o755)).expect("chmod");
    let cases = [
        (vec!["--", "/nonexistent/command"], 127),
        (vec!["--", "no-such-command-anywhere"], 127),
        (vec!["--", &plain], 126),
        (vec!["--", "/etc"], 126),
        (vec!["--", &bad_interpreter], 127),
        (vec!["--output", "/nonexistent/report", "--", "touch", "started"], 125),
        (vec!["--user", "no-such-user", "--", "touch", "started"], 125),
        (vec!["--tracer", "none,ebpf", "--", "touch", "started"], 125),
    ];
    for (arguments, status) in cases {
        let output =
            Command::new(PROBE).arg("run").args(&arguments).current_dir(folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains("error: "), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty());
    }
    assert!(!folder.path().join("started").exists(), "the command must not be started then");
}

#[test]
fn input_and_output_pass_through_untouched() {
    let run = Run::new(&[]);
    let bytes: Vec<u8> =
        (0..3_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let input = run.folder().join("input");
    fs::write(&input, &bytes).expect("a file");
    let mut command = run.over(&shell("tee /dev/stderr"));
    let output = command.stdin(File::open(&input).unwrap()).output().expect("the probe starts");
    assert!(output.status.success());
    assert!(output.stdout == bytes, "standard output, {} bytes", output.stdout.len());
    assert!(output.stderr == bytes, "standard error, {} bytes", output.stderr.len());
    run.report(&output);
}

/// The command's own output stays alone on standard output where the report has no file.
#[test]
fn the_report_goes_to_standard_error() {
    require_root();
    let output = Command::new(PROBE).args(["run", "--", "echo", "hello"]).output().unwrap();
    assert_eq!(output.stdout, b"hello\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("0 syncs"), "{output:?}");
}

/// Starts the probe over a script, and waits for the script's first line.
fn started(run: &Run, script: &str, set_up: impl FnOnce(&mut Command)) -> (Child, BufReader<ChildStdout>) {
    let mut command = run.over(&shell(script));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    set_up(&mut command);
    let mut child = command.spawn().expect("the probe starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut first = String::new();
    lines.read_line(&mut first).expect("a line");
    assert_eq!(first, "ready\n");
    (child, lines)
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id() as i32)
}

#[test]
fn signals_are_passed_on() {
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT, Signal::SIGUSR1] {
        // Under nohup or in the background of a script some are ignored, and a shell can't trap those.
        // SAFETY: no handler runs.
        unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) }.expect("a signal's default");
        let run = Run::new(&[]);
        let name = &signal.as_str()[3..];
        let script = format!("trap 'echo caught; exit 5' {name}; echo ready; while :; do sleep 0.02; done");
        let (child, mut lines) = started(&run, &script, |_| ());
        kill(pid(&child), signal).expect("the probe runs");
        let mut rest = String::new();
        lines.read_to_string(&mut rest).expect("the output");
        let output = child.wait_with_output().expect("the probe ends");
        assert_eq!((output.status.code(), rest.as_str()), (Some(5), "caught\n"), "{name}");
        assert_eq!(run.report(&output).sessions[0].exit_status, Some(5));
    }
}

#[test]
fn a_command_that_a_signal_ends_is_reported_all_the_same() {
    let run = Run::new(&[]);
    let (child, _lines) = started(&run, "echo ready; exec sleep 60", |_| ());
    kill(pid(&child), Signal::SIGTERM).expect("the probe runs");
    let output = child.wait_with_output().expect("the probe ends");
    assert_eq!((output.status.code(), output.status.signal()), (Some(143), None));
    assert_eq!(run.report(&output).sessions[0].exit_status, Some(143));
}

/// What a shell or `timeout` does: both the probe and the command get the signal.
#[test]
fn a_signal_to_the_process_group_ends_the_command_not_the_report() {
    let run = Run::new(&[]);
    let (child, _lines) = started(&run, "echo ready; exec sleep 60", |command| {
        command.process_group(0);
    });
    killpg(pid(&child), Signal::SIGINT).expect("the group is there");
    let output = child.wait_with_output().expect("the probe ends");
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(run.report(&output).sessions[0].exit_status, Some(130));
}

/// A Ctrl-C on the terminal reaches the command once, from the terminal itself.
#[test]
fn ctrl_c_on_the_terminal_reaches_the_command_once() {
    let run = Run::new(&[]);
    let terminal = openpty(None, None).expect("a terminal");
    let caught = run.folder().join("caught");
    let script = format!(
        "trap 'echo caught >>{}' INT; echo ready; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.05; done; exit 6",
        caught.display()
    );
    let slave = terminal.slave.as_raw_fd();
    let (child, _lines) = started(&run, &script, |command| {
        // SAFETY: between fork and exec only two system calls are made.
        unsafe {
            command.pre_exec(move || {
                if libc::setsid() < 0 || libc::ioctl(slave, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
    });
    File::from(terminal.master.try_clone().expect("a copy")).write_all(b"\x03").expect("the terminal");
    let output = child.wait_with_output().expect("the probe ends");
    assert_eq!(output.status.code(), Some(6));
    assert_eq!(fs::read_to_string(&caught).expect("it was caught"), "caught\n");
    run.report(&output);
}

#[test]
fn a_child_that_outlives_its_command_is_left_alone() {
    let run = Run::new(&[]);
    let late = run.folder().join("late");
    let script = format!(
        "sync -d /; setsid sh -c 'sleep 5; dd if=/dev/zero of={} count=1 conv=fsync' >/dev/null 2>&1 </dev/null &",
        late.display()
    );
    let ran = run.of(&shell(&script));
    assert!(!late.exists(), "the run waited for the child");
    assert!(ran.output.status.success());
    let total = ran.report.sessions[0].total.as_ref().expect("it was counted");
    assert_eq!(total.sync_calls, 1, "only what the command did meanwhile");
    assert!(ran.report.completeness.is_perfect(), "{:?}", ran.report.completeness);
    let start = Instant::now();
    while !late.exists() && start.elapsed() < Duration::from_mins(1) {
        thread::sleep(Duration::from_millis(20));
    }
    assert!(late.exists(), "the child was harmed");
}

/// Shown, not asserted: a busy machine is no failure.
#[test]
fn the_run_returns_soon_after_its_command() {
    let mut took: Vec<Duration> = (0..5)
        .map(|_| {
            let run = Run::new(&[]);
            let ended = run.folder().join("ended");
            let ran = run.of(&shell(&format!("sync -d /; : >{}", ended.display())));
            assert!(ran.output.status.success());
            let ended = fs::metadata(&ended).and_then(|metadata| metadata.modified()).expect("its time");
            ended.elapsed().expect("the clock goes forwards")
        })
        .collect();
    took.sort_unstable();
    eprintln!("`run` returned after its command ended: {took:?}");
}

/// A script without a first line that names a shell is run by one, as shells and `env` do.
#[test]
fn a_script_that_names_no_interpreter_is_run_by_the_shell() {
    let run = Run::new(&[]);
    let script = run.folder().join("script");
    fs::write(&script, "echo \"$1\"; exit 5\n").expect("a file");
    fs::set_permissions(&script, Permissions::from_mode(0o755)).expect("chmod");
    let ran = run.of(&[script.as_os_str(), "given".as_ref()]);
    assert_eq!((ran.output.status.code(), ran.output.stdout.as_slice()), (Some(5), &b"given\n"[..]));
}

/// The command has run, so its status counts, whatever becomes of the report.
#[test]
fn a_report_that_can_not_be_written_hides_no_failure_of_the_command() {
    require_root();
    for (script, status) in [("exit 7", 7), ("kill -TERM $$", 143), ("exit 0", 125)] {
        let mut command = Command::new(PROBE);
        let output =
            command.args(["run", "--output", "/dev/full", "--"]).args(shell(script)).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{script}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("No space left"), "{output:?}");
    }
}

#[test]
fn the_command_inherits_none_of_our_descriptors() {
    let ran = Run::new(&[]).of(&shell("for fd in /proc/self/fd/*; do readlink $fd; done"));
    let seen = String::from_utf8_lossy(&ran.output.stdout).into_owned();
    assert!(!seen.contains("anon_inode:"), "{seen}");
}
