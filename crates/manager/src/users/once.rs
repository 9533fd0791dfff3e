//! Codes that let somebody in once, for a short while: an operator's first sign-in, before there are users.
//!
//! Invariants:
//! 1. A code is good once, and at most for [`LIFE`].
//! 2. At most [`MOST`] are out; the oldest goes for one more.

use std::collections::VecDeque;
use std::time::Duration;

use types::Now;

const LIFE: Duration = Duration::from_secs(15 * 60);
const MOST: usize = 8;
/// Shorter ones could be guessed, longer ones are none.
pub(crate) const SHORTEST: usize = 16;
pub(crate) const LONGEST: usize = 128;

/// Those that are out, the oldest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Once(VecDeque<(String, Duration)>);

impl Once {
    pub fn give_out(&mut self, now: Now, code: String) {
        self.0.retain(|(_, until)| now.mono < *until);
        while self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back((code, now.mono + LIFE));
    }

    /// Whether a code is good; it is not any more afterwards.
    pub fn take(&mut self, now: Now, code: &str) -> bool {
        self.0.retain(|(_, until)| now.mono < *until);
        let at = self.0.iter().position(|(c, _)| same(c, code));
        at.is_some_and(|at| self.0.remove(at).is_some())
    }
}

/// Takes as long for any two texts of the same length.
fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_good_once_and_not_for_long() {
        let at = |s| Now { mono: Duration::from_secs(s), ..Now::default() };
        let mut once = Once::default();
        once.give_out(at(0), "first-code-of-all".to_owned());
        assert!(!once.take(at(1), "") && !once.take(at(1), "first-code-of-alm"));
        assert!(once.take(at(1), "first-code-of-all"));
        assert!(!once.take(at(1), "first-code-of-all"), "good once");
        once.give_out(at(2), "second-code-of-all".to_owned());
        assert!(!once.take(at(2 + 900), "second-code-of-all"), "too late");
        (0..20).for_each(|n| once.give_out(at(1_000), format!("code-number-{n:04}")));
        assert!(!once.take(at(1_000), "code-number-0011") && once.take(at(1_000), "code-number-0012"));
    }
}
