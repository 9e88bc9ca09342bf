//! One browser's run of the OPFS benchmark, from a fresh profile to the page's result.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::browser::Browser;
use super::host::{Host, PROBLEM, PageEvent, RESULT, Started};
use super::launch::Launch;
use super::options::{Parameters, WorkloadPlan};
use super::profile::{Profile, ProfileError};
use super::progress::Progress;
use super::result::{BenchResult, ResultError};
use super::tree::Tree;
use super::user::BrowserUser;
use crate::attribution::window::SessionId;
use crate::strace::command::Strace;

/// Firefox's first start on a busy machine under strace took half a minute.
const START_PATIENCE: Duration = Duration::from_mins(2);
/// A slow disk's flush. A pass whose calls are slower than that on average counts as hanging.
const SLOWEST_CALL: Duration = Duration::from_millis(250);
/// Between windows, a page is silent for as long as a file takes to create or delete.
const LEAST_PATIENCE: Duration = Duration::from_mins(2);
/// A finished page closes its window, and the browser ends by itself.
const CLOSE_PATIENCE: Duration = Duration::from_secs(20);
/// How soon a crash or an interruption is noticed.
const TICK: Duration = Duration::from_millis(100);
/// What a crashed browser said last, in an error message.
const TAIL_LINES: usize = 12;
const TAIL_BYTES: u64 = 16 * 1024;

/// How browsers are run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// What the page measures.
    pub parameters: Parameters,
    /// How long a new profile is left alone before the first window.
    pub settle: Duration,
    /// With a window on the screen.
    pub headed: bool,
    /// Where profiles are made; by default wherever a disk is.
    pub profiles_dir: Option<PathBuf>,
    /// Leave the profiles in place.
    pub keep_profiles: bool,
    /// Where logs and raw results go; it must exist.
    pub out_dir: PathBuf,
    /// Run the browser under this strace.
    pub strace: Option<Strace>,
}

/// What came of a run.
#[derive(Debug)]
pub struct BrowserRun {
    /// The session in which it was counted.
    pub session: SessionId,
    /// The page's measurements.
    pub result: BenchResult,
    /// The same as the page sent it.
    pub raw: Value,
    /// The profile, which is gone by now: reports name files from there.
    pub profile_dir: PathBuf,
    /// strace's log, if it was run.
    pub strace_log: Option<PathBuf>,
    /// What whoever reads the times must know.
    pub warnings: Vec<String>,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No place for it.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// It could not be started.
    #[error("{browser} can't be started: {source}; {}", start_hint(source))]
    Start {
        /// Which browser.
        browser: String,
        /// Why not.
        source: io::Error,
    },
    /// Its log or result could not be written.
    #[error("can't write {}: {source}; choose another --out", path.display())]
    Output {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It ended before the page had a result.
    #[error("{browser} ended ({status}) before its page had a result; {hint}it said last (all of it is in {}):\n{tail}", log.display())]
    Crashed {
        /// Which browser.
        browser: String,
        /// How it ended.
        status: ExitStatus,
        /// What to do, where its words tell.
        hint: &'static str,
        /// Its last words.
        tail: String,
        /// All of its words.
        log: PathBuf,
    },
    /// Nothing came from the page for too long.
    #[error(
        "{browser} hangs: nothing from its page for {silence_s} s, {stage}; look for a dialogue with --headed; \
         it said last (all of it is in {}):\n{tail}", log.display()
    )]
    Hung {
        /// Which browser.
        browser: String,
        /// For how long.
        silence_s: u64,
        /// What it was doing.
        stage: String,
        /// Its last words.
        tail: String,
        /// All of its words.
        log: PathBuf,
    },
    /// The page's connection ended first.
    #[error("{browser}'s page went away {stage}; its tab crashed or was closed (its words are in {})", log.display())]
    PageGone {
        /// Which browser.
        browser: String,
        /// What it was doing.
        stage: String,
        /// All of its words.
        log: PathBuf,
    },
    /// The page said what is wrong.
    #[error("{browser}'s page: {message} ({name})")]
    Page {
        /// Which browser.
        browser: String,
        /// The error's name.
        name: String,
        /// It in words.
        message: String,
    },
    /// The page handed over something else.
    #[error("{browser}: {source}")]
    Result {
        /// Which browser.
        browser: String,
        /// What is wrong with it.
        source: ResultError,
    },
    /// The user wants no more.
    #[error("{browser}'s run was interrupted")]
    Interrupted {
        /// Which browser.
        browser: String,
    },
}

