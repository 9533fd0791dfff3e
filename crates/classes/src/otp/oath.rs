//! One-time passwords by time, as liboath checks them. Source: RFC 4226, RFC 6238; liboath/totp.c,
//! liboath/coding.c of oath-toolkit 2.6.

use bytes::Bytes;
use hmac::{Hmac, Mac};
use sha1::Sha1;
use types::Errno;

use crate::ObjectView;

/// What a password costs that is tried, in bytes looked at: two rounds of the hash, about.
pub(super) const TRIAL: u64 = 4 << 10;

/// Which password of a secret is looked for: that of a step of time, or of one near it.
pub(super) struct Window {
    pub step: u64,
    /// Steps before and behind it.
    pub width: u32,
}

impl Window {
    /// How far off the step is whose password was given, on either side. E2BIG when the request has no more
    /// left to try.
    pub fn find(&self, v: &mut dyn ObjectView, secret: &[u8], password: &[u8]) -> Result<Option<u32>, Errno> {
        if !(6..=8).contains(&password.len()) || !password.iter().all(u8::is_ascii_digit) {
            return Ok(None);
        }
        v.spend(secret.len() as u64)?;
        let passwords = Passwords::new(secret);
        let fits = |step: u64| passwords.at(step, password.len()).is_some_and(|p| p.as_bytes() == password);
        for off in 0..=self.width {
            v.spend(2 * TRIAL)?;
            let distance = u64::from(off);
            if fits(self.step.wrapping_add(distance)) || fits(self.step.wrapping_sub(distance)) {
                return Ok(Some(off));
            }
        }
        Ok(None)
    }
}

/// The passwords of a secret. The secret is hashed once, however many passwords are asked for.
pub(super) struct Passwords(Option<Hmac<Sha1>>);

impl Passwords {
    pub fn new(secret: &[u8]) -> Self {
        Self(Hmac::new_from_slice(secret).ok())
    }

    /// The password of a counter's value, of 6 to 8 digits.
    pub fn at(&self, counter: u64, digits: usize) -> Option<String> {
        let mut mac = self.0.clone()?;
        mac.update(&counter.to_be_bytes());
        let sum = mac.finalize().into_bytes();
        let at = usize::from(sum.last()? & 15);
        let four = sum.get(at..)?.first_chunk()?;
        let number = u32::from_be_bytes(*four) & 0x7fff_ffff;
        let modulus = 10_u32.checked_pow(u32::try_from(digits).ok()?)?;
        Some(format!("{:0digits$}", number % modulus))
    }
}

/// Bytes out of pairs of hexadecimal digits.
pub(super) fn from_hex(text: &[u8]) -> Option<Bytes> {
    let digit = |c: u8| char::from(c).to_digit(16);
    let byte = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
        _ => None,
    };
    text.chunks(2).map(byte).collect()
}

/// Bytes out of letters and digits of base 32, in either case, with blanks anywhere and padding that may be
/// left out.
pub(super) fn from_base32(text: &[u8]) -> Option<Bytes> {
    let mut text: Vec<u8> = text.iter().filter(|c| **c != b' ').map(u8::to_ascii_uppercase).collect();
    text.resize(text.len().next_multiple_of(8), b'=');
    let mut out = Vec::with_capacity(text.len() / 8 * 5);
    for group in text.chunks(8) {
        let (bytes, filled) = base32_group(group)?;
        out.extend_from_slice(bytes.get(..filled)?);
    }
    Some(out.into())
}

