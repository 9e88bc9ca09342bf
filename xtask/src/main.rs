//! Development tasks: `cargo xtask` lists them.

fn main() {}
