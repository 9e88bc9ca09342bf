//! The programs that run in the guest.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command;
use crate::workspace::Workspace;

/// Where Cargo put what the tests need. The guest has each under the same path, since the path of the
/// probe is compiled into its tests.
pub struct Programs {
    /// The tests.
    pub tests: Vec<PathBuf>,
    /// What they test.
    pub probe: PathBuf,
    /// What they run under it.
    pub generator: PathBuf,
}

/// The tests that depend on the kernel, as Cargo.toml names them.
const TESTS: [&str; 5] = ["kernel", "in_process", "filesystem", "uring", "block"];

impl Programs {
    /// Builds them.
    pub fn build(workspace: &Workspace) -> Result<Self> {
        // Beside the tests Cargo would make the example a test of its own.
        let tests = TESTS.iter().flat_map(|test| ["--test", test]);
        let built = build(workspace, &["test", "--no-run"].into_iter().chain(tests).collect::<Vec<_>>())?;
        let example = build(workspace, &["build", "--example", "sync-generator"])?;
        let find = |messages, name| {
            executable(messages, name).with_context(|| format!("Cargo did not say where it put {name}"))
        };
        Ok(Self {
            tests: TESTS.iter().map(|test| find(&built, test)).collect::<Result<_>>()?,
            probe: find(&built, "opfs-probe")?,
            generator: find(&example, "sync-generator")?,
        })
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Path> {
        self.tests.iter().chain([&self.probe, &self.generator]).map(PathBuf::as_path)
    }
}

/// Cargo's messages of a build.
fn build(workspace: &Workspace, words: &[&str]) -> Result<String> {
    let mut cargo = command::cargo(workspace);
    cargo.args(words).args(["--package", "opfs-probe", "--message-format", "json-render-diagnostics"]);
    let shown = command::show(&cargo);
    eprintln!("+ {shown}");
    let output = cargo.stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("`{shown}` did not start"))?;
    if !output.status.success() {
        bail!("`{shown}` failed: {}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The executable of a target, from Cargo's messages.
fn executable(messages: &str, target: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut of_target = messages.filter(|message| message["target"]["name"] == target);
    of_target.find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_found_by_its_name() {
        let messages = "not JSON\n\
            {\"target\":{\"name\":\"kernel\"},\"executable\":null}\n\
            {\"target\":{\"name\":\"kernel\"},\"executable\":\"/target/debug/deps/kernel-1\"}\n";
        assert_eq!(executable(messages, "kernel"), Some("/target/debug/deps/kernel-1".into()));
        assert_eq!(executable(messages, "opfs-probe"), None);
    }
}
