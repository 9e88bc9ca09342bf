//! What `cargo xtask bench-overhead` asks of the kernel itself, apart from the task since it needs root:
//!
//! - `empty HOOK… -- COMMAND…`: runs the command while a program that does nothing is on each hook;
//! - `tracers`: prints how many programs are loaded that trace;
//! - `statistics`: has the kernel time all programs. For each line of its input, ids of programs, it
//!   prints a line for each that is still there (`ID RUNS RUN_NS NAME`) and an empty one. Ends with its input.

mod bpf;
mod empty;
mod tracepoint;

use std::fmt::Write as _;
use std::io::{self, BufRead, Write};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["empty", rest @ ..] => empty(rest),
        ["tracers"] => tracers().map_err(|error| format!("looking for programs: {error}")),
        ["statistics"] => statistics().map_err(|error| format!("reading statistics: {error}")),
        _ => Err("say empty HOOK… -- COMMAND…, tracers, or statistics".to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn empty(words: &[&str]) -> Result<(), String> {
    let mut parts = words.splitn(2, |word| *word == "--");
    let hooks: Vec<String> = parts.next().unwrap_or_default().iter().map(ToString::to_string).collect();
    let [program, arguments @ ..] = parts.next().unwrap_or_default() else {
        return Err("name a command after --".to_owned());
    };
    let _attached = empty::attach(&hooks)?;
    let status = Command::new(program).args(arguments).status();
    let status = status.map_err(|error| format!("{program} did not start: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{program}: {status}")) }
}

fn tracers() -> io::Result<()> {
    /// Kprobe, tracepoint, perf event, raw tracepoint (and the writable kind), tracing: their numbers in
    /// `enum bpf_prog_type` of include/uapi/linux/bpf.h.
    const TRACING: [u32; 6] = [2, 5, 7, 17, 24, 26];
    let mut count = 0;
    for id in bpf::program_ids()? {
        let Some(program) = look_up(id)? else { continue };
        count += usize::from(TRACING.contains(&program.kind));
    }
    println!("{count}");
    Ok(())
}

/// A program by its id; none if it is gone.
fn look_up(id: u32) -> io::Result<Option<bpf::Program>> {
    match bpf::open_program(id) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        program => bpf::program(&program?).map(Some),
    }
}

fn statistics() -> io::Result<()> {
    let _enabled = bpf::enable_statistics()?;
    for line in io::stdin().lock().lines() {
        let mut text = String::new();
        for id in line?.split_whitespace().filter_map(|id| id.parse().ok()) {
            let Some(program) = look_up(id)? else { continue };
            let _ = writeln!(text, "{id} {} {} {}", program.runs, program.run_ns, program.name);
        }
        text.push('\n');
        let mut output = io::stdout().lock();
        output.write_all(text.as_bytes())?;
        output.flush()?;
    }
    Ok(())
}
