//! Arrays that the kernel programs and this process have in common: read and written in place.
//!
//! No system call is made. While one that looks into a map is under way, kernels that may preempt it skip
//! every tracepoint program on that CPU.

use std::num::NonZeroUsize;
use std::os::fd::AsFd as _;
use std::ptr::NonNull;

use anyhow::{Context, Result, bail};
use aya::Ebpf;
use aya::maps::Map;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// All entries of an array that was made with `BPF_F_MMAPABLE`.
pub struct Shared<T> {
    start: NonNull<T>,
    entries: usize,
    bytes: NonZeroUsize,
}

// SAFETY: the memory is no thread's own; all access goes through raw pointers.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

impl<T: aya::Pod> Shared<T> {
    /// Takes the array of this name.
    pub fn take(programs: &mut Ebpf, name: &str) -> Result<Self> {
        let map = programs.take_map(name).with_context(|| format!("no map {name}"))?;
        let Map::Array(data) = map else { bail!("map {name} is no array") };
        let entries = data.info()?.max_entries() as usize;
        let bytes = NonZeroUsize::new(entries * size_of::<T>()).context("an array without entries")?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice. It outlives the descriptor.
        let start = unsafe { mmap(None, bytes, protection, MapFlags::MAP_SHARED, data.fd().as_fd(), 0) };
        let start = start.with_context(|| format!("mapping {name}"))?.cast();
        Ok(Self { start, entries, bytes })
    }

    /// Every entry. Others may write to it at any time: reads and writes must be volatile.
    pub fn iter(&self) -> impl Iterator<Item = *mut T> + '_ {
        (0..self.entries).filter_map(|index| self.entry(index))
    }

    /// The entry at `index`, as those of [`Self::iter`], if there is one.
    pub fn entry(&self, index: usize) -> Option<*mut T> {
        const { assert!(size_of::<T>().is_multiple_of(8), "the kernel would leave room between entries") };
        // SAFETY: within the mapping, where entries follow each other.
        (index < self.entries).then(|| unsafe { self.start.as_ptr().add(index) })
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: nothing points into the mapping any more. It can't fail on a mapping that is there.
        let _ = unsafe { munmap(self.start.cast(), self.bytes.get()) };
    }
}
