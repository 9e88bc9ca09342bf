//! Where clients announce windows: a unix socket for programs, a loopback port for pages.
//!
//! The server parses, checks who may speak and keeps order; what is counted is behind [`Watch`].

pub mod answer;
pub mod client;
pub mod connection;
mod conversation;
pub mod error;
mod guard;
pub mod http;
pub mod limits;
mod lines;
mod origin;
mod page;
pub mod protocol;
mod token;
pub mod unix;
pub mod watch;
mod ws;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use answer::{Answer, Code, Refusal};
pub use error::ServeError;
pub use limits::Limits;
pub use token::Token;
pub use watch::Watch;

use connection::Connection;
use watch::Peer;

/// What all of a server's sockets share.
pub struct Server {
    watch: Arc<dyn Watch>,
    limits: Arc<Limits>,
    token: Token,
    seats: Arc<Semaphore>,
}

impl Server {
    /// A server in front of `watch`, with a new token.
    pub fn new(watch: Arc<dyn Watch>, limits: Limits) -> Arc<Self> {
        let seats = Arc::new(Semaphore::new(limits.clients));
        Arc::new(Self { watch, limits: Arc::new(limits), token: Token::random(), seats })
    }

    /// What pages of other origins, and clients of `POST /v1/windows`, must show.
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// Room for one more client, or the refusal to send it.
    fn seat(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        Arc::clone(&self.seats).try_acquire_owned().map_err(|_| {
            Refusal::new(Code::Limit, format!("{} clients are connected already", self.limits.clients))
        })
    }

    /// The beginning of a conversation; `token` is what its hello must show, if it must.
    fn connection(&self, peer: Peer, token: Option<Token>) -> Connection {
        Connection::new(Arc::clone(&self.watch), Arc::clone(&self.limits), peer, token)
    }

    /// Asks the watch something off the async threads, since it may read /proc or kernel maps.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&dyn Watch) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let watch = Arc::clone(&self.watch);
        tokio::task::spawn_blocking(move || question(watch.as_ref()))
            .await
            .map_err(|error| Refusal::new(Code::Internal, format!("the probe failed to answer: {error}")))
    }
}
