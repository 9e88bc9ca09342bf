//! The generator's truth file; its format is described in `tests/sync-generator/main.rs`.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use opfs_probe::report::model::Opens;
use serde::Deserialize;

use crate::common::as_reported;

/// Everything that the generator did.
#[derive(Debug, Deserialize)]
pub struct Truth {
    pub pid: u32,
    pub cases: Vec<Case>,
}

/// One case: in the report, one window.
#[derive(Debug, Deserialize)]
pub struct Case {
    pub name: String,
    pub skipped: Option<String>,
    pub failed: Option<String>,
    pub calls: Vec<Call>,
    pub files: Vec<LastName>,
    pub processes: Vec<Process>,
    pub opens: Option<Opens>,
}

/// Calls that are alike in everything but time.
#[derive(Debug, Deserialize)]
pub struct Call {
    pub op: String,
    pub path: Option<String>,
    #[serde(default)]
    pub other_paths: Vec<String>,
    pub names: Vec<String>,
    pub names_bytes: Option<Vec<String>>,
    pub file: Option<u32>,
    pub dev: Option<String>,
    pub inode: Option<String>,
    pub errno: Option<String>,
    #[serde(flatten)]
    pub count: Count,
    pub elapsed_ns: Option<u64>,
    #[serde(default)]
    pub path_uncertain: bool,
    pub answered_by: Option<String>,
}

/// What a file was called at its last call.
#[derive(Debug, Deserialize)]
pub struct LastName {
    pub file: u32,
    pub path: String,
    pub path_bytes: Option<String>,
    pub deleted: bool,
}

/// A process and its calls.
#[derive(Debug, Deserialize)]
pub struct Process {
    pub pid: u32,
    pub ns_pid: u32,
    pub comms: Vec<String>,
    #[serde(flatten)]
    pub count: Count,
}

/// A number of calls; of those that were cut off nobody knows whether they reached the kernel.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Count {
    #[serde(rename = "count")]
    known: u64,
    #[serde(rename = "count_min")]
    min: Option<u64>,
    #[serde(rename = "count_max")]
    max: Option<u64>,
}

impl Count {
    pub fn min(self) -> u64 {
        self.min.unwrap_or(self.known)
    }

    pub fn max(self) -> u64 {
        self.max.unwrap_or(self.known)
    }
}

impl Truth {
    /// Reads the truth of a run in which no case failed, and names on stderr those that were skipped.
    pub fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).expect("the truth was written");
        let mut truth: Self = serde_json::from_str(&text).expect("the truth reads as described");
        for case in &mut truth.cases {
            assert_eq!(case.failed, None, "{}", case.name);
            if let Some(why) = &case.skipped {
                eprintln!("SKIPPED: the generator's case {}: {why}", case.name);
            }
            case.see_as_reported();
        }
        truth
    }
}

impl Case {
    /// The generator knows of no root above its own.
    fn see_as_reported(&mut self) {
        for call in &mut self.calls {
            let texts = call.path.iter_mut().chain(&mut call.other_paths).chain(&mut call.names);
            texts.for_each(see_text);
            call.names_bytes.iter_mut().flatten().for_each(see_base64);
        }
        for file in &mut self.files {
            see_text(&mut file.path);
            file.path_bytes.iter_mut().for_each(see_base64);
        }
    }
}

fn see_text(path: &mut String) {
    // Pipes and files in memory alone have names of another kind.
    if path.starts_with('/') && !path.starts_with("/memfd:") {
        *path = as_reported(Path::new(path)).into_os_string().into_string().expect("text");
    }
}

fn see_base64(encoded: &mut String) {
    let path = OsString::from_vec(STANDARD.decode(&encoded).expect("base64"));
    *encoded = STANDARD.encode(as_reported(Path::new(&path)).as_os_str().as_bytes());
}

/// A name as bytes, from its text or from the base64 beside it.
pub fn bytes(text: &str, base64: Option<&String>) -> Vec<u8> {
    match base64 {
        Some(encoded) => STANDARD.decode(encoded).expect("base64"),
        None => text.as_bytes().to_vec(),
    }
}

/// A list of names as bytes.
pub fn all_bytes(texts: &[String], base64: Option<&Vec<String>>) -> Vec<Vec<u8>> {
    let encoded = |index: usize| base64.and_then(|all| all.get(index));
    texts.iter().enumerate().map(|(index, text)| bytes(text, encoded(index))).collect()
}
