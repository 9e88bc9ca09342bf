//! Sessions, windows and epochs: which counts belong to which window. Pure, no I/O.

pub mod totals;
pub mod window;
