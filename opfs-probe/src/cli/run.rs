//! `opfs-probe run`: a command as a session with one window.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use nix::unistd::{User, initgroups, setgid, setuid};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::output::{Options, Stream};
use super::signals::Forwarding;
use super::strace::{self, Straced};
use crate::attribution::window::{Begin, ClientId, SessionId};
use crate::report::agreement::agreement;
use crate::report::model::{Report, SessionKind};
use crate::server::unix::Socket;
use crate::server::watch::{End, Watch};
use crate::server::{self, Server};
use crate::strace::command::Strace;
use crate::watch::{LIMITS, NewSession, Tracers, Watcher};

/// Exit status if opfs-probe itself fails, as `env`, `nohup` and `timeout` have it.
pub const FAILED: u8 = 125;
/// The command was found but can't be run, as shells have it.
const NOT_EXECUTABLE: u8 = 126;
/// The command was not found, as shells have it.
const NOT_FOUND: u8 = 127;

/// Where the command's scripts find the socket on which they can announce windows.
const SOCKET_VARIABLE: &str = "OPFS_PROBE_SOCKET";

/// The client that announces the command's own window.
const OURSELVES: ClientId = ClientId(0);

/// Run a command and report what it and all its children synced
///
/// The report goes to standard error, or to --output; the exit status is the command's own (128 + n
/// for signal n, 126 and 127 as in shells; 125 if opfs-probe itself fails). Scripts under the command
/// may announce windows: `opfs-probe window` finds the run's own socket through `OPFS_PROBE_SOCKET`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sudo opfs-probe run -- git commit -m 'a change'\n  \
    sudo opfs-probe run --user \"$USER\" --format json --output report.json -- make install\n  \
    sudo opfs-probe run --tracer ebpf,strace -- dd if=/dev/zero of=file count=1 conv=fsync")]
pub struct Arguments {
    /// The session's and its window's name [default: the command's].
    #[arg(long, value_parser = name)]
    name: Option<String>,
    /// Run the command as this user.
    #[arg(long)]
    user: Option<String>,
    /// What counts; with `ebpf,strace` both watch the same run, and differences are shown.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "ebpf")]
    tracer: Vec<TracerName>,
    /// Have the kernel measure what the probes cost, and report it. Each run of a probe then takes a
    /// little longer.
    #[arg(long)]
    self_cost: bool,
    #[command(flatten)]
    output: Options,
    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// A name as the protocol allows it for windows.
fn name(text: &str) -> Result<String, String> {
    let limit = server::Limits::default().name_bytes;
    if text.is_empty() || text.len() > limit || text.chars().any(char::is_control) {
        return Err(format!("a name has 1 to {limit} bytes and no control characters"));
    }
    Ok(text.to_owned())
}

/// A way to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TracerName {
    /// Programs in the kernel: exact, and nothing is stopped.
    Ebpf,
    /// `strace`: stops every call.
    Strace,
    /// Nothing is counted.
    None,
}

/// What a list of tracers asks for.
pub fn tracers(names: &[TracerName]) -> Result<Tracers> {
    let asked = |name| names.contains(&name);
    let tracers = Tracers { ebpf: asked(TracerName::Ebpf), strace: asked(TracerName::Strace) };
    if asked(TracerName::None) && (tracers.ebpf || tracers.strace) {
        bail!("--tracer none goes with no other tracer; leave it out");
    }
    Ok(tracers)
}

/// Runs the command.
pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let tracers = tracers(&arguments.tracer)?;
    let user = arguments.user.as_deref().map(find_user).transpose()?;
    let program = &arguments.command[0];
    if let Err(code) = check(program) {
        return Ok(code);
    }
    let strace = tracers.strace.then(Strace::find).transpose()?;
    let file = arguments.output.open()?;
    let watcher = Watcher::new(tracers, LIMITS)?;
    if arguments.self_cost {
        watcher.measure_self_cost();
    }
    // Signals are blocked before there are threads, so that all of them are.
    let forwarding = Forwarding::new()?;
    let house = watcher.keep_house();
    let folder = private_folder(user.as_ref())?;
    let runtime = serve(&watcher, folder.path(), user.as_ref())?;

    let name = arguments.name.clone().unwrap_or_else(|| base_name(program));
    let session = watcher.open(NewSession {
        name: name.clone(),
        kind: SessionKind::Command,
        browser: None,
        command: Some(arguments.command.clone()),
    })?;
    watcher.everybody_joins(Some(session));
    let log = folder.path().join("strace.log");
    let mut command = command(&arguments.command, strace.as_ref(), user, &log);
    forwarding.unblock_in(&mut command);
    command.env(SOCKET_VARIABLE, socket_path(folder.path()));
    watcher.begin(session, window(&name))?;
    let child = match watcher.spawn(session, &mut command) {
        Ok(child) => child,
        Err(error) => {
            let what = Path::new(program).display();
            let advice = "check the file, and the interpreter or loader that it names";
            eprintln!("error: {what} can't be started: {error}; {advice}");
            return Ok(ExitCode::from(not_started(&error)));
        }
    };
    let status = wait(child, &forwarding)?;
    let end =
        End { client: OURSELVES, client_id: String::new(), calls: None, attrs: serde_json::Map::default() };
    let code = code(status);
    let reported = (|| {
        watcher.end(session, end)?;
        watcher.close(session, Some(i32::from(code)))?;
        runtime.shutdown_background();
        watcher.drain()?;
        let straced = strace.as_ref().map(|tool| strace::read(&watcher, session, &log, tool)).transpose()?;
        let report = report(&watcher, session, straced.as_ref())?;
        arguments.output.write(&report, file, Stream::Error)?;
        if let Some(straced) = straced.filter(|_| tracers.ebpf) {
            show_differences(&report, &straced);
        }
        Ok(arguments.output.verdict(&report))
    })();
    watcher.stop();
    drop(house);
    if status.success() {
        return reported;
    }
    // The command did run, and its own failure says more than ours.
    if let Err(error) = reported {
        super::complain(&error);
    }
    Ok(ExitCode::from(code))
}

