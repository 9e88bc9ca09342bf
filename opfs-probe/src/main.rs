//! The command-line tool: parses and dispatches, nothing else.

fn main() {}
