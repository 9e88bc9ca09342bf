use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::super::connection::Connection;
use super::super::fake::Fake;
use super::super::protocol::parse;
use super::super::watch::Peer;
use super::super::{Answer, Limits, Watch};

/// How long each fuzzer runs, whatever the machine.
const BUDGET: Duration = Duration::from_millis(1_200);

/// Texts that messages are made of, and some that they are not.
const PARTS: &[&str] = &[
    r#""op":"hello""#,
    r#""op":"begin""#,
    r#""op":"end""#,
    r#""op":"result""#,
    r#""op":"report""#,
    r#""op":"windows""#,
    r#""v":1"#,
    r#""v":2"#,
    r#""id":"a""#,
    r#""id":"b""#,
    r#""id":null"#,
    r#""name":"x""#,
    r#""name":"\u0000""#,
    r#""name":"\ud800""#,
    r#""parent":"a""#,
    r#""calls":18446744073709551616"#,
    r#""calls":3"#,
    r#""attrs":{"k":[1,{}]}"#,
    r#""attrs":[]"#,
    r#""detached":true"#,
    r#""pid":1"#,
    r#""data":{"deep":[[[[]]]]}"#,
    r#""windows":["*","["]"#,
    r#""since":"2026-01-01T00:00:00Z""#,
    r#""since":"-009999-01-01T00:00:00Z""#,
];

/// A message put together from parts, often a valid one.
fn message() -> impl Strategy<Value = Vec<u8>> {
    proptest::sample::subsequence(PARTS, 0..9)
        .prop_map(|parts| format!("{{{}}}", parts.join(",")).into_bytes())
}

/// A message, perhaps with some bytes changed, cut out or doubled; or plain noise.
fn anything() -> impl Strategy<Value = Vec<u8>> {
    let damage = (any::<prop::sample::Index>(), any::<u8>(), 0..4_u8);
    let damaged = (message(), prop::collection::vec(damage, 0..4)).prop_map(|(mut bytes, damages)| {
        for (at, byte, kind) in damages {
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.truncate(at),
                2 => bytes.insert(at, byte),
                _ => bytes.extend_from_within(at..),
            }
        }
        bytes
    });
    prop_oneof![4 => message(), 4 => damaged, 1 => prop::collection::vec(any::<u8>(), 0..64)]
}

/// Runs `check` on new values until the time is up.
fn fuzz<S: Strategy>(strategy: &S, mut check: impl FnMut(S::Value)) {
    let mut runner = TestRunner::default();
    let start = Instant::now();
    let mut runs = 0;
    while start.elapsed() < BUDGET {
        check(strategy.new_tree(&mut runner).unwrap().current());
        runs += 1;
    }
    assert!(runs > 10, "only {runs} runs in {BUDGET:?}");
}

fn small() -> Limits {
    Limits { message_bytes: 200, name_bytes: 16, id_bytes: 8, attrs: 2, attrs_bytes: 32, ..Limits::default() }
}

#[test]
fn the_parser_never_panics_and_keeps_to_its_limits() {
    let limits = small();
    fuzz(&anything(), |bytes| {
        if let Err(refusal) = parse(&bytes, &limits) {
            assert!(refusal.id.is_none_or(|id| id.len() <= limits.id_bytes), "{bytes:?}");
            assert!(!refusal.message.is_empty());
        } else {
            assert!(bytes.len() <= limits.message_bytes);
        }
    });
}

#[test]
fn a_connection_answers_everything_and_leaves_nothing_behind() {
    let messages = prop::collection::vec(anything(), 0..40);
    fuzz(&(messages, any::<bool>()), |(messages, is_page)| {
        let fake = Fake::new();
        let peer = if is_page {
            Peer::Tcp { peer: ([127, 0, 0, 1], 1).into(), local: ([127, 0, 0, 1], 2).into() }
        } else {
            Peer::Process { pid: 1, uid: 0 }
        };
        let watch = Arc::clone(&fake) as Arc<dyn Watch>;
        let mut connection = Connection::new(watch, Arc::new(small()), peer, None);
        for message in &messages {
            let before = state(&fake);
            let welcome = connection.is_welcome();
            let answer = connection.hear(message);
            match &answer {
                Some(Answer::Error(_)) => assert_eq!(state(&fake), before, "an error changes nothing"),
                Some(Answer::Welcome(_)) => assert!(!welcome && connection.is_welcome()),
                Some(_) => {}
                None => assert_eq!(fake.told().results.len(), before.2 + 1, "only results go unanswered"),
            }
            assert!(connection.is_welcome() || !welcome, "a welcome is for good");
            if let Some(answer) = answer {
                let text = answer.to_json();
                assert!(!text.contains('\n'), "an answer is one line");
                assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
            }
        }
        let open = state(&fake).0;
        drop(connection);
        assert!(fake.told().open.is_empty());
        assert_eq!(fake.told().aborted.len(), open, "windows still open were aborted");
    });
}

/// Open windows, detached windows, results, clients.
fn state(fake: &Fake) -> (usize, usize, usize, usize) {
    let told = fake.told();
    let open = told.open.values().map(std::collections::BTreeMap::len).sum();
    (open, told.detached.len(), told.results.len(), told.open.len())
}
