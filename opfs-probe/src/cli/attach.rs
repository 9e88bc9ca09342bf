//! `opfs-probe attach`: watches what already runs.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::output::{Options, Stream};
use super::signals::Endings;
use super::when;
use crate::attribution::window::SessionId;
use crate::processes::tree::{Process, is_kernel_thread};
use crate::processes::{browsers, cgroup};
use crate::watch::{LIMITS, Target, Tracers, Watcher};

/// How often it is looked whether anybody is left, or has joined a cgroup.
const LOOK: Duration = Duration::from_millis(100);

/// Watch what already runs, and report what it synced
///
/// Until Ctrl-C, until the time is up, or until the last process has ended, whichever comes first. What
/// the processes start meanwhile is watched with them. The report goes to standard output, or to --output.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sudo opfs-probe attach --browser firefox --for 30s\n  \
    sudo opfs-probe attach --unit postgresql --for 5m --format json --output report.json\n  \
    sudo opfs-probe attach --pid 4242")]
pub struct Arguments {
    #[command(flatten)]
    what: What,
    /// How long: 500ms, 30s, 5m, 1h [default: until Ctrl-C].
    #[arg(long = "for", value_name = "TIME", value_parser = when::duration)]
    time: Option<Duration>,
    /// The session's name [default: the program's, or the cgroup's].
    #[arg(long)]
    name: Option<String>,
    /// Have the kernel measure what the probes cost, and report it. Each run of a probe then takes a
    /// little longer.
    #[arg(long)]
    self_cost: bool,
    #[command(flatten)]
    output: Options,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct What {
    /// A process and all its descendants.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
    /// The processes of a cgroup and those beneath it, by its folder or its path in the hierarchy.
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// The processes of a systemd unit; `.service` may be left out.
    #[arg(long, value_name = "NAME")]
    unit: Option<String>,
    /// A running browser: what people call it (chromium, firefox), or the path of its program.
    #[arg(long, value_name = "NAME")]
    browser: Option<String>,
}

/// Watches, waits, and reports.
pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let target = arguments.what.find()?;
    let file = arguments.output.open()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(async {
        let endings = Endings::new()?;
        let watcher = Watcher::new(Tracers { ebpf: true, strace: false }, LIMITS)?;
        if arguments.self_cost {
            watcher.measure_self_cost();
        }
        watcher.keep_house();
        let session = watcher.attach(&target, arguments.name.clone())?;
        eprintln!("Watching {}; Ctrl-C ends it and reports.", describe(&target));
        wait(&watcher, session, &target, endings, arguments.time).await?;
        watcher.close(session, None)?;
        watcher.drain()?;
        let report = watcher.session_report(session);
        watcher.stop();
        report
    })?;
    arguments.output.write(&report, file, Stream::Output)?;
    Ok(arguments.output.verdict(&report))
}

impl What {
    fn find(&self) -> Result<Target> {
        let Self { pid, cgroup, unit, browser } = self;
        match (pid, cgroup, unit, browser) {
            (Some(pid), ..) => process(*pid),
            (_, Some(path), ..) => {
                let missing = || match cgroup::mount() {
                    Some(mount) => format!(
                        "there is no cgroup {}; give its folder, or its path below {}",
                        path.display(),
                        mount.display()
                    ),
                    None => format!(
                        "there is no cgroup {}, nor is a hierarchy of version 2 mounted; give a folder",
                        path.display()
                    ),
                };
                inhabited(vec![cgroup::directory(path).with_context(missing)?])
            }
            (_, _, Some(unit), _) => match cgroup::of_unit(unit) {
                none if none.is_empty() => {
                    bail!("no unit {unit:?} is running; `systemctl status` lists those that are")
                }
                directories => inhabited(directories),
            },
            (_, _, _, Some(name)) => match browsers::find(name) {
                Ok(root) => Ok(Target::Tree(root)),
                Err(error @ browsers::BrowserError::Several { .. }) => {
                    bail!("{error}; choose one with --pid")
                }
                Err(error) => bail!("{error}; start it first, or name its process with --pid"),
            },
            _ => bail!("say what to watch: --pid, --cgroup, --unit or --browser"),
        }
    }
}

fn process(pid: u32) -> Result<Target> {
    match Process::of_thread(pid) {
        None => bail!("there is no process {pid}; look it up with `ps` or `pgrep`"),
        Some(process) if process != pid => {
            bail!("{pid} is a thread of process {process}; a process is watched whole: --pid {process}")
        }
        Some(_) if is_kernel_thread(pid) => {
            bail!(
                "process {pid} is one of the kernel's own threads: it makes no sync calls; choose a program's"
            )
        }
        Some(_) => Ok(Target::Tree(pid)),
    }
}

/// A session without processes would end at once.
fn inhabited(directories: Vec<PathBuf>) -> Result<Target> {
    if directories.iter().all(|directory| cgroup::processes(directory).is_empty()) {
        let names: Vec<String> =
            directories.iter().map(|directory| directory.display().to_string()).collect();
        bail!("no process is in {}; start it first", names.join(", "));
    }
    Ok(Target::Cgroups(directories))
}

fn describe(target: &Target) -> String {
    match target {
        Target::Tree(pid) => format!("process {pid} and its descendants"),
        Target::Cgroups(directories) => {
            let names: Vec<String> =
                directories.iter().map(|directory| directory.display().to_string()).collect();
            names.join(", ")
        }
    }
}

async fn wait(
    watcher: &Arc<Watcher>,
    session: SessionId,
    target: &Target,
    mut endings: Endings,
    time: Option<Duration>,
) -> Result<()> {
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut over = std::pin::pin!(sleep(time.unwrap_or(Duration::MAX)));
    loop {
        tokio::select! {
            _ = endings.next() => return Ok(()),
            () = &mut over => return Ok(()),
            _ = look.tick() => {}
        }
        if !watcher.is_open(session) {
            return Ok(());
        }
        if let Target::Cgroups(directories) = target {
            watcher.rescan(session, directories)?;
        }
    }
}
