//! Whose monitors a daemon has come to: ours or Ceph's. Daemons ask before they change anything there, for
//! most of ours and Ceph's do not work with each other.

use types::Errno;

/// Why an OSD of Ceph's is turned away.
pub(crate) const OSDS_APART: &str =
    "the monitors are Loligo's and take no OSD of Ceph's: it would not replicate with theirs";

/// Ours or Ceph's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    Ours,
    Ceph,
}

impl Whose {
    /// The command that tells, as JSON. Whoever may log in may ask it.
    ///
    /// Source: "version" in src/mon/MonCommands.h.
    pub const QUESTION: &str = r#"{"prefix":"version"}"#;

    /// A field of the commands that an OSD of ours sends before it boots, and its value.
    pub const MARK: (&str, &str) = ("by", "loligo");

    /// What the answer says; the error where it says nothing. Ours name themselves in their version.
    pub fn of_answer(result: i32, output: &[u8]) -> Result<Self, Errno> {
        if result < 0 {
            return Err(Errno(result.saturating_neg()));
        }
        let ours = String::from_utf8_lossy(output).contains("(loligo ");
        Ok(if ours { Self::Ours } else { Self::Ceph })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monitors_are_cephs_unless_they_say_that_they_are_ours() {
        let of = |text: &str| Whose::of_answer(0, text.as_bytes());
        assert_eq!(of("ceph version 16.2.15 (loligo 0.1.0) pacific (stable)"), Ok(Whose::Ours));
        let theirs = "ceph version 16.2.15 (618f440892089921c3e944a991122ddc44e60516) pacific (stable)";
        assert_eq!(of(theirs), Ok(Whose::Ceph));
        assert_eq!(of(""), Ok(Whose::Ceph));
        assert_eq!(Whose::of_answer(Errno::EACCES.neg(), b""), Err(Errno::EACCES));
        assert_eq!(Whose::of_answer(i32::MIN, b""), Err(Errno(i32::MAX)));
    }
}
