//! The server over real sockets, with a watch that counts nothing.

mod fuzz;
mod http;
mod protocol;
mod unix;
mod websocket;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::fake::Fake;
use super::http::Port;
use super::{Limits, Server, Watch};

/// A server on a free port.
struct Site {
    fake: Arc<Fake>,
    server: Arc<Server>,
    port: u16,
    task: tokio::task::JoinHandle<()>,
}

impl Site {
    async fn new(limits: Limits) -> Self {
        let fake = Fake::new();
        let server = Server::new(Arc::clone(&fake) as Arc<dyn Watch>, limits);
        let port = Port::bind("127.0.0.1:0").await.unwrap();
        let number = port.address().port();
        let serving = Arc::clone(&server);
        let task = tokio::spawn(async move { port.serve(serving).await.unwrap() });
        Self { fake, server, port: number, task }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Waits for what another task is about to bring about.
async fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < Duration::from_secs(5), "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn code(answer: &Value) -> &str {
    assert_eq!(answer["op"], "error", "{answer}");
    answer["code"].as_str().unwrap()
}
