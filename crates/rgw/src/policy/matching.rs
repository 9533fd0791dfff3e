//! Patterns with stars and question marks. Source: match_wildcards in src/rgw/rgw_string.h, match_policy in
//! src/rgw/rgw_common.cc.

/// Whether a text fits a pattern: a star is any text, a question mark any byte. The time is at most that of
/// the text's length squared, and of the pattern's length.
pub fn wildcards(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    if pattern.iter().filter(|b| **b != b'*').count() > text.len() {
        return false;
    }
    let same = |a: u8, b: u8| a == b || (ignore_case && a.eq_ignore_ascii_case(&b));
    let (mut p, mut t) = (0, 0);
    // Behind the last star, and where in the text its rest was tried last.
    let mut back: Option<(usize, usize)> = None;
    while let Some(byte) = text.get(t) {
        match pattern.get(p) {
            Some(b'*') => {
                p += 1;
                back = Some((p, t));
            }
            Some(wanted) if *wanted == b'?' || same(*wanted, *byte) => {
                p += 1;
                t += 1;
            }
            _ => match back {
                Some((behind, tried)) => {
                    (p, t) = (behind, tried + 1);
                    back = Some((behind, t));
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(p).all(|b| *b == b'*')
}

/// The same between colons, in letters of either size: a star is no colon.
pub fn by_colons(pattern: &str, text: &str) -> bool {
    between_colons(pattern, text, true)
}

/// The same for names of resources.
pub fn by_colons_exactly(pattern: &str, text: &str) -> bool {
    between_colons(pattern, text, false)
}

fn between_colons(pattern: &str, text: &str, ignore_case: bool) -> bool {
    let (mut patterns, mut texts) = (pattern.split(':'), text.split(':'));
    loop {
        match (patterns.next(), texts.next()) {
            (None, None) => return true,
            (Some(pattern), Some(text)) if wildcards(pattern.as_bytes(), text.as_bytes(), ignore_case) => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_as_a_naive_matcher_says() {
        fn naive(p: &[u8], t: &[u8]) -> bool {
            match (p.split_first(), t.split_first()) {
                (None, None) => true,
                (Some((b'*', rest)), _) => (0..=t.len()).any(|n| naive(rest, &t[n..])),
                (Some((a, p)), Some((b, t))) => (*a == b'?' || a == b) && naive(p, t),
                _ => false,
            }
        }
        let letters = [b'a', b'b', b'*', b'?'];
        let of = |mut n: usize, len: usize, kinds: usize| -> Vec<u8> {
            let mut letter = || {
                let letter = letters[n % kinds];
                n /= kinds;
                letter
            };
            (0..len).map(|_| letter()).collect()
        };
        for (plen, tlen) in [(0, 0), (0, 1), (1, 0), (3, 4), (4, 4), (5, 3)] {
            for p in 0..4usize.pow(plen) {
                for t in 0..2usize.pow(tlen) {
                    let (pattern, text) = (of(p, plen as usize, 4), of(t, tlen as usize, 2));
                    assert_eq!(
                        wildcards(&pattern, &text, false),
                        naive(&pattern, &text),
                        "{pattern:?} {text:?}"
                    );
                }
            }
        }
        assert!(wildcards(b"GET*", b"getObject", true) && !wildcards(b"GET*", b"getObject", false));
    }

    #[test]
    fn stars_do_not_pass_colons() {
        assert!(by_colons("s3:*", "s3:GetObject") && by_colons("S3:getobject", "s3:GetObject"));
        assert!(!by_colons("*", "s3:GetObject") && !by_colons("s3:*:*", "s3:GetObject"));
    }
}
