//! Installs what the build and the benchmark need: says first what it will do, asks on a terminal,
//! and does nothing that is done already.

mod apt;
mod bpf_linker;
mod elsewhere;
mod needs;
mod system;

use std::env;
use std::io::{IsTerminal, Write, stdin, stdout};

use anyhow::{Context, Result, bail};

use crate::command::{self, Root, which};
use crate::workspace::Workspace;
use needs::Needs;
use system::System;

/// Arguments of `cargo xtask setup`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Don't ask.
    #[arg(long)]
    yes: bool,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Runs the task.
pub fn run(arguments: &Arguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let needs = Needs::find(&workspace);
    if needs.missing().is_empty() {
        println!("Everything is there:\n{needs}");
        return Ok(());
    }
    set_up(&workspace, &needs, arguments.yes, arguments.dry_run)
}

/// The set-up that other tasks begin with: silent where nothing is missing.
pub fn ensure(workspace: &Workspace, yes: bool) -> Result<()> {
    let needs = Needs::find(workspace);
    if needs.missing().is_empty() {
        return Ok(());
    }
    set_up(workspace, &needs, yes, false)
}

fn set_up(workspace: &Workspace, needs: &Needs, yes: bool, dry_run: bool) -> Result<()> {
    println!("Missing: {}.", needs.missing().join(", "));
    let system = System::find();
    let root = Root::find();
    if !system.has_apt || root == Root::No {
        let reason = if system.has_apt { "Neither root nor sudo is" } else { "No apt is" };
        println!("{reason} here, so please run these yourself:\n");
        println!("{}", elsewhere::commands(&system, needs, workspace));
        if dry_run {
            return Ok(());
        }
        return needs.enough_to_build().context("the set-up is not complete; run the commands above");
    }
    let plan = apt::Plan::new(&system, needs);
    println!("To install it:\n{plan}");
    if dry_run || (plan.is_empty() && needs.enough_to_build().is_ok()) {
        return Ok(());
    }
    if !yes && !agreed()? {
        bail!("nothing was installed; run `cargo xtask setup` again when you like");
    }
    plan.carry_out(workspace, root)?;
    let needs = Needs::find(workspace);
    needs.enough_to_build()?;
    println!("Now there:\n{needs}");
    Ok(())
}

/// Installs programs that only some tasks need, each given with Debian's package of it.
pub fn tools(tools: &[(&str, &str)], yes: bool) -> Result<()> {
    let missing = || tools.iter().filter(|(program, _)| which(program).is_none());
    let packages: Vec<&str> = missing().map(|(_, package)| *package).collect();
    if packages.is_empty() {
        return Ok(());
    }
    let programs = missing().map(|(program, _)| *program).collect::<Vec<_>>().join(", ");
    let words = packages.join(" ");
    let root = Root::find();
    if !System::find().has_apt || root == Root::No {
        bail!(
            "{programs} missing, and neither root with apt nor sudo is here; install them (Debian: {words})"
        );
    }
    println!("To install it:\n  - apt-get update, apt-get install {words}");
    if !yes && !agreed()? {
        bail!("{programs} missing; nothing was installed");
    }
    command::run(root.command("apt-get")?.arg("update"))?;
    apt::install(root, &packages)?;
    match missing().next() {
        Some((program, package)) => bail!("{program} is missing, although {package} was installed"),
        None => Ok(()),
    }
}

/// Asks, where somebody can answer.
fn agreed() -> Result<bool> {
    if !stdin().is_terminal() || env::var_os("CI").is_some() {
        return Ok(true);
    }
    print!("Go ahead? [y/N] ");
    stdout().flush()?;
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
