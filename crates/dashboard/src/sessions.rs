//! Sessions: who is signed in, by the hash of a token.
//!
//! Invariants:
//! 1. A session ends when nothing was asked for [`IDLE`], [`LIFE`] after it began, and when its user is not
//!    as it was when the password was looked at. A stream that is open is no question.
//! 2. There are at most [`MOST`] sessions, [`MOST_OF_USER`] of one user: the one that was used longest ago
//!    goes for a new one.

use std::collections::BTreeMap;
use std::time::Duration;

use sha2::{Digest, Sha256};

/// How long a session lasts of which nothing is heard.
const IDLE: Duration = Duration::from_secs(3_600);
/// How long it lasts at most. Source: JwtManager.JWT_TOKEN_TTL.
const LIFE: Duration = Duration::from_secs(8 * 3_600);
const MOST: usize = 1_024;
const MOST_OF_USER: usize = 64;

type Hash = [u8; 32];

/// How somebody signed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// By a code, not as a user that there is: may do everything.
    Code,
    /// As a user who had last changed then.
    Password { last_update: i64 },
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub username: String,
    pub by: By,
    began: Duration,
    used: Duration,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Sessions(BTreeMap<Hash, Session>);

impl Sessions {
    /// Begins one. `token` is random, and long enough that nobody guesses it.
    pub fn begin(&mut self, now: Duration, username: &str, by: By, token: &str) {
        self.0.retain(|_, s| !s.is_over(now));
        let of_user = self.0.values().filter(|s| s.username == username).count();
        if of_user >= MOST_OF_USER {
            self.drop_idlest(|s| s.username == username);
        }
        if self.0.len() >= MOST {
            self.drop_idlest(|_| true);
        }
        let username = username.to_owned();
        self.0.insert(hash(token), Session { username, by, began: now, used: now });
    }

    fn drop_idlest(&mut self, of: impl Fn(&Session) -> bool) {
        let idlest = self.0.iter().filter(|(_, s)| of(s)).min_by_key(|(_, s)| s.used).map(|(h, _)| *h);
        if let Some(hash) = idlest {
            self.0.remove(&hash);
        }
    }

    /// Whose token this is. That is a use of the session.
    pub fn find(&mut self, now: Duration, token: &str) -> Option<Session> {
        self.look(now, token)?;
        let session = self.0.get_mut(&hash(token))?;
        session.used = now;
        Some(session.clone())
    }

    /// The same, and no use of it.
    pub fn look(&mut self, now: Duration, token: &str) -> Option<Session> {
        let hash = hash(token);
        if self.0.get(&hash)?.is_over(now) {
            self.0.remove(&hash);
        }
        self.0.get(&hash).cloned()
    }

    pub fn end(&mut self, token: &str) {
        self.0.remove(&hash(token));
    }

    /// None is left, as when another manager is in charge.
    pub fn end_all(&mut self) {
        self.0.clear();
    }
}

impl Session {
    fn is_over(&self, now: Duration) -> bool {
        now.saturating_sub(self.used) >= IDLE || now.saturating_sub(self.began) >= LIFE
    }
}

fn hash(token: &str) -> Hash {
    Sha256::digest(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    const CODE: By = By::Code;

    #[test]
    fn a_session_ends_when_it_is_idle_or_old_or_ended() {
        let mut all = Sessions::default();
        all.begin(s(0), "ann", CODE, "t");
        assert_eq!(all.find(s(3_599), "t").map(|s| s.username), Some("ann".to_owned()));
        assert!(all.find(s(7_198), "t").is_some(), "it was used in between");
        assert!(all.look(s(10_797), "t").is_some());
        assert_eq!(all.look(s(10_798), "t"), None, "idle, for a look is no use");
        all.begin(s(0), "ann", CODE, "u");
        for hour in 1..16 {
            assert!(all.find(s(hour * 1_800), "u").is_some());
        }
        assert_eq!(all.find(s(8 * 3_600), "u"), None, "old, however much it is used");
        all.begin(s(0), "ann", CODE, "v");
        all.end("v");
        assert_eq!(all.find(s(0), "v"), None);
        assert_eq!(all.find(s(0), ""), None);
    }

    #[test]
    fn nobody_takes_all_places() {
        let mut all = Sessions::default();
        all.begin(s(0), "ann", CODE, "ann's");
        for n in 0..2 * MOST_OF_USER {
            all.begin(s(1 + n as u64), "bob", CODE, &format!("b{n}"));
        }
        assert_eq!(all.0.len(), 1 + MOST_OF_USER);
        assert!(all.find(s(300), "ann's").is_some());
        assert_eq!(all.find(s(300), "b0"), None, "the first of his goes first");
        for n in 0..2 * MOST {
            all.begin(s(300), &format!("u{n}"), CODE, &format!("t{n}"));
        }
        assert_eq!(all.0.len(), MOST);
    }
}
