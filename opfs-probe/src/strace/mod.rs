//! strace as the other tracer: slow, but it counts by quite another way, so that the two can check
//! each other on the same run.

pub mod attribute;
pub mod command;
pub mod parse;
mod unescape;
