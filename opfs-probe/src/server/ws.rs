//! The page's WebSocket: one JSON message a text frame.

use std::sync::Arc;

use axum::extract::ws::{Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use bytes::Bytes;

use super::Server;
use super::answer::Refusal;
use super::conversation::{Heard, Transport, converse, tell};
use super::protocol::too_long;
use super::token::Token;
use super::watch::Peer;

/// A frame this many times beyond the limit can't be skipped and ends the connection; below, only the
/// message is refused.
const HOPELESS: usize = 4;

/// Answers the upgrade and talks with the client; `token` is what its hello must show, if it must.
pub fn answer(upgrade: WebSocketUpgrade, server: Arc<Server>, peer: Peer, token: Option<Token>) -> Response {
    let hopeless = server.limits.message_bytes * HOPELESS;
    let upgrade = upgrade.max_message_size(hopeless).max_frame_size(hopeless);
    upgrade.on_upgrade(move |socket| async move {
        let mut frames = Frames { socket, too_long: too_long(&server.limits) };
        match server.seat() {
            Ok(_seat) => converse(frames, server.connection(peer, token), &server.limits).await,
            Err(refusal) => {
                tell(&mut frames, &refusal.into(), &server.limits).await;
            }
        }
    })
}

/// Messages as frames.
struct Frames {
    socket: WebSocket,
    too_long: Refusal,
}

impl Transport for Frames {
    async fn hear(&mut self) -> Heard {
        loop {
            return match self.socket.recv().await {
                Some(Ok(Message::Text(text))) => Heard::Message(Bytes::from(text)),
                Some(Ok(Message::Binary(_))) => {
                    Heard::Refused(Refusal::bad("a message is a text frame, not a binary one"))
                }
                // Reading on sends the pong, or the answer to the close, after which nothing comes.
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Close(_))) => continue,
                // The error's type is not ours to see, only its words.
                Some(Err(error)) if error.to_string().contains("too long") => {
                    Heard::Broken(self.too_long.clone())
                }
                Some(Err(error)) => Heard::Broken(Refusal::bad(format!("not a WebSocket frame: {error}"))),
                None => Heard::Gone,
            };
        }
    }

    async fn say(&mut self, answer: String) -> bool {
        self.socket.send(Message::Text(Utf8Bytes::from(answer))).await.is_ok()
    }
}
