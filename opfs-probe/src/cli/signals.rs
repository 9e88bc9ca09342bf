//! Signals: those meant for the command that we stand in for, and those that end us.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use anyhow::{Context, Result};
use nix::libc;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::SignalFd;
use nix::unistd::Pid;
use tokio::signal::unix::{self, SignalKind, signal};

/// What ends a command, or asks it something.
const FORWARDED: [Signal; 6] =
    [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2];

/// Keeps these signals from ending us, and passes them on.
///
/// A Ctrl-C on the terminal reaches the command by itself, so only what another process sent is
/// passed on.
pub struct Forwarding {
    child: Arc<AtomicU32>,
}

impl Forwarding {
    /// Takes the signals over. Comes before any thread is started.
    pub fn new() -> Result<Self> {
        let signals: SigSet = FORWARDED.into_iter().collect();
        signals.thread_block().context("blocking signals")?;
        let descriptor = SignalFd::new(&signals).context("waiting for signals")?;
        let child = Arc::new(AtomicU32::new(0));
        let receiver = Arc::clone(&child);
        thread::spawn(move || {
            while let Ok(Some(info)) = descriptor.read_signal() {
                let Ok(signal) = Signal::try_from(info.ssi_signo as i32) else { continue };
                let pid = receiver.load(Ordering::Relaxed);
                let from_terminal = info.ssi_code == libc::SI_KERNEL;
                if pid != 0 && !from_terminal {
                    // It may have ended meanwhile.
                    let _ = kill(Pid::from_raw(pid as i32), signal);
                }
            }
        });
        Ok(Self { child })
    }

    /// Passes signals on to this process.
    pub fn to(&self, pid: u32) {
        self.child.store(pid, Ordering::Relaxed);
    }
}

/// The signals that ask us to end, or, if we are a daemon, to look again.
pub struct Endings {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hang_up: unix::Signal,
}

impl Endings {
    /// Takes the signals over: from here on none of them just kills. Needs a tokio runtime.
    pub fn new() -> Result<Self> {
        let take = |kind| signal(kind).context("waiting for signals");
        Ok(Self {
            terminate: take(SignalKind::terminate())?,
            interrupt: take(SignalKind::interrupt())?,
            hang_up: take(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.hang_up.recv() => SignalKind::hangup(),
        }
    }
}
