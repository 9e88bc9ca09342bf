//! Runs against a host that counts nothing: first a browser that is a shell script, for what goes
//! wrong, then the real ones on the real page.

use std::collections::HashSet;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use opfs_probe_common::call::FileIdentity;
use serde_json::json;

use super::*;
use crate::attribution::totals::{FileRef, Totals};
use crate::attribution::window::Epoch;
use crate::bench::browser::{self, Family};
use crate::bench::options::{Overrides, Preset};
use crate::bench::wrapper::Packaging;
use crate::strace::attribute::{BOUND_NS, EpochStart, attribute};
use crate::strace::parse::{Log, parse};

type News = Arc<Mutex<Feed>>;

/// Where a page's news go.
#[derive(Default)]
struct Feed {
    sender: Option<Sender<PageEvent>>,
    /// The innermost open window, and since when, as an attribution would keep epochs.
    epochs: Vec<(Vec<String>, EpochStart)>,
}

impl Feed {
    fn tell(&mut self, event: PageEvent) {
        let inside = match &event {
            PageEvent::Began(path) => Some(path.clone()),
            PageEvent::Ended(path) => Some(path[..path.len() - 1].to_vec()),
            _ => None,
        };
        if let Some(inside) = inside {
            let realtime_ns = jiff::Timestamp::now().as_nanosecond() as u64;
            let epoch = Epoch(self.epochs.len() as u32 + 1);
            self.epochs.push((inside, EpochStart { epoch, realtime_ns }));
        }
        if let Some(sender) = &self.sender {
            // The run may have ended already.
            let _ = sender.send(event);
        }
    }

    fn epochs_of(&self, window: &[&str]) -> HashSet<Epoch> {
        let inside =
            |path: &[String]| path.len() >= window.len() && path.iter().zip(window).all(|(a, b)| a == b);
        self.epochs.iter().filter(|(path, _)| inside(path)).map(|(_, start)| start.epoch).collect()
    }
}

/// Counts nothing. Its events come from `first` and from whoever sends to `news`.
struct FakeHost {
    url: String,
    first: Vec<PageEvent>,
    news: News,
    finished: Mutex<Vec<SessionId>>,
    home: Mutex<PathBuf>,
}

impl FakeHost {
    fn new(url: &str, first: Vec<PageEvent>) -> Self {
        let (news, finished, home) = (News::default(), Mutex::default(), Mutex::default());
        Self { url: url.to_owned(), first, news, finished, home }
    }
}

impl Host for FakeHost {
    fn page_url(&self) -> String {
        self.url.clone()
    }

    fn start(&self, _browser: &Browser, command: &mut Command) -> io::Result<Started> {
        let (sender, events) = channel();
        for event in &self.first {
            sender.send(event.clone()).unwrap();
        }
        self.news.lock().unwrap().sender = Some(sender);
        *self.home.lock().unwrap() = command.get_current_dir().unwrap().to_owned();
        Ok(Started { child: command.spawn()?, session: SessionId(7), events })
    }

    fn finished(&self, session: SessionId) {
        self.finished.lock().unwrap().push(session);
    }
}

fn options(out: &Path) -> RunOptions {
    let overrides = Overrides { n: Some(20), m: Some(3), runs: Some(1), ..Overrides::default() };
    RunOptions {
        parameters: Parameters::new(Preset::Quick, &overrides).unwrap(),
        settle: Duration::from_secs(1),
        headed: false,
        profiles_dir: None,
        keep_profiles: false,
        out_dir: out.to_owned(),
        strace: None,
    }
}

/// Runs the script on a page, and gives the error; nothing may be left behind.
fn script_fails(page: &str, first: Vec<PageEvent>, interrupt_after: Option<Duration>) -> String {
    let out = tempfile::tempdir().unwrap();
    let browser = Browser {
        name: "Script".into(),
        version: "1.0".into(),
        executable: Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bench/run/browser.sh"),
        family: Family::Firefox,
        packaging: Packaging::Native,
    };
    // Not another user: the sources may lie where only their owner can read them.
    let own = nix::unistd::geteuid().as_raw();
    let user = BrowserUser { uid: own, gid: own, name: None, switch: false };
    let host = FakeHost::new(&format!("http://127.0.0.1:1/{page}"), first);
    let interrupted = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        if let Some(delay) = interrupt_after {
            let interrupted = &interrupted;
            scope.spawn(move || {
                std::thread::sleep(delay);
                interrupted.store(true, Ordering::Relaxed);
            });
        }
        let mut progress = Progress::new("Script 1", Vec::new()).silent();
        run(&host, &browser, &user, &options(out.path()), "script", &mut progress, &interrupted)
    });
    assert_eq!(*host.finished.lock().unwrap(), [SessionId(7)]);
    let home = host.home.lock().unwrap().clone();
    assert!(!home.exists(), "{} is left behind", home.display());
    for process in procfs::process::all_processes().unwrap().flatten() {
        let environment = process.environ().unwrap_or_default();
        assert_ne!(environment.get(std::ffi::OsStr::new("HOME")), Some(&home.clone().into()), "{process:?}");
    }
    outcome.unwrap_err().to_string()
}

