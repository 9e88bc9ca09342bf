//! What the generator says that it did, of which these tests need no more than sums.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

/// The sums; `tests/sync-generator/main.rs` describes the whole.
#[derive(Debug, Deserialize)]
pub struct Truth {
    cases: Vec<Case>,
    pub totals: BTreeMap<String, OpTotal>,
}

/// All calls of one op.
#[derive(Debug, Deserialize)]
pub struct OpTotal {
    pub count: u64,
    pub errors: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
struct Case {
    name: String,
    skipped: Option<String>,
    failed: Option<String>,
}

impl Truth {
    /// Reads the truth of a run in which no case failed, and names on stderr those that were skipped.
    pub fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).expect("the truth was written");
        let truth: Self = serde_json::from_str(&text).expect("the truth reads as described");
        for case in &truth.cases {
            assert_eq!(case.failed, None, "{}", case.name);
            if let Some(why) = &case.skipped {
                eprintln!("SKIPPED: the generator's case {}: {why}", case.name);
            }
        }
        truth
    }
}