/// Whether a program can be started, before anything is loaded for it.
fn check(program: &OsStr) -> Result<(), ExitCode> {
    let is_executable = |path: &Path| {
        fs::metadata(path)
            .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    let candidates: Vec<PathBuf> = if program.as_encoded_bytes().contains(&b'/') {
        vec![PathBuf::from(program)]
    } else {
        let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
        std::env::split_paths(&path).map(|folder| folder.join(program)).collect()
    };
    if candidates.iter().any(|candidate| is_executable(candidate)) {
        return Ok(());
    }
    let name = Path::new(program).display();
    if !program.is_empty() && candidates.iter().any(|candidate| candidate.exists()) {
        eprintln!("error: {name} can't be started: it is not executable; check its permissions");
        return Err(ExitCode::from(NOT_EXECUTABLE));
    }
    eprintln!("error: {name} can't be started: there is no such command; check its name and PATH");
    Err(ExitCode::from(NOT_FOUND))
}

fn not_started(error: &std::io::Error) -> u8 {
    match error.kind() {
        std::io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    }
}

fn find_user(name: &str) -> Result<User> {
    let user = User::from_name(name).with_context(|| format!("looking up the user {name:?}"))?;
    user.with_context(|| format!("can't run as {name:?}: there is no such user; check --user"))
}

/// A folder that only the command's user can use, for the run's own socket.
fn private_folder(user: Option<&User>) -> Result<TempDir> {
    let folder = tempfile::Builder::new()
        .prefix("opfs-probe-")
        .tempdir()
        .context("making a folder for the run's socket; set TMPDIR to a folder that can be written")?;
    if let Some(user) = user {
        chown(folder.path(), Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
    }
    Ok(folder)
}

fn socket_path(folder: &Path) -> PathBuf {
    folder.join("probe.sock")
}

/// Serves the run's own socket in the background.
fn serve(watcher: &Arc<Watcher>, folder: &Path, user: Option<&User>) -> Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let _inside = runtime.enter();
    let socket = Socket::bind(&socket_path(folder), None)?;
    if let Some(user) = user {
        chown(socket.path(), Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
    }
    let watch: Arc<dyn Watch> = watcher.clone();
    runtime.spawn(socket.serve(Server::new(watch, server::Limits::default())));
    Ok(runtime)
}

fn command(words: &[OsString], strace: Option<&Strace>, user: Option<User>, log: &Path) -> Command {
    let mut all: Vec<OsString> = strace.map(|strace| strace.over_command(log)).unwrap_or_default();
    all.extend(words.iter().cloned());
    let mut command = Command::new(&all[0]);
    command.args(&all[1..]);
    if let Some(user) = user {
        // SAFETY: between fork and exec only system calls are made, and their data was made before.
        unsafe {
            command.pre_exec(move || {
                let name = std::ffi::CString::new(user.name.as_bytes())?;
                initgroups(&name, user.gid)?;
                setgid(user.gid)?;
                setuid(user.uid)?;
                Ok(())
            });
        }
    }
    command
}

fn window(name: &str) -> Begin {
    Begin {
        client: OURSELVES,
        client_id: String::new(),
        name: name.to_owned(),
        parent: None,
        calls: None,
        attrs: serde_json::Map::default(),
    }
}

/// Waits for the command, and passes on the signals that are meant for it.
fn wait(mut child: Child, forwarding: &Forwarding) -> Result<ExitStatus> {
    forwarding.to(child.id());
    let status = child.wait().context("waiting for the command");
    forwarding.end();
    status
}

/// The command's own status: 128 + n for signal n.
fn code(status: ExitStatus) -> u8 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(i32::from(FAILED)) as u8
}

fn base_name(program: &OsStr) -> String {
    Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned()
}

fn report(watcher: &Watcher, session: SessionId, straced: Option<&Straced>) -> Result<Report> {
    match straced {
        Some(straced) if !watcher.tracers().ebpf => {
            Ok(watcher.strace_report(vec![straced.session.clone()], &straced.losses))
        }
        _ => watcher.session_report(session),
    }
}

/// Says where strace counted otherwise.
fn show_differences(report: &Report, straced: &Straced) {
    let Some(ebpf) = report.sessions.first() else { return };
    let comparisons = agreement(ebpf, &straced.session, &straced.ambiguous);
    let unequal: Vec<_> = comparisons.iter().filter(|comparison| !comparison.equal()).collect();
    if unequal.is_empty() {
        eprintln!("strace counted the same: {} counts are equal.", comparisons.len());
    }
    for comparison in unequal {
        let calls =
            |calls: Option<u64>| calls.map_or_else(|| "nothing".to_owned(), |calls| calls.to_string());
        eprintln!(
            "strace counted otherwise: {} in {}: eBPF {}, strace {}",
            comparison.op,
            comparison.window.as_deref().unwrap_or("the whole session"),
            calls(comparison.ebpf),
            calls(comparison.strace),
        );
    }
}
