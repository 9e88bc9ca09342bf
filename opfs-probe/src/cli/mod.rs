//! The command line: one file a subcommand, its arguments and its printing.

mod attach;
mod bench;
mod daemon;
mod doctor;
mod man;
mod output;
mod report;
mod run;
mod signals;
mod strace;
mod when;
mod window;

use std::io::{IsTerminal, stderr};
use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgAction, CommandFactory, Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// Who syncs, how often, on what, how long, and for which part of the workload.
///
/// Counts fsync and its kin in the kernel, exactly, with nothing stopped and nothing lost.
#[derive(Debug, Parser)]
#[command(name = "opfs-probe", version, max_term_width = 100)]
#[command(after_help = "Examples:\n  \
    sudo opfs-probe run -- dd if=/dev/zero of=file bs=4k count=1 conv=fsync\n  \
    sudo opfs-probe bench opfs --browser chromium --browser firefox\n  \
    opfs-probe report --window 'append*' --format json")]
struct Cli {
    /// Log more; twice for debugging. `RUST_LOG` says it in detail.
    #[arg(short, long, action = ArgAction::Count, global = true)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Doctor(doctor::Arguments),
    Run(run::Arguments),
    Bench(bench::Arguments),
    Attach(attach::Arguments),
    Daemon(daemon::Arguments),
    Window(window::Arguments),
    Report(report::Arguments),
    Completions(man::CompletionsArguments),
    Man(man::ManArguments),
}

/// A command that failed or was used wrongly.
const FAILED: u8 = 1;
/// `--strict` found a report incomplete.
const INCOMPLETE: u8 = 3;

/// Every command and option: what the documentation is checked against.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    log_to_stderr(cli.verbose);
    // `run` stands in for its command, so its own failures have a status of their own.
    let failed = if let Command::Run(_) = cli.command { run::FAILED } else { FAILED };
    match dispatch(cli.command) {
        Ok(code) => code,
        Err(error) => {
            complain(&error);
            ExitCode::from(failed)
        }
    }
}

/// Says what failed.
fn complain(error: &anyhow::Error) {
    eprintln!("error: {}", in_words(error));
}

/// An error and its causes, each told once: many an error has its cause in its own words already.
fn in_words(error: &anyhow::Error) -> String {
    let mut words = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !words.contains(&cause) {
            let separator = if words.is_empty() { "" } else { ": " };
            words = words + separator + &cause;
        }
    }
    words
}

fn dispatch(command: Command) -> Result<ExitCode> {
    match command {
        Command::Doctor(arguments) => doctor::main(arguments),
        Command::Run(arguments) => run::main(&arguments),
        Command::Bench(arguments) => bench::main(&arguments),
        Command::Attach(arguments) => attach::main(&arguments),
        Command::Daemon(arguments) => daemon::main(&arguments),
        Command::Window(arguments) => window::main(arguments),
        Command::Report(arguments) => report::main(arguments),
        Command::Completions(arguments) => man::completions(arguments),
        Command::Man(arguments) => man::man(&arguments),
    }
}

fn log_to_stderr(verbose: u8) {
    let default = match verbose {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
        .init();
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::PathBuf;

    use anyhow::{Context, anyhow};

    use super::in_words;
    use crate::server::ServeError;

    #[test]
    fn a_cause_that_is_told_already_is_not_told_again() {
        let source = || io::Error::from(io::ErrorKind::NotFound);
        let error = ServeError::Socket { path: PathBuf::from("/nowhere/socket"), source: source() };
        assert_eq!(
            in_words(&error.into()),
            "can't serve /nowhere/socket: entity not found; choose another --socket, or run as a user who may write there"
        );
        let error = Err::<(), _>(source()).context("reading the file").unwrap_err();
        assert_eq!(in_words(&error), "reading the file: entity not found");
        assert_eq!(in_words(&anyhow!("alone")), "alone");
    }
}
