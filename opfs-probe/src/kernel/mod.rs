//! The only place that knows aya: loads and attaches the kernel programs, reads what they count.

mod attach;
mod bpf;
pub mod btf;
mod calls;
pub mod checks;
pub mod collect_flushed;
mod collect_performed;
pub mod collector;
pub mod control;
mod detach;
mod direct;
mod in_flight;
mod latencies;
pub mod load;
pub mod offsets;
pub mod performed;
pub mod plan;
pub mod privileges;
mod shared;
pub mod statistics;
pub mod tracefs;
mod types;
