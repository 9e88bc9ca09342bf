//! Which process is at the other end of a TCP connection on this host.

use std::ffi::OsStr;
use std::fs;
use std::net::{IpAddr, SocketAddr};

use procfs::net::TcpState;

use super::tree::{Snapshot, thread_directories};

/// The process that holds the peer's end of an established connection whose own end is `local`. Of
/// several that share it, the one with the lowest id. None if the peer is on another host, in another
/// network namespace, or gone.
pub fn owner_of_peer(local: SocketAddr, peer: SocketAddr) -> Option<u32> {
    owner_of_socket(peer_inode(local, peer)?)
}

/// The inode of the peer's socket: the one whose ends are ours, swapped.
fn peer_inode(local: SocketAddr, peer: SocketAddr) -> Option<u64> {
    let (local, peer) = (canonical(local), canonical(peer));
    // A socket of IPv6 can hold a connection of IPv4.
    let entries = procfs::net::tcp().into_iter().chain(procfs::net::tcp6()).flatten();
    entries
        .filter(|entry| entry.state == TcpState::Established && entry.inode != 0)
        .find(|entry| canonical(entry.local_address) == peer && canonical(entry.remote_address) == local)
        .map(|entry| entry.inode)
}

/// Mapped addresses as what they stand for, without flow label and scope.
fn canonical(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

fn owner_of_socket(inode: u64) -> Option<u32> {
    let link = format!("socket:[{inode}]");
    Snapshot::read().processes().map(|process| process.pid).find(|pid| holds(*pid, OsStr::new(&link)))
}

/// Whether a descriptor of the process links to this.
fn holds(pid: u32, link: &OsStr) -> bool {
    for thread in thread_directories(pid) {
        let descriptors: Vec<_> = fs::read_dir(thread.join("fd")).into_iter().flatten().flatten().collect();
        // Threads share descriptors, so the first directory that shows any is enough.
        if !descriptors.is_empty() {
            return descriptors
                .iter()
                .any(|entry| fs::read_link(entry.path()).is_ok_and(|seen| seen == link));
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::{TcpListener, TcpStream};
    use std::process::{Command, Stdio};

    use super::*;

    fn connection(listener: &TcpListener) -> (TcpStream, SocketAddr) {
        let (stream, peer) = listener.accept().unwrap();
        (stream, peer)
    }

    #[test]
    fn the_process_at_the_other_end_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{}; echo; read x", local.port());
        let mut client = Command::new("bash")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stream, peer) = connection(&listener);
        BufReader::new(client.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        assert_eq!(owner_of_peer(stream.local_addr().unwrap(), peer), Some(client.id()));
        // The other way round, the owner is this process.
        assert_eq!(owner_of_peer(peer, local), Some(std::process::id()));
        drop(client.stdin.take());
        client.wait().unwrap();
        assert_eq!(owner_of_peer(local, peer), None, "closed");
    }

    #[test]
    fn a_socket_of_ipv6_may_hold_a_connection_of_ipv4() {
        let Ok(listener) = TcpListener::bind("[::]:0") else {
            eprintln!("skipped: this system has no IPv6");
            return;
        };
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (stream, peer) = connection(&listener);
        assert!(peer.is_ipv6(), "mapped");
        assert_eq!(owner_of_peer(stream.local_addr().unwrap(), peer), Some(std::process::id()));
        drop(client);
    }
}
