//! Development tasks: `cargo xtask` lists them.

#[path = "../../opfs-probe/build/toolchain.rs"]
mod toolchain;

mod bare;
mod bench;
mod bench_browsers;
mod bench_footprint;
mod bench_overhead;
mod command;
mod setup;
mod statistics;
mod test;
mod test_kernels;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Development tasks of opfs-probe.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    arg_required_else_help = true,
    after_help = "`cargo xtask bench` and `cargo xtask test` do everything on a fresh machine, set-up included."
)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what the build and the benchmark need, or print the commands that would.
    Setup(setup::Arguments),
    /// Set up, then run every check and test; shows how long each took.
    Test(test::Arguments),
    /// Set up, then run the browser benchmark: report.md and report.json in opfs-bench.
    Bench(bench::Arguments),
    /// Set up, then compare the benchmark's timings under no tracer, eBPF and strace.
    BenchBrowsers(bench_browsers::Arguments),
    /// Set up, then lay side by side what tracers add to single calls.
    BenchOverhead(bench_overhead::Arguments),
    /// Measure the daemon's memory, idle time and start, and the end of `run` (root only).
    BenchFootprint(bench_footprint::Arguments),
    /// Run the kernel tests on other kernels, in qemu, and hold the verifier's work to its budget.
    TestKernels(test_kernels::Arguments),
    /// Run a command in a fresh Debian that has nothing but the Rust toolchain (root only).
    TestBare(bare::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Setup(arguments) => setup::run(&arguments),
        Task::Test(arguments) => test::run(&arguments),
        Task::Bench(arguments) => bench::run(&arguments),
        Task::BenchBrowsers(arguments) => bench_browsers::run(&arguments),
        Task::BenchOverhead(arguments) => bench_overhead::run(&arguments),
        Task::BenchFootprint(arguments) => bench_footprint::run(&arguments),
        Task::TestKernels(arguments) => test_kernels::run(&arguments),
        Task::TestBare(arguments) => bare::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_benchmark_gets_its_own_arguments() {
        let words = ["xtask", "bench", "--browser", "chromium", "--n=5"];
        let Task::Bench(bench) = Arguments::try_parse_from(words).unwrap().task else { unreachable!() };
        assert_eq!(bench.passed_on(), ["--browser", "chromium", "--n=5"]);
    }
}
