//! Why a socket can't be served.

use std::io;
use std::path::PathBuf;

/// Why a socket can't be served, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// `--listen` is no address.
    #[error(
        "can't listen on {listen:?}: it is not an address with a port; give one like 127.0.0.1:8787, or 127.0.0.1:0 for any free port"
    )]
    NotAnAddress {
        /// What was asked for.
        listen: String,
    },
    /// `--listen` could be reached from other machines.
    #[error(
        "can't listen on {listen}: windows are announced from this machine only; use 127.0.0.1, [::1] or localhost (metrics alone can listen elsewhere: --metrics-listen)"
    )]
    NotLoopback {
        /// What was asked for.
        listen: String,
    },
    /// Somebody else has the port.
    #[error(
        "can't listen on {listen}: the port is taken by another program; stop that one, or use another port (0 picks a free one)"
    )]
    PortTaken {
        /// What was asked for.
        listen: String,
    },
    /// Listening failed for another reason.
    #[error("can't listen on {listen}: {source}; choose another address")]
    Listen {
        /// What was asked for.
        listen: String,
        /// Why.
        source: io::Error,
    },
    /// Another daemon serves the socket.
    #[error(
        "can't serve {}: another opfs-probe serves it; stop that one, or choose another --socket", path.display()
    )]
    SocketTaken {
        /// The socket.
        path: PathBuf,
    },
    /// There is a file at the socket's path that is no socket.
    #[error(
        "can't serve {}: there is a file that is not a socket; remove it, or choose another --socket", path.display()
    )]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The group that may use the socket does not exist.
    #[error("can't serve {}: there is no group {group:?}; create it, or name another", path.display())]
    NoGroup {
        /// The socket.
        path: PathBuf,
        /// The group's name.
        group: String,
    },
    /// The socket can't be made for another reason.
    #[error("can't serve {}: {source}; choose another --socket, or run as a user who may write there", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}
