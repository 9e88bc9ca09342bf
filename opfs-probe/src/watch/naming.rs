//! What identities and image numbers stand for, in the report's words.

use opfs_probe_common::call::FileIdentity;
use opfs_probe_common::performed::Filesystem;

use crate::files::devices::Devices;
use crate::files::{self, Names, kernel_dev, major_minor};
use crate::processes::{self, Images};
use crate::report::build::{FileName, ImageName, Naming};
use crate::report::model::{ResolvedBy, Role};

/// Names as the kernel side gave them.
pub struct Known<'a> {
    /// Of files.
    pub names: &'a Names,
    /// Of processes.
    pub images: &'a Images,
    /// Where performed syncs are seen.
    pub performed_on: &'a [Filesystem],
}

impl Naming for Known<'_> {
    fn file(&self, identity: &FileIdentity) -> Option<FileName> {
        let file = self.names.get(identity)?;
        Some(FileName {
            path: file.path.clone(),
            fs_path: file.fs_path.clone(),
            names: file.names.clone(),
            dev: kernel_dev(file.stat_dev.0, file.stat_dev.1),
            inode: file.inode,
            deleted: file.deleted,
            resolved_by: match file.resolved_by {
                files::ResolvedBy::Kernel => ResolvedBy::Kernel,
                files::ResolvedBy::Proc => ResolvedBy::Proc,
                files::ResolvedBy::Open => ResolvedBy::Open,
                files::ResolvedBy::None => ResolvedBy::None,
            },
            group: None,
            seen: 0,
            performed_seen: self.performed_on.iter().any(|on| Some(on.magic()) == file.magic),
        })
    }

    fn device(&self, dev: u32) -> Option<String> {
        Devices::here().name(major_minor(dev))
    }

    fn image(&self, process: u32) -> Option<ImageName> {
        let image = self.images.get(process)?;
        Some(ImageName {
            pid: image.pid,
            ns_pid: image.ns_pid,
            started_at: image.started_at,
            comm: image.comm.clone(),
            exe: image.exe.clone(),
            role: role(image.role),
            cgroup: image.cgroup.clone(),
            compat_32_bit: image.compat_32_bit,
        })
    }
}

fn role(role: processes::Role) -> Role {
    match role {
        processes::Role::Main => Role::Main,
        processes::Role::Content => Role::Content,
        processes::Role::Gpu => Role::Gpu,
        processes::Role::Network => Role::Network,
        processes::Role::Storage => Role::Storage,
        processes::Role::Utility => Role::Utility,
        processes::Role::Helper => Role::Helper,
        processes::Role::Command => Role::Command,
        processes::Role::Child => Role::Child,
        processes::Role::Kernel => Role::Kernel,
        processes::Role::Other => Role::Other,
    }
}
