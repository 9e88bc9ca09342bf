//! Installs bpf-linker into the project's own folder, built for the LLVM of the compiler it serves.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command;
use crate::workspace::Workspace;

/// The version that was tried with this project, and the LLVM versions it can be built for.
const VERSION: &str = "0.13.0";
const LLVM: std::ops::RangeInclusive<u32> = 21..=23;

/// The command that installs it. `prefix` is where that LLVM is.
pub fn install(workspace: &Workspace, llvm: u32, prefix: &Path) -> Command {
    let mut cargo = command::cargo(workspace);
    cargo.args(["install", "bpf-linker", "--locked", "--force"]);
    if LLVM.contains(&llvm) {
        cargo.args(["--version", VERSION]);
    }
    cargo.args(["--no-default-features", "--features", &format!("llvm-{llvm}"), "--root"]);
    let tools = workspace.tools();
    cargo.arg(tools.strip_prefix(&workspace.root).unwrap_or(&tools));
    cargo.env("LLVM_PREFIX", prefix);
    cargo
}

/// Where Debian's packages put an LLVM.
pub fn debian_prefix(llvm: u32) -> PathBuf {
    PathBuf::from(format!("/usr/lib/llvm-{llvm}"))
}
