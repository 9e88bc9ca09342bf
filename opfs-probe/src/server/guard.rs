//! Keeps a client that does nothing, or trickles, from holding an HTTP connection for ever.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// Accepts connections, so many at once, each with so long for a request.
pub struct GuardedListener {
    listener: TcpListener,
    seats: Arc<Semaphore>,
    request_wait: Duration,
}

impl GuardedListener {
    /// Guards a listener.
    pub fn new(listener: TcpListener, connections: usize, request_wait: Duration) -> Self {
        Self { listener, seats: Arc::new(Semaphore::new(connections)), request_wait }
    }
}

impl Listener for GuardedListener {
    type Io = GuardedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (GuardedStream, SocketAddr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.listener).await;
            // Beyond the limit a connection is closed at once: waiting would only hide it.
            let Ok(seat) = Arc::clone(&self.seats).try_acquire_owned() else {
                tracing::warn!("an HTTP connection from {address} was closed: too many are open");
                continue;
            };
            // Answers are small and awaited; nothing is gained by collecting them.
            let _ = stream.set_nodelay(true);
            let guest = Guest { address, upgraded: Arc::default() };
            let stream = GuardedStream {
                stream,
                guest,
                deadline: Box::pin(sleep(self.request_wait)),
                request_wait: self.request_wait,
                _seat: seat,
            };
            return (stream, address);
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub struct Guest {
    /// The client's end.
    pub address: SocketAddr,
    upgraded: Arc<AtomicBool>,
}

impl Guest {
    /// From here on the connection is a WebSocket, which may be silent as long as it likes.
    pub fn upgrade(&self) {
        self.upgraded.store(true, Ordering::Relaxed);
    }
}

impl Connected<IncomingStream<'_, GuardedListener>> for Guest {
    fn connect_info(stream: IncomingStream<'_, GuardedListener>) -> Self {
        stream.io().guest.clone()
    }
}

/// A connection on which each request must arrive, and each part of an answer be read, in time.
pub struct GuardedStream {
    stream: TcpStream,
    guest: Guest,
    deadline: Pin<Box<Sleep>>,
    request_wait: Duration,
    _seat: OwnedSemaphorePermit,
}

impl GuardedStream {
    /// Ready once the time is up.
    fn poll_late<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if self.guest.upgraded.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        ready!(self.deadline.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Only what we sent moves the deadline, so that trickling in a request does not.
    fn after_write(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_pending() {
            return self.poll_late(context);
        }
        let deadline = Instant::now() + self.request_wait;
        self.deadline.as_mut().reset(deadline);
        written
    }
}

impl AsyncRead for GuardedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Pending => self.poll_late(context),
            ready @ Poll::Ready(_) => ready,
        }
    }
}

impl AsyncWrite for GuardedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.after_write(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.after_write(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
