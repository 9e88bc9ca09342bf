//! Sessions, windows and epochs: which counts belong to which window. Pure, no I/O.

mod epochs;
pub mod session;
pub mod totals;
pub mod window;

#[cfg(test)]
mod model_tests;
