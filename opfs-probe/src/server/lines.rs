//! Messages as lines, bounded: a line that is too long costs its sender that line and nothing else.

use bytes::Bytes;
use tokio::io::{self, AsyncBufRead, AsyncBufReadExt};

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// Its bytes, without the line end.
    Whole(Bytes),
    /// It was longer than the limit, and is gone.
    TooLong,
}

/// Reads the next line that is not blank; none at the end. What follows the last line end counts as
/// a line of its own.
pub async fn next_line(reader: &mut (impl AsyncBufRead + Unpin), limit: usize) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    let mut too_long = false;
    loop {
        let available = reader.fill_buf().await?;
        if available.is_empty() {
            let blank = line.trim_ascii().is_empty();
            return Ok((too_long || !blank).then(|| finish(line, too_long)));
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let part = &available[..end.unwrap_or(available.len())];
        if line.len() + part.len() > limit {
            too_long = true;
            line = Vec::new();
        }
        if !too_long {
            line.extend_from_slice(part);
        }
        let used = end.map_or(available.len(), |end| end + 1);
        reader.consume(used);
        if end.is_some() {
            if too_long || !line.trim_ascii().is_empty() {
                return Ok(Some(finish(line, too_long)));
            }
            line.clear();
        }
    }
}

fn finish(line: Vec<u8>, too_long: bool) -> Line {
    if too_long { Line::TooLong } else { Line::Whole(line.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::BufReader;

    async fn all(text: &[u8], buffer: usize) -> Vec<Line> {
        let mut reader = BufReader::with_capacity(buffer, text);
        let mut lines = Vec::new();
        while let Some(line) = next_line(&mut reader, 8).await.unwrap() {
            lines.push(line);
        }
        lines
    }

    #[tokio::test]
    async fn lines_come_whole_whatever_the_buffer() {
        for buffer in [1, 3, 64] {
            let lines = all(b"one\r\n\n  \ntwo\n12345678\n123456789\nlast", buffer).await;
            let whole = |text: &'static str| Line::Whole(Bytes::from(text));
            let expected = [whole("one\r"), whole("two"), whole("12345678"), Line::TooLong, whole("last")];
            assert_eq!(lines, expected, "with a buffer of {buffer}");
        }
    }

    #[tokio::test]
    async fn a_long_line_without_end_is_told_once() {
        assert_eq!(all(&[b'x'; 100], 16).await, [Line::TooLong]);
        assert_eq!(all(b"", 16).await, []);
    }
}
