//! `opfs-probe doctor`: what works here, what does not, and what to do.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use super::FAILED;
use super::output::{Stream, coloured, print};
use crate::bench::browser::{self, Browser};
use crate::bench::user::BrowserUser;
use crate::bench::wrapper::Packaging;
use crate::kernel::checks::{Answer, Checks};
use crate::kernel::load::{Probe, Program, Trial, try_probes, vital_missing};
use crate::kernel::privileges::{in_user_namespace, privileges};
use crate::kernel::statistics::Statistics;
use crate::report::model::Host;
use crate::strace::command::Strace;
use crate::watch::host;

/// The schema of `doctor --json`.
const SCHEMA: &str = "opfs-probe.doctor/1";

/// Say what works on this system, what does not, why, and what to do
///
/// Every answer is found by trying: the smallest program there is is loaded for each kind of hook, and
/// every probe is attached for a moment. Nothing stays changed. Exits with 1 if sync calls can't be
/// counted here.
#[derive(Clone, Copy, Debug, Args)]
#[command(after_help = "Examples:\n  \
    sudo opfs-probe doctor\n  \
    sudo opfs-probe doctor --json | jq '.hooks[] | select(.usable != true)'")]
pub struct Arguments {
    /// For programs: schema `opfs-probe.doctor/1`.
    #[arg(long)]
    json: bool,
}

