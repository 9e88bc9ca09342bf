//! The command line as its users meet it: help, bad usage, and errors in words. What loads programs
//! needs root.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde_json::{Value, json};
use tempfile::TempDir;

use common::{PROBE, assert_fails, probe, require_root, text, wait_until};

/// A user without rights, who owns nothing.
const NOBODY: u32 = 65_534;

fn run(arguments: &[&str]) -> Output {
    probe(arguments).output().unwrap()
}

/// The subcommands that a help text lists.
fn subcommands(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty()).filter(|line| !line.starts_with("   "));
    let names = listed.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn every_command_has_help_with_an_example() {
    let mut waiting = vec![Vec::new()];
    let mut seen = 0;
    while let Some(command) = waiting.pop() {
        let mut arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        arguments.push("--help");
        let output = run(&arguments);
        let help = text(&output.stdout);
        assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}");
        assert!(help.contains("\nExample"), "{arguments:?} shows no example:\n{help}");
        for name in subcommands(&help) {
            waiting.push(command.iter().cloned().chain([name]).collect());
        }
        seen += 1;
    }
    assert!(seen >= 12, "only {seen} commands were found");
}

#[test]
fn bad_usage_exits_with_2() {
    let wrong: [&[&str]; 16] = [
        &[],
        &["dance"],
        &["run"],
        &["run", "--tracer", "dtrace", "--", "true"],
        &["attach"],
        &["attach", "--pid", "0"],
        &["attach", "--pid", "1", "--browser", "firefox"],
        &["attach", "--pid", "1", "--for", "0s"],
        &["daemon", "--state-dir", "/tmp"],
        &["window"],
        &["window", "begin"],
        &["window", "begin", "name", "--attr", "no-value"],
        &["window", "begin", "name", "--calls", "-1"],
        &["report", "--since", "soon"],
        &["report", "--input", "report.json", "--socket", "socket"],
        &["completions", "cmd.exe"],
    ];
    for arguments in wrong {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn without_a_daemon_it_is_said_where_one_was_looked_for() {
    for arguments in
        [&["report"][..], &["window", "list"], &["window", "begin", "name"], &["window", "end", "d1"]]
    {
        let output = probe(arguments).env("OPFS_PROBE_SOCKET", "/nonexistent/probe.sock").output().unwrap();
        assert_fails(&output, 1, "no probe answers at /nonexistent/probe.sock");
        assert!(text(&output.stderr).contains("opfs-probe daemon"), "it says what to do");
        assert!(output.stdout.is_empty());
        let output = probe(arguments).args(["--socket", "/elsewhere"]).output().unwrap();
        assert_fails(&output, 1, "no probe answers at /elsewhere");
    }
}

/// A report of a run that nothing counted, which needs no rights.
fn report_file(folder: &Path) -> (String, Value) {
    let file = folder.join("report.json");
    let name = file.to_str().unwrap().to_owned();
    let output = run(&[
        "run", "--tracer", "none", "--name", "load", "--format", "json", "--output", &name, "--", "true",
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    (name, report)
}

#[test]
fn a_saved_report_is_shown_again() {
    let folder = tempfile::tempdir().unwrap();
    let (file, report) = report_file(folder.path());
    let again = run(&["report", "--input", &file, "--format", "json"]);
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert_eq!(serde_json::from_slice::<Value>(&again.stdout).unwrap(), report);

    let sessions = |arguments: &[&str]| {
        let output =
            probe(&["report", "--input", &file, "--format", "json"]).args(arguments).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        report["sessions"].as_array().unwrap().len()
    };
    assert_eq!(sessions(&["--window", "lo*", "--session", "load", "--since", "1h", "--until", "now"]), 1);
    assert_eq!(sessions(&["--session", "no such", "--session", "load"]), 1);
    assert_eq!(sessions(&["--window", "no such"]), 0);
    assert_eq!(sessions(&["--until", "1h"]), 0);
    for format in ["text", "markdown"] {
        let output = run(&["report", "--input", &file, "--format", format]);
        assert!(output.status.success() && text(&output.stdout).contains("load"), "{format}");
        assert!(!text(&output.stdout).contains('\u{1b}'), "no colour but on a terminal");
    }
}

#[test]
fn strict_exits_with_3_if_a_report_is_incomplete() {
    let folder = tempfile::tempdir().unwrap();
    let (file, mut report) = report_file(folder.path());
    report["completeness"]["exact_counts"] = json!(true);
    fs::write(&file, report.to_string()).unwrap();
    assert_eq!(run(&["report", "--input", &file, "--strict"]).status.code(), Some(0));
    report["completeness"]["detail_lost"] = json!(1);
    fs::write(&file, report.to_string()).unwrap();
    assert_eq!(run(&["report", "--input", &file]).status.code(), Some(0));
    let strict = run(&["report", "--input", &file, "--strict"]);
    assert_eq!(strict.status.code(), Some(3));
    assert!(text(&strict.stdout).contains("load"), "the report is shown all the same");
}

#[test]
fn what_is_no_report_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let name = file.to_str().unwrap();
    assert_fails(&run(&["report", "--input", name]), 1, "No such file");
    for (content, why) in
        [("", "no JSON"), ("{}", "no \"schema\""), (r#"{"schema":"opfs-probe.report/9"}"#, "report/9")]
    {
        fs::write(&file, content).unwrap();
        assert_fails(&run(&["report", "--input", name]), 1, why);
    }
    let (good, _) = report_file(folder.path());
    let output = run(&["report", "--input", &good, "--output", "/nonexistent/out.json"]);
    assert_fails(&output, 1, "choose another --output");
}

#[test]
fn completions_and_manual_pages_are_printed() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(text(&run(&["completions", shell]).stdout).contains("opfs-probe"), "{shell}");
    }
    assert!(text(&run(&["man"]).stdout).contains(".TH opfs-probe 1"));
    let folder = tempfile::tempdir().unwrap();
    assert!(run(&["man", "--out", folder.path().to_str().unwrap()]).status.success());
    assert!(folder.path().join("opfs-probe-window-begin.1").exists());
}

/// The program as a user without rights, wherever it was built.
fn as_nobody(folder: &TempDir) -> Command {
    let program = folder.path().join("opfs-probe");
    fs::hard_link(PROBE, &program).or_else(|_| fs::copy(PROBE, &program).map(|_| ())).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(program);
    command.current_dir("/").stdin(Stdio::null()).env_remove("OPFS_PROBE_SOCKET");
    if geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

#[test]
fn an_ordinary_user_is_told_which_capability_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let output = as_nobody(&folder).args(["doctor", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&found["schema"], &found["usable"]), (&json!("opfs-probe.doctor/1"), &json!(false)));
    for name in ["CAP_BPF", "CAP_PERFMON"] {
        let privileges = found["privileges"].as_array().unwrap();
        assert_eq!(privileges.iter().find(|one| one["name"] == name).unwrap()["usable"], false, "{name}");
        assert!(found["advice"][0].as_str().unwrap().contains(name));
    }
    let tracepoint =
        found["hooks"].as_array().unwrap().iter().find(|hook| hook["name"] == "tracepoint").unwrap();
    assert_eq!(tracepoint["usable"], Value::Null, "a lack of rights says nothing of the kernel");
    let output = as_nobody(&tempfile::tempdir().unwrap()).arg("doctor").output().unwrap();
    let said = text(&output.stdout);
    assert!(said.contains("✗ no   CAP_BPF") && said.contains("→ CAP_BPF, CAP_PERFMON"), "{said}");

    for arguments in [&["daemon", "--listen", "127.0.0.1:0"][..], &["attach", "--pid", "1"]] {
        let output = as_nobody(&tempfile::tempdir().unwrap()).args(arguments).output().unwrap();
        assert_fails(&output, 1, "this process lacks CAP_BPF and CAP_PERFMON; use sudo");
    }
    let output = as_nobody(&tempfile::tempdir().unwrap()).args(["run", "--", "true"]).output().unwrap();
    assert_fails(&output, 125, "this process lacks CAP_BPF and CAP_PERFMON; use sudo");
}

#[test]
fn the_doctor_finds_what_the_main_job_needs() {
    require_root();
    let output = run(&["doctor", "--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", found["advice"]);
    assert_eq!(found["usable"], true);
    let usable = |list: &str, name: &str| {
        let one = found[list].as_array().unwrap().iter().find(|one| one["name"] == name);
        one.unwrap_or_else(|| panic!("no {name}"))["usable"].clone()
    };
    for hook in ["tracepoint", "raw tracepoint", "BTF tracepoint"] {
        assert_eq!(usable("hooks", hook), true, "{hook}");
    }
    for name in ["kprobe", "fentry", "LSM"] {
        let hook = found["hooks"].as_array().unwrap().iter().find(|hook| hook["name"] == name).unwrap();
        assert!(hook["usable"] == true || hook["detail"].is_string(), "{name} is refused without a reason");
    }
    for probe in ["syscalls:sys_enter_fsync", "syscalls:sys_exit_fsync", "sched:sched_process_exec"] {
        assert_eq!(usable("probes", probe), true, "{probe}");
    }
    assert!(text(&run(&["doctor"]).stdout).contains("\nSync calls can be counted here.\n"));
}

/// Syncs a file again and again, a hundred times at most.
fn busy() -> Child {
    let script = "cd \"$0\"; for i in $(seq 100); do dd if=/dev/zero of=file count=1 conv=fsync 2>/dev/null; sleep 0.05; done; rm -r \"$0\"";
    let folder = tempfile::tempdir().unwrap().keep();
    Command::new("/bin/sh").args(["-c", script]).arg(folder).spawn().unwrap()
}

fn stop(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn attach_ends_with_the_time_the_last_process_or_ctrl_c() {
    require_root();
    let process = busy();
    let pid = process.id().to_string();
    let start = Instant::now();
    let output = run(&["attach", "--pid", &pid, "--for", "500ms", "--format", "json"]);
    assert!(output.status.success() && start.elapsed() < Duration::from_secs(10), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["sessions"][0]["kind"], "attached");
    assert!(report["sessions"][0]["total"]["sync_calls"].as_u64().unwrap() > 0, "{report}");

    let attach = |stdout| {
        probe(&["attach", "--pid", &pid, "--name", "busy"])
            .stdout(stdout)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let watching = |child: &mut Child| {
        let mut byte = [0];
        std::io::Read::read_exact(child.stderr.as_mut().unwrap(), &mut byte).unwrap();
    };
    let mut interrupted = attach(Stdio::piped());
    watching(&mut interrupted);
    kill(Pid::from_raw(interrupted.id().cast_signed()), Signal::SIGINT).unwrap();
    let output = interrupted.wait_with_output().unwrap();
    assert!(
        output.status.success() && text(&output.stdout).starts_with("busy: "),
        "{}",
        text(&output.stdout)
    );

    let mut until_the_end = attach(Stdio::piped());
    watching(&mut until_the_end);
    stop(process);
    let output = until_the_end.wait_with_output().unwrap();
    assert!(
        output.status.success() && text(&output.stdout).starts_with("busy: "),
        "{}",
        text(&output.stdout)
    );
}

/// A process that ends while it is being bound must not stay in the books: the session would never end.
#[test]
fn attach_ends_however_fast_processes_come_and_go() {
    require_root();
    for round in 1..=5 {
        let storm = Command::new("/bin/sh").args(["-c", "while :; do /bin/true; done"]).spawn().unwrap();
        let mut attached = probe(&["attach", "--for", "1m", "--pid", &storm.id().to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Read::read_exact(attached.stderr.as_mut().unwrap(), &mut [0]).unwrap();
        stop(storm);
        let start = Instant::now();
        assert!(attached.wait().unwrap().success());
        assert!(start.elapsed() < Duration::from_secs(20), "round {round}");
    }
}

#[test]
fn attach_watches_a_cgroup_and_who_joins_it() {
    require_root();
    let mount = opfs_probe::processes::cgroup::mount().expect("a cgroup hierarchy of version 2");
    let group = mount.join(format!("opfs-probe-test-{}", std::process::id()));
    fs::create_dir(&group).unwrap();
    let name = group.file_name().unwrap().to_str().unwrap();
    assert_fails(&run(&["attach", "--cgroup", name]), 1, "no process is in");
    let join = |child: &Child| fs::write(group.join("cgroup.procs"), child.id().to_string()).unwrap();
    let (first, second) = (busy(), busy());
    join(&first);
    let attach = probe(&["attach", "--unit", name, "--for", "1s"]).output().unwrap();
    assert_fails(&attach, 1, "no unit");
    let attached = probe(&["attach", "--cgroup", name, "--for", "2s", "--format", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(1));
    join(&second);
    let output = attached.wait_with_output().unwrap();
    for child in [first, second] {
        stop(child);
    }
    wait_until("an empty cgroup", || fs::read_to_string(group.join("cgroup.procs")).unwrap().is_empty());
    fs::remove_dir(&group).unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let files = report["sessions"][0]["total"]["files"].as_array().unwrap();
    assert_eq!(files.len(), 2, "one file of each: {files:?}");
}

#[test]
fn attach_says_why_there_is_nothing_to_watch() {
    let thread = fs::read_dir("/proc/self/task").unwrap().flatten().map(|entry| entry.file_name());
    let own = std::process::id().to_string();
    let thread = thread.map(|name| name.into_string().unwrap()).find(|name| *name != own).unwrap();
    assert_fails(&run(&["attach", "--pid", "2"]), 1, "the kernel's own threads");
    assert_fails(&run(&["attach", "--pid", "4194305"]), 1, "there is no process 4194305");
    assert_fails(&run(&["attach", "--pid", &thread]), 1, &format!("--pid {own}"));
    assert_fails(&run(&["attach", "--browser", "netscape"]), 1, "no running browser is called \"netscape\"");
    assert_fails(&run(&["attach", "--unit", "no-such-unit"]), 1, "no unit \"no-such-unit\" is running");
    assert_fails(&run(&["attach", "--cgroup", "/no/such"]), 1, "there is no cgroup /no/such");
}
