//! Runs a command in a fresh Debian that has nothing but the Rust toolchain: proof that the README's
//! commands install everything else.

/// Arguments of `cargo xtask test-bare`.
#[derive(clap::Args)]
pub struct Arguments {}

/// Runs the task.
pub fn run(_arguments: &Arguments) -> anyhow::Result<()> {
    Ok(())
}
