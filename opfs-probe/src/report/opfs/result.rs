//! What the benchmark page measured, schema `opfs-bench.result/1`: the part that reports show.

use serde::Deserialize;
use serde_json::Value;

/// The schema that these types read.
pub const SCHEMA: &str = "opfs-bench.result/1";

/// One page's results.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PageResult {
    /// The parameters it ran with.
    pub config: Config,
    /// The workloads, in the order they ran.
    pub workloads: Vec<Workload>,
    /// The page's own report.
    #[serde(default)]
    pub markdown: String,
}

/// Parameters of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Which set of parameters it began with.
    pub preset: String,
    /// Calls of the small workloads.
    pub n: u64,
    /// Bytes a small call.
    pub s: u64,
    /// Bytes a call of the chunked workloads.
    pub chunks: Vec<u64>,
    /// Measured runs.
    pub r: u64,
    /// Files of new-file.
    pub m: u64,
}

/// One workload's median run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// What its calls are.
    pub kind: Kind,
    /// Time in all calls.
    pub total_ms: Option<f64>,
    /// Mean time of a call.
    pub mean_us: Option<f64>,
}

/// What a workload's calls are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Writes to one file.
    Write,
    /// Steps in the life of many files.
    File,
}

/// Why a page's results can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// They are something else.
    #[error("the page's results have the schema {0}; this version reads \"{SCHEMA}\"")]
    Schema(Value),
    /// They lack something.
    #[error("the page's results do not keep to \"{SCHEMA}\": {0}")]
    Malformed(#[from] serde_json::Error),
}

impl PageResult {
    /// Reads what a page handed over.
    pub fn from_json(result: &Value) -> Result<Self, ResultError> {
        let schema = result.get("schema").unwrap_or(&Value::Null);
        if schema != SCHEMA {
            return Err(ResultError::Schema(schema.clone()));
        }
        Ok(Self::deserialize(result)?)
    }
}