fn start_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "is it, and setpriv (of util-linux) if strace is used as root, still installed?"
        }
        io::ErrorKind::PermissionDenied => "make sure that its user can run it",
        _ => "see above",
    }
}

/// Runs one browser. `slug` names its files in the out directory. All of its processes have ended
/// when this returns, and its profile is gone, whatever happened; setting `interrupted` ends it early.
pub fn run(
    host: &dyn Host,
    browser: &Browser,
    user: &BrowserUser,
    options: &RunOptions,
    slug: &str,
    progress: &mut Progress,
    interrupted: &AtomicBool,
) -> Result<BrowserRun, RunError> {
    let log_path = options.out_dir.join(format!("{slug}.log"));
    let strace_log = options.strace.is_some().then(|| options.out_dir.join(format!("{slug}.strace")));
    let output_error = |path: &Path, source| RunError::Output { path: path.to_owned(), source };
    let log = File::create(&log_path).map_err(|error| output_error(&log_path, error))?;

    let profile = Profile::create(browser, user, options.profiles_dir.as_deref())?;
    let profile_root = profile.root().to_owned();
    let profile_dir = profile.profile();
    let mut warnings = browser.limits();
    warnings.extend(profile.warning().map(str::to_owned));

    let url = format!("{}?{}", host.page_url(), options.parameters.query(options.settle));
    let strace = options.strace.as_ref().zip(strace_log.as_deref());
    let launch = Launch { browser, user, profile: &profile, url: &url, headed: options.headed, strace };
    let start_error = |source| RunError::Start { browser: browser.label(), source };
    let mut command = launch.command(&log).map_err(start_error)?;
    progress.settling(options.settle);
    let Started { child, session, events } = host.start(browser, &mut command).map_err(start_error)?;
    let mut watch = Watch {
        label: browser.label(),
        tree: Tree::new(child, &profile_root, strace.is_some()),
        events,
        log: log_path,
        plan: options.parameters.plan(),
        stage: Stage::Starting,
        since: Instant::now(),
        patience: START_PATIENCE + options.settle,
    };

    let outcome = watch.wait_for_result(progress, interrupted);
    progress.finish();
    if outcome.is_ok() {
        watch.tree.wait(CLOSE_PATIENCE);
    }
    let killed = watch.tree.end();
    host.finished(session);
    if options.keep_profiles {
        let kept = profile.keep();
        tracing::info!("the profile is kept in {}", kept.display());
    } else if let Err(error) = profile.remove() {
        warnings.push(format!(
            "the profile {} is left behind: {error}; remove it by hand",
            profile_root.display()
        ));
    }

    let raw = outcome?;
    if killed > 0 {
        tracing::debug!("{killed} processes of {} had to be killed after its end", watch.label);
    }
    let raw_path = options.out_dir.join(format!("{slug}.result.json"));
    fs::write(&raw_path, format!("{raw:#}\n")).map_err(|error| output_error(&raw_path, error))?;
    let result =
        BenchResult::parse(&raw).map_err(|source| RunError::Result { browser: browser.label(), source })?;
    Ok(BrowserRun { session, result, raw, profile_dir, strace_log, warnings })
}

/// How far the page is.
#[derive(Clone, Debug, PartialEq)]
enum Stage {
    /// Nothing was heard of it yet.
    Starting,
    /// It said hello, and waits for the profile to settle.
    Connected,
    /// In this window.
    In(Vec<String>),
}

impl Stage {
    fn describe(&self) -> String {
        match self {
            Self::Starting => "before the page connected".to_owned(),
            Self::Connected => "before the first workload".to_owned(),
            Self::In(path) => format!("in {}", path.join(" › ")),
        }
    }
}

struct Watch {
    label: String,
    tree: Tree,
    events: Receiver<PageEvent>,
    log: PathBuf,
    plan: Vec<WorkloadPlan>,
    stage: Stage,
    since: Instant,
    patience: Duration,
}

