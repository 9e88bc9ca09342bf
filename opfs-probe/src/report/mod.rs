//! One model, many faces: what was counted, as a document and as something to read.
//!
//! [`build`] turns counts into the [`model`], which is also what JSON readers get; [`read`] takes
//! it back in, [`filter`] narrows it, and [`text`], [`markdown`] and [`json`] show it. [`opfs`] is
//! the report of the OPFS benchmark. Nothing here measures.

pub mod agreement;
pub mod build;
mod escape;
pub mod filter;
mod glob;
pub mod json;
pub mod markdown;
pub mod model;
pub mod opfs;
pub mod read;
#[cfg(test)]
mod sample;
pub(crate) mod tables;
pub mod text;
mod units;
