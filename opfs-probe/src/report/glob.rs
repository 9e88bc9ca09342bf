//! Shell patterns for names: `*`, `?`, `[a-z]`, `[!x]`; `\` takes the next character as it is.

/// A pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    pattern: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(char),
    AnyOne,
    AnyRun,
    OneOf { negated: bool, ranges: Vec<(char, char)> },
}

impl Glob {
    /// Reads a pattern. Each text is one: a `[` that is never closed stands for itself.
    pub fn new(pattern: &str) -> Self {
        let mut rest: Vec<char> = pattern.chars().rev().collect();
        let mut parts = Vec::new();
        while let Some(character) = rest.pop() {
            parts.push(match character {
                '*' => Part::AnyRun,
                '?' => Part::AnyOne,
                '\\' => Part::Literal(rest.pop().unwrap_or('\\')),
                '[' => one_of(&mut rest).unwrap_or(Part::Literal('[')),
                other => Part::Literal(other),
            });
        }
        Self { pattern: pattern.to_owned(), parts }
    }

    /// The pattern as it was given.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Whether all of `text` fits.
    pub fn matches(&self, text: &str) -> bool {
        self.fits(text, None)
    }

    /// Whether all of `path` fits, with `*`, `?` and `[…]` never standing for a `/`.
    pub fn matches_path(&self, path: &str) -> bool {
        self.fits(path, Some('/'))
    }

    /// Goes back only to the last `*`: the time is at most the product of both lengths.
    fn fits(&self, text: &str, separator: Option<char>) -> bool {
        let text: Vec<char> = text.chars().collect();
        let (mut part, mut at) = (0, 0);
        let mut last_run: Option<(usize, usize)> = None;
        while at < text.len() {
            let character = text[at];
            match self.parts.get(part) {
                Some(Part::AnyRun) => {
                    last_run = Some((part, at));
                    part += 1;
                    continue;
                }
                Some(one) if one.takes(character, separator) => {
                    part += 1;
                    at += 1;
                    continue;
                }
                _ => {}
            }
            match last_run {
                Some((run, from)) if Some(text[from]) != separator => {
                    last_run = Some((run, from + 1));
                    part = run + 1;
                    at = from + 1;
                }
                _ => return false,
            }
        }
        self.parts[part..].iter().all(|part| *part == Part::AnyRun)
    }
}

impl Part {
    fn takes(&self, character: char, separator: Option<char>) -> bool {
        match self {
            Self::Literal(literal) => *literal == character,
            Self::AnyOne => Some(character) != separator,
            Self::AnyRun => false,
            Self::OneOf { negated, ranges } => {
                Some(character) != separator
                    && ranges.iter().any(|&(from, to)| (from..=to).contains(&character)) != *negated
            }
        }
    }
}

/// What follows a `[`, taken from the end of `rest`; none, and `rest` as it was, if it never closes.
fn one_of(rest: &mut Vec<char>) -> Option<Part> {
    let mut inner = rest.clone();
    let negated = matches!(inner.last(), Some('!' | '^'));
    if negated {
        inner.pop();
    }
    let mut ranges = Vec::new();
    loop {
        let from = inner.pop()?;
        // A `]` right after the bracket is meant.
        if from == ']' && !ranges.is_empty() {
            break;
        }
        let to = match inner.as_slice() {
            [.., to, '-'] if *to != ']' => {
                let to = *to;
                inner.truncate(inner.len() - 2);
                to
            }
            _ => from,
        };
        ranges.push((from, to));
    }
    *rest = inner;
    Some(Part::OneOf { negated, ranges })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Glob;

    #[test]
    fn patterns_mean_what_a_shell_means() {
        let fits = |pattern: &str, text: &str| Glob::new(pattern).matches(text);
        assert!(fits("small-*", "small-append"));
        assert!(!fits("small-*", "a small-append"));
        assert!(fits("*append*", "chunked-append (64 KiB)"));
        assert!(fits("run ?", "run 1") && !fits("run ?", "run 10"));
        assert!(fits("run [1-3]", "run 2") && !fits("run [!1-3]", "run 2"));
        assert!(fits("[]]", "]") && fits("[a", "[a") && fits(r"\*", "*") && !fits(r"\*", "x"));
        assert!(fits("", "") && !fits("", "x") && fits("**", ""));
    }

    #[test]
    fn in_a_path_nothing_but_a_slash_stands_for_one() {
        let fits = |pattern: &str, path: &str| Glob::new(pattern).matches_path(path);
        assert!(fits("append*/run */loop", "append+flush/run 1/loop"));
        assert!(!fits("append*", "append+flush/run 1"));
        assert!(!fits("a?b", "a/b") && !fits("a[!x]b", "a/b"));
        assert!(!fits("*b", "a/ab"));
    }

    proptest! {
        #[test]
        fn no_pattern_is_too_much(pattern in "[\\[\\]*?!a-c\\\\-]{0,24}", text in "[a-c\\[\\]/-]{0,40}") {
            let glob = Glob::new(&pattern);
            prop_assert!(!glob.matches_path(&text) || glob.matches(&text));
        }
    }
}
