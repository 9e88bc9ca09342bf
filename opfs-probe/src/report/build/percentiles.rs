//! Percentiles from a histogram, and the histogram as readers get it.

use opfs_probe_common::histogram::{Histogram, PERCENTILE_ERROR, lower_ns, upper_ns};

use crate::report::model::HistogramBuckets;

/// The smallest latency that `per_cent` of the calls did not exceed, within [`PERCENTILE_ERROR`].
///
/// It is read at the middle of its bucket, and never above the longest call. None if the
/// histogram is empty, or if the calls reach so far into the bucket without a bound that the error
/// could be larger.
pub fn percentile_ns(histogram: &Histogram, per_cent: u64, max_ns: u64) -> Option<u64> {
    let calls: u64 = histogram.buckets.iter().sum();
    // The nearest rank, from 1. 128 bits: a hundred times any count fits.
    let rank = (u128::from(calls) * u128::from(per_cent)).div_ceil(100).max(1);
    let mut below = 0_u128;
    let index = histogram.buckets.iter().position(|&count| {
        below += u128::from(count);
        below >= rank
    })?;
    let lower = lower_ns(index);
    let upper = upper_ns(index).unwrap_or(max_ns.max(lower));
    let half = (upper - lower) / 2;
    (half as f64 <= PERCENTILE_ERROR * lower as f64).then_some(())?;
    let middle = lower + half;
    // A longest call below the bucket would contradict it: such a maximum is not known.
    Some(if max_ns >= lower { middle.min(max_ns) } else { middle })
}

/// The histogram for readers; see [`HistogramBuckets`].
pub fn buckets(histogram: &Histogram) -> HistogramBuckets {
    let counts = &histogram.buckets;
    let last = counts.len() - 1;
    (0..counts.len())
        .filter(|&index| index == last || counts[index] > 0 || counts[index + 1] > 0)
        .map(|index| (upper_ns(index), counts[index]))
        .collect()
}

#[cfg(test)]
mod tests {
    use opfs_probe_common::histogram::{BUCKETS, bucket};
    use proptest::prelude::*;

    use super::*;

    fn histogram(latencies: &[u64]) -> Histogram {
        let mut histogram = Histogram::ZERO;
        for &latency in latencies {
            histogram.buckets[bucket(latency)] += 1;
        }
        histogram
    }

    #[test]
    fn an_empty_histogram_has_no_percentile() {
        assert_eq!(percentile_ns(&Histogram::ZERO, 50, 0), None);
        assert_eq!(buckets(&Histogram::ZERO), [(None, 0)]);
    }

    #[test]
    fn buckets_show_their_lower_bounds() {
        assert_eq!(
            buckets(&histogram(&[1, 9, 9])),
            [(Some(0), 0), (Some(1), 1), (Some(7), 0), (Some(9), 2), (None, 0)]
        );
    }

    #[test]
    fn the_open_bucket_has_a_percentile_only_near_its_bound() {
        let bound = lower_ns(BUCKETS - 1);
        assert_eq!(percentile_ns(&histogram(&[bound]), 99, bound), Some(bound));
        assert_eq!(percentile_ns(&histogram(&[bound * 8]), 99, bound * 8), None);
    }

    proptest! {
        #[test]
        fn percentiles_are_within_the_stated_error(
            mut latencies in prop::collection::vec((0_u32..40, any::<u64>()), 1..400)
                .prop_map(|pairs| pairs.into_iter()
                    .map(|(shift, noise)| noise % (1 << shift.max(1)))
                    .collect::<Vec<_>>()),
        ) {
            let histogram = histogram(&latencies);
            latencies.sort_unstable();
            let max_ns = *latencies.last().unwrap();
            for per_cent in [50, 90, 99] {
                let rank = (latencies.len() * per_cent).div_ceil(100);
                let exact = latencies[rank - 1] as f64;
                let read = percentile_ns(&histogram, per_cent as u64, max_ns).unwrap() as f64;
                prop_assert!((read - exact).abs() <= PERCENTILE_ERROR * exact, "{read} for {exact}");
            }
        }
    }
}
