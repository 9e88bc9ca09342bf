//! Makes the fixtures of the offset tests: a few members of each kernel's BTF.

use std::path::Path;

use anyhow::Result;

use super::series;
use crate::command;
use crate::workspace::Workspace;

/// Cuts the fixture of a kernel out of its whole BTF.
pub fn cut(workspace: &Workspace, release: &str, btf: &Path) -> Result<()> {
    let fixture = workspace.root.join(format!("opfs-probe/src/kernel/fixtures/{}.btf", series(release)));
    let mut cargo = command::cargo(workspace);
    cargo.args(["test", "--package", "opfs-probe", "--lib", "--", "--ignored", "cut_fixture"]);
    command::run(cargo.env("BTF", btf).env("FIXTURE", fixture))
}

/// Takes the offsets found in the fixtures for right.
pub fn accept(workspace: &Workspace) -> Result<()> {
    let mut cargo = command::cargo(workspace);
    cargo.args(["test", "--package", "opfs-probe", "--lib", "--", "kernel::offsets"]);
    command::run(cargo.env("INSTA_UPDATE", "always"))
}
