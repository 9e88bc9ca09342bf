//! The kernel tests on other kernels: Debian's cloud kernels, booted in qemu.
//!
//! They have `NVMe` and ext4 built in, so each boots straight from a disk image that holds our programs
//! and the few they call; no initial RAM disk, no modules before the disk.

mod boot;
mod budget;
mod disk;
mod fixtures;
mod packages;
mod programs;

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::setup;
use crate::workspace::Workspace;
use boot::{Guest, Ran};
use budget::{Budget, Counts};
use packages::Kernel;
use programs::Programs;

/// Arguments of `cargo xtask test-kernels`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Answer yes to the set-up's question.
    #[arg(long)]
    pub yes: bool,
    /// Only the kernel of this series, such as 6.12.
    #[arg(long, value_name = "SERIES")]
    pub only: Option<String>,
    /// Only the tests whose names contain this.
    #[arg(long, value_name = "TEXT")]
    pub test: Option<String>,
    /// Give up on a kernel after so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT)]
    pub timeout: u64,
    /// What runs the guest's instructions; kvm is much faster where it works.
    #[arg(long, value_name = "NAME", default_value = ACCEL)]
    pub accel: String,
    /// Write the verifier's budget anew from what these kernels and this one say.
    #[arg(long)]
    pub update_budget: bool,
    /// Cut the offset tests' fixtures anew from the types of these kernels and of this one.
    #[arg(long)]
    pub update_fixtures: bool,
}

impl Default for Arguments {
    fn default() -> Self {
        Self {
            yes: false,
            only: None,
            test: None,
            timeout: TIMEOUT,
            accel: ACCEL.to_owned(),
            update_budget: false,
            update_fixtures: false,
        }
    }
}

const TIMEOUT: u64 = 600;
const ACCEL: &str = "tcg";

/// The kernels, by the series that Debian's packages are named after.
const SERIES: [&str; 2] = ["6.1", "6.12"];

/// Programs that this needs, each with Debian's package of it.
const TOOLS: [(&str, &str); 8] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("depmod", "kmod"),
    ("mke2fs", "e2fsprogs"),
    ("strip", "binutils"),
    ("strace", "strace"),
    ("mkfs.xfs", "xfsprogs"),
    ("mkfs.btrfs", "btrfs-progs"),
];

/// Why this can't be done on this machine, whatever were installed.
pub const IMPOSSIBLE: Option<&str> = if cfg!(target_arch = "x86_64") {
    None
} else {
    Some("Debian's cloud kernels for x86-64 can't run programs of another architecture")
};

/// Runs the task.
pub fn run(arguments: &Arguments) -> Result<()> {
    if let Some(why) = IMPOSSIBLE {
        bail!("other kernels can't be tested: {why}");
    }
    let workspace = Workspace::find()?;
    setup::ensure(&workspace, arguments.yes)?;
    let wanted: Vec<&str> = SERIES
        .into_iter()
        .filter(|series| arguments.only.as_ref().is_none_or(|only| only == series))
        .collect();
    if wanted.is_empty() {
        bail!("no such series: --only takes one of {}", SERIES.join(", "));
    }
    setup::tools(&TOOLS, arguments.yes)?;
    let folder = workspace.target.join("kernels");
    fs::create_dir_all(&folder).with_context(|| format!("{} can't be made", folder.display()))?;
    let kernels = wanted.into_iter().map(|series| Kernel::get(series, &folder));
    let kernels = kernels.collect::<Result<Vec<_>>>()?;
    let programs = Programs::build(&workspace)?;
    disk::populate(&folder, &kernels, &programs, arguments.test.as_deref())?;
    let guests = kernels.iter().map(|kernel| Guest::new(&folder, kernel));
    let guests = guests.collect::<Result<Vec<_>>>()?;
    let here = budget::of_this_kernel(&programs)?;
    let ran = boot_all(&guests, arguments);
    let mut counts: Vec<Counts> = Vec::new();
    println!("\n{:<28} {:>9} {:>9}  result", "kernel", "boot s", "all s");
    for (guest, ran) in guests.iter().zip(&ran) {
        println!("{}", ran.line(guest));
        counts.extend(ran.counts.clone());
    }
    counts.extend(here);
    if arguments.update_fixtures {
        update_fixtures(&workspace, &guests)?;
    }
    let bad: Vec<String> = ran.iter().zip(&guests).filter_map(|(ran, guest)| ran.failure(guest)).collect();
    let over = Budget::check(&workspace, &counts, arguments.update_budget)?;
    if !bad.is_empty() || !over.is_empty() {
        bail!("{}", [bad, over].concat().join("\n       "));
    }
    Ok(())
}

fn update_fixtures(workspace: &Workspace, guests: &[Guest]) -> Result<()> {
    for guest in guests {
        fixtures::cut(workspace, &guest.release, &guest.btf()?)?;
    }
    fixtures::cut(workspace, &this_release()?, Path::new("/sys/kernel/btf/vmlinux"))?;
    fixtures::accept(workspace)
}

/// `uname -r`
fn this_release() -> Result<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").context("this kernel's release")?;
    Ok(release.trim().to_owned())
}

/// `6.1` of `6.1.0-57-cloud-amd64`: patches of a series seldom change types or the verifier.
fn series(release: &str) -> String {
    release.split(['.', '-']).take(2).collect::<Vec<_>>().join(".")
}

/// All at once: one kernel in emulation does not fill two processors.
fn boot_all(guests: &[Guest], arguments: &Arguments) -> Vec<Ran> {
    let timeout = Duration::from_secs(arguments.timeout);
    thread::scope(|scope| {
        let running: Vec<_> =
            guests.iter().map(|guest| scope.spawn(|| guest.run(&arguments.accel, timeout))).collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}