#[test]
fn a_crash_is_told_with_the_last_words() {
    let error = script_fails("crash", vec![PageEvent::Connected, PageEvent::Gone], None);
    assert!(error.contains("Script 1 ended (signal: 11"), "{error}");
    assert!(error.contains("Segmentation fault (so to speak)"), "{error}");
}

#[test]
fn a_forbidden_sandbox_is_explained() {
    let error = script_fails("sandbox", vec![], None);
    assert!(error.contains("exit status: 1") && error.contains("user namespaces"), "{error}");
}

#[test]
fn an_interruption_ends_everything() {
    let error = script_fails("hang", vec![], Some(Duration::from_millis(500)));
    assert!(error.contains("interrupted"), "{error}");
}

#[test]
fn a_page_says_what_is_wrong() {
    let data = json!({"name": "QuotaExceededError", "message": "The storage is full."});
    let error = script_fails("hang", vec![PageEvent::Result { name: PROBLEM.into(), data }], None);
    assert_eq!(error, "Script 1's page: The storage is full. (QuotaExceededError)");
}

#[test]
fn a_page_that_goes_away_is_told_apart_from_a_crash() {
    let window = vec!["small-append".to_owned(), "run 1".to_owned()];
    let error =
        script_fails("hang", vec![PageEvent::Connected, PageEvent::Began(window), PageEvent::Gone], None);
    assert!(error.contains("went away in small-append › run 1"), "{error}");
}

#[test]
fn silence_is_a_hang() {
    let home = tempfile::tempdir().unwrap();
    let child = Command::new("sleep").arg("1000").spawn().unwrap();
    let (_sender, events) = channel();
    let mut watch = Watch {
        label: "Own 1".into(),
        tree: Tree::new(child, home.path(), false),
        events,
        log: home.path().join("missing.log"),
        plan: Vec::new(),
        stage: Stage::Connected,
        since: Instant::now(),
        patience: Duration::from_millis(300),
    };
    let mut progress = Progress::new("Own 1", Vec::new()).silent();
    let error = watch.wait_for_result(&mut progress, &AtomicBool::new(false)).unwrap_err().to_string();
    assert!(
        error.starts_with("Own 1 hangs: nothing from its page for 0 s, before the first workload"),
        "{error}"
    );
}

#[test]
fn patience_grows_with_the_calls_of_a_pass() {
    let plan = Parameters::new(Preset::Full, &Overrides::default()).unwrap().plan();
    let path = |name: &str| vec![name.to_owned(), "run 1".to_owned(), "loop".to_owned()];
    assert_eq!(patience(&path("append+flush"), &plan), Duration::from_secs(2500));
    assert_eq!(patience(&path("chunked-append (1 MiB)"), &plan), LEAST_PATIENCE);
    assert_eq!(patience(&[], &plan), LEAST_PATIENCE);
}

#[test]
fn chromium_measures() {
    real_browser("chromium", false);
}

#[test]
fn firefox_measures() {
    real_browser("firefox", false);
}

#[test]
fn chromium_measures_under_strace() {
    real_browser("chromium", true);
}

#[test]
fn firefox_measures_under_strace() {
    real_browser("firefox", true);
}

fn real_browser(name: &str, traced: bool) {
    // One at a time: two browsers on a small machine keep each other from answering.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut host = FakeHost::new("", Vec::new());
    let port = runtime.block_on(serve(host.news.clone()));
    host.url = format!("http://127.0.0.1:{port}/bench/");

    let user = BrowserUser::choose();
    let browser = browser::find(name, &user).unwrap();
    assert!(fs::read(&browser.executable).unwrap().starts_with(b"\x7fELF"), "a wrapper: {browser:?}");
    let out = tempfile::tempdir().unwrap();
    let mut options = options(out.path());
    options.strace = traced.then(|| Strace::find().unwrap());
    let mut progress = Progress::new(&browser.label(), options.parameters.plan());
    let run = run(&host, &browser, &user, &options, name, &mut progress, &AtomicBool::new(false)).unwrap();

    assert_eq!(run.result.config.n, 20);
    assert_eq!(run.result.row("append+flush").unwrap().calls, 20);
    assert_eq!(run.result.row("new-file: full cycle").unwrap().calls, 3);
    assert!(run.result.cross_origin_isolated);
    assert!(!run.profile_dir.exists());
    assert_eq!(*host.finished.lock().unwrap(), [SessionId(7)]);
    assert!(out.path().join(format!("{name}.result.json")).exists());
    if let Some(log) = &run.strace_log {
        let log = parse(&fs::read(log).unwrap(), options.strace.as_ref().unwrap().deleted_mark());
        assert_eq!(log.first_unreadable, None);
        check_counts(&log, &host.news.lock().unwrap(), browser.family, &run.profile_dir);
    }
}

