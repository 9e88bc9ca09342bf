//! The running kernel's own description of its types, with that of file systems that are modules.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::btf::{Btf, BtfError, Layout};

/// Where the kernel describes its types, and each of its modules those that only that one has.
const FOLDER: &str = "/sys/kernel/btf";

/// The kernel's description of its own types.
pub const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";

/// Modules that have structures the programs read.
const MODULES: [&str; 1] = ["xfs"];

/// The types of the kernel and of those modules that are loaded.
pub struct KernelTypes {
    kernel: Btf,
    modules: Vec<Btf>,
}

impl KernelTypes {
    /// Reads them. A module that can't be read is as good as one that is not there.
    pub fn read() -> Result<Self> {
        let data = fs::read(KERNEL_BTF)
            .with_context(|| format!("reading {KERNEL_BTF} (the kernel needs CONFIG_DEBUG_INFO_BTF)"))?;
        let kernel = Btf::parse(data)?;
        let read = |module| fs::read(Path::new(FOLDER).join(module)).ok();
        let modules = MODULES.into_iter().filter_map(read);
        let modules = modules.filter_map(|data| Btf::parse_module(data, &kernel).ok()).collect();
        Ok(Self { kernel, modules })
    }

    /// The kernel's own.
    pub fn kernel(&self) -> &Btf {
        &self.kernel
    }
}

impl Layout for KernelTypes {
    fn offset(&self, structure: &str, path: &str) -> Result<u32, BtfError> {
        let of_module =
            |error| self.modules.iter().find_map(|btf| btf.offset(structure, path).ok()).ok_or(error);
        self.kernel.offset(structure, path).or_else(of_module)
    }

    fn size(&self, structure: &str) -> Result<u32, BtfError> {
        let of_module = |error| self.modules.iter().find_map(|btf| btf.size(structure).ok()).ok_or(error);
        self.kernel.size(structure).or_else(of_module)
    }
}
