//! Log lines. What peers and their operators have named goes into them, so that whatever is no text is escaped: nobody
//! writes a second line, or commands for the terminal that shows it.

use std::io::{Result, Write};

/// Escapes control characters, but for the line's own end. Each `write` is one line.
pub struct Lines<W>(pub W);

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, line: &[u8]) -> Result<usize> {
        let (text, end) = match line.strip_suffix(b"\n") {
            Some(text) => (text, "\n"),
            None => (line, ""),
        };
        if text.is_ascii() && !text.iter().any(u8::is_ascii_control) {
            self.0.write_all(line)?;
        } else {
            let escaped = escape(&String::from_utf8_lossy(text));
            self.0.write_all(format!("{escaped}{end}").as_bytes())?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> Result<()> {
        self.0.flush()
    }
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // Besides control characters those that turn the direction of what follows.
        if c.is_control()
            || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_event_is_one_line_and_nothing_but_text() {
        for (line, expected) in [
            ("plain text\n", "plain text\n"),
            ("äöü €\n", "äöü €\n"),
            ("a\nWARN forged\n", "a\\nWARN forged\n"),
            ("\u{1b}[2J\u{7}\r\u{9b}x\n", "\\u{1b}[2J\\u{7}\\r\\u{9b}x\n"),
            ("\u{202e}cod\n", "\\u{202e}cod\n"),
        ] {
            let mut out = Vec::new();
            Lines(&mut out).write_all(line.as_bytes()).expect("written");
            assert_eq!(String::from_utf8(out).expect("text"), expected);
        }
    }
}
