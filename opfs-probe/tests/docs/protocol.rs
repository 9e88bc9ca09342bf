//! docs/protocol.md: its ops, error codes, limits, and every message in it.

use std::collections::BTreeSet;
use std::time::Duration;

use opfs_probe::server::protocol::{Message, parse};
use opfs_probe::server::{Code, Limits};
use opfs_probe::watch::LIMITS;
use serde_json::{Value, json};

use crate::{blocks, codes, page, rows, sections};

/// All of them: a new one does not compile until it is added here.
fn op(message: &Message) -> &'static str {
    match message {
        Message::Hello(_) => "hello",
        Message::Begin(_) => "begin",
        Message::End(_) => "end",
        Message::Result { .. } => "result",
        Message::Report(_) => "report",
        Message::Windows => "windows",
    }
}

/// The same of codes.
fn meaning_is_known(code: Code) -> bool {
    match code {
        Code::BadMessage
        | Code::BadVersion
        | Code::Unauthorized
        | Code::UnknownWindow
        | Code::DuplicateWindow
        | Code::Limit
        | Code::Internal => true,
    }
}

const CODES: [Code; 7] = [
    Code::BadMessage,
    Code::BadVersion,
    Code::Unauthorized,
    Code::UnknownWindow,
    Code::DuplicateWindow,
    Code::Limit,
    Code::Internal,
];

#[test]
fn every_op_has_its_section_and_no_other() {
    let text = page("docs/protocol.md");
    let documented: BTreeSet<&str> =
        sections(&text).iter().filter_map(|(title, _)| title.strip_prefix('`')?.strip_suffix('`')).collect();
    assert_eq!(documented, ["begin", "end", "hello", "report", "result", "windows"].into());
    for name in documented {
        let message = json!({"op": name, "v": 1, "id": "1", "name": "x", "data": 1}).to_string();
        assert_eq!(op(&parse(message.as_bytes(), &Limits::default()).unwrap()), name);
    }
}

#[test]
fn every_message_shown_is_understood() {
    let text = page("docs/protocol.md");
    let mut shown = 0;
    for (language, lines) in blocks(&text) {
        for line in lines {
            if let Some(message) = line.strip_prefix("→ ") {
                parse(message.as_bytes(), &Limits::default())
                    .unwrap_or_else(|error| panic!("{message}: {error}"));
                shown += 1;
            } else if let Some(answer) = line.strip_prefix("← ") {
                let answer: Value =
                    serde_json::from_str(answer).unwrap_or_else(|error| panic!("{answer}: {error}"));
                let op = answer["op"].as_str().unwrap();
                assert!(["welcome", "ack", "windows", "report", "error"].contains(&op), "{answer}");
                shown += 1;
            } else {
                assert!(language != "json", "neither sent nor received: {line}");
            }
        }
    }
    assert!(shown > 10, "only {shown} messages were found");
}

/// A field in a table is one that is read: of the wrong type, it is refused by its name.
#[test]
fn every_field_of_a_message_is_read() {
    let text = page("docs/protocol.md");
    for (title, body) in sections(&text) {
        let Some(op) = title.strip_prefix('`').and_then(|title| title.strip_suffix('`')) else { continue };
        for row in rows(&body) {
            let field = codes(&row[0])[0];
            let mut message = json!({"op": op, "v": 1, "id": "1", "name": "x", "data": 1});
            message[field] = json!([[]]);
            let refusal = parse(message.to_string().as_bytes(), &Limits::default()).expect_err(field);
            assert!(refusal.message.contains(&format!("`{field}`")), "{op}.{field}: {refusal}");
        }
    }
}

#[test]
fn every_error_code_is_documented_and_no_other() {
    let text = page("docs/protocol.md");
    let (_, body) = sections(&text).into_iter().find(|(title, _)| *title == "Errors").unwrap();
    let documented: BTreeSet<String> = rows(&body).iter().map(|row| codes(&row[0])[0].to_owned()).collect();
    assert!(CODES.into_iter().all(meaning_is_known));
    assert_eq!(documented, CODES.into_iter().map(|code| code.name().to_owned()).collect());
}

#[test]
fn the_limits_are_those_of_the_code() {
    let Limits {
        clients,
        message_bytes,
        name_bytes,
        id_bytes,
        attrs,
        attrs_bytes,
        patterns,
        metric_names: _,
        hello_wait,
        answer_wait,
        request_wait,
    } = Limits::default();
    let seconds = |wait: Duration| wait.as_secs() as usize;
    let expected = [
        ("clients connected at once, over both sockets", clients),
        ("bytes of a message", message_bytes),
        ("bytes of a name", name_bytes),
        ("bytes of an id", id_bytes),
        ("entries of `attrs` or `meta`", attrs),
        ("bytes of `attrs` or `meta`", attrs_bytes),
        ("patterns in one question for a report", patterns),
        ("windows open at once in a session", LIMITS.open_windows),
        ("windows in a session", LIMITS.windows_per_session),
        ("seconds until `hello`, or the connection is closed", seconds(hello_wait)),
        ("seconds a client may take to read an answer", seconds(answer_wait)),
        ("seconds an HTTP request may take to arrive", seconds(request_wait)),
    ];
    let text = page("docs/protocol.md");
    let (_, body) = sections(&text).into_iter().find(|(title, _)| *title == "Limits").unwrap();
    let documented: Vec<(String, usize)> =
        rows(&body).into_iter().map(|row| (row[0].clone(), row[1].parse().unwrap())).collect();
    let expected: Vec<(String, usize)> = expected.map(|(what, value)| (what.to_owned(), value)).into();
    assert_eq!(documented, expected);
}
