//! Brings the kernel programs into the binary.

fn main() {}