impl Watch {
    fn wait_for_result(
        &mut self,
        progress: &mut Progress,
        interrupted: &AtomicBool,
    ) -> Result<Value, RunError> {
        loop {
            if interrupted.load(Ordering::Relaxed) {
                return Err(RunError::Interrupted { browser: self.label.clone() });
            }
            match self.events.recv_timeout(TICK) {
                Ok(event) => {
                    progress.event(&event);
                    if let Some(outcome) = self.take(event) {
                        return outcome;
                    }
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {}
                // The host hears nothing any more: what is left to notice is the browser's end.
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(TICK),
            }
            if let Some(status) = self.tree.status() {
                return self.last_news(progress).unwrap_or_else(|| Err(self.crashed(status)));
            }
            if self.since.elapsed() > self.patience {
                return Err(self.hung());
            }
        }
    }

    /// News that came in while the browser was found to have ended.
    fn last_news(&mut self, progress: &mut Progress) -> Option<Result<Value, RunError>> {
        while let Ok(event) = self.events.recv_timeout(TICK) {
            progress.event(&event);
            match self.take(event) {
                // That the page went along with its browser is no news.
                Some(Err(RunError::PageGone { .. })) => return None,
                Some(outcome) => return Some(outcome),
                None => {}
            }
        }
        None
    }

    fn take(&mut self, event: PageEvent) -> Option<Result<Value, RunError>> {
        self.since = Instant::now();
        match event {
            PageEvent::Connected => {
                self.stage = Stage::Connected;
                // The time to settle was granted at the start and may begin only now.
                self.patience = self.patience.max(LEAST_PATIENCE);
            }
            PageEvent::Began(path) => {
                self.patience = patience(&path, &self.plan);
                self.stage = Stage::In(path);
            }
            PageEvent::Ended(mut path) => {
                path.pop();
                self.stage = Stage::In(path);
            }
            PageEvent::Result { name, data } if name == RESULT => return Some(Ok(data)),
            PageEvent::Result { name, data } if name == PROBLEM => {
                let text = |key: &str| data.get(key).and_then(Value::as_str).unwrap_or("unknown").to_owned();
                let (name, message) = (text("name"), text("message"));
                return Some(Err(RunError::Page { browser: self.label.clone(), name, message }));
            }
            PageEvent::Result { .. } => {}
            PageEvent::Gone => return Some(Err(self.gone())),
        }
        None
    }

    fn crashed(&self, status: ExitStatus) -> RunError {
        let tail = tail(&self.log);
        RunError::Crashed {
            browser: self.label.clone(),
            status,
            hint: crash_hint(&tail),
            tail,
            log: self.log.clone(),
        }
    }

    fn hung(&self) -> RunError {
        RunError::Hung {
            browser: self.label.clone(),
            silence_s: self.since.elapsed().as_secs(),
            stage: self.stage.describe(),
            tail: tail(&self.log),
            log: self.log.clone(),
        }
    }

    /// When a browser crashes, its page's connection ends a moment before it does.
    fn gone(&mut self) -> RunError {
        match self.tree.wait(Duration::from_secs(2)) {
            Some(status) => self.crashed(status),
            None => RunError::PageGone {
                browser: self.label.clone(),
                stage: self.stage.describe(),
                log: self.log.clone(),
            },
        }
    }
}

/// How long a window may take without news: its calls come without.
fn patience(path: &[String], plan: &[WorkloadPlan]) -> Duration {
    let calls = path
        .first()
        .and_then(|name| plan.iter().find(|plan| plan.name == *name))
        .map_or(0, |plan| plan.calls);
    LEAST_PATIENCE.max(SLOWEST_CALL * u32::try_from(calls).unwrap_or(u32::MAX / 1000))
}

fn crash_hint(tail: &str) -> &'static str {
    if tail.contains("No usable sandbox") {
        return "this system forbids its sandbox to unprivileged users: allow user namespaces \
                (kernel.apparmor_restrict_unprivileged_userns, kernel.unprivileged_userns_clone); ";
    }
    if tail.contains("cannot open display") || tail.contains("Missing X server") {
        return "it found no display: leave out --headed, or set DISPLAY; ";
    }
    ""
}

/// The last lines of a log, or a word on why there are none.
fn tail(path: &Path) -> String {
    let read = || -> io::Result<String> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    match read() {
        Ok(text) if text.trim().is_empty() => "(nothing)".to_owned(),
        Ok(text) => {
            let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
            lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
        }
        Err(error) => format!("(its log can't be read: {error})"),
    }
}

#[cfg(test)]
mod tests;
