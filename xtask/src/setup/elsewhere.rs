//! The commands to type where this can't install by itself.

use std::path::Path;

use super::apt::nightly_arguments;
use super::bpf_linker;
use super::needs::Needs;
use super::system::System;
use crate::command;
use crate::workspace::Workspace;

/// What one distribution calls the packages, and how it installs them.
struct Distribution {
    install: &'static str,
    c_compiler: &'static str,
    /// `{N}` stands for the LLVM version, where the name has it.
    llvm: &'static str,
    chromium: &'static str,
    firefox: &'static str,
    strace: &'static str,
}

const DEBIAN: Distribution = Distribution {
    install: "apt-get update && apt-get install --no-install-recommends",
    c_compiler: "gcc libc6-dev",
    llvm: "llvm-{N}-dev",
    chromium: "chromium chromium-sandbox",
    firefox: "firefox-esr",
    strace: "strace",
};
const FEDORA: Distribution = Distribution {
    install: "dnf install",
    c_compiler: "gcc",
    llvm: "llvm-devel",
    chromium: "chromium",
    firefox: "firefox",
    strace: "strace",
};
const ARCH: Distribution = Distribution {
    install: "pacman -S --needed",
    c_compiler: "gcc",
    llvm: "llvm",
    chromium: "chromium",
    firefox: "firefox",
    strace: "strace",
};

/// The commands for what is missing, one a line.
pub fn commands(system: &System, needs: &Needs, workspace: &Workspace) -> String {
    let known = if system.has_apt {
        Some(DEBIAN)
    } else if system.is("fedora") {
        Some(FEDORA)
    } else if system.is("arch") {
        Some(ARCH)
    } else {
        None
    };
    let mut lines = Vec::new();
    let distribution = known.unwrap_or_else(|| {
        lines.push("# Fedora's names; yours may differ:".to_owned());
        FEDORA
    });
    let packaged_core = system.packages_bpf_core();
    let mut packages = Vec::new();
    if needs.certificates.is_none() {
        packages.push("ca-certificates");
    }
    if needs.c_compiler.is_none() {
        packages.push(distribution.c_compiler);
    }
    if needs.bpf_compiler.is_none() && packaged_core {
        packages.push("rustc-web libstd-rust-web-dev-bpf");
    }
    if needs.chromium.is_none() && !system.browsers_are_snaps() {
        packages.push(distribution.chromium);
    }
    if needs.firefox.is_none() && !system.browsers_are_snaps() {
        packages.push(distribution.firefox);
    }
    if needs.strace.is_none() {
        packages.push(distribution.strace);
    }
    if !packages.is_empty() {
        lines.push(format!("{} {}", distribution.install, packages.join(" ")));
    }
    if needs.bpf_compiler.is_none() && !packaged_core {
        lines.push(format!("rustup {}", nightly_arguments().join(" ")));
    }
    if needs.bpf_linker.is_none() {
        lines.extend(bpf_linker_commands(system, &distribution, needs, workspace));
    }
    lines.join("\n")
}

fn bpf_linker_commands(
    system: &System,
    distribution: &Distribution,
    needs: &Needs,
    workspace: &Workspace,
) -> Vec<String> {
    let compiler = needs.bpf_compiler.as_ref();
    let mut lines = Vec::new();
    // Any number stands for N until the compiler is here to ask.
    let llvm = compiler.map_or(22, |compiler| compiler.llvm);
    if compiler.is_none() {
        let rustc = if system.packages_bpf_core() { "/usr/bin/rustc" } else { "rustup run nightly rustc" };
        lines.push(format!("{rustc} -vV  # says the LLVM version; below, put it where 22 is"));
    }
    let package = distribution.llvm.replace("{N}", &llvm.to_string());
    lines.push(format!("{} {package}", distribution.install));
    let debian = bpf_linker::debian_prefix(llvm);
    let prefix = if system.has_apt { debian.as_path() } else { Path::new("/usr") };
    lines.push(command::show(&bpf_linker::install(workspace, llvm, prefix)));
    lines.push("# or, where that LLVM isn't packaged, a ready one: cargo binstall bpf-linker".to_owned());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(release: &str, has_apt: bool) -> String {
        let workspace = Workspace { root: "/src".into(), target: "/src/target".into() };
        commands(&System::new(release, has_apt), &Needs::default(), &workspace)
    }

    #[test]
    fn each_distribution_gets_its_own_commands() {
        assert!(shown("ID=fedora", false).starts_with("dnf install ca-certificates gcc chromium"));
        assert!(
            shown("ID=manjaro\nID_LIKE=arch", false).starts_with("pacman -S --needed ca-certificates gcc ")
        );
        let debian = shown("ID=debian", true);
        assert!(debian.contains("rustc-web libstd-rust-web-dev-bpf") && debian.contains("llvm-22-dev"));
        assert!(shown("ID=void", false).starts_with("# Fedora's names"));
    }

    #[test]
    fn the_linker_goes_into_the_project() {
        let shown = shown("ID=fedora", false);
        assert!(shown.contains("rustup toolchain install nightly"));
        assert!(shown.contains("--root target/tools"), "{shown}");
    }
}
