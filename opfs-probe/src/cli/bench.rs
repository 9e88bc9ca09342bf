//! `opfs-probe bench`: the benchmarks.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use jiff::{Unit, Zoned};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use super::run::{TracerName, tracers};
use super::signals::hang_up_is_ignored;
use super::strace::{self, Straced};
use crate::attribution::window::SessionId;
use crate::bench::browser::{self, Browser};
use crate::bench::host::{Host, Started};
use crate::bench::options::{Overrides, Parameters, Preset, parse_size};
use crate::bench::progress::Progress;
use crate::bench::run::{BrowserRun, RunOptions, run};
use crate::bench::user::BrowserUser;
use crate::files::mounts::Mounts;
use crate::files::opfs::is_opfs;
use crate::report::agreement::{Comparison, agreement};
use crate::report::model::{Browser as ModelBrowser, Report, Session, SessionKind};
use crate::report::{build, json, opfs};
use crate::server::http::Port;
use crate::server::watch::Watch;
use crate::server::{Limits, Server};
use crate::strace::command::Strace;
use crate::watch::{LIMITS, NewSession, Tracers, Watcher};

/// Run a benchmark
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sudo opfs-probe bench opfs --browser chromium")]
pub struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    Opfs(Opfs),
}

/// Time OPFS writes in real browsers, and count what they sync
///
/// Starts each browser headless in a fresh profile, lets it settle, runs the benchmark page in it, and
/// writes report.md, report.json and each page's raw results (and with two tracers agreement.json). As root, the browsers run as the user
/// who called sudo, or as an unprivileged one.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sudo opfs-probe bench opfs\n  \
    sudo opfs-probe bench opfs --browser firefox --workloads append+flush,new-file --m 50\n  \
    sudo opfs-probe bench opfs --browser /opt/nightly/firefox --tracer ebpf,strace --out nightly")]
struct Opfs {
    /// A browser by name or path; may be repeated [default: chromium and firefox, where installed].
    #[arg(long, value_name = "NAME|PATH")]
    browser: Vec<String>,
    /// How much is measured.
    #[arg(long, value_name = "quick|full", default_value = "quick")]
    preset: Preset,
    /// Small writes a pass.
    #[arg(long, value_name = "N")]
    n: Option<u64>,
    /// Bytes of a small write.
    #[arg(long, value_name = "BYTES", value_parser = size)]
    s: Option<u64>,
    /// Measured runs, after one to warm up.
    #[arg(long, value_name = "R")]
    runs: Option<u64>,
    /// Files that new-file makes.
    #[arg(long, value_name = "M")]
    m: Option<u64>,
    /// Sizes of the chunked writes.
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = size)]
    chunks: Option<Vec<u64>>,
    /// The workloads to run, by their names in the report.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    workloads: Vec<String>,
    /// What counts; with `ebpf,strace` both watch the same run and are compared.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "ebpf")]
    tracer: Vec<TracerName>,
    /// Have the kernel measure what the probes cost, and report it. Each run of a probe then takes a
    /// little longer.
    #[arg(long)]
    self_cost: bool,
    /// Where profiles are made: on the disk that is to be measured.
    #[arg(long, value_name = "DIR")]
    profiles_dir: Option<PathBuf>,
    /// How long a new profile is left alone before the first window.
    #[arg(long, value_name = "SECONDS", default_value = "8", value_parser = seconds)]
    settle: Duration,
    /// Show the browser's window.
    #[arg(long)]
    headed: bool,
    /// Leave the profiles in place.
    #[arg(long)]
    keep_profiles: bool,
    /// Where the reports go [default: opfs-bench/DATE_TIME].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Browsers that are run unless others are named.
const USUAL: [&str; 2] = ["chromium", "firefox"];

