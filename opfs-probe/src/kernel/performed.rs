//! On which file systems performed syncs are seen here, and what stays unseen.

use opfs_probe_common::performed::Filesystem;

use super::load::Probe;
use super::plan::{Hook, PLAN};

/// The file systems whose every probe is attached.
pub fn seen(probes: &[Probe]) -> Vec<Filesystem> {
    let attached = |name: &str| probes.iter().any(|probe| probe.attached && probe.name == name);
    Filesystem::ALL
        .into_iter()
        .filter(|filesystem| {
            let of_it = |hook: Hook| matches!(hook, Hook::Raw(of, _) if of == *filesystem);
            PLAN.iter().filter(|planned| of_it(planned.hook)).all(|planned| attached(&planned.name()))
        })
        .collect()
}

/// What a report can't tell of performed syncs, in words.
pub fn gaps(seen: &[Filesystem]) -> Vec<String> {
    let names: Vec<&str> = seen.iter().map(|filesystem| filesystem.name()).collect();
    let list = match names.as_slice() {
        [] => {
            return vec![
                "what file systems performed, for O_SYNC and O_DSYNC writes among others, is not measured"
                    .to_owned(),
            ];
        }
        [only] => (*only).to_owned(),
        [names @ .., last] => format!("{} and {last}", names.join(", ")),
    };
    vec![
        format!("syncs performed by file systems other than {list}"),
        "what sync and syncfs made file systems do".to_owned(),
        "whose asynchronous direct writes with O_DSYNC a kernel thread synced".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::plan::Layer;

    fn probes(attached: impl Fn(&str) -> bool) -> Vec<Probe> {
        let probe =
            |name: String| Probe { attached: attached(&name), name, layer: Layer::Filesystem, reason: None };
        PLAN.iter().map(|planned| probe(planned.name())).collect()
    }

    #[test]
    fn a_file_system_counts_with_all_its_probes() {
        assert_eq!(seen(&probes(|_| true)), Filesystem::ALL);
        assert_eq!(seen(&probes(|_| false)), []);
        let without_folders = probes(|name| name != "xfs:xfs_dir_fsync" && !name.starts_with("f2fs"));
        assert_eq!(seen(&without_folders), [Filesystem::Ext4, Filesystem::Btrfs]);
    }

    #[test]
    fn gaps_name_what_is_seen() {
        assert!(gaps(&[]).concat().contains("not measured"));
        assert!(gaps(&[Filesystem::Ext4]).concat().contains("other than ext4"));
        let three = gaps(&[Filesystem::Ext4, Filesystem::Btrfs, Filesystem::Xfs]);
        assert!(three.concat().contains("other than ext4, btrfs and xfs"));
    }
}
