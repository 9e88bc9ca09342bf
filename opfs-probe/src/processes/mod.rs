//! Processes: what runs, in whose tree and cgroup, in what role, and who owns a connection.
//!
//! Everything here looks at other people's processes, which may end at any moment: what is gone is
//! left out or none, never an error of ours.

pub mod browsers;
pub mod cgroup;
pub mod image;
pub mod preload;
pub mod role;
pub mod sockets;
pub mod tree;

pub use image::{Image, Images};
pub use role::Role;

#[cfg(test)]
pub(crate) mod tests {
    use std::fs::{self, File};
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::MetadataExt;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use opfs_probe_common::call::FileIdentity;

    use super::role::Standing;
    use crate::files::{kernel_dev, proc, stat_major_minor};

    pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < Duration::from_secs(10), "waited in vain: {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A process that was just started shows no arguments for a moment.
    pub fn wait_for_arguments(pid: u32) {
        wait_until("arguments", || {
            fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|args| !args.is_empty())
        });
    }

    extern "C" fn end_this_thread(_signal: libc::c_int) {
        // SAFETY: ends the calling thread alone; no destructor runs and nothing waits for it.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }

    /// Tests run in threads of their own, so the first one has to be told by a signal.
    fn end_first_thread() {
        let handler: extern "C" fn(libc::c_int) = end_this_thread;
        let process = std::process::id();
        // SAFETY: the handler makes one system call, and the first thread's id is the process's.
        unsafe {
            libc::signal(libc::SIGUSR1, handler as libc::sighandler_t);
            libc::syscall(libc::SYS_tgkill, process, process, libc::SIGUSR1);
        }
    }

    /// Holds a file and a connection in a process whose first thread has ended: `/proc/PID` itself shows
    /// neither executable nor arguments nor descriptors then. The test starts itself as that process.
    #[test]
    fn a_process_whose_first_thread_ended_is_still_seen() {
        const FILE: &str = "OPFS_PROBE_TEST_FILE";
        const PORT: &str = "OPFS_PROBE_TEST_PORT";
        if let Ok(path) = std::env::var(FILE) {
            let port: u16 = std::env::var(PORT).unwrap().parse().unwrap();
            let held = (File::open(path).unwrap(), TcpStream::connect(("127.0.0.1", port)).unwrap());
            end_first_thread();
            let _ = std::io::stdin().read(&mut [0]);
            drop(held);
            std::process::exit(0);
        }

        let file = tempfile::NamedTempFile::new().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let program = std::env::current_exe().unwrap();
        let test = "processes::tests::a_process_whose_first_thread_ended_is_still_seen";
        let mut child = Command::new(&program)
            .args(["--exact", test])
            .env(FILE, file.path())
            .env(PORT, listener.local_addr().unwrap().port().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let (stream, peer) = listener.accept().unwrap();
        let pid = child.id();
        wait_until("the end of the first thread", || fs::read_link(format!("/proc/{pid}/exe")).is_err());

        let metadata = file.as_file().metadata().unwrap();
        let (major, minor) = stat_major_minor(metadata.dev());
        let identity =
            FileIdentity { dev: kernel_dev(major, minor), inode: metadata.ino(), ..FileIdentity::NONE };
        let found = proc::find(&identity, pid);
        let image = super::image::from_proc(pid, Standing::Member);
        let owner = super::sockets::owner_of_peer(stream.local_addr().unwrap(), peer);
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());

        let canonical = file.path().canonicalize().unwrap();
        assert_eq!(found.map(|found| found.path), Some(canonical.into_os_string().into_encoded_bytes()));
        assert_eq!(owner, Some(pid));
        let image = image.unwrap();
        assert_eq!(image.exe, Some(program.into_os_string().into_encoded_bytes()));
        assert_eq!(image.args.get(1).map(Vec::as_slice), Some(&b"--exact"[..]));
    }
}
