//! The protocol of admin sockets: a command up to a zero byte or the end of its line; an answer behind its length.
//!
//! Source: AdminSocket::do_accept in src/common/admin_socket.cc.

use serde_json::json;

/// Longest command that is taken.
pub const MAX_BYTES: usize = 64 << 10;

/// What the bytes that came so far amount to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// More has to come.
    Partial,
    /// A command's JSON.
    Command(String),
    /// The version of this protocol is asked for.
    Version,
    /// Nothing that can be answered.
    Bad,
}

/// The version of this protocol. Source: CEPH_ADMIN_SOCK_VERSION.
pub const VERSION: &str = "2";

/// Looks for a command at the beginning of `bytes`.
pub fn read(bytes: &[u8]) -> Read {
    // Before commands had names they were numbers of four bytes.
    if bytes.first() == Some(&0) {
        return match bytes {
            [_, _, _, 0, ..] => Read::Version,
            [_, _, _, 1, ..] => Read::Command(json!({ "prefix": "perf dump" }).to_string()),
            [_, _, _, 2, ..] => Read::Command(json!({ "prefix": "perf schema" }).to_string()),
            [_, _, _, ..] if bytes.len() >= 4 => Read::Bad,
            _ => Read::Partial,
        };
    }
    match bytes.iter().position(|b| matches!(b, 0 | b'\n')) {
        Some(end) => match bytes.get(..end).map(std::str::from_utf8) {
            Some(Ok("0")) => Read::Version,
            Some(Ok(text)) if text.trim_start().starts_with('{') => Read::Command(text.to_owned()),
            // A bare word or several.
            Some(Ok(text)) => Read::Command(json!({ "prefix": text }).to_string()),
            _ => Read::Bad,
        },
        None if bytes.len() >= MAX_BYTES => Read::Bad,
        None => Read::Partial,
    }
}

/// An answer with its length in front.
pub fn framed(body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).unwrap_or(u32::MAX);
    let body = body.get(..len as usize).unwrap_or(body);
    [len.to_be_bytes().as_slice(), body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_end_with_a_zero_or_a_line() {
        let version = r#"{"prefix":"version"}"#;
        let whole = format!("{version}\0");
        assert_eq!(read(whole.as_bytes()), Read::Command(version.to_owned()));
        assert_eq!(read(format!("{version}\nrest").as_bytes()), Read::Command(version.to_owned()));
        assert_eq!(read(b"perf dump\n"), Read::Command(r#"{"prefix":"perf dump"}"#.to_owned()));
        for end in 0..whole.len() - 1 {
            assert_eq!(read(&whole.as_bytes()[..end]), Read::Partial, "{end}");
        }
        assert_eq!(read(b"0\0"), Read::Version);
        assert_eq!(read(&[0xff, 0]), Read::Bad);
        assert_eq!(read(&[b'a'; MAX_BYTES]), Read::Bad);
    }

    #[test]
    fn numbers_still_are_commands() {
        assert_eq!(read(&[0, 0, 0]), Read::Partial);
        assert_eq!(read(&[0, 0, 0, 0]), Read::Version);
        assert_eq!(read(&[0, 0, 0, 1]), Read::Command(r#"{"prefix":"perf dump"}"#.to_owned()));
        assert_eq!(read(&[0, 0, 0, 9]), Read::Bad);
    }

    #[test]
    fn answers_have_their_length_in_front() {
        assert_eq!(framed(b"ab"), [0, 0, 0, 2, b'a', b'b']);
    }
}
