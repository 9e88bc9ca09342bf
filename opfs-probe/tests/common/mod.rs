//! What the tests of the whole program share: the program itself, and a daemon that ends with its test.
#![allow(dead_code, reason = "each test uses a part of it")]

pub mod image;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use opfs_probe::kernel::privileges;
use serde_json::Value;
use tempfile::TempDir;

/// The program under test.
pub const PROBE: &str = env!("CARGO_BIN_EXE_opfs-probe");

/// A command line of the program, which finds no running probe unless it is told of one.
pub fn probe(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROBE);
    command.args(arguments).stdin(Stdio::null()).env_remove("OPFS_PROBE_SOCKET").env_remove("RUST_LOG");
    command
}

/// Fails the test, in words, unless programs can be loaded and users changed here.
pub fn require_root() {
    let missing = privileges::missing();
    assert!(
        missing.is_empty() && geteuid().is_root(),
        "this test needs root, with {}: run `sudo -E cargo xtask test`",
        if missing.is_empty() { "all its capabilities".to_owned() } else { missing.join(" and ") }
    );
}

/// A path as reports have it: from the root of the mount namespace, which in a chroot is above `/`.
pub fn as_reported(path: &Path) -> PathBuf {
    static ABOVE: OnceLock<PathBuf> = OnceLock::new();
    let above = ABOVE.get_or_init(above_root);
    above.join(path.strip_prefix("/").expect("an absolute path"))
}

/// Where this process's root is. The kernel tells a process in a chroot nothing of what is above, but for the
/// place of a bind mount in its file system; that is the answer if that file system is the namespace's root.
fn above_root() -> PathBuf {
    let listed = |mountinfo: &str, mountpoint: &str| {
        let mut lines = mountinfo.lines().map(|line| line.split(' ').skip(3));
        lines.find_map(|mut fields| {
            let root = fields.next()?;
            (fields.next()? == mountpoint).then(|| root.to_owned())
        })
    };
    let own = std::fs::read_to_string("/proc/self/mountinfo").expect("our mounts");
    if listed(&own, "/").is_some() {
        return "/".into();
    }
    let folder = TempDir::new_in("/").expect("a folder in our root");
    let place = folder.path().to_str().expect("a plain name");
    let script = "mount --bind \"$0\" \"$0\" && cat /proc/self/mountinfo";
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "unchanged", "sh", "-c", script, place]);
    let output = unshare.output().expect("unshare starts");
    let seen = text(&output.stdout);
    let root = listed(&seen, place).expect("the bind mount is listed");
    let above = Path::new(&root).ancestors().nth(place.split('/').count() - 1);
    above.expect("the root lies in its file system").to_owned()
}

/// The program that issues a known mix of sync calls, built if it is not: Cargo builds no examples for a
/// single test. `SYNC_GENERATOR` names one that is ready, where there is no Cargo.
pub fn sync_generator() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    if let Some(ready) = std::env::var_os("SYNC_GENERATOR") {
        return ready.into();
    }
    let build = || {
        // target/PROFILE/deps/TEST
        let own = std::env::current_exe().expect("the test's own path");
        let folder = own.ancestors().nth(2).expect("the profile's folder");
        let profile = folder.file_name().and_then(|name| name.to_str()).expect("the profile's name");
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "opfs-probe", "--example", "sync-generator"])
            .args(["--profile", if profile == "debug" { "dev" } else { profile }])
            .arg("--target-dir")
            .arg(folder.parent().expect("the target folder"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(built.expect("cargo starts").success(), "building the example sync-generator");
        folder.join("examples/sync-generator")
    };
    BUILT.get_or_init(build).clone()
}

/// Waits until something is so.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    const PATIENCE: Duration = Duration::from_mins(1);
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What a process wrote to a stream.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Daemons are tested one at a time: what one test's children do must not be in another's counts.
static ALONE: Mutex<()> = Mutex::new(());

