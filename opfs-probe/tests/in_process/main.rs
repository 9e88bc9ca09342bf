//! Probes in the test's own process, which makes them otherwise than the program does. Needs root, and
//! tracepoint programs.
//!
//! Not with other tests of the kernel side: for the moment in which one starts a command in a session, every
//! child of the process belongs to that session.

#[path = "../common/mod.rs"]
mod common;
mod direct;
mod losses;
mod session;
mod storm;
mod truth;
