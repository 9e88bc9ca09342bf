//! Prometheus: what is measured now, as text. Nothing is polled; the snapshot is taken at the scrape.
//!
//! What was not measured is absent, never 0, and every label has a bounded set of values.

mod families;
mod snapshot;
#[cfg(test)]
mod tests;

use prometheus::TextEncoder;
use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;

pub use snapshot::{Build, Counts, Device, InFlight, Named, Probe, Snapshot, Tally};

/// The media type of [`exposition`].
pub const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

/// The snapshot in Prometheus' text format, and this process' own metrics. At most `names` session
/// names and `names` window names become labels; the rest is added up as `other`.
pub fn exposition(snapshot: &Snapshot, names: usize) -> String {
    let mut all = families::of(snapshot, names);
    all.extend(ProcessCollector::for_self().collect());
    // The encoder refuses families without samples, and there are none here.
    TextEncoder::new().encode_to_string(&all).unwrap_or_default()
}
