//! The only place that knows aya: loads and attaches the kernel programs, reads what they count.

pub mod btf;
pub mod collector;
pub mod control;
mod detach;
pub mod load;
pub mod offsets;
pub mod plan;
pub mod tracefs;
