//! opfs-probe: who syncs, how often, on what, how long, and for which part of the workload.

pub mod attribution;
pub mod bench;
pub mod cli;
pub mod files;
pub mod kernel;
pub mod metrics;
pub mod processes;
pub mod report;
pub mod server;
pub mod strace;
pub mod watch;
