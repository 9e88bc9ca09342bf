//! Where it all happens: a mount namespace of our own, with a tmpfs for the caller's files and, for
//! tracers that need it, tracefs. The kernel clears it away with our last process, however that ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{self, Root};
use crate::workspace::Workspace;

/// Starts this task again, as root and in a mount namespace of its own, with these words behind its own.
pub fn enter(words: &[&str]) -> Result<()> {
    let executable = std::env::current_exe().context("this executable's own path was not found")?;
    let mut command = Root::find().command("unshare")?;
    // In a chroot `/` need not be a mountpoint, and can't be made private then.
    let propagation = if root_is_mounted() { "private" } else { "unchanged" };
    command.args(["--mount", "--propagation", propagation, "env"]);
    // What cargo told us, which sudo drops.
    let manifest = std::env::var("CARGO_MANIFEST_DIR").context("cargo did not start this")?;
    command.arg(format!("CARGO_MANIFEST_DIR={manifest}"));
    let status = command.arg(executable).args(std::env::args_os().skip(1)).args(words).status();
    let status = status.context("unshare (of util-linux) did not start")?;
    if !status.success() {
        bail!("the measurement ended with {status}; its own message is above");
    }
    Ok(())
}

fn root_is_mounted() -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(4) == Some("/"))
}

/// The programs that are measured with, and where.
pub struct Scene {
    /// The folder of the caller and the tracers' output, on tmpfs.
    pub folder: PathBuf,
    /// The probe.
    pub probe: PathBuf,
    /// The program that asks the kernel.
    pub kernel: PathBuf,
}

/// The caller in [`Scene::folder`], and its files: bpftrace splits a command at blanks, which
/// other paths may have.
pub const CALLER: [&str; 2] = ["./overhead-caller", "files"];

/// The files of the caller that nobody watches, likewise.
pub const OUTSIDE: &str = "outside";

impl Scene {
    /// Makes it, with programs of one of Cargo's profiles.
    pub fn new(workspace: &Workspace, profile_folder: &str) -> Result<Self> {
        let built = workspace.target.join(profile_folder);
        let folder = workspace.target.join("bench-overhead");
        fs::create_dir_all(&folder).with_context(|| format!("{} can't be made", folder.display()))?;
        mount("tmpfs", &folder)?;
        let tracefs = Path::new("/sys/kernel/tracing");
        if !tracefs.join("events").exists() {
            mount("tracefs", tracefs)?;
        }
        for folder in [CALLER[1], OUTSIDE].map(|name| folder.join(name)) {
            fs::create_dir(&folder).with_context(|| format!("{} can't be made", folder.display()))?;
        }
        fs::copy(built.join("overhead-caller"), folder.join(CALLER[0]))
            .context("the caller can't be copied")?;
        Ok(Self { folder, probe: built.join("opfs-probe"), kernel: built.join("overhead-kernel") })
    }

    /// A command in its folder.
    pub fn command(&self, program: &std::ffi::OsStr) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.folder);
        command
    }
}

fn mount(file_system: &str, place: &Path) -> Result<()> {
    let mut mount = command::tool("mount");
    mount.args(["-t", file_system, "none"]).arg(place);
    let shown = command::show(&mount);
    let status = mount.status().with_context(|| format!("`{shown}` did not start"))?;
    if !status.success() {
        bail!("`{shown}` failed: {status}");
    }
    Ok(())
}
