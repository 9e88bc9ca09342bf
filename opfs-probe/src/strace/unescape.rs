//! The bytes behind strace's escapes: a name can hold anything but NUL and a slash.

/// Undoes strace's escapes: those of C, octal without leading zeros, and hexadecimal (`-x`).
pub fn decode(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'\\' {
            out.push(first);
            continue;
        }
        let Some((&kind, after)) = rest.split_first() else {
            // A path that was cut within an escape.
            out.push(first);
            break;
        };
        rest = after;
        match kind {
            b't' => out.push(b'\t'),
            b'n' => out.push(b'\n'),
            b'v' => out.push(0x0b),
            b'f' => out.push(0x0c),
            b'r' => out.push(b'\r'),
            b'0'..=b'7' => {
                let mut value = u32::from(kind - b'0');
                for _ in 0..2 {
                    let Some((&digit @ b'0'..=b'7', after)) = rest.split_first() else { break };
                    value = value * 8 + u32::from(digit - b'0');
                    rest = after;
                }
                out.push(value as u8);
            }
            b'x' if rest.len() >= 2 && rest[..2].iter().all(u8::is_ascii_hexdigit) => {
                let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or(0);
                out.push((digit(rest[0]) * 16 + digit(rest[1])) as u8);
                rest = &rest[2..];
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_escape() {
        assert_eq!(decode(br"/a\tb\n\\c\42"), b"/a\tb\n\\c\"");
        // Three digits where the next character would be read as one more.
        assert_eq!(decode(br"\1\0019\303\251"), b"\x01\x019\xc3\xa9");
        assert_eq!(decode(br"\x2fA\x"), b"/Ax");
        assert_eq!(decode(br"cut\"), b"cut\\");
    }

    proptest::proptest! {
        #[test]
        fn no_text_breaks_it(text in proptest::collection::vec(proptest::num::u8::ANY, 0..40)) {
            assert!(decode(&text).len() <= text.len());
        }
    }
}
