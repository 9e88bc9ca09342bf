//! opfs-probe: who syncs, how often, on what, how long, and for which part of the workload.

pub mod attribution;
pub mod kernel;
pub mod files;
pub mod report;
pub mod processes;
pub mod metrics;
pub mod server;
pub mod bench;
pub mod strace;
