use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::super::Limits;
use super::super::watch::Peer;
use super::{Site, code, until};

struct Talk(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Site {
    async fn open(&self, headers: &[(&'static str, &str)]) -> Result<Talk, Error> {
        let mut request = format!("ws://127.0.0.1:{}/v1/windows", self.port).into_client_request()?;
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        connect_async(request).await.map(|(socket, _)| Talk(socket))
    }
}

impl Talk {
    async fn hear(&mut self) -> Value {
        loop {
            match self.0.next().await.unwrap().unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    async fn ask(&mut self, message: Value) -> Value {
        self.0.send(Message::text(message.to_string())).await.unwrap();
        self.hear().await
    }
}

#[tokio::test]
async fn our_own_page_and_local_programs_need_no_token() {
    let site = Site::new(Limits::default()).await;
    let own = format!("http://127.0.0.1:{}", site.port);
    for headers in [&[][..], &[("origin", own.as_str())]] {
        let mut talk = site.open(headers).await.unwrap();
        assert_eq!(talk.ask(json!({ "op": "hello", "v": 1 })).await["op"], "welcome");
        let begun = talk.ask(json!({ "op": "begin", "id": "w", "name": "x" })).await;
        assert_eq!((&begun["op"], &begun["id"]), (&json!("ack"), &json!("w")));
        assert_eq!(talk.ask(json!({ "op": "end", "id": "w" })).await["sync_calls"], 7);
        // Results sent before the close are kept, though nobody waits for an answer.
        talk.0.send(Message::text(r#"{"op":"result","name":"r","data":1}"#)).await.unwrap();
        talk.0.close(None).await.unwrap();
        assert!(matches!(talk.0.next().await, Some(Ok(Message::Close(_)))), "the close is answered");
    }
    until("both to leave", || site.fake.told().open.is_empty()).await;
    let told = site.fake.told();
    assert_eq!(told.results.len(), 2);
    assert!(told.aborted.is_empty());
    let Peer::Tcp { peer, local } = &told.peers[0] else { panic!("not by TCP") };
    assert!(peer.ip().is_loopback() && peer.port() != 0 && local.port() == site.port);
}

#[tokio::test]
async fn other_pages_need_the_token() {
    let site = Site::new(Limits::default()).await;
    for origin in ["https://evil.example", "http://localhost:3000", "null"] {
        let mut talk = site.open(&[("origin", origin)]).await.unwrap();
        let refused = talk.ask(json!({ "op": "hello", "v": 1, "token": "guess" })).await;
        assert_eq!(code(&refused), "unauthorized", "{origin}");
        assert_eq!(code(&talk.ask(json!({ "op": "begin", "id": "w", "name": "x" })).await), "bad_message");
        assert!(site.fake.told().open.is_empty());
        let token = site.server.token().secret();
        assert_eq!(talk.ask(json!({ "op": "hello", "v": 1, "token": token })).await["op"], "welcome");
        drop(talk);
        until("it to leave", || site.fake.told().open.is_empty()).await;
    }
}

#[tokio::test]
async fn another_host_gets_no_socket() {
    let site = Site::new(Limits::default()).await;
    let host = format!("evil.example:{}", site.port);
    match site.open(&[("host", host.as_str())]).await {
        Err(Error::Http(response)) => assert_eq!(response.status(), 421),
        other => panic!("{:?}", other.err()),
    }
}

#[tokio::test]
async fn frames_that_are_no_messages_cost_only_themselves() {
    let site = Site::new(Limits { message_bytes: 1_000, ..Limits::default() }).await;
    let mut talk = site.open(&[]).await.unwrap();
    talk.ask(json!({ "op": "hello", "v": 1 })).await;
    talk.ask(json!({ "op": "begin", "id": "w", "name": "x" })).await;
    talk.0.send(Message::binary(vec![0, 159, 146])).await.unwrap();
    assert_eq!(code(&talk.hear().await), "bad_message");
    let long = json!({ "op": "result", "name": "r", "data": "x".repeat(2_000) });
    assert_eq!(code(&talk.ask(long).await), "limit");
    assert_eq!(talk.ask(json!({ "op": "end", "id": "w" })).await["op"], "ack");
    // So long that it is not even read.
    let hopeless = json!({ "op": "result", "name": "r", "data": "x".repeat(20_000) });
    assert_eq!(code(&talk.ask(hopeless).await), "limit");
    until("it to be let go", || site.fake.told().open.is_empty()).await;
}

#[tokio::test]
async fn a_page_that_vanishes_leaves_aborted_windows() {
    let site = Site::new(Limits::default()).await;
    let mut talk = site.open(&[]).await.unwrap();
    talk.ask(json!({ "op": "hello", "v": 1 })).await;
    talk.ask(json!({ "op": "begin", "id": "w", "name": "x" })).await;
    drop(talk);
    until("the abort", || site.fake.told().aborted == ["w"]).await;
}

#[tokio::test]
async fn one_page_too_many_is_told_so() {
    let site = Site::new(Limits { clients: 1, ..Limits::default() }).await;
    let mut first = site.open(&[]).await.unwrap();
    assert_eq!(first.ask(json!({ "op": "hello", "v": 1 })).await["op"], "welcome");
    let mut second = site.open(&[]).await.unwrap();
    assert_eq!(code(&second.hear().await), "limit");
    assert_eq!(first.ask(json!({ "op": "end", "id": "w" })).await["code"], "unknown_window");
}

#[tokio::test]
async fn a_silent_page_keeps_its_windows() {
    let site = Site::new(Limits { request_wait: Duration::from_millis(50), ..Limits::default() }).await;
    let mut talk = site.open(&[]).await.unwrap();
    talk.ask(json!({ "op": "hello", "v": 1 })).await;
    talk.ask(json!({ "op": "begin", "id": "w", "name": "x" })).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(talk.ask(json!({ "op": "end", "id": "w" })).await["op"], "ack");
}
