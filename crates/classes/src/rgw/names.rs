//! Omap keys of a bucket index.
//!
//! Plain entries stand under their objects' names. Everything else stands behind a byte that no UTF-8 text
//! begins with, so names can come before and behind it: the log, entries by version, and the heads of
//! versioned objects. For listings, each version has a second entry under its object's name, the newest
//! first. Source: bucket_index_prefixes and get_list_index_key in src/cls/rgw/cls_rgw.cc.

use std::cmp::Ordering;

use bytes::Bytes;

use ::rgw::index::entry::{Entry, Key};

/// First byte of keys that are no plain entries.
pub(super) const SPECIAL: u8 = 0x80;
/// Behind every plain entry that sorts before the special ones.
pub(super) const SPECIAL_BEGIN: &[u8] = b"\x80";
/// Behind all special keys.
pub(super) const SPECIAL_END: &[u8] = b"\x809999_";
pub(super) const LOG: &[u8] = b"\x800_";
/// Behind all keys of the log.
pub(super) const LOG_END: &[u8] = b"\x801000_";
pub(super) const INSTANCES: &[u8] = b"\x801000_";
pub(super) const HEADS: &[u8] = b"\x801001_";

/// The entry of one version, or of the version without an id.
pub fn instance(key: &Key) -> Bytes {
    [INSTANCES, &key.name, b"\0i", &key.instance].concat().into()
}

/// The delete marker without an id, which stands beside the version without one.
pub fn delete_marker(key: &Key) -> Bytes {
    [&instance(key)[..], b"\0d"].concat().into()
}

/// Where an object's entry is looked for first.
pub fn entry(key: &Key) -> Bytes {
    if key.instance.is_empty() { key.name.clone() } else { instance(key) }
}

/// The head of a versioned object.
pub(super) fn head(name: &Bytes) -> Bytes {
    [HEADS, name].concat().into()
}

/// The second entry of a version, which listings go by.
pub fn listed(e: &Entry) -> Bytes {
    [&e.key.name, &b"\0v"[..], decreasing(e.versioned_epoch).as_bytes(), b"\0i", &e.key.instance]
        .concat()
        .into()
}

/// A number as text that sorts the larger ones first.
fn decreasing(n: u64) -> String {
    match n {
        0..0x10 => format!("9{:02}", 0xf - n),
        0x10..0x100 => format!("8{:03}", 0xff - n),
        0x100..0x1000 => format!("7{:04}", 0xfff - n),
        0x1000..0x1_0000 => format!("6{:05}", 0xffff - n),
        0x1_0000..0x1_0000_0000 => format!("5{:010}", 0xffff_ffff - n),
        // Ceph prints the negated number with its sign: 20 places, a minus among them.
        _ => format!("4{:020}", (n as i64).wrapping_neg()),
    }
}

/// The object's name in the key of a plain or a listed entry; nothing when it is neither.
pub(super) fn object_name(key: &Bytes) -> Option<Bytes> {
    let Some(end) = key.iter().position(|b| *b == 0) else { return Some(key.clone()) };
    let mut rest = key.slice(end + 1..);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let part = rest.split(|b| *b == 0).next().unwrap_or_default();
        if part.strip_prefix(b"v").is_some_and(|digits| !is_number(digits)) {
            return None;
        }
        rest = rest.slice((part.len() + 1).min(rest.len())..);
    }
    Some(key.slice(..end))
}

/// Whether C's strtoll takes the whole text for a number.
fn is_number(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    let text = text.trim_start_matches([' ', '\t', '\n', '\u{b}', '\u{c}', '\r']);
    text.parse::<i64>().is_ok()
}

/// Order of keys by their kind first, plain ones before the log, versions and heads; unknown kinds are the
/// smallest.
pub(super) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    kind(a).cmp(&kind(b)).then_with(|| a.cmp(b))
}

fn kind(key: &[u8]) -> i8 {
    if key.first() != Some(&SPECIAL) {
        return 0;
    }
    let kinds = [LOG, INSTANCES, HEADS, SPECIAL_END];
    kinds.iter().zip(1..).find(|(prefix, _)| key.starts_with(prefix)).map_or(-1, |(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_numbers_sort_first() {
        let numbers =
            [0, 1, 15, 16, 255, 256, 4095, 4096, 65_535, 65_536, u64::from(u32::MAX), 1 << 32, (1 << 32) + 1];
        let texts = numbers.map(decreasing);
        assert_eq!(texts[0], "915");
        assert_eq!(texts[11], "4-0000000004294967296");
        assert!(texts[..11].is_sorted_by(|a, b| a > b), "{texts:?}");
    }

    #[test]
    fn names_are_found_in_keys() {
        for (key, name) in [
            (&b"plain"[..], Some("plain")),
            (b"", Some("")),
            (b"o\0v914\0iabc", Some("o")),
            (b"o\0v-0004\0i", Some("o")),
            (b"o\0", None),
            (b"o\0v\0i", None),
            (b"o\0v12x\0i", None),
            (b"o\0v99999999999999999999\0i", None),
            (b"o\0v 7", Some("o")),
            (b"o\0other", Some("o")),
            (b"\0x", Some("")),
        ] {
            assert_eq!(object_name(&Bytes::from_static(key)), name.map(Bytes::from), "{key:?}");
        }
    }

    #[test]
    fn keys_compare_by_kind_first() {
        let sorted: [&[u8]; 6] =
            [b"\x80zz", b"\xffplain", b"\x800_1", b"\x801000_n", b"\x801001_n", b"\x809999_"];
        assert!(sorted.is_sorted_by(|a, b| compare(a, b).is_lt()));
    }
}
