//! Every type that crosses between the kernel programs and user space, once.
//!
//! All types are `repr(C)` without implicit padding (sizes are asserted), because map keys are
//! compared byte by byte and ring-buffer records are copied as they lie in memory.
#![no_std]

pub mod call;
pub mod config;
pub mod epoch;
pub mod flushed;
pub mod histogram;
pub mod membership;
pub mod offsets;
pub mod performed;
pub mod record;

/// Tells aya that a type may be copied to and from kernel maps as plain bytes.
#[cfg(feature = "user")]
macro_rules! pod {
    ($($type:ty),* $(,)?) => {
        $(
            // SAFETY: the type is `repr(C)`, `Copy`, holds only integers and has no padding.
            unsafe impl aya::Pod for $type {}
        )*
    };
}
#[cfg(not(feature = "user"))]
macro_rules! pod {
    ($($type:ty),* $(,)?) => {};
}
pub(crate) use pod;
