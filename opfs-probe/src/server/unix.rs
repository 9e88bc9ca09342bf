//! The unix socket: one JSON message a line, peers known by their credentials.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
use nix::unistd::Group;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use super::Server;
use super::conversation::{Heard, Transport, converse, tell};
use super::error::ServeError;
use super::limits::Limits;
use super::lines::{Line, next_line};
use super::protocol::too_long;
use super::watch::Peer;

/// Pause after a failed accept: the process is out of descriptors, and some may come free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a server that was killed may keep its lock, and its socket: the kernel takes its probes away
/// first.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// A socket that programs on this machine announce windows on; its file goes when this is dropped.
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
    _lock: Flock<File>,
}

impl Socket {
    /// Makes the socket, for its owner and `group` alone. Needs a tokio runtime.
    ///
    /// A socket that a dead server left behind is replaced; a live one, or any other file, is not. A
    /// lock on `PATH.lock` keeps two servers that start together from replacing each other's.
    pub fn bind(path: &Path, group: Option<&str>) -> Result<Self, ServeError> {
        let failed = |source: io::Error| ServeError::Socket { path: path.to_owned(), source };
        let gid = group.map(|group| group_id(path, group)).transpose()?;
        let lock = lock(path)?;
        clear(path)?;
        let address = UnixAddr::new(path).map_err(|errno| failed(errno.into()))?;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)
            .map_err(|errno| failed(errno.into()))?;
        bind(socket.as_raw_fd(), &address).map_err(|errno| failed(errno.into()))?;
        // Nobody can connect before `listen`, so no stranger slips in before the mode is set.
        fs::set_permissions(path, Permissions::from_mode(0o660)).map_err(failed)?;
        if gid.is_some() {
            chown(path, None, gid).map_err(failed)?;
        }
        listen(&socket, Backlog::MAXCONN).map_err(|errno| failed(errno.into()))?;
        let listener = UnixListener::from_std(StdListener::from(socket)).map_err(failed)?;
        Ok(Self { listener, path: path.to_owned(), _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Talks with whoever connects, until this future is dropped.
    pub async fn serve(self, server: Arc<Server>) {
        let mut clients = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                Some(_) = clients.join_next() => continue,
            };
            match accepted {
                Ok((stream, _)) => {
                    clients.spawn(greet(stream, Arc::clone(&server)));
                }
                Err(error) => {
                    tracing::warn!("no new client on {}: {error}", self.path.display());
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Gone already is as good as removed.
        let _ = fs::remove_file(&self.path);
    }
}

fn group_id(path: &Path, group: &str) -> Result<u32, ServeError> {
    let found = Group::from_name(group).ok().flatten();
    let missing = || ServeError::NoGroup { path: path.to_owned(), group: group.to_owned() };
    Ok(found.ok_or_else(missing)?.gid.as_raw())
}

fn lock(path: &Path) -> Result<Flock<File>, ServeError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let mut errno;
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(&name)
        .map_err(|source| ServeError::Socket { path: path.to_owned(), source })?;
    let begun = Instant::now();
    loop {
        (file, errno) = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err(unlocked) => unlocked,
        };
        if errno != Errno::EWOULDBLOCK {
            return Err(ServeError::Socket { path: path.to_owned(), source: errno.into() });
        }
        if begun.elapsed() > LOCK_PATIENCE {
            return Err(ServeError::SocketTaken { path: path.to_owned() });
        }
        std::thread::sleep(LOCK_PAUSE);
    }
}

/// Removes a socket that nobody listens on.
fn clear(path: &Path) -> Result<(), ServeError> {
    let failed = |source: io::Error| ServeError::Socket { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(ServeError::NotASocket { path: path.to_owned() });
        }
        Ok(_) => {}
    }
    match StdStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed)
        }
        Err(error) => Err(failed(error)),
        Ok(_) => Err(ServeError::SocketTaken { path: path.to_owned() }),
    }
}

async fn greet(stream: UnixStream, server: Arc<Server>) {
    let credentials = match stream.peer_cred() {
        Ok(credentials) => credentials,
        Err(error) => {
            tracing::debug!("a client left before it could be known: {error}");
            return;
        }
    };
    let pid = credentials.pid().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
    let peer = Peer::Process { pid, uid: credentials.uid() };
    let (reader, writer) = stream.into_split();
    let mut lines = Lines { reader: BufReader::new(reader), writer, limits: Arc::clone(&server.limits) };
    match server.seat() {
        Ok(_seat) => converse(lines, server.connection(peer, None), &server.limits).await,
        Err(refusal) => {
            tell(&mut lines, &refusal.into(), &server.limits).await;
        }
    }
}

/// Messages as lines.
struct Lines {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    limits: Arc<Limits>,
}

impl Transport for Lines {
    async fn hear(&mut self) -> Heard {
        match next_line(&mut self.reader, self.limits.message_bytes).await {
            Ok(Some(Line::Whole(line))) => Heard::Message(line),
            Ok(Some(Line::TooLong)) => Heard::Refused(too_long(&self.limits)),
            Ok(None) | Err(_) => Heard::Gone,
        }
    }

    async fn say(&mut self, mut answer: String) -> bool {
        answer.push('\n');
        self.writer.write_all(answer.as_bytes()).await.is_ok()
    }
}
