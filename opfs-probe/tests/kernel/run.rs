//! `opfs-probe run` and the report it makes.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use opfs_probe::report::model::Report;
use tempfile::TempDir;

use crate::common::{PROBE, require_root};

/// One run of the probe over a command.
pub struct Run {
    folder: TempDir,
    options: Vec<String>,
    before: Vec<String>,
}

/// What came of it.
pub struct Ran {
    pub output: Output,
    pub report: Report,
}

impl Run {
    /// With these options of `run`.
    pub fn new(options: &[&str]) -> Self {
        require_root();
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self { folder, options: owned(options), before: Vec::new() }
    }

    /// The probe itself is started by these words.
    pub fn inside(mut self, words: &[&str]) -> Self {
        self.before = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// The command line over a command, with the report in [`Run::report`].
    pub fn over<S: AsRef<std::ffi::OsStr>>(&self, words: &[S]) -> Command {
        let first = self.before.first().map_or(PROBE, String::as_str);
        let mut command = Command::new(first);
        if let Some(rest) = self.before.get(1..) {
            command.args(rest).arg(PROBE);
        }
        command.arg("run").args(&self.options).args(["--format", "json", "--output"]).arg(self.report_path());
        command.arg("--").args(words);
        command
    }

    /// Runs a command to its end.
    pub fn of<S: AsRef<std::ffi::OsStr>>(&self, words: &[S]) -> Ran {
        let output = self.over(words).output().expect("the probe starts");
        Ran { report: self.report(&output), output }
    }

    /// The report, once the probe has ended.
    pub fn report(&self, output: &Output) -> Report {
        let text = fs::read_to_string(self.report_path()).unwrap_or_default();
        let said = String::from_utf8_lossy(&output.stderr);
        serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("no report ({error}); {}; stderr:\n{said}", output.status))
    }

    fn report_path(&self) -> std::path::PathBuf {
        self.folder.path().join("report.json")
    }

    /// A folder of this run.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}
