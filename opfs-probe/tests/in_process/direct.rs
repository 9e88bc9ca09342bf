//! Plain loads of kernel memory see what the helper for it sees, which kernels before Linux 6.2 need.

use opfs_probe::kernel::load::Loaded;
use opfs_probe::report::model::{File, ResolvedBy};

use crate::session::{assert_exact, loaded, run_on, total};

/// What reads most of the kernel's structures: each kind of file, mount and name.
const CASES: [&str; 14] = [
    "fsync",
    "msync",
    "unsyncable",
    "directory",
    "memory-file",
    "strange-names",
    "deep-path",
    "renamed",
    "renamed-over",
    "hard-links",
    "deleted",
    "overlay",
    "bind-mount",
    "chroot",
];

/// All that is told of a file but when and where, which differ from run to run.
type Told = (Option<String>, Vec<String>, bool, ResolvedBy, u64, u64);

#[test]
fn both_ways_to_read_kernel_memory_agree() {
    let plain = told(loaded(&[]));
    let through_helper = told(Loaded::without_direct_reads().expect("they load without plain loads, too"));
    for (plain, through_helper) in plain.iter().zip(&through_helper) {
        assert_eq!(plain, through_helper);
    }
    assert_eq!(plain.len(), through_helper.len());
    assert!(plain.len() > CASES.len(), "{} files", plain.len());
}

fn told(loaded: Loaded) -> Vec<Told> {
    let (truth, report, folder) = run_on(loaded, &CASES);
    let total = total(&report);
    assert_exact(&truth, total, true);
    // A pipe's name has its number: `pipe:[123]`.
    let here = |path: &String| match path.split_once(":[") {
        Some((kind, _)) if !kind.contains('/') => kind.to_owned(),
        _ => path.replace(&folder, "HERE"),
    };
    let tell = |file: &File| {
        let names = file.names.iter().map(here).collect();
        (file.path.as_ref().map(here), names, file.deleted, file.resolved_by, file.count, file.errors)
    };
    let mut files: Vec<Told> = total.files.iter().map(tell).collect();
    files.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    files
}
