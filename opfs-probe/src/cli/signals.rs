//! Signals: those meant for the command that we stand in for, and those that end us.

use std::mem::{self, MaybeUninit};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, Result};
use nix::libc;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use tokio::signal::unix::{self, SignalKind, signal};

/// What ends a command, or asks it something.
const FORWARDED: [Signal; 6] =
    [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2];

/// Keeps these signals from ending us, and passes them on.
///
/// A Ctrl-C on the terminal reaches a running command by itself, so then only what another process
/// sent is passed on.
pub struct Forwarding {
    command: Arc<Mutex<Receiver>>,
    /// What was blocked before.
    mask: SigSet,
}

/// Whom signals are for.
enum Receiver {
    /// The command, once it runs.
    Starting(Vec<Signal>),
    /// This process.
    Running(Pid),
    /// Nobody any more.
    Ended,
}

impl Forwarding {
    /// Takes the signals over. Comes before any thread is started.
    pub fn new() -> Result<Self> {
        let signals: SigSet = FORWARDED.into_iter().collect();
        let mask = SigSet::thread_get_mask().context("asking which signals are blocked")?;
        signals.thread_block().context("blocking signals")?;
        let descriptor =
            SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC).context("waiting for signals")?;
        let command = Arc::new(Mutex::new(Receiver::Starting(Vec::new())));
        let receiver = Arc::clone(&command);
        thread::spawn(move || {
            while let Ok(Some(info)) = descriptor.read_signal() {
                let Ok(signal) = Signal::try_from(info.ssi_signo as i32) else { continue };
                let from_terminal = info.ssi_code == libc::SI_KERNEL;
                match &mut *lock(&receiver) {
                    Receiver::Starting(early) => early.push(signal),
                    Receiver::Running(pid) if !from_terminal => pass_on(*pid, signal),
                    Receiver::Running(_) | Receiver::Ended => {}
                }
            }
        });
        Ok(Self { command, mask })
    }

    /// Lets a command have its signals: it would start with ours blocked.
    pub fn unblock_in(&self, command: &mut Command) {
        let mask = self.mask;
        // SAFETY: between fork and exec, one system call.
        unsafe {
            command.pre_exec(move || Ok(mask.thread_set_mask()?));
        }
    }

    /// Passes signals on to this process, those too that came while it was being started.
    pub fn to(&self, pid: u32) {
        let pid = Pid::from_raw(pid as i32);
        let before = mem::replace(&mut *lock(&self.command), Receiver::Running(pid));
        if let Receiver::Starting(early) = before {
            for signal in early {
                pass_on(pid, signal);
            }
        }
    }

    /// The process has ended: its id may be another's by now.
    pub fn end(&self) {
        *lock(&self.command) = Receiver::Ended;
    }
}

/// The signals that ask us to end, or, if we are a daemon, to look again.
pub struct Endings {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    /// None if `nohup` started us.
    hang_up: Option<unix::Signal>,
}

impl Endings {
    /// Takes the signals over: from here on none of them just kills. Needs a tokio runtime.
    pub fn new() -> Result<Self> {
        let take = |kind| signal(kind).context("waiting for signals");
        Ok(Self {
            terminate: take(SignalKind::terminate())?,
            interrupt: take(SignalKind::interrupt())?,
            hang_up: if hang_up_is_ignored() { None } else { Some(take(SignalKind::hangup())?) },
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            Some(()) = received(&mut self.hang_up) => SignalKind::hangup(),
        }
    }
}

fn lock(receiver: &Mutex<Receiver>) -> MutexGuard<'_, Receiver> {
    receiver.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pass_on(pid: Pid, signal: Signal) {
    // It may have ended, and then wants none.
    let _ = kill(pid, signal);
}

/// The next signal, if it is waited for at all.
async fn received(signal: &mut Option<unix::Signal>) -> Option<()> {
    signal.as_mut()?.recv().await
}

/// Whether whoever started us wants hang-ups to be ignored, as `nohup` does. A handler would undo that.
pub fn hang_up_is_ignored() -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action only the current one is written.
    let asked = unsafe { libc::sigaction(libc::SIGHUP, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: it was written if the call succeeded.
    asked == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}
