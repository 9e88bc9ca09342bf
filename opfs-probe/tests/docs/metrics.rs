//! docs/metrics.md lists what can be scraped, all of it and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use opfs_probe::attribution::totals::Totals;
use opfs_probe::metrics::{Build, Counts, Device, InFlight, Named, Probe, Snapshot, Tally, exposition};
use opfs_probe::server::Limits;
use opfs_probe_common::call::Op;
use opfs_probe_common::flushed::DeviceTally;
use opfs_probe_common::histogram::Histogram;
use opfs_probe_common::performed::{Cause, Filesystem};

use crate::{codes, page, rows};

/// Type and labels by name.
type Families = BTreeMap<String, (String, BTreeSet<String>)>;

#[test]
fn every_metric_is_documented_and_no_other() {
    let text = page("docs/metrics.md");
    let documented: Families = rows(&text)
        .iter()
        .filter(|row| row.len() == 4)
        .map(|row| {
            let labels = codes(&row[2]).into_iter().map(str::to_owned).collect();
            (codes(&row[0])[0].to_owned(), (row[1].clone(), labels))
        })
        .collect();
    let (own, process): (Families, Families) =
        scraped().into_iter().partition(|(name, _)| name.starts_with("opfs_probe_"));
    assert_eq!(documented, own);
    for name in process.keys() {
        assert!(text.contains(&format!("`{name}`")), "{name} is not documented");
    }
    let words: BTreeSet<&str> =
        codes(&text).into_iter().filter(|word| word.starts_with("process_")).collect();
    assert_eq!(words, process.keys().map(String::as_str).collect());
}

#[test]
fn labels_have_the_documented_bounds() {
    let text = page("docs/metrics.md");
    assert!(text.contains(&format!("the first {}", Limits::default().metric_names)));
    let ops = rows(&text).into_iter().find(|row| row.len() == 2 && row[0] == "`op`").unwrap();
    assert_eq!(codes(&ops[1]), Op::ALL.map(Op::name));
    let filesystems = rows(&text).into_iter().find(|row| row.len() == 2 && row[0] == "`fstype`").unwrap();
    assert_eq!(codes(&filesystems[1]), Filesystem::ALL.map(Filesystem::name));
}

/// What a daemon says that has measured everything there is.
fn scraped() -> Families {
    let mut counts = Counts::default();
    counts.add_totals(&Totals::default());
    for errno in [0, 5] {
        counts.calls.insert((Op::Fsync, errno), Tally { count: 1, total_ns: 1 });
    }
    counts.performed.insert((Filesystem::Ext4, Cause::Implicit), 1);
    counts.histograms.insert(Op::Fsync, Histogram::ZERO);
    let named = vec![Named { name: "name".to_owned(), counts }];
    let snapshot = Snapshot {
        sessions: named.clone(),
        windows: named,
        devices: Some(vec![Device { name: "vda".to_owned(), flushed: DeviceTally::ZERO }]),
        in_flight: Some(InFlight { calls: 1, oldest_ns: Some(1) }),
        events_lost: Some(0),
        detail_lost: Some(0),
        probes: vec![Probe {
            name: "probe".to_owned(),
            layer: "syscall".to_owned(),
            attached: true,
            runs: Some(1),
            run_ns: Some(1),
            missed: Some(0),
        }],
        windows_open: Some(1),
        windows_total: Some(1),
        build: Some(Build { version: "0".to_owned(), kernel: "6".to_owned() }),
    };
    let text = exposition(&snapshot, 10);
    let mut families = Families::new();
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            families.insert(name.to_owned(), (kind.to_owned(), BTreeSet::new()));
        } else if let Some((name, rest)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
            let ends = ["_bucket", "_sum", "_count"];
            let family = ends
                .iter()
                .find_map(|end| name.strip_suffix(end))
                .filter(|name| families.contains_key(*name));
            let labels = rest.split("=\"").map(|part| part.rsplit([',', '"']).next().unwrap());
            let labels = labels.take(rest.matches("=\"").count()).filter(|label| *label != "le");
            families.get_mut(family.unwrap_or(name)).unwrap().1.extend(labels.map(str::to_owned));
        }
    }
    families
}
