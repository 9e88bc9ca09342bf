//! Where things are.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The folders that tasks work in.
pub struct Workspace {
    /// The project's top folder.
    pub root: PathBuf,
    /// Cargo's target folder, wherever the user has it.
    pub target: PathBuf,
}

impl Workspace {
    /// Finds both from what `cargo run` tells and where it put this executable.
    pub fn find() -> Result<Self> {
        let manifest = env::var_os("CARGO_MANIFEST_DIR")
            .context("the workspace was not found: cargo did not start this; run it as `cargo xtask`")?;
        let root = Path::new(&manifest).parent().context("xtask has no parent folder")?;
        let executable = env::current_exe().context("this executable's own path was not found")?;
        let target = executable.ancestors().nth(2).context("this executable is in no target folder")?;
        Ok(Self { root: root.to_owned(), target: target.to_owned() })
    }

    /// Tools that only this project uses are installed below here (`cargo install --root`).
    pub fn tools(&self) -> PathBuf {
        self.target.join("tools")
    }
}
