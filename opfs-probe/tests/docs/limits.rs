//! docs/limits.md: the sizes of the kernel side's tables.

use std::fs;

use opfs_probe::files::names::MAX_NAMES;
use opfs_probe_common::epoch::MAX_SESSIONS;

use crate::{page, root, rows, sections};

#[test]
fn tables_are_as_large_as_documented() {
    let text = page("docs/limits.md");
    let (_, body) = sections(&text).into_iter().find(|(title, _)| *title == "Tables").unwrap();
    let documented = rows(&body);
    let maps = fs::read_to_string(root().join("opfs-probe-ebpf/src/maps.rs")).unwrap();
    let entries = |map: &str| {
        let declared = maps.split(&format!("static {map}: ")).nth(1).unwrap();
        let size = declared.split("with_max_entries(").nth(1).unwrap().split(',').next().unwrap();
        size.replace('_', "").parse::<usize>().unwrap()
    };
    // One slot is the system's.
    let expected = [
        ("sessions at once", MAX_SESSIONS as usize - 1),
        ("processes", entries("MEMBERS")),
        ("sync calls in flight", entries("CROWDED")),
        ("different {epoch", entries("CALLS")),
        ("different {epoch, cause", entries("PERFORMED")),
        ("names of one inode", MAX_NAMES),
    ];
    for (what, size) in expected {
        let row =
            documented.iter().find(|row| row[0].starts_with(what)).unwrap_or_else(|| panic!("no row {what}"));
        assert_eq!(row[1].replace(',', ""), size.to_string(), "{what}");
    }
}
