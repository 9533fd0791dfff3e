//! Text that others chose, as terminals and logs may be given it.

use std::borrow::Cow;

/// The text with control characters escaped: nobody begins a line, or moves a cursor, in another's output.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn control_characters_are_escaped_and_nothing_else() {
        assert_eq!(printable("a\nb\u{1b}[2J\u{9b}"), "a\\nb\\u{1b}[2J\\u{9b}");
        for text in ["", "rgw.a \"quoted\" \\", "zürich"] {
            assert_eq!(printable(text), text);
        }
    }
}
