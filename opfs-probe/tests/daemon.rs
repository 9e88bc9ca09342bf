//! The daemon on the real kernel: what it serves, whom it refuses, and how it ends. Needs root.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{Message, client::IntoClientRequest};

use common::{Daemon, as_reported, assert_fails, get, text, wait_until};

/// A client that speaks the protocol by hand.
struct Client(BufReader<UnixStream>);

impl Client {
    fn connect(daemon: &Daemon) -> Self {
        Self(BufReader::new(UnixStream::connect(&daemon.socket).unwrap()))
    }

    fn welcome(daemon: &Daemon) -> Self {
        let mut client = Self::connect(daemon);
        let answer = client.ask(r#"{"op":"hello","v":1,"client":"test/1"}"#);
        assert_eq!(answer["op"], "welcome", "{answer}");
        client
    }

    fn send(&mut self, message: &str) {
        self.0.get_mut().write_all(format!("{message}\n").as_bytes()).unwrap();
    }

    fn ask(&mut self, message: &str) -> Value {
        self.send(message);
        let mut answer = String::new();
        self.0.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    }
}

fn syncs(window: &Value) -> u64 {
    window["total"]["sync_calls"].as_u64().unwrap()
}

/// Makes a file of 4 KiB and syncs it, so many times.
fn dd(times: u32) -> String {
    format!("for i in $(seq {times}); do dd if=/dev/zero of=file bs=4k count=1 conv=fsync 2>/dev/null; done")
}

#[test]
fn a_script_counts_what_it_syncs_in_its_windows() {
    let daemon = Daemon::start(&[]);
    let printed = daemon.run(&format!(
        "outer=$($PROBE window begin outer --pid $$ --attr disk=nas --attr rows=7)
         {}
         inner=$($PROBE window begin inner --pid $$ --parent $outer --calls 5)
         {}
         $PROBE window list
         $PROBE window end $inner
         $PROBE window end $outer --calls 7
         {}
         echo $outer $inner",
        dd(2),
        dd(5),
        dd(3)
    ));
    let ids: Vec<&str> = printed.lines().last().unwrap().split(' ').collect();
    let listed = printed.lines().find(|line| line.contains("inner")).unwrap();
    assert!(listed.contains(ids[1]) && listed.contains("pid "), "{printed}");

    let report = daemon.report(&["--window", "outer", "--window", "outer/*"]);
    let session = &report["sessions"][0];
    let [outer, inner] = session["windows"].as_array().unwrap().as_slice() else { panic!("{report}") };
    assert_eq!((syncs(outer), syncs(inner)), (7, 5));
    assert_eq!(outer["self"]["sync_calls"], 2);
    assert_eq!(session["outside"]["sync_calls"], 3);
    assert_eq!((&outer["calls"], &inner["calls"]), (&json!(7), &json!(5)));
    assert_eq!(outer["attrs"], json!({"disk": "nas", "rows": 7}));
    assert_eq!(inner["parent"], outer["id"]);
    assert_eq!(inner["client_id"], ids[1]);
    assert_eq!((&outer["aborted"], &inner["aborted"]), (&json!(false), &json!(false)));
    let file = &inner["total"]["files"][0];
    let path = as_reported(&daemon.folder().canonicalize().unwrap().join("file"));
    assert_eq!(file["path"].as_str().map(Path::new), Some(path.as_path()));
    assert_eq!(inner["total"]["ops"]["fsync"]["count"], 5);
    assert_eq!(report["completeness"]["exact_counts"], true);
    assert_eq!(report["completeness"]["detail_lost"], 0);
}

#[test]
fn a_scripts_session_is_called_after_the_script() {
    let daemon = Daemon::start(&[]);
    let script = daemon.folder().join("nightly-backup-of-everything.sh");
    std::fs::write(&script, "#!/bin/sh\nid=$($PROBE window begin copy --pid $$); $PROBE window end $id\n")
        .unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    daemon.run(script.to_str().unwrap());
    assert_eq!(daemon.windows(&["--window", "copy"])[0].0, "nightly-backup-of-everything.sh");
}

#[test]
fn a_windows_owner_that_ends_aborts_it() {
    let daemon = Daemon::start(&[]);
    let id = daemon.run(&format!("$PROBE window begin left --pid $$; {}", dd(2)));
    wait_until("the end of the window", || {
        daemon.windows(&["--window", "left"]).iter().any(|(_, window)| window["aborted"] == true)
    });
    let windows = daemon.windows(&["--window", "left"]);
    assert_eq!((windows.len(), syncs(&windows[0].1)), (1, 2));
    assert_eq!(windows[0].1["open"], false);
    let again = daemon.probe(&["window", "end", id.trim()]).output().unwrap();
    assert_fails(&again, 1, "unknown_window");
}

#[test]
fn reports_and_metrics_grow_while_a_window_is_open() {
    let daemon = Daemon::start(&[]);
    let script = format!(
        "id=$($PROBE window begin append-slowly --pid $$); {}; read x; {}; $PROBE window end $id",
        dd(2),
        dd(3)
    );
    let mut shell = daemon.script(&script).stdin(Stdio::piped()).spawn().unwrap();
    let open = |calls| {
        let windows = daemon.windows(&["--window", "append*"]);
        windows.first().is_some_and(|(_, window)| syncs(window) == calls && window["open"] == true)
    };
    let metric = |calls: u64| {
        let line =
            format!("opfs_probe_window_sync_calls_total{{op=\"fsync\",window=\"append-slowly\"}} {calls}\n");
        daemon.scrape().contains(&line)
    };
    wait_until("the first calls", || open(2));
    assert!(metric(2), "{}", daemon.scrape());
    assert!(daemon.scrape().contains("opfs_probe_windows_open 1\n"));
    shell.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    assert!(shell.wait().unwrap().success());
    let (_, window) = &daemon.windows(&["--window", "append*"])[0];
    assert_eq!((syncs(window), &window["open"]), (5, &json!(false)));
    assert!(metric(5), "{}", daemon.scrape());
    assert!(daemon.scrape().contains("opfs_probe_windows_open 0\n"));
}

#[test]
fn metrics_are_as_prometheus_wants_them() {
    let daemon = Daemon::start(&["--metrics-listen", "127.0.0.1:0"]);
    daemon
        .run(&format!("id=$($PROBE window begin 'a \"b\" \\c' --pid $$); {}; $PROBE window end $id", dd(2)));
    assert_eq!(daemon.metrics.len(), 2);
    let metrics = daemon.scrape();
    assert!(metrics.contains("opfs_probe_sync_calls_total{op=\"fsync\",result=\"ok\",session="), "{metrics}");
    assert!(
        metrics.contains("opfs_probe_probe_attached{layer=\"syscall\",probe=\"syscalls:sys_enter_fsync\"} 1")
    );
    let (head, there) = get(&daemon.metrics[1], "");
    assert!(head.starts_with("HTTP/1.1 200") && there.contains("opfs_probe_build_info"), "{head}");
    let (head, _) = get(&daemon.metrics[1].replace("/metrics", "/"), "");
    assert!(head.starts_with("HTTP/1.1 404"), "only metrics are served there: {head}");

    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = promtool else {
        eprintln!("skipped: promtool is not installed, so the metrics were not given to it");
        return;
    };
    promtool.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn bad_messages_are_answered_and_disturb_nobody() {
    let daemon = Daemon::start(&[]);
    let mut other = Client::welcome(&daemon);
    assert_eq!(other.ask(r#"{"op":"begin","id":"1","name":"other"}"#)["op"], "ack");

    let mut client = Client::connect(&daemon);
    let code = |answer: Value| answer["code"].as_str().map(str::to_owned).unwrap_or_default();
    assert_eq!(code(client.ask(r#"{"op":"begin","id":"1","name":"early"}"#)), "bad_message");
    assert_eq!(code(client.ask(r#"{"op":"hello","v":2}"#)), "bad_version");
    assert_eq!(client.ask(r#"{"op":"hello","v":1}"#)["op"], "welcome");
    for bad in ["nonsense", "[]", "{}", r#"{"op":"dance"}"#, r#"{"op":"begin","id":"1"}"#, "\u{1}"] {
        assert_eq!(code(client.ask(bad)), "bad_message", "{bad}");
    }
    let end = client.ask(r#"{"op":"end","id":"never-begun"}"#);
    assert_eq!((&end["code"], &end["id"]), (&json!("unknown_window"), &json!("never-begun")));
    let oversized = format!(r#"{{"op":"begin","id":"1","name":"{}"}}"#, "x".repeat(2 << 20));
    assert_eq!(code(client.ask(&oversized)), "limit");
    assert_eq!(client.ask(r#"{"op":"begin","id":"1","name":"mine"}"#)["op"], "ack");
    assert_eq!(code(client.ask(r#"{"op":"begin","id":"1","name":"mine"}"#)), "duplicate_window");
    assert_eq!(client.ask(r#"{"op":"end","id":"1"}"#)["op"], "ack");

    assert_eq!(other.ask(r#"{"op":"end","id":"1"}"#)["op"], "ack");
    for name in ["mine", "other"] {
        let windows = daemon.windows(&["--window", name]);
        assert_eq!((windows.len(), &windows[0].1["aborted"]), (1, &json!(false)), "{name}");
    }
}

#[test]
fn a_client_that_vanishes_leaves_its_window_aborted() {
    let daemon = Daemon::start(&[]);
    let mut client = Client::welcome(&daemon);
    client.ask(r#"{"op":"begin","id":"1","name":"whole"}"#);
    client.ask(r#"{"op":"end","id":"1"}"#);
    client.ask(r#"{"op":"begin","id":"2","name":"cut"}"#);
    daemon.run(&dd(2));
    // Half a message, and gone.
    client.0.get_mut().write_all(br#"{"op":"end","#).unwrap();
    drop(client);
    wait_until("the end of the window", || {
        daemon.windows(&["--window", "cut"]).iter().any(|(_, window)| window["open"] == false)
    });
    let (_, cut) = &daemon.windows(&["--window", "cut"])[0];
    assert_eq!((syncs(cut), &cut["aborted"]), (2, &json!(true)));
    assert_eq!(daemon.windows(&["--window", "whole"])[0].1["aborted"], false);
}

#[test]
fn a_page_announces_by_web_socket() {
    let daemon = Daemon::start(&[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let url = format!("{}v1/windows", daemon.page.replace("http:", "ws:"));
    let own = daemon.page.trim_end_matches('/').to_owned();
    runtime.block_on(async {
        let open = async |origin: &str| {
            let mut request = url.as_str().into_client_request().unwrap();
            request.headers_mut().insert("origin", origin.parse().unwrap());
            tokio_tungstenite::connect_async(request).await.unwrap().0
        };
        let ask = async |socket: &mut _, message: Value| {
            let socket: &mut tokio_tungstenite::WebSocketStream<_> = socket;
            socket.send(Message::text(message.to_string())).await.unwrap();
            let answer = socket.next().await.unwrap().unwrap();
            serde_json::from_str::<Value>(answer.to_text().unwrap()).unwrap()
        };
        let mut page = open(&own).await;
        let welcome = ask(&mut page, json!({"op": "hello", "v": 1})).await;
        assert_eq!(welcome["op"], "welcome", "{welcome}");
        ask(&mut page, json!({"op": "begin", "id": "a", "name": "page"})).await;
        daemon.run(&dd(3));
        let end = ask(&mut page, json!({"op": "end", "id": "a"})).await;
        assert_eq!(end["sync_calls"], 3, "{end}");

        let mut foreign = open("https://elsewhere.example").await;
        let refused = ask(&mut foreign, json!({"op": "hello", "v": 1})).await;
        assert_eq!(refused["code"], "unauthorized");
        let admitted = ask(&mut foreign, json!({"op": "hello", "v": 1, "token": daemon.token})).await;
        assert_eq!(admitted["op"], "welcome");
    });
    let (head, _) = get(&format!("{}v1/report?window=page", daemon.page), "");
    assert!(head.starts_with("HTTP/1.1 401"), "{head}");
    let bearer = format!("Authorization: Bearer {}\r\n", daemon.token);
    let (_, body) = get(&format!("{}v1/report?window=page", daemon.page), &bearer);
    let report: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(syncs(&report["sessions"][0]["windows"][0]), 3);
}

#[test]
fn what_is_taken_is_not_served_twice() {
    let daemon = Daemon::start(&[]);
    let other = daemon.folder().join("other.sock");
    let second = Daemon::command(&daemon.socket, "127.0.0.1:0").output().unwrap();
    assert_fails(&second, 1, "another opfs-probe serves it");
    let port = daemon.page.trim_start_matches("http://").trim_end_matches('/');
    let second = Daemon::command(&other, port).output().unwrap();
    assert_fails(&second, 1, "the port is taken");
    assert!(!other.exists(), "nothing is left behind");
    let elsewhere = Daemon::command(&other, "0.0.0.0:0").output().unwrap();
    assert_fails(&elsewhere, 1, "this machine only");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let metrics = Daemon::command(&other, "127.0.0.1:0").args(["--metrics-listen", &taken]).output().unwrap();
    assert_fails(&metrics, 1, "the port is taken");
    let group = Daemon::command(&other, "127.0.0.1:0").args(["--group", "no-such-group"]).output().unwrap();
    assert_fails(&group, 1, "no group");
    std::fs::write(&other, "a file").unwrap();
    let file = Daemon::command(&other, "127.0.0.1:0").output().unwrap();
    assert_fails(&file, 1, "not a socket");
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "a file");

    assert_eq!(
        daemon.run("id=$($PROBE window begin still --pid $$); $PROBE window end $id; echo fine"),
        "fine\n"
    );
}

#[test]
fn the_socket_is_for_its_owner_and_group() {
    let daemon = Daemon::start(&["--group", "daemon"]);
    let metadata = std::fs::metadata(&daemon.socket).unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o660);
}

#[test]
fn signals_end_it_at_once_and_cleanly() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let daemon = Daemon::start(&[]);
        let mut client = Client::welcome(&daemon);
        client.ask(r#"{"op":"begin","id":"1","name":"open"}"#);
        daemon.signal(Signal::SIGHUP);
        assert_eq!(client.ask(r#"{"op":"end","id":"1"}"#)["op"], "ack", "SIGHUP ends nothing");
        let socket = daemon.socket.clone();
        let (status, took) = daemon.end(signal);
        assert_eq!(status.code(), Some(0), "{signal}");
        assert!(took < Duration::from_millis(300), "{signal}: {took:?}");
        assert!(!socket.exists());
    }
}

#[test]
fn a_daemon_that_was_killed_leaves_nothing_in_the_way() {
    let daemon = Daemon::start(&[]);
    daemon.signal(Signal::SIGKILL);
    let mut second = Daemon::command(&daemon.socket, "127.0.0.1:0").spawn().unwrap();
    let mut line = String::new();
    BufReader::new(second.stdout.take().unwrap()).read_line(&mut line).unwrap();
    second.kill().unwrap();
    second.wait().unwrap();
    assert_eq!(line, format!("socket {}\n", daemon.socket.display()));
}
