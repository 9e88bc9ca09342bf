//! The same table as a picture: a bar for the median, a line for the range, on a logarithmic scale.

use std::fmt::Write as _;

use super::{MEASURES, Samples, Spread, TRACERS};

const LEFT: f64 = 230.0;
/// Width of a factor of ten.
const DECADE: f64 = 115.0;
/// Where the scale begins, in µs.
const ORIGIN_US: f64 = 10.0;
const DECADES: i32 = 4;
const TOP: f64 = 74.0;
const BAR: f64 = 14.0;
const BAR_STEP: f64 = 18.0;
const GROUP_STEP: f64 = 68.0;
const WIDTH: f64 = 820.0;

/// What readers call the tracers, in their order.
const LABELS: [&str; TRACERS.len()] = ["no tracer", "opfs-probe", "strace"];

const STYLE: &str = "\
  <style>
    .card { fill: #ffffff } text { fill: #1c2430 } .soft { fill: #566275; font-size: 12.5px } .name { font-weight: 600 }
    .line { stroke: #e3e8ef } .none { fill: #a0aec0 } .ebpf { fill: #2b6cb0 } .strace { fill: #c05621 }
    .range { stroke: #1c2430; fill: none }
    @media (prefers-color-scheme: dark) {
      .card { fill: #151a21 } text { fill: #e6ebf2 } .soft { fill: #9fadc0 } .line { stroke: #28313d }
      .none { fill: #718096 } .ebpf { fill: #4299e1 } .strace { fill: #dd6b20 } .range { stroke: #e6ebf2 }
    }
  </style>
";

/// The picture, as SVG.
pub fn draw(samples: &Samples) -> String {
    let groups = samples.len() as f64;
    let bottom = TOP + GROUP_STEP * groups;
    let mut words = Vec::new();
    let mut drawn = String::new();
    for (row, ((browser, measure), by_tracer)) in samples.iter().enumerate() {
        let top = TOP + GROUP_STEP * row as f64;
        let (browser, measure) = (spoken(browser), MEASURES[*measure].0);
        let _ = writeln!(
            drawn,
            r#"  <text class="name" x="20" y="{:.0}">{browser}</text><text class="soft" x="20" y="{:.0}">{measure}</text>"#,
            top + 26.0,
            top + 44.0
        );
        for (index, tracer) in TRACERS.iter().enumerate() {
            let Some(spread) = by_tracer.get(tracer).and_then(|values| Spread::of(values)) else { continue };
            words.push(format!("{browser} {measure}, {}: {}", LABELS[index], duration(spread.median)));
            drawn += &bar(index, top + BAR_STEP * index as f64, spread);
        }
    }
    let mut picture = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0} {:.0}" role="img" aria-labelledby="title what" font-family="system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif" font-size="14">
  <title id="title">Time per call under each tracer</title>
  <desc id="what">{}.</desc>
{STYLE}  <rect class="card" width="{WIDTH:.0}" height="{:.0}" rx="10"/>
  <text class="name" x="20" y="30">Time per call in the browser benchmark</text><text class="soft" x="20" y="48">median of alternating runs, with the range; each gridline is ten times the one before</text>
"#,
        bottom + 40.0,
        words.join("; "),
        bottom + 40.0
    );
    for decade in 0..=DECADES {
        let us = ORIGIN_US * 10_f64.powi(decade);
        let x = position(us);
        let _ = writeln!(
            picture,
            r#"  <path class="line" d="M{x:.1} 58V{bottom:.0}"/><text class="soft" x="{x:.1}" y="{:.0}" text-anchor="middle">{}</text>"#,
            bottom + 18.0,
            duration(us)
        );
    }
    picture + &drawn + "</svg>\n"
}

fn bar(tracer: usize, top: f64, spread: Spread) -> String {
    let (middle, low, high) = (top + BAR / 2.0, position(spread.min), position(spread.max));
    let (label, class) = (LABELS[tracer], TRACERS[tracer]);
    format!(
        r#"  <text class="soft" x="{:.0}" y="{:.0}" text-anchor="end">{label}</text><rect class="{class}" x="{LEFT:.0}" y="{top:.0}" width="{:.1}" height="{BAR:.0}" rx="2"/><path class="range" d="M{low:.1} {middle:.0}H{high:.1}M{low:.1} {:.0}v8M{high:.1} {:.0}v8"/><text class="soft" x="{:.1}" y="{:.0}">{}</text>
"#,
        LEFT - 8.0,
        top + 11.0,
        position(spread.median) - LEFT,
        middle - 4.0,
        middle - 4.0,
        high + 8.0,
        top + 11.0,
        duration(spread.median)
    )
}

/// Where a time lies on the scale; what is shorter than its begin lies there.
fn position(us: f64) -> f64 {
    LEFT + DECADE * (us / ORIGIN_US).log10().max(0.0)
}

fn duration(us: f64) -> String {
    match us {
        _ if us < 1000.0 => format!("{us:.0} µs"),
        _ if us < 9950.0 && us % 1000.0 != 0.0 => format!("{:.1} ms", us / 1000.0),
        _ => format!("{:.0} ms", us / 1000.0),
    }
}

/// `chromium-156` as a heading.
fn spoken(browser: &str) -> String {
    let mut letters = browser.replace('-', " ");
    if let Some(first) = letters.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    letters
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_bar_ends_at_its_median_and_is_said_in_words() {
        let by_tracer = BTreeMap::from([("none", vec![100.0, 90.0, 200.0]), ("ebpf", vec![1000.0])]);
        let picture = draw(&Samples::from([(("firefox-153".to_owned(), 0), by_tracer)]));
        assert!(
            picture.contains("Firefox 153 append, no tracer: 100 µs; Firefox 153 append, opfs-probe: 1 ms.")
        );
        assert!(picture.contains(r#"class="none" x="230" y="74" width="115.0""#), "{picture}");
        assert!(picture.contains(r#"class="ebpf" x="230" y="92" width="230.0""#), "{picture}");
        assert!(!picture.contains(r#"<rect class="strace""#), "nothing is drawn of what was not measured");
    }

    #[test]
    fn times_have_their_unit() {
        let shown = [21.6, 999.0, 2549.0, 9960.0, 22_909.0, 100_000.0].map(duration);
        assert_eq!(shown, ["22 µs", "999 µs", "2.5 ms", "10 ms", "23 ms", "100 ms"]);
    }
}
