//! The command-line tool: parses and dispatches, nothing else.

use std::process::ExitCode;

fn main() -> ExitCode {
    opfs_probe::cli::main()
}
