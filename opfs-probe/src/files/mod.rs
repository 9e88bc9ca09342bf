//! From a file's identity to its path: what the kernel's records say, as seen from here.

pub mod components;
pub mod devices;
pub mod mounts;
pub mod names;
pub mod opfs;
pub mod proc;
pub mod special;

pub use names::{NamedFile, Names, ResolvedBy};

/// A path as the kernel has it: bytes, not always UTF-8.
pub type PathBytes = Vec<u8>;

/// Major and minor number of a device in the kernel's own encoding (`MAJOR` and `MINOR` in
/// `linux/kdev_t.h`).
pub const fn major_minor(dev: u32) -> (u32, u32) {
    (dev >> 20, dev & 0xf_ffff)
}

/// The reverse of [`major_minor`].
pub const fn kernel_dev(major: u32, minor: u32) -> u32 {
    (major << 20) | (minor & 0xf_ffff)
}

/// A device number of `stat()`, which user space lays out otherwise, as major and minor.
pub fn stat_major_minor(st_dev: u64) -> (u32, u32) {
    (nix::sys::stat::major(st_dev) as u32, nix::sys::stat::minor(st_dev) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_convert_both_ways() {
        assert_eq!(major_minor(0x0fe0_0003), (254, 3));
        assert_eq!(kernel_dev(254, 3), 0x0fe0_0003);
        assert_eq!(major_minor(kernel_dev(0xfff, 0xf_ffff)), (0xfff, 0xf_ffff));
        assert_eq!(stat_major_minor(nix::sys::stat::makedev(259, 300_000)), (259, 300_000));
    }
}
