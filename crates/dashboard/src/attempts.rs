//! Pauses after failed attempts to sign in, which double with each further one.
//!
//! Three counts stand side by side. That of a user from one address grows first: guessing one's own password
//! wrong locks nobody else out. That of an address bounds how many names it can try. That of a user bounds
//! what many addresses can try together; its pause is short, for it locks the user out as well.
//!
//! Invariant: at most [`MOST`] of each count are kept. When they are full the oldest goes: whoever fills them
//! from as many addresses has waited for each.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

const MOST: usize = 4_096;
/// After this long without a further failure a count is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(3_600);

/// How many failures have no pause, and how long a pause gets.
#[derive(Debug, Clone, Copy)]
struct Rule {
    free: u32,
    longest: Duration,
}

const OF_BOTH: Rule = Rule { free: 3, longest: Duration::from_secs(900) };
const OF_ADDRESS: Rule = Rule { free: 10, longest: Duration::from_secs(900) };
const OF_USER: Rule = Rule { free: 20, longest: Duration::from_secs(60) };

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    failures: u32,
    last: Duration,
}

impl Count {
    /// When the next attempt may be made.
    fn until(&self, rule: Rule) -> Duration {
        match self.failures.checked_sub(rule.free) {
            None | Some(0) => Duration::ZERO,
            Some(n) => self.last + Duration::from_secs(1 << (n - 1).min(20)).min(rule.longest),
        }
    }
}

/// All counts.
#[derive(Debug, Default)]
pub struct Attempts {
    both: BTreeMap<(String, u128), Count>,
    addresses: BTreeMap<u128, Count>,
    users: BTreeMap<String, Count>,
}

impl Attempts {
    /// How long this attempt has to wait; `None`: not at all. It counts as failed until [`Self::succeeded`]:
    /// of many that are made at once each is counted before its password is looked at.
    pub fn begin(&mut self, now: Duration, username: &str, from: IpAddr) -> Option<Duration> {
        let net = network(from);
        let key = (username.to_owned(), net);
        let until = |count: Option<&Count>, rule: Rule| count.map_or(Duration::ZERO, |c| c.until(rule));
        let until = until(self.both.get(&key), OF_BOTH)
            .max(until(self.addresses.get(&net), OF_ADDRESS))
            .max(until(self.users.get(username), OF_USER));
        let wait = until.saturating_sub(now);
        if !wait.is_zero() {
            return Some(wait);
        }
        count(&mut self.both, now, key);
        count(&mut self.addresses, now, net);
        count(&mut self.users, now, username.to_owned());
        None
    }

    /// The password was right.
    pub fn succeeded(&mut self, username: &str, from: IpAddr) {
        let net = network(from);
        self.both.remove(&(username.to_owned(), net));
        // Others' failures still count.
        for one in self.addresses.get_mut(&net).into_iter().chain(self.users.get_mut(username)) {
            one.failures = one.failures.saturating_sub(1);
        }
    }
}

fn count<K: Ord + Clone>(counts: &mut BTreeMap<K, Count>, now: Duration, key: K) {
    if counts.len() >= MOST && !counts.contains_key(&key) {
        counts.retain(|_, c| now.saturating_sub(c.last) < FORGOTTEN);
        let oldest = counts.iter().min_by_key(|(_, c)| c.last).map(|(k, _)| k.clone());
        if let Some(oldest) = oldest.filter(|_| counts.len() >= MOST) {
            counts.remove(&oldest);
        }
    }
    let one = counts.entry(key).or_default();
    if now.saturating_sub(one.last) >= FORGOTTEN {
        one.failures = 0;
    }
    one.failures = one.failures.saturating_add(1);
    one.last = now;
}

/// An address; of IPv6 the network of 64 bits, which one customer has whole.
pub fn network(from: IpAddr) -> u128 {
    match from.to_canonical() {
        IpAddr::V4(ip) => u128::from(u32::from(ip)) | 1 << 127,
        IpAddr::V6(ip) => u128::from(ip) >> 64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn pauses_double_and_end_with_success() {
        let mut all = Attempts::default();
        let mut now = s(100_000);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            let wait = all.begin(now, "ann", HOME);
            pauses.push(wait.map_or(0, |w| w.as_secs()));
            now += wait.unwrap_or_default();
        }
        assert_eq!(pauses[..4], [0; 4]);
        assert_eq!(pauses[4..], [1, 0, 2, 0, 4, 0, 8, 0]);
        assert_eq!(all.begin(now, "bob", HOME), None, "another user is not concerned yet");
        now += s(900);
        assert_eq!(all.begin(now, "ann", HOME), None);
        all.succeeded("ann", HOME);
        assert_eq!([all.begin(now, "ann", HOME), all.begin(now, "ann", HOME)], [None, None]);
    }

    #[test]
    fn ten_thousand_guesses_take_days_and_memory_is_bounded() {
        let mut all = Attempts::default();
        let (mut now, mut tried) = (s(100_000), 0u32);
        for n in 0..10_000 {
            // From one address, each with another name.
            match all.begin(now, &format!("u{n}"), HOME) {
                Some(wait) => now += wait,
                None => tried += 1,
            }
        }
        assert!(tried > 0 && now - s(100_000) > s(u64::from(tried - 25) * 900), "{tried} in {now:?}");
        for n in 0..10_000u32 {
            let _ = all.begin(now, &format!("u{n}"), IpAddr::V4(n.into()));
        }
        assert!(all.both.len() <= MOST && all.addresses.len() <= MOST && all.users.len() <= MOST);
    }

    #[test]
    fn many_addresses_together_wait_for_one_user() {
        let mut all = Attempts::default();
        let from = |n: u32| IpAddr::V4((0x0a00_0000 + n).into());
        let waits: Vec<bool> = (0..30).map(|n| all.begin(s(5), "ann", from(n)).is_some()).collect();
        assert_eq!(waits.iter().filter(|w| !**w).count(), 21);
        assert!(all.begin(s(65), "ann", from(99)).is_none(), "she is not locked out for long");
        let v6 = |text: &str| text.parse::<IpAddr>().expect("an address");
        assert_eq!(network(v6("2001:db8::1")), network(v6("2001:db8::ffff")));
        assert_ne!(network(v6("2001:db8:0:1::1")), network(v6("2001:db8::1")));
    }
}
