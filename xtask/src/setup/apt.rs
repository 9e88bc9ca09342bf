//! Set-up on Debian, Ubuntu and their derivatives.

use std::fmt;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::bpf_linker;
use super::needs::Needs;
use super::system::System;
use crate::command::{self, Root};
use crate::toolchain;
use crate::workspace::Workspace;

/// What will be installed, in the order it will be.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    packages: Vec<&'static str>,
    nightly: bool,
    bpf_linker: bool,
    notes: Vec<&'static str>,
}

impl Plan {
    /// Decides from what is missing. Pure: looks at nothing else.
    pub fn new(system: &System, needs: &Needs) -> Self {
        let mut packages = Vec::new();
        let mut notes = Vec::new();
        if needs.certificates.is_none() {
            packages.push("ca-certificates");
        }
        if needs.c_compiler.is_none() {
            packages.extend(["gcc", "libc6-dev"]);
        }
        let packaged_core = needs.bpf_compiler.is_none() && system.packages_bpf_core();
        if packaged_core {
            packages.extend(["rustc-web", "libstd-rust-web-dev-bpf"]);
        }
        if needs.chromium.is_none() && !system.browsers_are_snaps() {
            // Where user namespaces are refused, as in a chroot, Chromium needs its setuid helper.
            packages.extend(["chromium", "chromium-sandbox"]);
        }
        if needs.firefox.is_none() && !system.browsers_are_snaps() {
            packages.push("firefox-esr");
        }
        if system.browsers_are_snaps() && (needs.chromium.is_none() || needs.firefox.is_none()) {
            notes.push(
                "browsers: this system packages them as snaps, whose confinement hides their files and \
                 refuses fresh profiles. Install Firefox from Mozilla's apt repository \
                 (https://support.mozilla.org/kb/install-firefox-linux) or Chrome from Google's .deb, \
                 or name your own by `cargo xtask bench --browser PATH`",
            );
        }
        if needs.strace.is_none() {
            packages.push("strace");
        }
        let nightly = needs.bpf_compiler.is_none() && !packaged_core;
        Self { packages, nightly, bpf_linker: needs.bpf_linker.is_none(), notes }
    }

    /// Whether it installs nothing.
    pub fn is_empty(&self) -> bool {
        self.packages.is_empty() && !self.nightly && !self.bpf_linker
    }

    /// Installs it all.
    pub fn carry_out(&self, workspace: &Workspace, root: Root) -> Result<()> {
        if !self.packages.is_empty() || self.bpf_linker {
            command::run(root.command("apt-get")?.arg("update"))?;
        }
        install(root, &self.packages)?;
        if self.nightly {
            command::run(Command::new("rustup").args(nightly_arguments()))
                .context("rustup's nightly toolchain was not installed; get rustup from https://rustup.rs")?;
        }
        if !self.bpf_linker {
            return Ok(());
        }
        // The LLVM version follows the compiler, which a security update may just have moved.
        let target = toolchain::target(cfg!(target_endian = "big"));
        let compiler = toolchain::compilers(target).next();
        let compiler = compiler.context("no Rust compiler for BPF is here even now")?;
        let llvm = compiler.llvm;
        if toolchain::linkers(&[workspace.tools().join("bin")]).iter().any(|linker| linker.fits(&compiler)) {
            return Ok(());
        }
        let development = format!("llvm-{llvm}-dev");
        if !has_candidate(&development) {
            bail!(
                "{compiler} needs a bpf-linker of LLVM {llvm}, and {development} is not in the package \
                 lists; add https://apt.llvm.org, or install a ready one by `cargo binstall bpf-linker`"
            );
        }
        install(root, &[&development])?;
        command::run(&mut bpf_linker::install(workspace, llvm, &bpf_linker::debian_prefix(llvm)))
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.packages.is_empty() {
            writeln!(formatter, "  - apt-get update, apt-get install {}", self.packages.join(" "))?;
        }
        if self.nightly {
            writeln!(formatter, "  - rustup {}", nightly_arguments().join(" "))?;
        }
        if self.bpf_linker {
            writeln!(
                formatter,
                "  - apt-get install llvm-N-dev, N as `rustc -vV` of the compiler for BPF says\n  \
                 - cargo install bpf-linker for that LLVM, into the project's target/tools"
            )?;
        }
        for note in &self.notes {
            writeln!(formatter, "  - yourself: {note}")?;
        }
        Ok(())
    }
}

/// How rustup is told to install a toolchain that can build `core`.
pub fn nightly_arguments() -> [&'static str; 7] {
    ["toolchain", "install", "nightly", "--profile", "minimal", "--component", "rust-src"]
}

/// Installs packages.
pub fn install(root: Root, packages: &[&str]) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    let mut apt = root.command("env")?;
    apt.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "--yes", "--no-install-recommends"]);
    // rustc-web replaces the package rustc: that would be the user's to decide.
    apt.arg("--no-remove").args(["-o", "Dpkg::Use-Pty=0"]).args(packages);
    command::run(&mut apt)
}

fn has_candidate(package: &str) -> bool {
    let output = Command::new("apt-cache").args(["policy", package]).env("LC_ALL", "C").output();
    output.is_ok_and(|output| {
        let printed = String::from_utf8_lossy(&output.stdout);
        printed.lines().any(|line| line.contains("Candidate: ") && !line.contains("(none)"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toolchain::{Compiler, CompilerKind, Linker};

    #[test]
    fn a_bare_debian_gets_everything() {
        let plan = Plan::new(&System::new("ID=debian", true), &Needs::default());
        for package in ["gcc", "rustc-web", "libstd-rust-web-dev-bpf", "chromium", "firefox-esr", "strace"] {
            assert!(plan.packages.contains(&package), "{package}");
        }
        assert!(plan.bpf_linker && !plan.nightly && plan.notes.is_empty());
    }

    #[test]
    fn ubuntu_gets_nightly_and_a_word_about_snaps() {
        let plan = Plan::new(&System::new("ID=ubuntu\nID_LIKE=debian", true), &Needs::default());
        assert!(plan.nightly && !plan.packages.contains(&"chromium"));
        assert!(plan.to_string().contains("snap"));
    }

    #[test]
    fn what_is_here_is_left_alone() {
        let needs = Needs {
            certificates: Some("/etc/ssl".into()),
            c_compiler: Some("/usr/bin/cc".into()),
            bpf_compiler: Some(Compiler { kind: CompilerKind::Nightly, llvm: 22 }),
            bpf_linker: Some(Linker { path: "/usr/bin/bpf-linker".into(), llvm: Some(22) }),
            chromium: Some("/usr/bin/chromium".into()),
            firefox: Some("/usr/bin/firefox".into()),
            strace: Some("/usr/bin/strace".into()),
        };
        let plan = Plan::new(&System::new("ID=debian", true), &needs);
        assert!(plan.is_empty() && plan.to_string().is_empty());
    }
}
