//! The kernel side of opfs-probe: counts sync calls by session epoch, process and file.
//!
//! One file a probe family (`syscalls`, `opens`, `processes`, `filesystem`,
//! `uring`, `block`), and what they share: the maps, safe
//! ways to read the kernel's memory, and first-sight records.
#![no_std]
#![no_main]
#![allow(internal_features, reason = "BPF has no stable atomics: see kernel.rs")]
#![feature(asm_experimental_arch, core_intrinsics)]
#![warn(missing_docs, clippy::undocumented_unsafe_blocks)]

mod block;
mod calls;
mod file;
mod filesystem;
mod first_sight;
mod in_flight;
mod kernel;
mod known;
mod latencies;
mod log;
mod maps;
mod membership;
mod opens;
mod path;
mod processes;
mod syscalls;
mod unmatched;
mod uring;

/// Never reached: the programs are built so that nothing can panic, and the verifier refuses a loop.
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The licence that the kernel's GPL-only helpers ask for.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