/// Up to five bytes, the first of those returned, out of eight signs, of which the last may be padding. Bits
/// that make up no byte may be set.
fn base32_group(group: &[u8]) -> Option<([u8; 8], usize)> {
    let filled = group.iter().position(|c| *c == b'=').unwrap_or(group.len());
    let (signs, padding) = group.split_at_checked(filled)?;
    if !matches!(filled, 2 | 4 | 5 | 7 | 8) || padding.iter().any(|c| *c != b'=') {
        return None;
    }
    let value = |c: &u8| match c {
        b'A'..=b'Z' => Some(u64::from(c - b'A')),
        b'2'..=b'7' => Some(u64::from(c - b'2') + 26),
        _ => None,
    };
    let bits = signs.iter().try_fold(0_u64, |bits, c| Some(bits << 5 | value(c)?))?;
    let bits = bits << (64 - 5 * filled);
    Some((bits.to_be_bytes(), filled * 5 / 8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    fn counter_password(secret: &[u8], counter: u64, digits: usize) -> Option<String> {
        Passwords::new(secret).at(counter, digits)
    }

    /// The secret of the examples in both documents.
    const SECRET: &[u8] = b"12345678901234567890";

    #[test]
    fn passwords_are_those_of_the_rfcs() {
        let expected = ["755224", "287082", "359152", "969429", "338314", "254676", "287922", "162583"];
        for (counter, password) in expected.into_iter().enumerate() {
            assert_eq!(counter_password(SECRET, counter as u64, 6).as_deref(), Some(password));
        }
        // Appendix B of RFC 6238, in steps of 30 seconds.
        for (time, password) in [(59, "94287082"), (1_111_111_109, "07081804"), (20_000_000_000, "65353130")]
        {
            assert_eq!(counter_password(SECRET, time / 30, 8).as_deref(), Some(password), "{time}");
        }
        // liboath takes secrets of any length.
        for (secret, password) in [(&b""[..], "812658"), (&[b'a'; 64], "242271"), (&[b'a'; 100], "528553")] {
            assert_eq!(counter_password(secret, 1, 6).as_deref(), Some(password), "{}", secret.len());
        }
    }

    #[test]
    fn a_window_reaches_to_both_sides() {
        let mut f = Fake::default();
        let mut find = |step, width, password: &str| {
            Window { step, width }.find(&mut f, SECRET, password.as_bytes()).unwrap()
        };
        assert_eq!(find(1, 0, "287082"), Some(0));
        assert_eq!(find(1, 2, "755224"), Some(1));
        assert_eq!(find(1, 2, "969429"), Some(2));
        assert_eq!(find(1, 1, "969429"), None);
        assert_eq!(find(1, 1024, "000000"), None);
        for (digits, found) in [("82", None), ("87082", None), ("4287082", Some(0)), ("94287082", Some(0))] {
            assert_eq!(find(1, 2, digits), found, "{digits}");
        }
    }

    #[test]
    fn each_trial_is_spent() {
        let find = |f: &mut Fake, width, password: &str| {
            f.begin();
            Window { step: 1, width }.find(f, SECRET, password.as_bytes())
        };
        let mut f = Fake::default();
        for (width, password, trials) in
            [(2, "000000", 6), (2, "287082", 2), (2, "755224", 4), (2, "00000x", 0), (2, "00000", 0)]
        {
            find(&mut f, width, password).unwrap();
            let secret = if trials == 0 { 0 } else { SECRET.len() as u64 };
            assert_eq!(f.spent, secret + trials * TRIAL, "{password}");
        }
        assert_eq!(find(&mut f, u32::MAX, "000000"), Err(Errno::E2BIG), "no request may try them all");
    }

    /// Hashed anew for each password, 16 MiB take 50 s in a build of tests.
    #[test]
    fn a_long_secret_is_hashed_once() {
        let (secret, begun) = (vec![b'a'; 16 << 20], std::time::Instant::now());
        let mut f = Fake::default();
        assert_eq!(Window { step: 1, width: 1024 }.find(&mut f, &secret, b"00000000"), Ok(None));
        assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
    }

    /// What liboath 2.6.7 answered.
    #[test]
    fn secrets_in_base_16_and_32() {
        for (text, bytes) in [
            ("", Some("")),
            ("41", Some("A")),
            ("4a4B", Some("JK")),
            ("4", None),
            ("4g", None),
            (" 41 ", None),
            ("0x41", None),
        ] {
            assert_eq!(from_hex(text.as_bytes()), bytes.map(Bytes::from), "{text}");
        }
        for (text, bytes) in [
            ("", Some("")),
            ("GEZDGNBV", Some("12345")),
            ("gezd gnbv", Some("12345")),
            ("GEZD-GNBV", None),
            ("G", None),
            ("GE", Some("1")),
            ("GEZ", None),
            ("GEZD", Some("12")),
            ("GEZDG", Some("123")),
            ("GEZDGN", None),
            ("GEZDGNB", Some("1234")),
            ("GE==", Some("1")),
            ("GF======", Some("1")),
            ("GE==GE==", None),
            ("GEZDG===GE", Some("1231")),
            ("========", None),
            ("GEZDGNB1", None),
            ("GEZD\0NBV", None),
        ] {
            assert_eq!(from_base32(text.as_bytes()), bytes.map(Bytes::from), "{text}");
        }
    }
}