/// One flush a call on the files of OPFS; in Chromium by a sandboxed process, whose descriptors strace
/// must be able to read. Counts differ from browser to browser otherwise, and are not asserted.
fn check_counts(log: &Log, feed: &Feed, family: Family, profile_dir: &Path) {
    let opfs = profile_dir.join(match family {
        Family::Chromium => "Default/File System",
        Family::Firefox => "storage/default",
    });
    let starts: Vec<EpochStart> = feed.epochs.iter().map(|(_, start)| *start).collect();
    let counted = attribute(&log.calls, &starts, BOUND_NS);
    let in_opfs: HashSet<FileIdentity> = counted
        .paths
        .iter()
        .filter(|(_, path, _)| path.starts_with(opfs.as_os_str().as_encoded_bytes()))
        .map(|(file, ..)| file)
        .collect();
    for pass in ["warm-up", "run 1"] {
        let window = feed.epochs_of(&["append+flush", pass, "loop"]);
        let calls =
            window.iter().filter_map(|epoch| counted.totals.get(epoch)).flat_map(|totals| &totals.calls);
        let on_opfs =
            calls.filter(|(key, _)| matches!(key.file, FileRef::Known(file) if in_opfs.contains(&file)));
        assert_eq!(on_opfs.map(|(_, tally)| tally.count).sum::<u64>(), 20, "{pass}");
    }
    let new_file = feed.epochs_of(&["new-file"]);
    let calls: u64 =
        new_file.iter().filter_map(|epoch| counted.totals.get(epoch)).map(Totals::sync_calls).sum();
    eprintln!("new-file: {calls} sync calls for 6 files, ambiguous {:?}", counted.ambiguous_in(&new_file));
}

/// Serves the page as the real server does, on a free port.
async fn serve(news: News) -> u16 {
    let router = Router::new().route("/v1/windows", get(upgrade)).fallback(file).with_state(news);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    port
}

async fn file(uri: Uri) -> Response {
    let name = match uri.path() {
        "/bench/" => "index.html",
        path => path.rsplit('/').next().unwrap_or_default(),
    };
    let kind = match name.rsplit('.').next() {
        Some("js") => "text/javascript",
        Some("css") => "text/css",
        _ => "text/html",
    };
    let isolated = [
        (header::CONTENT_TYPE, kind),
        (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (header::HeaderName::from_static("cross-origin-embedder-policy"), "require-corp"),
    ];
    match fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bench/page").join(name)) {
        Ok(content) => (isolated, content).into_response(),
        Err(_) => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn upgrade(State(news): State<News>, upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(|socket| async { converse(socket, news).await })
}

/// Acknowledges whatever a page announces, and passes it on.
async fn converse(mut socket: WebSocket, news: News) {
    let tell = |event| news.lock().unwrap().tell(event);
    let mut paths = std::collections::HashMap::new();
    while let Some(Ok(message)) = socket.recv().await {
        let Message::Text(text) = message else { continue };
        let message: Value = serde_json::from_str(&text).unwrap();
        let id = message["id"].as_str().unwrap_or_default().to_owned();
        let answer = match message["op"].as_str().unwrap() {
            "hello" => {
                tell(PageEvent::Connected);
                json!({"op": "welcome", "v": 1, "session": "1", "coverage_gaps": []})
            }
            "begin" => {
                let parent = message["parent"].as_str().and_then(|parent| paths.get(parent).cloned());
                let mut path: Vec<String> = parent.unwrap_or_default();
                path.push(message["name"].as_str().unwrap().to_owned());
                paths.insert(id.clone(), path.clone());
                tell(PageEvent::Began(path));
                json!({"op": "ack", "id": id, "monotonic_ns": 1})
            }
            "end" => {
                tell(PageEvent::Ended(paths[&id].clone()));
                json!({"op": "ack", "id": id, "monotonic_ns": 1, "sync_calls": 0, "sync_ns": 0})
            }
            "result" => {
                let name = message["name"].as_str().unwrap().to_owned();
                tell(PageEvent::Result { name, data: message["data"].clone() });
                continue;
            }
            other => panic!("unexpected op {other}"),
        };
        if socket.send(Message::Text(answer.to_string().into())).await.is_err() {
            break;
        }
    }
    tell(PageEvent::Gone);
}