/// A running daemon with a socket of its own and free ports. Dropping it ends it.
pub struct Daemon {
    child: Child,
    /// Its unix socket.
    pub socket: PathBuf,
    /// The page's address, with a slash at the end.
    pub page: String,
    /// Where metrics are.
    pub metrics: Vec<String>,
    /// What pages of other origins must show.
    pub token: String,
    folder: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Daemon {
    /// Starts one and waits until it is ready.
    pub fn start(arguments: &[&str]) -> Self {
        require_root();
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("probe.sock");
        let child = Self::command(&socket, "127.0.0.1:0").args(arguments).spawn().unwrap();
        let mut daemon = Self {
            child,
            socket,
            page: String::new(),
            metrics: Vec::new(),
            token: String::new(),
            folder,
            _alone: alone,
        };
        daemon.read_where();
        daemon
    }

    /// The command that starts one.
    pub fn command(socket: &Path, listen: &str) -> Command {
        let mut command = probe(&["daemon", "--listen", listen, "--socket"]);
        command.arg(socket).stdout(Stdio::piped());
        command
    }

    fn read_where(&mut self) {
        let mut lines = BufReader::new(self.child.stdout.take().unwrap()).lines();
        while self.token.is_empty() {
            let line = lines.next().expect("the daemon ended before it was ready; see above").unwrap();
            let (what, value) = line.split_once(' ').unwrap();
            match what {
                "socket" => assert_eq!(Path::new(value), self.socket),
                "page" => value.clone_into(&mut self.page),
                "metrics" => self.metrics.push(value.to_owned()),
                "token" => value.clone_into(&mut self.token),
                _ => panic!("an unknown line: {line}"),
            }
        }
    }

    /// A place for the test's files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The program, told of this daemon.
    pub fn probe(&self, arguments: &[&str]) -> Command {
        let mut command = probe(arguments);
        command.env("OPFS_PROBE_SOCKET", &self.socket);
        command
    }

    /// A shell script that finds the program as `$PROBE`, and is told of this daemon.
    pub fn script(&self, script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-euc", script]).stdin(Stdio::null()).current_dir(self.folder());
        command.env("PROBE", PROBE).env("OPFS_PROBE_SOCKET", &self.socket);
        command
    }

    /// Runs a shell script, which must succeed, and gives what it printed.
    pub fn run(&self, script: &str) -> String {
        let output = self.script(script).output().unwrap();
        assert!(output.status.success(), "{script}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// A report.
    pub fn report(&self, arguments: &[&str]) -> Value {
        let output = self.probe(&["report", "--format", "json"]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The windows of a report, each with the name of its session.
    pub fn windows(&self, arguments: &[&str]) -> Vec<(String, Value)> {
        let report = self.report(arguments);
        let sessions = report["sessions"].as_array().unwrap();
        let with_session = |session: &Value| {
            let name = session["name"].as_str().unwrap().to_owned();
            let windows = session["windows"].as_array().unwrap().clone();
            windows.into_iter().map(move |window| (name.clone(), window))
        };
        sessions.iter().flat_map(with_session).collect()
    }

    /// The metrics that Prometheus would get.
    pub fn scrape(&self) -> String {
        let (head, body) = get(&self.metrics[0], "");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        body
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Ends the daemon by a signal, and says how, and how fast.
    pub fn end(mut self, signal: Signal) -> (ExitStatus, Duration) {
        let start = Instant::now();
        self.signal(signal);
        let status = self.child.wait().unwrap();
        (status, start.elapsed())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already, as the test wanted; and killed, it would take a second to end.
        let pid = Pid::from_raw(self.child.id().cast_signed());
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            let signal =
                if start.elapsed() < Duration::from_secs(5) { Signal::SIGTERM } else { Signal::SIGKILL };
            let _ = kill(pid, signal);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Gets a URL on this machine: the answer's head and body. `headers` are whole lines.
pub fn get(url: &str, headers: &str) -> (String, String) {
    let rest = url.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// Asserts that a command failed with this status and said `why`, as errors are said.
pub fn assert_fails(output: &Output, status: i32, why: &str) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert!(said.starts_with("error: ") && said.contains(why), "{said:?} does not say {why:?}");
}
