//! Log-linear latency histogram: four sub-buckets an octave, the same arithmetic on both sides.
//!
//! Bucket `b` covers `lower(b) ..= upper(b)` nanoseconds. Values below 4 have a bucket each; above,
//! an octave `[2^e, 2^(e+1))` is cut into four equal parts, as in `HdrHistogram` with two
//! significant bits. Within a bucket, the upper bound is at most 25 % above the lower, so a
//! percentile read at the bucket's middle is off by at most 1/8 of the lower bound.

/// Sub-buckets an octave, as a power of two.
const SUB_BITS: u32 = 2;
const SUB_BUCKETS: u64 = 1 << SUB_BITS;

/// The largest octave with its own buckets: 2^40 ns are 18 minutes. Longer calls go to the last bucket.
const MAX_EXPONENT: u32 = 39;

/// Number of buckets; the last has no upper bound.
pub const BUCKETS: usize = ((MAX_EXPONENT - SUB_BITS + 2) as usize) << SUB_BITS;

/// Relative error of a percentile taken at the middle of its bucket.
pub const PERCENTILE_ERROR: f64 = 0.125;

/// Counts by bucket.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// Number of calls in each bucket, not cumulative.
    pub buckets: [u64; BUCKETS],
}

impl Histogram {
    /// An empty histogram.
    pub const ZERO: Self = Self { buckets: [0; BUCKETS] };
}

/// One of a CPU's slots for latencies, which lie before the shared histograms. Belongs to one op of one
/// epoch as a [`crate::call::CallSlot`] to its key.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencySlot {
    /// The epoch in which the calls began; [`crate::epoch::NO_EPOCH`] if the slot is free.
    pub epoch: u32,
    /// [`crate::call::Op`] as its discriminant.
    pub op: u32,
    /// All of them added up.
    pub total_ns: u64,
    /// As in [`Histogram`].
    pub buckets: [u32; BUCKETS],
}

impl LatencySlot {
    /// A slot that is no epoch's.
    pub const FREE: Self = Self { epoch: 0, op: 0, total_ns: 0, buckets: [0; BUCKETS] };

    /// Which of a CPU's slots is that of an op in an epoch: ops of one epoch, and epochs that follow each
    /// other, have slots beside each other.
    #[expect(clippy::inline_always, reason = "kernel programs must not call functions on their hot path")]
    #[inline(always)]
    pub const fn index(epoch: u32, op: u32) -> u32 {
        epoch.wrapping_mul(OPS).wrapping_add(op) & (LATENCY_SLOTS - 1)
    }
}

/// Odd, and about how many ops there are, so that slots are used evenly.
const OPS: u32 = 5;

/// How many each CPU has. A power of two.
pub const LATENCY_SLOTS: u32 = 128;

/// The bucket of a duration.
#[expect(clippy::inline_always, reason = "kernel programs must not call functions on their hot path")]
#[inline(always)]
pub fn bucket(duration_ns: u64) -> usize {
    if duration_ns < SUB_BUCKETS {
        return duration_ns as usize;
    }
    let exponent = floor_log2(duration_ns);
    if exponent > MAX_EXPONENT {
        return BUCKETS - 1;
    }
    let sub = (duration_ns >> (exponent - SUB_BITS)) & (SUB_BUCKETS - 1);
    (((exponent - SUB_BITS + 1) as usize) << SUB_BITS) + sub as usize
}

/// The smallest duration that falls into bucket `index`.
pub fn lower_ns(index: usize) -> u64 {
    let index = index as u64;
    if index < SUB_BUCKETS {
        return index;
    }
    let exponent = (index >> SUB_BITS) + u64::from(SUB_BITS) - 1;
    let sub = index & (SUB_BUCKETS - 1);
    (SUB_BUCKETS + sub) << (exponent - u64::from(SUB_BITS))
}

/// The largest duration that falls into bucket `index`, or none for the last, which is open.
pub fn upper_ns(index: usize) -> Option<u64> {
    (index + 1 < BUCKETS).then(|| lower_ns(index + 1) - 1)
}

/// Position of the highest set bit, by halving: BPF has no instruction for it.
#[expect(clippy::inline_always, reason = "kernel programs must not call functions on their hot path")]
#[inline(always)]
fn floor_log2(mut value: u64) -> u32 {
    let mut log = 0;
    let mut shift = 32;
    while shift > 0 {
        if value >> shift != 0 {
            value >>= shift;
            log += shift;
        }
        shift >>= 1;
    }
    log
}

const _: () = assert!(BUCKETS == 156);
const _: () = assert!(size_of::<LatencySlot>() == 640 && LATENCY_SLOTS.is_power_of_two());

crate::pod!(Histogram, LatencySlot);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_tile_the_line_without_gap_or_overlap() {
        for index in 0..BUCKETS {
            assert_eq!(bucket(lower_ns(index)), index, "lower bound of {index}");
            if let Some(upper) = upper_ns(index) {
                assert_eq!(bucket(upper), index, "upper bound of {index}");
                assert_eq!(bucket(upper + 1), index + 1, "just above {index}");
            }
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_bucket_is_narrow_enough_for_the_stated_error() {
        for index in 4..BUCKETS - 1 {
            let (lower, upper) = (lower_ns(index), upper_ns(index).unwrap());
            let half_width = (upper - lower) as f64 / 2.0;
            assert!(half_width / lower as f64 <= PERCENTILE_ERROR, "bucket {index}");
        }
    }

    #[test]
    fn floor_log2_agrees_with_the_standard_library() {
        for shift in 0..64 {
            let power = 1_u64 << shift;
            assert_eq!(floor_log2(power), power.ilog2());
            assert_eq!(floor_log2(power | (power - 1)), (power | (power - 1)).ilog2());
        }
    }
}
