//! The main job: the OPFS benchmark in each browser, with sync counts.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::command::{self, Root};
use crate::setup;
use crate::workspace::Workspace;

/// Arguments of `cargo xtask bench`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Answer yes to the set-up's question.
    #[arg(long)]
    yes: bool,
    /// Passed on to `opfs-probe bench opfs` (see its --help); results go to opfs-bench unless --out.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    bench: Vec<OsString>,
}

impl Arguments {
    /// What is for `opfs-probe bench opfs`.
    pub fn passed_on(&self) -> &[OsString] {
        &self.bench
    }
}

/// Runs the task.
pub fn run(arguments: &Arguments) -> Result<()> {
    let workspace = Workspace::find()?;
    setup::ensure(&workspace, arguments.yes)?;
    let probe = build(&workspace)?;
    let mut bench = bench_command(&workspace, &probe)?;
    bench.args(arguments.passed_on());
    let chooses_folder = |argument: &OsString| {
        argument == "--out" || argument.to_str().is_some_and(|text| text.starts_with("--out="))
    };
    if !arguments.passed_on().iter().any(chooses_folder) {
        bench.args(["--out", "opfs-bench"]);
    }
    command::run(&mut bench)
}

/// Builds the release executable and says where it is.
pub fn build(workspace: &Workspace) -> Result<PathBuf> {
    let mut cargo = command::cargo(workspace);
    cargo.args(["build", "--release", "--package", "opfs-probe"]);
    command::run(&mut cargo)?;
    Ok(workspace.target.join("release/opfs-probe"))
}

/// `opfs-probe bench opfs`, as root: counting in the kernel needs that.
pub fn bench_command(workspace: &Workspace, probe: &Path) -> Result<Command> {
    let mut command = Root::find().command(&probe.to_string_lossy())?;
    command.args(["bench", "opfs"]).current_dir(&workspace.root);
    Ok(command)
}
