//! The report as JSON, indented; nothing is cut.

use super::model::Report;

/// The document, with a line end.
pub fn render(report: &Report) -> String {
    // Nothing in the model can fail to be written: its maps have string keys.
    let mut text = serde_json::to_string_pretty(report).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::render;
    use crate::report::sample;

    #[test]
    fn all_of_a_report() {
        insta::assert_snapshot!(render(&sample::report()));
    }
}
