//! `opfs-probe completions` and `opfs-probe man`: what people expect of a command-line tool.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use clap_complete::{Shell, generate};
use clap_mangen::{Man, generate_to};

use super::command;
use super::output::print;

/// Print a shell's completions for this command
#[derive(Clone, Copy, Debug, Args)]
#[command(after_help = "Examples:\n  \
    opfs-probe completions bash | sudo tee /etc/bash_completion.d/opfs-probe\n  \
    opfs-probe completions fish > ~/.config/fish/completions/opfs-probe.fish")]
pub struct CompletionsArguments {
    /// The shell.
    shell: Shell,
}

/// Print the manual page, or write the pages of all subcommands
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    opfs-probe man | man -l -\n  \
    sudo opfs-probe man --out /usr/local/share/man/man1")]
pub struct ManArguments {
    /// Write every page into this folder instead: opfs-probe.1, opfs-probe-run.1, and so on.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Prints completions.
pub fn completions(arguments: CompletionsArguments) -> Result<ExitCode> {
    let mut script = Vec::new();
    generate(arguments.shell, &mut command(), "opfs-probe", &mut script);
    printed(&script)
}

/// Prints or writes manual pages.
pub fn man(arguments: &ManArguments) -> Result<ExitCode> {
    let Some(folder) = &arguments.out else {
        let mut page = Vec::new();
        Man::new(command()).render(&mut page).context("writing the manual page")?;
        return printed(&page);
    };
    let written = fs::create_dir_all(folder).and_then(|()| generate_to(command(), folder));
    written
        .with_context(|| format!("can't write manual pages to {}; choose another --out", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn printed(text: &[u8]) -> Result<ExitCode> {
    print(text)?;
    Ok(ExitCode::SUCCESS)
}
