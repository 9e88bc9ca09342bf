//! What the build and the benchmark need, and what of it is here.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::command::which;
use crate::toolchain::{self, Compiler, Linker, Missing};
use crate::workspace::Workspace;

/// What was found of each need.
#[derive(Debug, Default)]
pub struct Needs {
    /// Certificates to download by.
    pub certificates: Option<PathBuf>,
    /// A C compiler, which rustc links with.
    pub c_compiler: Option<PathBuf>,
    /// A Rust compiler for BPF.
    pub bpf_compiler: Option<Compiler>,
    /// A bpf-linker that goes with it.
    pub bpf_linker: Option<Linker>,
    /// Chromium or Chrome, not from a snap.
    pub chromium: Option<PathBuf>,
    /// Firefox, not from a snap.
    pub firefox: Option<PathBuf>,
    /// strace, for the comparison with it.
    pub strace: Option<PathBuf>,
}

/// Debian and Arch, Fedora, openSUSE, Alpine.
const CERTIFICATES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
const CHROMIUM: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const FIREFOX: [&str; 2] = ["firefox-esr", "firefox"];

impl Needs {
    /// Looks for everything.
    pub fn find(workspace: &Workspace) -> Self {
        let target = toolchain::target(cfg!(target_endian = "big"));
        let tools = [workspace.tools().join("bin")];
        let (bpf_compiler, bpf_linker) = match toolchain::find(target, &tools) {
            Ok((compiler, linker)) => (Some(compiler), Some(linker)),
            Err(Missing::Linker(compiler) | Missing::Fit(compiler, _)) => (Some(compiler), None),
            Err(Missing::Compiler) => (None, None),
        };
        Self {
            certificates: CERTIFICATES.iter().map(PathBuf::from).find(|path| path.exists()),
            c_compiler: which("cc"),
            bpf_compiler,
            bpf_linker,
            chromium: first_browser(&CHROMIUM),
            firefox: first_browser(&FIREFOX),
            strace: which("strace"),
        }
    }

    /// What is missing, in words.
    pub fn missing(&self) -> Vec<&'static str> {
        let found = [
            ("certificates", self.certificates.is_some()),
            ("a C compiler", self.c_compiler.is_some()),
            ("a Rust compiler for BPF", self.bpf_compiler.is_some()),
            ("bpf-linker", self.bpf_linker.is_some()),
            ("Chromium", self.chromium.is_some()),
            ("Firefox", self.firefox.is_some()),
            ("strace", self.strace.is_some()),
        ];
        found.iter().filter(|(_, here)| !here).map(|(what, _)| *what).collect()
    }

    /// An error if the build can't work. Browsers and strace may be missing: whoever needs one says so.
    pub fn enough_to_build(&self) -> Result<()> {
        if self.c_compiler.is_none() {
            bail!("there is no C compiler");
        }
        if self.bpf_compiler.is_none() {
            bail!("there is no Rust compiler for BPF");
        }
        if self.bpf_linker.is_none() {
            bail!("there is no bpf-linker that fits the Rust compiler for BPF");
        }
        Ok(())
    }
}

impl fmt::Display for Needs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = |path: &Option<PathBuf>| {
            path.as_ref().map_or_else(|| "missing".to_owned(), |path| path.display().to_string())
        };
        let compiler = self.bpf_compiler.as_ref();
        let compiler = compiler.map_or_else(|| "missing".to_owned(), ToString::to_string);
        let linker = path(&self.bpf_linker.as_ref().map(|linker| linker.path.clone()));
        writeln!(formatter, "  C compiler      {}", path(&self.c_compiler))?;
        writeln!(formatter, "  Rust for BPF    {compiler}")?;
        writeln!(formatter, "  bpf-linker      {linker}")?;
        writeln!(formatter, "  Chromium        {}", path(&self.chromium))?;
        writeln!(formatter, "  Firefox         {}", path(&self.firefox))?;
        write!(formatter, "  strace          {}", path(&self.strace))
    }
}

fn first_browser(names: &[&str]) -> Option<PathBuf> {
    names.iter().filter_map(|name| which(name)).find(|path| !is_snap(path))
}

/// A snap's command is a link into /snap or, as Ubuntu's packages have it, a script that calls one.
fn is_snap(path: &Path) -> bool {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if target.starts_with("/snap") || target.ends_with("bin/snap") {
        return true;
    }
    fs::metadata(&target).is_ok_and(|entry| entry.len() < 10_000)
        && fs::read_to_string(&target).is_ok_and(|script| script.contains("/snap/bin/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let mut needs = Needs { c_compiler: Some("/usr/bin/cc".into()), ..Needs::default() };
        assert!(!needs.missing().contains(&"a C compiler"));
        assert!(needs.missing().contains(&"bpf-linker"));
        assert!(needs.enough_to_build().is_err());
        needs.bpf_compiler = Some(Compiler { kind: toolchain::CompilerKind::Nightly, llvm: 22 });
        needs.bpf_linker = Some(Linker { path: "bpf-linker".into(), llvm: None });
        assert!(needs.enough_to_build().is_ok());
    }
}
