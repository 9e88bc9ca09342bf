//! The documentation says what the code does: commands, fields, metrics, and the protocol.

#[path = "docs/commands.rs"]
mod commands;
#[path = "docs/limits.rs"]
mod limits;
#[path = "docs/links.rs"]
mod links;
#[path = "docs/metrics.rs"]
mod metrics;
#[path = "docs/protocol.rs"]
mod protocol;
#[path = "docs/report.rs"]
mod report;

use std::fs;
use std::path::{Path, PathBuf};

/// The workspace's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every page: the README, the changelog, and all of `docs`, by their names from the root.
fn pages() -> Vec<(String, String)> {
    let mut names = vec!["README.md".to_owned(), "CHANGELOG.md".to_owned()];
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if Path::new(&name).extension().is_some_and(|extension| extension == "md") {
            names.push(format!("docs/{name}"));
        }
    }
    names.sort();
    names
        .into_iter()
        .map(|name| {
            let text = page(&name);
            (name, text)
        })
        .collect()
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The fenced blocks of a page, with their languages.
fn blocks(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            blocks.push((language, lines.by_ref().take_while(|line| *line != "```").collect()));
        }
    }
    blocks
}

/// The rows of all tables in a text, as cells; heads and rules are left out.
fn rows(text: &str) -> Vec<Vec<String>> {
    let lines: Vec<&str> = text.lines().collect();
    let is_rule = |line: &str| line.starts_with("|--") || line.starts_with("|:-");
    let mut rows = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let head = lines.get(index + 1).is_some_and(|next| is_rule(next));
        if line.starts_with('|') && !is_rule(line) && !head {
            let inner = line.trim_matches('|').replace("\\|", "\u{0}");
            rows.push(inner.split('|').map(|cell| cell.trim().replace('\u{0}', "|")).collect());
        }
    }
    rows
}

/// A page's sections by heading, each up to the next heading of any depth.
fn sections(text: &str) -> Vec<(&str, String)> {
    let mut sections: Vec<(&str, String)> = vec![("", String::new())];
    let mut fenced = false;
    for line in text.lines() {
        fenced ^= line.starts_with("```");
        match line.trim_start_matches('#').strip_prefix(' ') {
            Some(title) if line.starts_with('#') && !fenced => sections.push((title, String::new())),
            _ => {
                let (_, body) = sections.last_mut().unwrap();
                body.push_str(line);
                body.push('\n');
            }
        }
    }
    sections
}

/// The words in a cell that are set as code.
fn codes(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}