/// Runs the benchmark.
pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let Benchmark::Opfs(arguments) = &arguments.benchmark;
    let overrides = Overrides {
        n: arguments.n,
        s: arguments.s,
        runs: arguments.runs,
        m: arguments.m,
        chunks: arguments.chunks.clone(),
        workloads: arguments.workloads.clone(),
    };
    let parameters = Parameters::new(arguments.preset, &overrides)?;
    let tracers = tracers(&arguments.tracer)?;
    let strace = tracers.strace.then(Strace::find).transpose()?;
    let user = BrowserUser::choose();
    let browsers = find_browsers(&arguments.browser, &user)?;
    let started = Zoned::now();
    let out_dir = arguments
        .out
        .clone()
        .unwrap_or_else(|| Path::new("opfs-bench").join(started.strftime("%Y-%m-%d_%H-%M-%S").to_string()));
    // Browsers, and strace over them, start in a folder of their own.
    let out_dir =
        std::path::absolute(out_dir).context("finding the current folder; pass an absolute --out")?;
    fs::create_dir_all(&out_dir)
        .with_context(|| format!("can't make {}; choose another --out", out_dir.display()))?;

    let bench = Bench::new(tracers)?;
    if arguments.self_cost {
        bench.watcher.measure_self_cost();
    }
    let options = RunOptions {
        parameters,
        settle: arguments.settle,
        headed: arguments.headed,
        profiles_dir: arguments.profiles_dir.clone(),
        keep_profiles: arguments.keep_profiles,
        out_dir: out_dir.clone(),
        strace,
    };
    let mut failed = false;
    let mut runs = Vec::new();
    for (browser, slug) in browsers {
        let mut progress = Progress::new(&browser.label(), options.parameters.plan());
        let run = run(&bench, &browser, &user, &options, &slug, &mut progress, &bench.interrupted);
        match run {
            Ok(run) => runs.push((browser, run)),
            Err(error) => {
                failed = true;
                eprintln!("error: {error}");
            }
        }
        if bench.interrupted.load(Ordering::Relaxed) {
            break;
        }
    }
    if !runs.is_empty() {
        let name = out_dir.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        bench.report(&name, &started, &runs, &options)?;
        println!("{}", out_dir.join("report.md").display());
        println!("{}", out_dir.join("report.json").display());
    }
    bench.watcher.stop();
    bench.runtime.shutdown_background();
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|error| error.to_string())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is no number of seconds"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// The browsers to run, each with a name for its files.
fn find_browsers(wanted: &[String], user: &BrowserUser) -> Result<Vec<(Browser, String)>> {
    let found: Vec<Browser> = if wanted.is_empty() {
        let usual: Vec<_> = USUAL.iter().map(|name| browser::find(name, user)).collect();
        if usual.iter().all(Result::is_err) {
            bail!(
                "no browser to run: {}",
                usual.into_iter().find_map(Result::err).map_or_else(String::new, |error| error.to_string())
            );
        }
        for error in usual.iter().filter_map(|found| found.as_ref().err()) {
            eprintln!("warning: {error}");
        }
        usual.into_iter().flatten().collect()
    } else {
        wanted.iter().map(|name| browser::find(name, user)).collect::<Result<_, _>>()?
    };
    let mut named: Vec<(Browser, String)> = Vec::new();
    for browser in found {
        let slug = browser.slug();
        let same = named.iter().filter(|(other, _)| other.slug() == slug).count();
        let unique = if same == 0 { slug } else { format!("{slug}-{}", same + 1) };
        named.push((browser, unique));
    }
    Ok(named)
}

/// The probe and the page's server.
struct Bench {
    watcher: Arc<Watcher>,
    runtime: Runtime,
    page_url: String,
    interrupted: Arc<AtomicBool>,
}

impl Bench {
    fn new(tracers: Tracers) -> Result<Self> {
        let watcher = Watcher::new(tracers, LIMITS)?;
        watcher.keep_house();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let port = runtime.block_on(Port::bind("127.0.0.1:0"))?;
        let page_url = format!("http://{}/", port.address());
        let watch: Arc<dyn Watch> = watcher.clone();
        runtime.spawn(port.serve(Server::new(watch, Limits::default())));
        let interrupted = Arc::new(AtomicBool::new(false));
        {
            let _inside = runtime.enter();
            let hang_up = (!hang_up_is_ignored()).then(SignalKind::hangup);
            for kind in [SignalKind::interrupt(), SignalKind::terminate()].into_iter().chain(hang_up) {
                let (mut stream, interrupted) = (signal(kind)?, Arc::clone(&interrupted));
                runtime.spawn(async move {
                    while stream.recv().await.is_some() {
                        interrupted.store(true, Ordering::Relaxed);
                    }
                });
            }
        }
        Ok(Self { watcher, runtime, page_url, interrupted })
    }

