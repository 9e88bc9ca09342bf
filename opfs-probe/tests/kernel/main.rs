//! The kernel side against what really happened. Needs root, and tracepoint programs: where the kernel
//! refuses them these tests fail.

mod command;
#[path = "../common/mod.rs"]
mod common;
mod compare;
mod generator;
mod processes;
mod run;
mod self_cost;
mod truth;
