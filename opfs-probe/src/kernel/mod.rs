//! The only place that knows aya: loads and attaches the kernel programs, reads what they count.

mod bpf;
pub mod btf;
pub mod checks;
pub mod collector;
pub mod control;
mod detach;
pub mod load;
pub mod offsets;
pub mod plan;
pub mod privileges;
pub mod tracefs;
