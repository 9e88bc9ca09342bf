//! Links lead somewhere, and pictures are there.

use crate::{pages, root, sections};

#[test]
fn links_lead_somewhere() {
    for (name, text) in pages() {
        let folder = root().join(&name).parent().unwrap().to_owned();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { root().join(&name) } else { folder.join(file) };
            assert!(target.exists(), "{name} links to {link}: there is no {}", target.display());
            if !anchor.is_empty() {
                let there = std::fs::read_to_string(&target).unwrap();
                let found = sections(&there).iter().any(|(title, _)| slug(title) == anchor);
                assert!(found, "{name} links to {link}: there is no such heading");
            }
        }
    }
}

/// A heading's anchor, as GitHub makes it.
fn slug(title: &str) -> String {
    let kept = title.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn no_excerpt_is_empty() {
    for (name, text) in pages() {
        for part in text.split("<!-- excerpt").skip(1) {
            let body = part.split("<!-- end -->").next().unwrap();
            assert!(body.contains("\n|"), "{name}: an excerpt without a table");
        }
    }
}
