//! Bytes from outside (paths, arguments, names) as text: for JSON, for a terminal, for Markdown.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// `bytes` as text, and in base64 too if they are not UTF-8: then each stray byte is written `\xNN`.
pub fn text_and_bytes(bytes: &[u8]) -> (String, Option<String>) {
    match str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => (lossless(bytes), Some(STANDARD.encode(bytes))),
    }
}

/// `bytes` in base64.
pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// `bytes` as text, stray bytes written `\xNN`.
pub fn lossless(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            // Writing to a string can't fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// `text` for one line of a terminal: control characters, and those that reorder a line, are
/// escaped, so that a file's name can neither move the cursor nor pass for another.
pub fn one_line(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control()
            || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        {
            safe.extend(character.escape_default());
        } else {
            safe.push(character);
        }
    }
    safe
}

/// `text` as a Markdown code span that survives its own backticks.
pub fn code(text: &str) -> String {
    let text = one_line(text);
    let longest = text.split(|character| character != '`').map(str::len).max().unwrap_or(0);
    if longest == 0 {
        return format!("`{text}`");
    }
    let fence = "`".repeat(longest + 1);
    format!("{fence} {text} {fence}")
}

/// `text` as plain Markdown: nothing in it is markup. (Tables escape their own separator.)
pub fn plain(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in one_line(text).chars() {
        if matches!(character, '`' | '*' | '_' | '<' | '>' | '[' | ']' | '\\' | '#') {
            safe.push('\\');
        }
        safe.push(character);
    }
    safe
}

/// `text` as a shell would need it quoted.
pub fn shell_word(text: &str) -> String {
    let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:,+@%".contains(&byte);
    if !text.is_empty() && text.bytes().all(safe) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utf_8_stays_and_other_bytes_are_escaped_and_kept() {
        assert_eq!(text_and_bytes("/tmp/ü\n".as_bytes()), ("/tmp/ü\n".into(), None));
        assert_eq!(text_and_bytes(b"/tmp/\xff\xc3"), (r"/tmp/\xff\xc3".into(), Some("L3RtcC//ww==".into())));
    }

    #[test]
    fn a_line_stays_a_line() {
        assert_eq!(one_line("a\n\u{1b}[2Jb\u{202e}c"), r"a\n\u{1b}[2Jb\u{202e}c");
    }

    #[test]
    fn markdown_stays_markup_free() {
        assert_eq!(code("a|b"), "`a|b`");
        assert_eq!(code("a``b"), "``` a``b ```");
        assert_eq!(plain("a|b*c"), r"a|b\*c");
    }

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        assert_eq!(shell_word("--x=1"), "--x=1");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
        assert_eq!(shell_word(""), "''");
    }
}
