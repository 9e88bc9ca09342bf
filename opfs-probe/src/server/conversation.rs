//! Carries one connection's messages in and its answers out, strictly in order.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use super::answer::{Answer, Code, Refusal};
use super::connection::Connection;
use super::limits::Limits;

/// What came from the client.
pub enum Heard {
    /// A message.
    Message(Bytes),
    /// Something that is no message.
    Refused(Refusal),
    /// Something after which nothing more can be read.
    Broken(Refusal),
    /// The client went away.
    Gone,
}

/// Whatever carries messages.
pub trait Transport: Send {
    /// Waits for the next message.
    fn hear(&mut self) -> impl Future<Output = Heard> + Send;

    /// Sends an answer; false if the client is gone.
    fn say(&mut self, answer: String) -> impl Future<Output = bool> + Send;
}

/// Talks with one client until it goes away, and then lets go of its windows.
pub async fn converse(mut transport: impl Transport, mut connection: Connection, limits: &Limits) {
    loop {
        let heard = if connection.is_welcome() {
            transport.hear().await
        } else {
            timeout(limits.hello_wait, transport.hear())
                .await
                .unwrap_or_else(|_| Heard::Broken(no_hello(limits.hello_wait)))
        };
        let (answer, last) = match heard {
            Heard::Message(message) => {
                // The connection goes along: should this task be dropped meanwhile, a hello under way
                // still ends with the client abandoned.
                let step = tokio::task::spawn_blocking(move || {
                    let answer = connection.hear(&message);
                    (connection, answer)
                });
                let Ok((returned, answer)) = step.await else {
                    return;
                };
                connection = returned;
                (answer, false)
            }
            Heard::Refused(refusal) => (Some(refusal.into()), false),
            Heard::Broken(refusal) => (Some(refusal.into()), true),
            Heard::Gone => break,
        };
        if let Some(answer) = answer
            && !tell(&mut transport, &answer, limits).await
        {
            break;
        }
        if last {
            break;
        }
    }
    // Letting go is the watch's work, and may block; nobody waits for it.
    tokio::task::spawn_blocking(move || drop(connection));
}

/// Sends one answer; false if the client is gone or does not read.
pub async fn tell(transport: &mut impl Transport, answer: &Answer, limits: &Limits) -> bool {
    timeout(limits.answer_wait, transport.say(answer.to_json())).await.unwrap_or(false)
}

fn no_hello(wait: Duration) -> Refusal {
    Refusal::new(Code::Limit, format!("no hello within {} s", wait.as_secs_f64()))
}
