//! Where a report goes, and in which format.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use super::INCOMPLETE;
use crate::report::model::Report;
use crate::report::{json, markdown, text};

/// A report's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For a person at a terminal.
    Text,
    /// For a page or an issue.
    Markdown,
    /// For programs: schema `opfs-probe.report/1`.
    Json,
}

/// Options of everything that makes a report.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// The report's format.
    #[arg(long, value_enum, default_value = "text")]
    pub format: Format,
    /// Write the report to a file.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Exit with 3 if the report lacks anything: a count that is not exact, a path that was not found.
    #[arg(long)]
    pub strict: bool,
}

/// Where a report goes that goes to no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error: standard output is the command's.
    Error,
}

impl Options {
    /// Opens the file early, so that a measurement isn't made in vain.
    pub fn open(&self) -> Result<Option<File>> {
        let open = |path: &PathBuf| {
            File::create(path).with_context(|| {
                format!("can't write the report to {}; choose another --output", path.display())
            })
        };
        self.output.as_ref().map(open).transpose()
    }

    /// Writes the report.
    pub fn write(&self, report: &Report, file: Option<File>, stream: Stream) -> Result<()> {
        let mut to: Box<dyn Write> = match (file, stream) {
            (Some(file), _) => Box::new(file),
            (None, Stream::Output) => Box::new(io::stdout().lock()),
            (None, Stream::Error) => Box::new(io::stderr().lock()),
        };
        let colour = self.output.is_none() && coloured(stream);
        let rendered = self.render(report, colour);
        let written = to.write_all(rendered.as_bytes()).and_then(|()| to.flush());
        match written {
            // Whoever reads us has read enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other.with_context(|| {
                let place = self.output.as_deref().unwrap_or(Path::new("the terminal"));
                format!("writing the report to {}", place.display())
            }),
        }
    }

    /// What the exit status says of the report, where `--strict` asks.
    pub fn verdict(&self, report: &Report) -> ExitCode {
        if self.strict && !report.completeness.is_perfect() {
            ExitCode::from(INCOMPLETE)
        } else {
            ExitCode::SUCCESS
        }
    }

    fn render(&self, report: &Report, colour: bool) -> String {
        match self.format {
            Format::Text => text::render(report, colour),
            Format::Markdown => markdown::render(report),
            Format::Json => json::render(report),
        }
    }
}

/// Prints; whoever stops reading has read enough.
pub fn print(text: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("writing to standard output"),
    }
}

/// Whether colour is wanted there: on a terminal, unless `NO_COLOR` is set.
pub fn coloured(stream: Stream) -> bool {
    let terminal = match stream {
        Stream::Output => io::stdout().is_terminal(),
        Stream::Error => io::stderr().is_terminal(),
    };
    terminal && std::env::var_os("NO_COLOR").is_none()
}
