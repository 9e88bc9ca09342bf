//! The few statistics that the benchmarks print.

/// A sample's middle and its spread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Half of the values are below.
    pub median: f64,
    /// A quarter of the values is below.
    pub lower: f64,
    /// A quarter of the values is above.
    pub upper: f64,
}

impl Summary {
    /// Of any number of values but none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        let [lower, median, upper] = [0.25, 0.5, 0.75].map(|share| quantile(&sorted, share));
        Some(Self { median: median?, lower: lower?, upper: upper? })
    }
}

/// The value that a share of them is below, between neighbours by linear interpolation (definition 7 of
/// Hyndman and Fan, "Sample Quantiles in Statistical Packages", 1996).
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = share * last as f64;
    let below = sorted[place.floor() as usize];
    let above = sorted[place.ceil() as usize];
    Some(below + (above - below) * place.fract())
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_neighbours() {
        let summary = |values: &[f64]| Summary::of(values).map(|all| (all.lower, all.median, all.upper));
        assert_eq!(summary(&[]), None);
        assert_eq!(summary(&[7.0]), Some((7.0, 7.0, 7.0)));
        assert_eq!(summary(&[4.0, 1.0, 3.0, 2.0]), Some((1.75, 2.5, 3.25)));
        assert_eq!(summary(&[5.0, 1.0, 2.0, 4.0, 3.0]), Some((2.0, 3.0, 4.0)));
    }
}
