//! The benchmarks: which browser, as whom, in which profile, and the run itself.
//!
//! What a page does is in `page/`; what is counted meanwhile is the business of whoever implements
//! [`host::Host`]. So a run works alike under every tracer, and without one.

pub mod browser;
pub mod host;
pub mod launch;
pub mod options;
pub mod profile;
pub mod progress;
pub mod result;
pub mod run;
pub mod tree;
pub mod user;
pub mod wrapper;
