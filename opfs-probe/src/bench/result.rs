//! What the page hands over when it is done: schema `opfs-bench.result/1`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The schema that this program reads.
pub const SCHEMA: &str = "opfs-bench.result/1";

/// One browser's measurements, timed by its own clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BenchResult {
    /// [`SCHEMA`]
    pub schema: String,
    /// `navigator.userAgent`
    pub user_agent: String,
    /// `navigator.platform`
    pub platform: String,
    /// `navigator.hardwareConcurrency`
    pub hardware_concurrency: Option<u64>,
    /// When the run began, RFC 3339.
    pub timestamp: String,
    /// The smallest step of `performance.now()`; none if the clock stood still.
    pub clock_resolution_us: Option<f64>,
    /// Whether the page was isolated, which gives it the finer clock.
    pub cross_origin_isolated: bool,
    /// `navigator.storage.estimate()`
    pub storage: Storage,
    /// What was asked for.
    pub config: Config,
    /// One row a workload, and one for each step of new-file.
    pub workloads: Vec<Row>,
    /// What follows from the rows, one sentence each.
    pub derived: Vec<String>,
    /// The browser's section of a Markdown report, without its heading.
    pub markdown: String,
}

/// What the browser says of the page's storage, where it says anything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Storage {
    /// Bytes in use.
    pub usage_bytes: Option<f64>,
    /// Bytes that it may use.
    pub quota_bytes: Option<f64>,
}

/// The parameters of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// "quick", "full", or "custom" as soon as a parameter differs.
    pub preset: String,
    /// Small writes a pass.
    pub n: u64,
    /// Bytes of a small write.
    pub s: u64,
    /// Bytes of the larger writes.
    pub chunks: Vec<u64>,
    /// Measured passes.
    pub r: u64,
    /// Files of new-file a pass.
    pub m: u64,
    /// Names of the workloads.
    #[serde(default)]
    pub workloads: Vec<String>,
}

/// A workload's median run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// "small-append", "new-file: close", …
    pub name: String,
    /// "write" or "file".
    pub kind: String,
    /// Timed calls in a pass.
    pub calls: u64,
    /// Bytes that each of them writes; none for a step that writes nothing.
    pub bytes_per_call: Option<u64>,
    /// Which of the runs is the median, counted from 1.
    pub median_run: u64,
    /// Every measured run.
    pub runs: Vec<Run>,
    /// When the warm-up pass was.
    pub warm_up: Span,
    /// Time of the median run.
    pub total_ms: f64,
    /// Time of the shortest run.
    pub total_min_ms: f64,
    /// Time of the longest run.
    pub total_max_ms: f64,
    /// Mean time of a call.
    pub mean_us: f64,
    /// Calls a second; none if the clock was too coarse.
    pub ops_per_s: Option<f64>,
    /// Decimal megabytes a second, for rows that write.
    pub mb_per_s: Option<f64>,
    /// Median time of a call.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// The longest call.
    pub max_us: f64,
    /// The first call.
    pub first_call_us: f64,
}

/// One measured run of a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its time.
    pub total_ms: f64,
    /// Its first call.
    pub first_call_us: f64,
    /// When its loop was.
    #[serde(flatten)]
    pub span: Span,
}

/// From when to when a loop ran, by the browser's idea of the Unix time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Its start.
    pub started_epoch_ms: f64,
    /// Its end.
    pub finished_epoch_ms: f64,
}

/// Why a page's data is no result.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// Another version's.
    #[error(
        "the page's result has the schema {0:?}, this program reads {SCHEMA:?}; reload the page from this opfs-probe"
    )]
    Schema(String),
    /// Not in that schema's shape.
    #[error("the page's result can't be read: {0}")]
    Shape(#[from] serde_json::Error),
}

impl BenchResult {
    /// Reads what a page handed over.
    pub fn parse(data: &Value) -> Result<Self, ResultError> {
        match data.get("schema").and_then(Value::as_str) {
            Some(SCHEMA) => Ok(Self::deserialize(data)?),
            other => Err(ResultError::Schema(other.unwrap_or("none").to_owned())),
        }
    }

    /// The row of that name.
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.workloads.iter().find(|row| row.name == name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn anything_else_is_refused_in_words() {
        let error = BenchResult::parse(&json!({"schema": "opfs-bench.result/9"})).unwrap_err().to_string();
        assert!(error.contains("result/9"), "{error}");
        let error = BenchResult::parse(&json!([])).unwrap_err().to_string();
        assert!(error.contains("none"), "{error}");
        let error = BenchResult::parse(&json!({"schema": SCHEMA})).unwrap_err().to_string();
        assert!(error.contains("user_agent"), "{error}");
    }

    #[test]
    fn a_run_carries_its_times_beside_its_span() {
        let run: Run = serde_json::from_value(
            json!({"total_ms": 1.5, "first_call_us": 10, "started_epoch_ms": 2.0, "finished_epoch_ms": 3.5}),
        )
        .unwrap();
        assert_eq!(run.span, Span { started_epoch_ms: 2.0, finished_epoch_ms: 3.5 });
    }
}
