//! What watching costs a single call: every tracer around the same caller, in turns, so that whatever
//! else the machine does meets all of them alike.

mod bounds;
mod caller;
mod conditions;
mod measure;
mod programs;
mod scene;
mod table;
mod tracers;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use crate::command;
use crate::setup;
use crate::workspace::Workspace;
use measure::{Bench, Column, Turn};
use scene::Scene;
use tracers::Tracer;

/// Arguments of `cargo xtask bench-overhead`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Blocks of each row.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Milliseconds that each block lasts.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..))]
    block_ms: u64,
    /// Two rounds of short blocks with unoptimized programs: shows that it works, not what anything costs.
    #[arg(long)]
    quick: bool,
    /// Answer yes to the set-up's question.
    #[arg(long)]
    yes: bool,
    /// Everything is built, and this is root in a mount namespace of its own.
    #[arg(long, hide = true)]
    measure: bool,
}

/// The turns of each tracer, one a round.
pub type Turns = BTreeMap<Tracer, Vec<Turn>>;

/// Runs the task.
pub fn run(arguments: &Arguments) -> Result<()> {
    let workspace = Workspace::find()?;
    if arguments.measure {
        let profile = if arguments.quick { "debug" } else { "release" };
        return measure(arguments, Scene::new(&workspace, profile)?);
    }
    setup::ensure(&workspace, arguments.yes)?;
    build(&workspace, arguments.quick)?;
    scene::enter(&["--measure"])
}

fn build(workspace: &Workspace, quick: bool) -> Result<()> {
    let profile: &[&str] = if quick { &[] } else { &["--release"] };
    for (package, programs) in
        [("opfs-probe", &["opfs-probe"][..]), ("xtask", &["overhead-caller", "overhead-kernel"])]
    {
        let mut cargo = command::cargo(workspace);
        cargo.arg("build").args(profile).args(["--package", package]);
        command::run(cargo.args(programs.iter().flat_map(|program| ["--bin", program])))?;
    }
    Ok(())
}

fn measure(arguments: &Arguments, scene: Scene) -> Result<()> {
    let (rounds, block_ms) = if arguments.quick { (2, 5) } else { (arguments.rounds, arguments.block_ms) };
    let mut bench = Bench::new(scene, Duration::from_millis(block_ms))?;
    let tracers = Tracer::ALL.into_iter().filter(|tracer| tracer.missing().is_none());
    let tracers: Vec<Tracer> = tracers.collect();
    let mut turns = Turns::new();
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        let mut order = tracers.clone();
        order.rotate_left(round as usize % tracers.len());
        for tracer in order {
            turns.entry(tracer).or_default().push(bench.turn(tracer, &Column::ALL)?);
        }
    }
    println!("{}", table::print(&turns, &conditions::describe(&bench, &tracers, rounds)));
    Ok(())
}