/// Examines the system and says what was found.
pub fn main(arguments: Arguments) -> Result<ExitCode> {
    let findings = Findings::collect();
    let text = if arguments.json {
        format!("{}\n", serde_json::to_string_pretty(&findings)?)
    } else {
        findings.render(coloured(Stream::Output))
    };
    print(text.as_bytes())?;
    Ok(if findings.usable { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

/// Everything that was found.
#[derive(Debug, Serialize)]
struct Findings {
    schema: &'static str,
    version: &'static str,
    /// Whether sync calls can be counted here.
    usable: bool,
    host: Host,
    in_user_namespace: bool,
    privileges: Vec<Finding>,
    kernel: Vec<Finding>,
    hooks: Vec<Finding>,
    probes: Vec<Finding>,
    /// What the kernel's verifier took, and how long a look it had at it.
    programs: Vec<Program>,
    /// Why no probe could be tried.
    probes_problem: Option<String>,
    browsers: Vec<FoundBrowser>,
    strace: Finding,
    advice: Vec<String>,
}

/// One thing: whether it can be used, and why (not). Null where it can't be told.
#[derive(Debug, Serialize)]
struct Finding {
    name: String,
    usable: Option<bool>,
    detail: Option<String>,
}

#[derive(Debug, Serialize)]
struct FoundBrowser {
    name: String,
    version: Option<String>,
    executable: String,
    packaging: &'static str,
    limits: Vec<String>,
    /// Why it can't be used.
    problem: Option<String>,
}

impl Findings {
    fn collect() -> Self {
        let checks = Checks::run();
        let (trial, probes_problem) = match try_probes() {
            Ok(trial) => (Some(trial), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        let (probes, programs, run_times) = match trial {
            Some(Trial { probes, programs, run_times }) => (probes, programs, run_times.ok()),
            None => (Vec::new(), Vec::new(), None),
        };
        let usable = probes_problem.is_none() && vital_missing(&probes).is_none();
        let mut findings = Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            usable,
            host: host(),
            in_user_namespace: in_user_namespace(),
            privileges: privileges()
                .into_iter()
                .map(|one| Finding::new(one.name, Some(one.held), Some(one.purpose.to_owned())))
                .collect(),
            kernel: vec![
                Finding::answer("BTF", &checks.btf),
                Finding::answer("tracefs", &checks.tracefs),
                Finding::answer("ring buffer", &checks.ring_buffer),
            ],
            hooks: vec![
                Finding::answer("tracepoint", &checks.tracepoint),
                Finding::answer("raw tracepoint", &checks.raw_tracepoint),
                Finding::answer("BTF tracepoint", &checks.btf_tracepoint),
                Finding::answer("kprobe", &checks.kprobe),
                Finding::answer("fentry", &checks.fentry),
                Finding::answer("LSM", &checks.lsm),
            ],
            probes: probes.iter().map(|probe| Finding::probe(probe, run_times.as_ref())).collect(),
            programs,
            probes_problem,
            browsers: browsers(),
            strace: strace(),
            advice: Vec::new(),
        };
        findings.advice = findings.advise(&checks);
        findings
    }

    /// What to do, the most important first.
    fn advise(&self, checks: &Checks) -> Vec<String> {
        let mut advice = Vec::new();
        let missing: Vec<&str> = lacking(&self.privileges).collect();
        if !missing.is_empty() {
            advice.push(format!(
                "{} missing: run opfs-probe with sudo, or give its file what it lacks with \
                 `sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search+ep PATH`",
                are(&missing)
            ));
        }
        if self.in_user_namespace {
            advice.push(
                "this is a user namespace (a rootless container?): start opfs-probe outside of it".to_owned(),
            );
        }
        if !checks.btf.is_yes() {
            advice.push(
                "use a kernel with BTF: distributions' kernels have had it since about 2020".to_owned(),
            );
        }
        if matches!(checks.tracefs, Answer::No(_) | Answer::Unknown(_)) {
            advice.push(
                "mount tracefs: `sudo mount -t tracefs -o mode=755 none /sys/kernel/tracing`, or run as root"
                    .to_owned(),
            );
        }
        if !self.usable && advice.is_empty() {
            advice.push("use a newer kernel, 5.15 or later, or lift what confines this system".to_owned());
        }
        let idle: Vec<&str> = [("kprobe", &checks.kprobe), ("fentry", &checks.fentry), ("LSM", &checks.lsm)]
            .iter()
            .filter(|(_, answer)| matches!(answer, Answer::No(_)))
            .map(|(name, _)| *name)
            .collect();
        if self.usable && !idle.is_empty() {
            advice
                .push(format!("nothing to do about {}: no probe of this version needs it", idle.join(", ")));
        }
        if self.browsers.iter().all(|found| found.problem.is_some()) {
            advice.push("for `opfs-probe bench opfs`, install chromium or firefox".to_owned());
        }
        if self.strace.usable != Some(true) {
            advice.push("for `--tracer strace`, install strace; nothing else needs it".to_owned());
        }
        advice
    }

    fn render(&self, colour: bool) -> String {
        let mut text = String::new();
        let Host { kernel, arch, .. } = &self.host;
        // Writing to a string can't fail, here and below.
        let _ = writeln!(text, "opfs-probe {} on Linux {kernel} ({arch})", self.version);
        let sections = [
            ("Privileges (effective capabilities)", &self.privileges),
            ("Kernel", &self.kernel),
            ("Kinds of hooks", &self.hooks),
            ("Probes", &self.probes),
        ];
        for (title, findings) in sections {
            let _ = writeln!(text, "\n{title}");
            if let Some(problem) = self.probes_problem.as_ref().filter(|_| title == "Probes") {
                line(&mut text, Some(false), "none can be tried", Some(problem), colour);
            }
            for finding in findings {
                finding.render(&mut text, colour);
            }
        }
        let _ = writeln!(text, "\nBrowsers");
        if self.browsers.is_empty() {
            line(&mut text, Some(false), "none", Some("no browser was found"), colour);
        }
        for found in &self.browsers {
            let label = format!("{} {}", found.name, found.version.as_deref().unwrap_or_default());
            let detail = found.problem.as_ref().unwrap_or(&found.executable);
            line(&mut text, Some(found.problem.is_none()), label.trim_end(), Some(detail), colour);
            for limit in &found.limits {
                let _ = writeln!(text, "      {limit}");
            }
        }
        let _ = writeln!(text, "\nOther tools");
        self.strace.render(&mut text, colour);
        let verdict =
            if self.usable { "Sync calls can be counted here." } else { "Sync calls can't be counted here." };
        let _ = writeln!(text, "\n{}", paint(verdict, self.usable, colour));
        for advice in &self.advice {
            let _ = writeln!(text, "  → {advice}");
        }
        text
    }
}

impl Finding {
    fn new(name: impl Into<String>, usable: Option<bool>, detail: Option<String>) -> Self {
        Self { name: name.into(), usable, detail }
    }

    fn answer(name: &str, answer: &Answer) -> Self {
        match answer {
            Answer::Yes(remark) => Self::new(name, Some(true), remark.clone()),
            Answer::No(why) => Self::new(name, Some(false), Some(why.clone())),
            Answer::Unknown(why) => Self::new(name, None, Some(format!("can't be told: {why}"))),
        }
    }

    /// With what a run took, for a process outside every session, if it ran and that was measured.
    fn probe(probe: &Probe, run_times: Option<&HashMap<String, Statistics>>) -> Self {
        let of_it = run_times.and_then(|all| all.get(&probe.name)).filter(|one| one.runs > 0);
        let detail = of_it.map(|one| format!("{} ns a run outside sessions", one.run_ns / one.runs));
        Self::new(&probe.name, Some(probe.attached), probe.reason.clone().or(detail))
    }

    fn render(&self, text: &mut String, colour: bool) {
        line(text, self.usable, &self.name, self.detail.as_deref(), colour);
    }
}

/// A line with a mark that can be told apart without colour.
fn line(text: &mut String, usable: Option<bool>, name: &str, detail: Option<&str>, colour: bool) {
    let mark = match usable {
        Some(true) => paint("✓ yes", true, colour),
        Some(false) => paint("✗ no ", false, colour),
        None => "?    ".to_owned(),
    };
    let line = format!("  {mark}  {name:<28}  {}", detail.unwrap_or_default());
    let _ = writeln!(text, "{}", line.trim_end());
}

fn paint(text: &str, good: bool, colour: bool) -> String {
    let code = if good { 32 } else { 31 };
    if colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
}

fn lacking(privileges: &[Finding]) -> impl Iterator<Item = &str> {
    privileges.iter().filter(|one| one.usable != Some(true)).map(|one| one.name.as_str())
}

fn are(names: &[&str]) -> String {
    let verb = if names.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", names.join(", "))
}

fn browsers() -> Vec<FoundBrowser> {
    let user = BrowserUser::choose();
    let found = browser::installed().into_iter().map(|(name, path)| {
        let executable = path.display().to_string();
        match browser::find(&executable, &user) {
            Ok(browser) => found(&browser),
            Err(error) => FoundBrowser {
                name: name.to_owned(),
                version: None,
                executable,
                packaging: "unknown",
                limits: Vec::new(),
                problem: Some(error.to_string()),
            },
        }
    });
    found.collect()
}

fn found(browser: &Browser) -> FoundBrowser {
    FoundBrowser {
        name: browser.name.clone(),
        version: Some(browser.version.clone()),
        executable: browser.executable.display().to_string(),
        packaging: match browser.packaging {
            Packaging::Native => "native",
            Packaging::Snap(_) => "snap",
            Packaging::Flatpak(_) => "flatpak",
        },
        limits: browser.limits(),
        problem: None,
    }
}

fn strace() -> Finding {
    match Strace::find() {
        Ok(strace) => Finding::new("strace", Some(true), Some(strace.version())),
        Err(error) => Finding::new("strace", Some(false), Some(error.to_string())),
    }
}
