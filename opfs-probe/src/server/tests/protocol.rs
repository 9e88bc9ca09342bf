use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::super::connection::Connection;
use super::super::fake::Fake;
use super::super::protocol::{Message, parse};
use super::super::watch::Peer;
use super::super::{Answer, Code, Limits, Refusal, Token, Watch};

fn refused(text: &str) -> Refusal {
    match parse(text.as_bytes(), &Limits::default()) {
        Err(refusal) => refusal,
        Ok(message) => panic!("{text} was taken for {message:?}"),
    }
}

#[test]
fn messages_that_make_no_sense_are_bad() {
    for text in [
        "",
        "hello",
        "[]",
        "null",
        "{",
        r#"{"id":"a"}"#,
        r#"{"op":7}"#,
        r#"{"op":"dance"}"#,
        r#"{"op":"hello"}"#,
        r#"{"op":"hello","v":"1"}"#,
        r#"{"op":"hello","v":1.5}"#,
        r#"{"op":"hello","v":1,"client":3}"#,
        r#"{"op":"hello","v":1,"meta":[]}"#,
        r#"{"op":"begin","id":"a"}"#,
        r#"{"op":"begin","id":"a","name":""}"#,
        r#"{"op":"begin","id":"a","name":"x\u001b[2J"}"#,
        r#"{"op":"begin","id":7,"name":"x"}"#,
        r#"{"op":"begin","id":"a","name":"x","parent":1}"#,
        r#"{"op":"begin","id":"a","name":"x","calls":-1}"#,
        r#"{"op":"begin","id":"a","name":"x","calls":"many"}"#,
        r#"{"op":"begin","id":"a","name":"x","attrs":"y"}"#,
        r#"{"op":"begin","id":"a","name":"x","detached":"yes"}"#,
        r#"{"op":"begin","name":"x","detached":true,"pid":4294967296}"#,
        r#"{"op":"end"}"#,
        r#"{"op":"result","name":"x"}"#,
        r#"{"op":"result","data":1}"#,
        r#"{"op":"report","windows":"append*"}"#,
        r#"{"op":"report","windows":[1]}"#,
        r#"{"op":"report","since":"yesterday"}"#,
    ] {
        assert_eq!(refused(text).code, Code::BadMessage, "{text}");
    }
    assert_eq!(
        parse(b"{\"op\":\"end\",\"id\":\"\xff\"}", &Limits::default()).unwrap_err().code,
        Code::BadMessage
    );
    let deep = format!(r#"{{"op":"result","name":"x","data":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    assert_eq!(refused(&deep).code, Code::BadMessage);
}

#[test]
fn other_versions_are_told_so() {
    for version in [0, 2, u64::MAX] {
        let refusal = refused(&format!(r#"{{"op":"hello","v":{version}}}"#));
        assert_eq!(refusal.code, Code::BadVersion);
        assert!(refusal.message.contains("version 1"), "{}", refusal.message);
    }
}

#[test]
fn what_is_too_much_is_told_so() {
    let limits = Limits::default();
    let long = "x".repeat(limits.name_bytes + 1);
    let many: Map<String, Value> = (0..=limits.attrs).map(|n| (n.to_string(), n.into())).collect();
    for message in [
        json!({ "op": "begin", "id": "a", "name": long }),
        json!({ "op": "begin", "id": long, "name": "x" }),
        json!({ "op": "begin", "id": "a", "name": "x", "parent": long }),
        json!({ "op": "begin", "id": "a", "name": "x", "attrs": many }),
        json!({ "op": "begin", "id": "a", "name": "x", "attrs": { "k": "v".repeat(limits.attrs_bytes) } }),
        json!({ "op": "report", "windows": vec!["x"; limits.patterns + 1] }),
        json!({ "op": "result", "name": "x", "data": "y".repeat(limits.message_bytes) }),
    ] {
        let text = message.to_string();
        assert_eq!(refused(&text).code, Code::Limit, "{}", &text[..60]);
    }
}

#[test]
fn a_refusal_names_the_window_if_it_can() {
    assert_eq!(refused(r#"{"op":"begin","id":"a"}"#).id.as_deref(), Some("a"));
    assert_eq!(refused(r#"{"op":"dance","id":"a"}"#).id.as_deref(), Some("a"));
    assert_eq!(refused(r#"{"op":"begin","id":"a\n","name":"x"}"#).id, None);
    assert_eq!(refused(r#"{"op":"begin","id":{},"name":"x"}"#).id, None);
}

#[test]
fn null_is_absent_and_unknown_fields_are_ignored() {
    let text = r#"{"op":"begin","id":"a","name":"größe","parent":null,"calls":null,"attrs":null,"new":[1]}"#;
    let Ok(Message::Begin(begin)) = parse(text.as_bytes(), &Limits::default()) else {
        panic!("not a begin");
    };
    assert_eq!((begin.name.as_str(), begin.parent, begin.calls), ("größe", None, None));
}

fn connection(peer: Peer, token: Option<Token>) -> (Arc<Fake>, Connection) {
    let fake = Fake::new();
    let watch = Arc::clone(&fake) as Arc<dyn Watch>;
    (fake, Connection::new(watch, Arc::default(), peer, token))
}

fn page() -> Peer {
    Peer::Tcp { peer: "127.0.0.1:40000".parse().unwrap(), local: "127.0.0.1:8787".parse().unwrap() }
}

fn tell(connection: &mut Connection, message: &Value) -> Option<Code> {
    match connection.hear(message.to_string().as_bytes()) {
        Some(Answer::Error(refusal)) => Some(refusal.code),
        _ => None,
    }
}

#[test]
fn nothing_is_heard_before_hello_and_hello_once() {
    let (fake, mut connection) = connection(page(), None);
    let begin = json!({ "op": "begin", "id": "a", "name": "x" });
    assert_eq!(tell(&mut connection, &begin), Some(Code::BadMessage));
    assert_eq!(
        tell(&mut connection, &json!({ "op": "result", "name": "x", "data": 1 })),
        Some(Code::BadMessage)
    );
    let hello = json!({ "op": "hello", "v": 1 });
    assert_eq!(tell(&mut connection, &hello), None);
    assert_eq!(tell(&mut connection, &hello), Some(Code::BadMessage));
    assert_eq!(tell(&mut connection, &begin), None);
    assert_eq!(tell(&mut connection, &begin), Some(Code::DuplicateWindow));
    drop(connection);
    assert_eq!(fake.told().aborted, ["a"]);
}

#[test]
fn a_token_is_wanted_where_it_is_asked_for() {
    let token = Token::random();
    let (fake, mut connection) = connection(page(), Some(token.clone()));
    let hello = |token: &str| json!({ "op": "hello", "v": 1, "token": token });
    assert_eq!(tell(&mut connection, &json!({ "op": "hello", "v": 1 })), Some(Code::Unauthorized));
    assert_eq!(tell(&mut connection, &hello("guess")), Some(Code::Unauthorized));
    assert!(fake.told().peers.is_empty(), "nobody joined yet");
    assert_eq!(tell(&mut connection, &hello(token.secret())), None);
    assert!(connection.is_welcome());
}

#[test]
fn pages_may_not_ask_for_more_than_their_windows() {
    let (_, mut connection) = connection(page(), None);
    assert_eq!(tell(&mut connection, &json!({ "op": "hello", "v": 1 })), None);
    for message in [
        json!({ "op": "report" }),
        json!({ "op": "windows" }),
        json!({ "op": "begin", "name": "x", "detached": true, "pid": 1 }),
        json!({ "op": "end", "id": "d1", "detached": true }),
    ] {
        assert_eq!(tell(&mut connection, &message), Some(Code::Unauthorized), "{message}");
    }
}
