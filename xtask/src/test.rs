//! Every check and test, with the time each took.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::command::{self, Root};
use crate::setup;
use crate::test_kernels;
use crate::workspace::Workspace;

/// Arguments of `cargo xtask test`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Answer yes to the set-up's question.
    #[arg(long)]
    yes: bool,
    /// Only the stages whose names contain this (set-up always runs).
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

/// Tests of the workspace that need root, by the file they are in.
const ROOT_TESTS: [&str; 10] =
    ["kernel", "preload", "in_process", "filesystem", "uring", "block", "daemon", "cli", "bench", "browsers"];

/// What the tests in `filesystem` make file systems with, each with Debian's package of it.
const FILESYSTEM_TOOLS: [(&str, &str); 2] = [("mkfs.xfs", "xfsprogs"), ("mkfs.btrfs", "btrfs-progs")];

enum Outcome {
    Passed,
    Failed,
    Skipped(&'static str),
}

type Action = Box<dyn Fn(&Workspace) -> Result<Outcome>>;

struct Stage {
    name: String,
    run: Action,
}

/// What is run, in order: the cheap answers first.
fn stages() -> Vec<Stage> {
    let mut stages = vec![
        cargo_stage("format", &["fmt", "--all", "--check"]),
        cargo_stage("format (kernel)", &["fmt", "--check", "--manifest-path", "opfs-probe-ebpf/Cargo.toml"]),
        cargo_stage("clippy", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
        Stage { name: "clippy (kernel)".to_owned(), run: Box::new(clippy_kernel) },
        cargo_stage("unit tests", &["test", "--workspace", "--lib", "--bins"]),
        cargo_stage("doc tests", &["test", "--workspace", "--doc"]),
        cargo_stage("documentation", &["test", "--package", "opfs-probe", "--test", "docs"]),
        Stage { name: "docs".to_owned(), run: Box::new(docs) },
        Stage { name: "page tests".to_owned(), run: Box::new(page_tests) },
        cargo_stage("overhead (quick)", &["xtask", "bench-overhead", "--quick"]),
    ];
    stages.extend(ROOT_TESTS.map(|test| Stage {
        name: format!("{test} tests (root)"),
        run: Box::new(move |workspace| root_test(workspace, test)),
    }));
    stages.push(Stage { name: "other kernels (qemu)".to_owned(), run: Box::new(other_kernels) });
    stages
}

/// The tests that end soon in emulation, of every layer; all of them are `cargo xtask test-kernels`.
fn other_kernels(_workspace: &Workspace) -> Result<Outcome> {
    const SHORT: &str = "counted";
    if let Some(why) = test_kernels::IMPOSSIBLE {
        return Ok(Outcome::Skipped(why));
    }
    test_kernels::run(&test_kernels::Arguments {
        yes: true,
        test: Some(SHORT.to_owned()),
        ..test_kernels::Arguments::default()
    })?;
    Ok(Outcome::Passed)
}

/// Runs the task.
pub fn run(arguments: &Arguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let mut times: Vec<(String, Duration, Outcome)> = Vec::new();
    let started = Instant::now();
    setup::ensure(&workspace, arguments.yes)?;
    times.push(("set-up".to_owned(), started.elapsed(), Outcome::Passed));
    let wanted = |name: &str| arguments.only.as_ref().is_none_or(|text| name.contains(text.as_str()));
    for stage in stages().into_iter().filter(|stage| wanted(&stage.name)) {
        eprintln!("\n== {} ==", stage.name);
        let stage_started = Instant::now();
        let outcome = (stage.run)(&workspace).unwrap_or_else(|error| {
            eprintln!("error: {}: {error:#}", stage.name);
            Outcome::Failed
        });
        times.push((stage.name, stage_started.elapsed(), outcome));
    }
    eprintln!("\n{}", table(&times, started.elapsed()));
    let failed = times.iter().filter(|(_, _, outcome)| matches!(outcome, Outcome::Failed));
    let failed: Vec<&str> = failed.map(|(name, _, _)| name.as_str()).collect();
    if !failed.is_empty() {
        bail!("tests failed: {}; look above for the first error of each", failed.join(", "));
    }
    Ok(())
}

fn table(times: &[(String, Duration, Outcome)], total: Duration) -> String {
    let mut lines = vec![format!("{:>9}  {:<24}  result", "seconds", "stage")];
    for (name, time, outcome) in times {
        let result = match outcome {
            Outcome::Passed => "passed".to_owned(),
            Outcome::Failed => "FAILED".to_owned(),
            Outcome::Skipped(why) => format!("SKIPPED: {why}"),
        };
        lines.push(format!("{:>9.1}  {name:<24}  {result}", time.as_secs_f64()));
    }
    let bad = times.iter().any(|(_, _, outcome)| matches!(outcome, Outcome::Failed));
    let verdict = if bad { "FAILED" } else { "passed" };
    lines.push(format!("{:>9.1}  {:<24}  {verdict}", total.as_secs_f64(), "all"));
    lines.join("\n")
}

fn cargo_stage(name: &str, arguments: &'static [&'static str]) -> Stage {
    Stage {
        name: name.to_owned(),
        run: Box::new(move |workspace| passed(command::cargo(workspace).args(arguments))),
    }
}

fn passed(command: &mut Command) -> Result<Outcome> {
    command::run(command)?;
    Ok(Outcome::Passed)
}

/// Clippy has no `core` for BPF, so it checks the kernel crate as if built for this machine; without
/// unwinding, as in a release build, which such a crate has no means for.
fn clippy_kernel(workspace: &Workspace) -> Result<Outcome> {
    let mut cargo = command::cargo(workspace);
    cargo.args(["clippy", "--release", "--manifest-path", "opfs-probe-ebpf/Cargo.toml", "--target-dir"]);
    cargo.arg(workspace.target.join("kernel-clippy")).args(["--", "-D", "warnings"]);
    passed(cargo.env("RUSTC_BOOTSTRAP", "1"))
}

fn docs(workspace: &Workspace) -> Result<Outcome> {
    let mut cargo = command::cargo(workspace);
    cargo.args(["doc", "--workspace", "--no-deps", "--document-private-items"]);
    passed(cargo.env("RUSTDOCFLAGS", "-D warnings"))
}

/// The page's modules have tests that run in Node.js; a browser runs the page itself in the
/// `browsers` tests, so a machine without node still tests it.
fn page_tests(workspace: &Workspace) -> Result<Outcome> {
    if command::which("node").is_none() {
        return Ok(Outcome::Skipped("node is not installed"));
    }
    let folder = workspace.root.join("opfs-probe/src/bench/page");
    let mut files = Vec::new();
    collect_tests(&folder, &mut files)?;
    if files.is_empty() {
        bail!("{} holds no *.test.js or *.test.mjs", folder.display());
    }
    passed(Command::new("node").arg("--test").args(files).current_dir(&workspace.root))
}

fn collect_tests(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("{} can't be read", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            collect_tests(&path, files)?;
        } else if name.ends_with(".test.js") || name.ends_with(".test.mjs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(())
}

/// Built as whoever we are; only the test itself runs as root. One test at a time: they count what
/// happens on the whole machine.
fn root_test(workspace: &Workspace, test: &str) -> Result<Outcome> {
    let mut cargo = command::cargo(workspace);
    match Root::find() {
        Root::Already => {}
        Root::Sudo => {
            // Cargo runs each test through this program.
            let target = host_target()?.to_uppercase().replace(['-', '.'], "_");
            cargo.env(format!("CARGO_TARGET_{target}_RUNNER"), "sudo --preserve-env");
        }
        Root::No => bail!("needs root: neither root nor a usable sudo; run `cargo xtask test` as root"),
    }
    match test {
        "filesystem" => setup::tools(&FILESYSTEM_TOOLS, false)?,
        "uring" => setup::tools(&[("fio", "fio")], false)?,
        "preload" => setup::tools(&[("eatmydata", "eatmydata")], false)?,
        "block" => setup::tools(&[("bpftrace", "bpftrace")], false)?,
        _ => {}
    }
    cargo.args(["test", "--package", "opfs-probe", "--test", test, "--", "--test-threads=1"]);
    passed(&mut cargo)
}

fn host_target() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("rustc did not start")?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let host = printed.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`rustc -vV` names no host")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_ends_with_the_verdict() {
        let second = Duration::from_secs(1);
        let times = vec![
            ("unit tests".to_owned(), second, Outcome::Passed),
            ("page tests".to_owned(), second, Outcome::Skipped("node is not installed")),
            ("kernel tests (root)".to_owned(), second, Outcome::Failed),
        ];
        let shown = table(&times, 3 * second);
        assert!(shown.contains("SKIPPED: node is not installed"));
        assert!(shown.lines().last().is_some_and(|line| line.ends_with("FAILED")));
        assert!(table(&times[..2], second).ends_with("passed"));
    }
}
