//! Numbers for people: separators between thousands, and times in the unit that fits.

/// `1,234,567`
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `1 file`, `2 files`
pub fn counted(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {what}{plural}", count(number))
}

/// A time with three significant digits: `850 ns`, `12.5 µs`, `3.25 ms`, `81.0 s`.
pub fn duration(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    // The bounds are where the next smaller unit would round to four digits.
    let (value, unit) = match nanoseconds {
        0..1_000 => return format!("{nanoseconds} ns"),
        1_000..999_500 => (value / 1e3, "µs"),
        999_500..999_500_000 => (value / 1e6, "ms"),
        _ => (value / 1e9, "s"),
    };
    let decimals = decimals(value, 9.995, 99.95);
    format!("{value:.decimals$} {unit}")
}

/// Two below the first bound, one below the second, else none.
fn decimals(value: f64, two_below: f64, one_below: f64) -> usize {
    usize::from(value < two_below) + usize::from(value < one_below)
}

/// [`duration`], or a dash for what was not measured.
pub fn duration_or_dash(nanoseconds: Option<u64>) -> String {
    nanoseconds.map_or_else(|| NOT_MEASURED.to_owned(), duration)
}

/// Stands for what was not measured.
pub const NOT_MEASURED: &str = "–";

/// How many times per something: `0.00`, `0.25`, `1.0`, `21`.
pub fn rate(value: f64) -> String {
    let decimals = decimals(value, 0.995, 9.95);
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([counted(1, "file"), counted(2, "file")], ["1 file", "2 files"]);
    }

    #[test]
    fn times_keep_three_digits_and_never_show_a_thousand_of_a_unit() {
        let shown =
            [0, 999, 1_000, 12_345, 999_499, 999_500, 5_142_000, 99_960_000, 999_499_999, 81_000_000_000];
        assert_eq!(
            shown.map(duration),
            [
                "0 ns", "999 ns", "1.00 µs", "12.3 µs", "999 µs", "1.00 ms", "5.14 ms", "100 ms", "999 ms",
                "81.0 s"
            ]
        );
    }

    #[test]
    fn rates_keep_what_matters() {
        assert_eq!(
            [0.0, 0.25, 0.996, 1.0, 9.96, 20.996, 5750.0].map(rate),
            ["0.00", "0.25", "1.0", "1.0", "10", "21", "5750"]
        );
    }
}
