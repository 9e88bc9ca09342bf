use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener as StdListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::{Group, getegid, geteuid};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::super::client::{Begin, Client, ClientError};
use super::super::fake::Fake;
use super::super::protocol::Filter;
use super::super::unix::Socket;
use super::super::watch::Peer;
use super::super::{Limits, ServeError, Server, Watch};
use super::{code, until};

/// A server on a socket in a directory of its own.
struct Place {
    fake: Arc<Fake>,
    directory: TempDir,
    task: tokio::task::JoinHandle<()>,
}

impl Place {
    fn new(limits: Limits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let fake = Fake::new();
        let server = Server::new(Arc::clone(&fake) as Arc<dyn Watch>, limits);
        let socket = Socket::bind(&directory.path().join("socket"), None).unwrap();
        let task = tokio::spawn(socket.serve(server));
        Self { fake, directory, task }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    async fn connect(&self) -> Talk {
        Talk(BufReader::new(UnixStream::connect(self.path()).await.unwrap()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Talk(BufReader<UnixStream>);

impl Talk {
    async fn send(&mut self, text: &str) {
        self.0.get_mut().write_all(format!("{text}\n").as_bytes()).await.unwrap();
    }

    async fn hear(&mut self) -> Value {
        let mut line = String::new();
        let heard = tokio::time::timeout(Duration::from_secs(5), self.0.read_line(&mut line)).await;
        heard.expect("an answer in time").unwrap();
        serde_json::from_str(&line).unwrap()
    }

    async fn ask(&mut self, message: Value) -> Value {
        self.send(&message.to_string()).await;
        self.hear().await
    }

    async fn hello(&mut self) -> Value {
        self.ask(json!({ "op": "hello", "v": 1, "client": "test/1" })).await
    }
}

#[tokio::test]
async fn a_conversation() {
    let place = Place::new(Limits::default());
    let mut talk = place.connect().await;
    let welcome = talk.hello().await;
    assert_eq!(welcome["op"], "welcome");
    assert_eq!((&welcome["v"], &welcome["session"]), (&json!(1), &json!("s1")));
    assert!(welcome["clock"]["monotonic_ns"].is_u64() && welcome["clock"]["realtime_ns"].is_i64());
    assert_eq!(welcome["coverage_gaps"], json!(["aio_fsync"]));

    let ack = talk.ask(json!({ "op": "begin", "id": "w", "name": "save", "calls": 3 })).await;
    assert_eq!((&ack["op"], &ack["id"]), (&json!("ack"), &json!("w")));
    assert!(ack["monotonic_ns"].is_u64() && ack.get("sync_calls").is_none());
    let duplicate = talk.ask(json!({ "op": "begin", "id": "w", "name": "save" })).await;
    assert_eq!((code(&duplicate), &duplicate["id"]), ("duplicate_window", &json!("w")));
    let orphan = talk.ask(json!({ "op": "begin", "id": "v", "name": "x", "parent": "nobody" })).await;
    assert_eq!((code(&orphan), &orphan["id"]), ("unknown_window", &json!("v")));
    let end = talk.ask(json!({ "op": "end", "id": "w" })).await;
    assert_eq!((&end["sync_calls"], &end["sync_ns"]), (&json!(7), &json!(7_000)));
    let again = talk.ask(json!({ "op": "end", "id": "w" })).await;
    assert_eq!((code(&again), &again["id"]), ("unknown_window", &json!("w")));

    // A result goes unanswered, so the next answer is the next message's.
    talk.send(r#"{"op":"result","name":"r","data":{"x":1}}"#).await;
    assert_eq!(talk.ask(json!({ "op": "windows" })).await["windows"], json!([]));
    assert_eq!(place.fake.told().results, [("r".to_owned(), json!({ "x": 1 }))]);
    let peer = place.fake.told().peers[0].clone();
    assert_eq!(peer, Peer::Process { pid: std::process::id(), uid: geteuid().as_raw() });
}

#[tokio::test]
async fn nonsense_costs_its_sender_nothing_but_the_message() {
    let place = Place::new(Limits { message_bytes: 1_000, ..Limits::default() });
    let mut talk = place.connect().await;
    talk.hello().await;
    talk.ask(json!({ "op": "begin", "id": "w", "name": "x" })).await;
    talk.send(&"x".repeat(300_000)).await;
    assert_eq!(code(&talk.hear().await), "limit");
    talk.send("\n\n{\"op\":").await;
    assert_eq!(code(&talk.hear().await), "bad_message");
    talk.0.get_mut().write_all(b"\xff\xfe\n").await.unwrap();
    assert_eq!(code(&talk.hear().await), "bad_message");
    assert_eq!(talk.ask(json!({ "op": "end", "id": "w" })).await["op"], "ack");
}

#[tokio::test]
async fn messages_sent_at_once_are_answered_in_order_and_to_the_end() {
    let place = Place::new(Limits::default());
    let mut talk = place.connect().await;
    let hello = r#"{"op":"hello","v":1}"#.to_owned();
    let begins = (0..100).map(|n| format!(r#"{{"op":"begin","id":"w{n}","name":"x"}}"#));
    let text = std::iter::once(hello)
        .chain(begins)
        .map(|line| {
            line + "
"
        })
        .collect::<String>();
    let stream = talk.0.get_mut();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(talk.hear().await["op"], "welcome");
    for n in 0..100 {
        assert_eq!(talk.hear().await["id"], format!("w{n}"));
    }
    assert_eq!(talk.0.read_u8().await.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn a_client_that_vanishes_leaves_aborted_windows_and_nobody_else_notices() {
    let place = Place::new(Limits::default());
    let mut stays = place.connect().await;
    stays.hello().await;
    stays.ask(json!({ "op": "begin", "id": "mine", "name": "x" })).await;
    let mut goes = place.connect().await;
    goes.hello().await;
    goes.ask(json!({ "op": "begin", "id": "theirs", "name": "x" })).await;
    drop(goes);
    until("the abort", || !place.fake.told().aborted.is_empty()).await;
    assert_eq!(place.fake.told().aborted, ["theirs"]);
    assert_eq!(stays.ask(json!({ "op": "end", "id": "mine" })).await["op"], "ack");
}

#[tokio::test]
async fn two_hundred_idle_clients_disturb_nobody_and_one_too_many_is_told_so() {
    let place = Place::new(Limits { clients: 201, ..Limits::default() });
    let mut idle = Vec::new();
    for _ in 0..200 {
        let mut talk = place.connect().await;
        talk.hello().await;
        idle.push(talk);
    }
    let mut last = place.connect().await;
    assert_eq!(last.hello().await["op"], "welcome");
    let mut beyond = place.connect().await;
    assert_eq!(code(&beyond.hear().await), "limit");
    drop(idle.pop());
    until("a free seat", || place.fake.told().open.len() == 200).await;
    // The seat is free a moment after its client was let go.
    loop {
        let mut next = place.connect().await;
        next.send(r#"{"op":"hello","v":1}"#).await;
        if next.hear().await["op"] == "welcome" {
            break;
        }
    }
}

#[tokio::test]
async fn a_client_that_never_says_hello_is_sent_away() {
    let place = Place::new(Limits { hello_wait: Duration::from_millis(50), ..Limits::default() });
    let mut talk = place.connect().await;
    talk.0.get_mut().write_all(b"{\"op\":").await.unwrap();
    assert_eq!(code(&talk.hear().await), "limit");
    assert!(talk.0.read_u8().await.is_err());
    let mut patient = place.connect().await;
    patient.hello().await;
    tokio::time::sleep(Duration::from_millis(120)).await;
    assert_eq!(patient.ask(json!({ "op": "windows" })).await["op"], "windows");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_let_go() {
    let place = Place::new(Limits { answer_wait: Duration::from_millis(50), ..Limits::default() });
    let mut talk = place.connect().await;
    talk.hello().await;
    talk.ask(json!({ "op": "begin", "id": "w", "name": "x" })).await;
    let questions = "{\"op\":\"windows\"}\n".repeat(40_000);
    // Refused once the server has gone away.
    let _ = talk.0.get_mut().write_all(questions.as_bytes()).await;
    until("the abort", || place.fake.told().aborted == ["w"]).await;
}

#[tokio::test]
async fn the_socket_is_for_its_owner_and_group() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    // Our own group: root alone may give a file to another.
    let group = Group::from_gid(getegid()).unwrap().expect("the group has a name");
    let socket = Socket::bind(&path, Some(&group.name)).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o660);
    assert_eq!(metadata.gid(), group.gid.as_raw());
    drop(socket);
    assert!(!path.exists());
    let missing = Socket::bind(&path, Some("no-such-group")).err().unwrap();
    assert!(matches!(missing, ServeError::NoGroup { .. }), "{missing}");
}

#[tokio::test]
async fn a_socket_that_is_served_is_left_alone_and_a_stale_one_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let first = Socket::bind(&path, None).unwrap();
    let second = Socket::bind(&path, None).err().unwrap();
    assert!(matches!(second, ServeError::SocketTaken { .. }));
    assert!(second.to_string().contains("another opfs-probe serves it; stop that one"), "{second}");
    drop(first);

    // Somebody else's live socket, then what it leaves behind.
    let foreign = StdListener::bind(&path).unwrap();
    assert!(matches!(Socket::bind(&path, None), Err(ServeError::SocketTaken { .. })));
    drop(foreign);
    assert!(path.exists());
    drop(Socket::bind(&path, None).unwrap());

    fs::write(&path, "precious").unwrap();
    assert!(matches!(Socket::bind(&path, None), Err(ServeError::NotASocket { .. })));
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    let nowhere = Socket::bind(&directory.path().join("none/socket"), None).err().unwrap();
    assert!(nowhere.to_string().contains("No such file"), "{nowhere}");
    let long = Socket::bind(&directory.path().join("x".repeat(120)), None).err().unwrap();
    assert!(long.to_string().contains("too long"), "{long}");
}

#[tokio::test]
async fn the_command_line_client_begins_lists_ends_and_reports() {
    let place = Place::new(Limits::default());
    let path = place.path();
    let asking = tokio::task::spawn_blocking(move || {
        let begin = Begin { name: "dd".into(), owner_pid: Some(4), ..Begin::default() };
        let id = Client::connect(&path).unwrap().begin(&begin).unwrap();
        let mut client = Client::connect(&path).unwrap();
        let lines = client.windows().unwrap();
        assert_eq!(
            (lines[0].id.as_str(), lines[0].name.as_str(), lines[0].owner_pid),
            (id.as_str(), "dd", Some(4))
        );
        client.end(&id, None).unwrap();
        let again = client.end(&id, None).unwrap_err();
        assert!(matches!(&again, ClientError::Refused { code, .. } if code == "unknown_window"), "{again}");
        let filter = Filter {
            windows: vec!["append*".into()],
            since: Some("2026-01-01T00:00:00Z".parse().unwrap()),
            ..Filter::default()
        };
        let report = client.report(&filter).unwrap();
        assert_eq!(report["asked"]["windows"], json!(["append*"]));
        assert_eq!(report["asked"]["since"], "2026-01-01T00:00:00Z");
        let refused = client.report(&Filter { windows: vec!["[".into()], ..Filter::default() }).unwrap_err();
        assert!(refused.to_string().contains("is no pattern"), "{refused}");
    });
    asking.await.unwrap();
}

#[test]
fn the_command_line_client_says_what_to_do_where_no_probe_answers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let nobody = Client::connect(&path).err().unwrap();
    assert!(nobody.to_string().contains("start one with `opfs-probe daemon`"), "{nobody}");
    let listener = StdListener::bind(&path).unwrap();
    let stranger = std::thread::spawn(move || {
        use std::io::{BufRead, Write};
        for answer in ["220 hello\n", ""] {
            let (mut stream, _) = listener.accept().unwrap();
            std::io::BufReader::new(&stream).read_line(&mut String::new()).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let strange = Client::connect(&path).unwrap().windows().unwrap_err();
    assert!(matches!(strange, ClientError::Strange { .. }), "{strange}");
    let gone = Client::connect(&path).unwrap().windows().unwrap_err();
    assert!(matches!(gone, ClientError::NoAnswer { .. }), "{gone}");
    stranger.join().unwrap();
}
