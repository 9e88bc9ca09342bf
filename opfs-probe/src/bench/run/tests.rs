//! Runs against a host that counts nothing: first a browser that is a shell script, for what goes
//! wrong, then the real ones on the real page.

use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;

use super::*;
use crate::bench::browser::{self, Family};
use crate::bench::options::{Overrides, Preset};
use crate::bench::wrapper::Packaging;
use crate::strace::parse::{Call, parse};

type News = Arc<Mutex<Option<Sender<PageEvent>>>>;

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
        *self.news.lock().unwrap() = Some(sender);
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
    let out = tempfile::tempdir().unwrap();
    let mut options = options(out.path());
    options.strace = traced.then(|| Strace::find().unwrap());
    let mut progress = Progress::new(&browser.label(), options.parameters.plan());
    let run = run(&host, &browser, &user, &options, name, &mut progress, &AtomicBool::new(false)).unwrap();

    assert_eq!(run.result.config.n, 20);
    assert_eq!(run.result.row("append+flush").unwrap().calls, 20);
    assert_eq!(run.result.row("new-file: full cycle").unwrap().calls, 3);
    assert!(run.result.cross_origin_isolated);
    assert!(!run.profile_root.exists());
    assert_eq!(*host.finished.lock().unwrap(), [SessionId(7)]);
    assert!(out.path().join(format!("{name}.json")).exists());
    if let Some(log) = run.strace_log {
        // The files of append+flush are flushed once a call, in both passes; in Chromium by a sandboxed
        // process, whose descriptors strace must be able to read.
        let log = parse(&fs::read(log).unwrap(), options.strace.as_ref().unwrap().deleted_mark());
        let opfs = run.profile_root.join(match browser.family {
            Family::Chromium => "profile/Default/File System",
            Family::Firefox => "profile/storage/default",
        });
        let in_opfs = |call: &&Call| {
            call.path.as_ref().is_some_and(|path| path.starts_with(opfs.as_os_str().as_encoded_bytes()))
        };
        assert!(log.calls.iter().filter(in_opfs).count() >= 40, "{:?}", log.calls);
        assert_eq!(log.first_unreadable, None);
    }
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
    let tell = |event| {
        if let Some(sender) = &*news.lock().unwrap() {
            // The run may have ended already.
            let _ = sender.send(event);
        }
    };
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