    /// Writes the reports on all runs.
    fn report(
        &self,
        name: &str,
        started: &Zoned,
        runs: &[(Browser, BrowserRun)],
        options: &RunOptions,
    ) -> Result<()> {
        let tracers = self.watcher.tracers();
        let straced = runs
            .iter()
            .map(|(_, run)| match (&options.strace, &run.strace_log) {
                (Some(tool), Some(log)) => strace::read(&self.watcher, run.session, log, tool).map(Some),
                _ => Ok(None),
            })
            .collect::<Result<Vec<Option<Straced>>>>()?;
        for (_, run) in runs {
            for warning in &run.warnings {
                self.watcher.warn(run.session, warning.clone());
            }
        }
        self.watcher.drain()?;
        let report = match straced.iter().flatten().collect::<Vec<_>>().as_slice() {
            sessions if !tracers.ebpf && !sessions.is_empty() => self.strace_report(sessions),
            _ => self.watcher.full_report()?,
        };
        let profiles_on = runs.first().and_then(|(_, run)| file_system_of(&run.profile_dir));
        let browsers = runs
            .iter()
            .zip(&straced)
            .map(|((browser, run), straced)| in_report(browser, run, straced.as_ref(), &report, tracers))
            .collect::<Result<Vec<_>>>()?;
        let compared: BTreeMap<String, Vec<Comparison>> = browsers
            .iter()
            .zip(runs)
            .filter_map(|(part, (browser, _))| {
                let comparisons = agreement(part.session?, part.strace?, &part.ambiguous);
                Some((browser.label(), comparisons))
            })
            .collect();
        if !compared.is_empty() {
            let text = serde_json::to_string_pretty(&compared).context("writing the comparison")?;
            write(&options.out_dir.join("agreement.json"), &text)?;
        }
        let markdown = opfs::render(&opfs::Bench {
            name,
            host: &report.host,
            profiles_on: profiles_on.as_deref(),
            tracers: opfs::Tracers { ebpf: tracers.ebpf, strace: tracers.strace },
            started_at: started.timestamp().round(Unit::Millisecond)?,
            browsers,
            completeness: &report.completeness,
        });
        write(&options.out_dir.join("report.md"), &markdown)?;
        write(&options.out_dir.join("report.json"), &json::render(&report))
    }

    fn strace_report(&self, straced: &[&Straced]) -> Report {
        let mut losses = build::Losses::default();
        for part in straced {
            losses.inexact |= part.losses.inexact;
            losses.warnings.extend(part.losses.warnings.iter().cloned());
            losses.coverage_gaps.clone_from(&part.losses.coverage_gaps);
        }
        self.watcher.strace_report(straced.iter().map(|part| part.session.clone()).collect(), &losses)
    }
}

impl Host for Bench {
    fn page_url(&self) -> String {
        self.page_url.clone()
    }

    fn start(&self, browser: &Browser, command: &mut Command) -> io::Result<Started> {
        let new = NewSession {
            name: browser.label(),
            kind: SessionKind::Browser,
            browser: Some(ModelBrowser {
                name: browser.name.clone(),
                version: Some(browser.version.clone()),
                executable: Some(browser.executable.to_string_lossy().into_owned()),
            }),
            command: Some(
                std::iter::once(command.get_program()).chain(command.get_args()).map(Into::into).collect(),
            ),
        };
        let session = self.watcher.open(new).map_err(io::Error::other)?;
        // Browsers run one after the other: whoever opens the page now is this one.
        self.watcher.everybody_joins(Some(session));
        let events = self.watcher.listen(session);
        let child = self.watcher.spawn(session, command)?;
        Ok(Started { child, session, events })
    }

    fn finished(&self, session: SessionId) {
        if let Err(error) = self.watcher.close(session, None) {
            tracing::error!("closing a session: {error:#}");
        }
    }
}

fn in_report<'a>(
    browser: &'a Browser,
    run: &'a BrowserRun,
    straced: Option<&'a Straced>,
    report: &'a Report,
    tracers: Tracers,
) -> Result<opfs::BrowserRun<'a>> {
    let id = build::session_id(run.session);
    let session: &Session = report
        .sessions
        .iter()
        .find(|session| session.id == id)
        .ok_or_else(|| anyhow!("the session of {} is missing from the report", browser.label()))?;
    Ok(opfs::BrowserRun {
        name: &browser.name,
        version: Some(&browser.version),
        result: Some(opfs::PageResult::from_json(&run.raw)?),
        session: (tracers.ebpf || tracers.strace).then_some(session),
        strace: straced.filter(|_| tracers.ebpf).map(|straced| &straced.session),
        ambiguous: straced.map(|straced| straced.ambiguous.clone()).unwrap_or_default(),
        profile_dir: Some(as_the_kernel_names(&run.profile_dir, session)),
        is_opfs: &|path| is_opfs(path.as_bytes()),
    })
}

/// A profile's path as it stands in the report. That is the one we know, unless we are in a chroot,
/// which the kernel's paths see through.
fn as_the_kernel_names(profile: &Path, session: &Session) -> String {
    let ours = profile.to_string_lossy().into_owned();
    let files = session.total.iter().flat_map(|total| &total.files);
    let mut paths = files.filter_map(|file| file.path.as_deref());
    let seen = paths.find_map(|path| Some(path[..path.find(&ours)? + ours.len()].to_owned()));
    seen.unwrap_or(ours)
}

/// File system and mount point of a path, such as `ext4 (/)`.
fn file_system_of(path: &Path) -> Option<String> {
    let mounts = Mounts::read().ok()?;
    // Later mounts cover earlier ones.
    let mount = mounts
        .mounts
        .iter()
        .filter(|mount| path.starts_with(String::from_utf8_lossy(&mount.mountpoint).as_ref()))
        .max_by_key(|mount| mount.mountpoint.len())?;
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Some(format!("{} ({})", text(&mount.fstype), text(&mount.mountpoint)))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("can't write {}", path.display()))
}
