//! `opfs-probe daemon`: counts for everybody, and answers.

use std::convert::Infallible;
use std::future::pending;
use std::io::{self, Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use tokio::runtime::Builder;
use tokio::signal::unix::SignalKind;
use tokio::task::spawn_blocking;

use super::signals::Endings;
use crate::kernel::privileges;
use crate::report::model::SessionKind;
use crate::server::client::DEFAULT_SOCKET;
use crate::server::http::Port;
use crate::server::unix::Socket;
use crate::server::watch::Watch;
use crate::server::{self, Server};
use crate::watch::{LIMITS, NewSession, Tracers, Watcher};

/// The session of everything that belongs to no other.
const SYSTEM: &str = "system";

/// Count for the whole system, and answer pages, scripts, reports and Prometheus
///
/// Each browser or script that announces windows gets a session of its own; everything else is counted in
/// the session "system". Once all is ready, where it listens goes to standard output, a line each: `socket
/// PATH`, `page URL`, `metrics URL` (one a port), and, last, `token WORD`, which pages of other origins
/// show to be let in. SIGTERM or Ctrl-C ends it; what was counted is then gone.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sudo opfs-probe daemon\n  \
    sudo opfs-probe daemon --group adm --metrics-listen 0.0.0.0:9187\n  \
    sudo opfs-probe daemon --socket /tmp/probe.sock --listen 127.0.0.1:0")]
pub struct Arguments {
    /// The socket for `opfs-probe window` and `report`, and for programs of your own.
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    socket: PathBuf,
    /// Members of this group may use the socket, too.
    #[arg(long)]
    group: Option<String>,
    /// Loopback address and port of the page, of windows by WebSocket, and of /metrics; port 0 picks a
    /// free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8787")]
    listen: String,
    /// Serve the metrics here, too: any address, port 0 picks a free one.
    #[arg(long, value_name = "ADDRESS")]
    metrics_listen: Option<String>,
    /// Have the kernel measure what the probes cost, and report it. Each run of a probe then takes a
    /// little longer.
    #[arg(long)]
    self_cost: bool,
}

/// Serves until a signal ends it.
pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let served = runtime.block_on(serve(arguments));
    // Nobody waits for who is still connected.
    runtime.shutdown_background();
    served.map(|()| ExitCode::SUCCESS)
}

async fn serve(arguments: &Arguments) -> Result<()> {
    let mut endings = Endings::new()?;
    privileges::require()?;
    // What may be taken is asked for first: loading takes longer.
    let socket = Socket::bind(&arguments.socket, arguments.group.as_deref())?;
    let port = Port::bind(&arguments.listen).await?;
    let metrics = match &arguments.metrics_listen {
        Some(listen) => Some(Port::bind_anywhere(listen).await?),
        None => None,
    };
    let self_cost = arguments.self_cost;
    let loading = spawn_blocking(move || start(self_cost));
    let watcher = tokio::select! {
        loaded = loading => loaded.context("loading the probe")??,
        () = until_ended(&mut endings) => return Ok(()),
    };
    let served = tokio::select! {
        () = until_ended(&mut endings) => Ok(()),
        Err(error) = listen(socket, port, metrics, &watcher) => Err(error),
    };
    watcher.stop();
    served
}

/// Serves all that is listened on, for ever unless something fails.
async fn listen(
    socket: Socket,
    port: Port,
    metrics: Option<Port>,
    watcher: &Arc<Watcher>,
) -> Result<Infallible> {
    let path = socket.path().display().to_string();
    let watch: Arc<dyn Watch> = watcher.clone();
    let server = Server::new(watch, server::Limits::default());
    say_where(&socket, &port, metrics.as_ref(), &server)?;
    let (what, ended) = tokio::select! {
        () = socket.serve(Arc::clone(&server)) => (path, Ok(())),
        ended = port.serve(Arc::clone(&server)) => ("the page".to_owned(), ended),
        ended = serve_metrics(metrics, server) => ("the metrics".to_owned(), ended),
    };
    ended.with_context(|| format!("serving {what}"))?;
    bail!("{what} can be served no longer; see the log")
}

fn start(self_cost: bool) -> Result<Arc<Watcher>> {
    let watcher = Watcher::new(Tracers { ebpf: true, strace: false }, LIMITS)?;
    if self_cost {
        watcher.measure_self_cost();
    }
    watcher.open(NewSession {
        name: SYSTEM.to_owned(),
        kind: SessionKind::System,
        browser: None,
        command: None,
    })?;
    watcher.keep_house();
    Ok(watcher)
}

/// One line each, the token last: who reads it can use all the others.
fn say_where(socket: &Socket, port: &Port, metrics: Option<&Port>, server: &Server) -> Result<()> {
    let mut out = stdout().lock();
    let mut say = || -> io::Result<()> {
        writeln!(out, "socket {}", socket.path().display())?;
        writeln!(out, "page http://{}/", port.address())?;
        for port in [Some(port), metrics].into_iter().flatten() {
            writeln!(out, "metrics http://{}/metrics", port.address())?;
        }
        writeln!(out, "token {}", server.token().secret())?;
        out.flush()
    };
    say().context("writing where it listens to standard output")
}

async fn serve_metrics(port: Option<Port>, server: Arc<Server>) -> io::Result<()> {
    match port {
        Some(port) => port.serve_metrics(server).await,
        None => pending().await,
    }
}

/// Waits for a signal that ends the daemon.
async fn until_ended(endings: &mut Endings) {
    while endings.next().await == SignalKind::hangup() {
        tracing::info!("SIGHUP: there is no configuration to read again");
    }
}
