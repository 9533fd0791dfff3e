//! Class `timeindex`: an omap ordered by time. Source: src/cls/timeindex/cls_timeindex.cc.

use bytes::Bytes;
use codec::{Encode, wire_struct};
use types::{Errno, Utime};

use crate::ObjectView;
use crate::registry::{Class, Method, MethodFlags as F, input};

pub static CLASS: Class = Class {
    name: "timeindex",
    methods: &[
        Method::new("add", F::RD_WR, add),
        Method::new("list", F::RD, list),
        Method::new("trim", F::RD_WR, trim),
    ],
};

const PREFIX: &[u8] = b"1_";
const MAX_LIST_ENTRIES: u64 = 1000;
const MAX_TRIM_ENTRIES: u64 = 1000;
/// Letters of a key's own part that a listing gives back.
const MAX_EXT: usize = 255;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub time: Utime,
    pub ext: Bytes,
    pub value: Bytes,
}
wire_struct!(Entry(1, 1) { time, ext, value });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddArgs {
    pub entries: Vec<Entry>,
}
wire_struct!(AddArgs(1, 1) { entries });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListArgs {
    pub from: Utime,
    /// Takes precedence over `from`.
    pub marker: Bytes,
    /// Not included; before `from` it does not bound.
    pub to: Utime,
    pub max: i32,
}
wire_struct!(ListArgs(1, 1) { from, marker, to, max });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListReply {
    pub entries: Vec<Entry>,
    pub marker: Bytes,
    pub more: bool,
}
wire_struct!(ListReply(1, 1) { entries, marker, more });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrimArgs {
    pub from: Utime,
    /// Included.
    pub to: Utime,
    pub from_marker: Bytes,
    pub to_marker: Bytes,
}
wire_struct!(TrimArgs(1, 1) { from, to, from_marker, to_marker });

fn key_prefix(t: Utime) -> Vec<u8> {
    format!("1_{:010}.{:06}_", t.sec, t.nsec / 1000).into_bytes()
}

/// Time and own part of a key. Ceph takes the microseconds for nanoseconds, and its clients know them so.
fn parse_key(key: &[u8]) -> Option<(Utime, Bytes)> {
    let rest = key.strip_prefix(PREFIX)?;
    let dot = rest.iter().position(|b| *b == b'.')?;
    let (sec, rest) = (rest.get(..dot)?, rest.get(dot + 1..)?);
    let bar = rest.iter().position(|b| *b == b'_')?;
    let (usec, ext) = (rest.get(..bar)?, rest.get(bar + 1..)?);
    let number = |b: &[u8]| std::str::from_utf8(b).ok()?.parse::<u32>().ok();
    let ends = |b: &u8| *b == 0 || b.is_ascii_whitespace();
    let ext: Vec<u8> = ext.iter().take_while(|b| !ends(b)).take(MAX_EXT).copied().collect();
    Some((Utime::new(number(sec)?, number(usec)?), ext.into()))
}

/// How a key compares with a bound, of which only as many bytes count as the bound has.
fn cmp_to_bound(key: &[u8], bound: &[u8]) -> std::cmp::Ordering {
    key.get(..bound.len()).unwrap_or(key).cmp(bound)
}

fn add(v: &mut dyn ObjectView, bytes: &Bytes, _: &mut Bytes) -> Result<i32, Errno> {
    let args: AddArgs = input(bytes)?;
    for e in args.entries {
        let mut key = key_prefix(e.time);
        key.extend_from_slice(&e.ext);
        v.put(key, e.value)?;
    }
    Ok(0)
}

fn list(v: &mut dyn ObjectView, bytes: &Bytes, out: &mut Bytes) -> Result<i32, Errno> {
    let args: ListArgs = input(bytes)?;
    let from = if args.marker.is_empty() { key_prefix(args.from).into() } else { args.marker };
    let to = (args.to >= args.from).then(|| key_prefix(args.to));
    let max = u64::try_from(args.max).unwrap_or(u64::MAX).min(MAX_LIST_ENTRIES);
    let (found, mut more) = v.omap_list(&from, PREFIX, max)?;
    let (mut entries, mut marker) = (Vec::new(), Bytes::new());
    for (key, value) in found {
        if to.as_ref().is_some_and(|to| cmp_to_bound(&key, to).is_ge()) {
            more = false;
            break;
        }
        if let Some((time, ext)) = parse_key(&key) {
            entries.push(Entry { time, ext, value });
        }
        marker = key;
    }
    *out = ListReply { entries, marker, more }.to_bytes();
    Ok(0)
}

/// ENODATA when nothing is left to remove.
fn trim(v: &mut dyn ObjectView, bytes: &Bytes, _: &mut Bytes) -> Result<i32, Errno> {
    let args: TrimArgs = input(bytes)?;
    let bound = |marker: Bytes, t: Utime| if marker.is_empty() { key_prefix(t).into() } else { marker };
    let (from, to) = (bound(args.from_marker, args.from), bound(args.to_marker, args.to));
    let (found, _) = v.omap_list(&from, PREFIX, MAX_TRIM_ENTRIES)?;
    let mut removed = false;
    for (key, _) in found {
        if cmp_to_bound(&key, &to).is_gt() {
            break;
        }
        v.omap_remove(key)?;
        removed = true;
    }
    if removed { Ok(0) } else { Err(Errno::ENODATA) }
}

#[cfg(test)]
mod tests {
    use codec::Decode;

    use super::*;
    use crate::fake::Fake;

    #[test]
    fn a_listing_gives_a_key_back_up_to_what_c_takes_for_its_end() {
        for (key, ext) in [("1_10.5_a b", "a"), ("1_10.5_2\0c", "2"), ("1_10.5_", ""), ("1_10.5_x_y", "x_y")]
        {
            assert_eq!(parse_key(key.as_bytes()), Some((Utime::new(10, 5), ext.into())));
        }
        assert_eq!(parse_key(b"2_10.5_a"), None);
    }

    #[test]
    fn entries_list_in_time_order_and_trim() {
        let mut f = Fake::default();
        let entry = |sec| Entry { time: Utime::new(sec, 5000), ext: "x".into(), value: "v".into() };
        let entries = vec![entry(30), entry(10), entry(20)];
        assert!(f.call("timeindex", "add", AddArgs { entries }.to_bytes()).is_ok());
        let list = |f: &mut Fake, to, max| {
            let (from, to, marker) = (Utime::ZERO, Utime::new(to, 0), Bytes::new());
            let (_, out) =
                f.call("timeindex", "list", ListArgs { from, marker, to, max }.to_bytes()).unwrap();
            let reply = ListReply::from_bytes(out).unwrap();
            (reply.entries.iter().map(|e| e.time.sec).collect::<Vec<_>>(), reply.more)
        };
        assert_eq!(list(&mut f, 100, 10), (vec![10, 20, 30], false));
        assert_eq!(list(&mut f, 100, 2), (vec![10, 20], true));
        assert_eq!(list(&mut f, 20, 10), (vec![10], false));
        let upto = |sec| {
            let (from_marker, to_marker) = (Bytes::new(), Bytes::new());
            TrimArgs { from: Utime::ZERO, to: Utime::new(sec, 6000), from_marker, to_marker }.to_bytes()
        };
        assert!(f.call("timeindex", "trim", upto(20)).is_ok());
        assert_eq!(list(&mut f, 100, 10), (vec![30], false));
        assert_eq!(f.call("timeindex", "trim", upto(20)), Err(Errno::ENODATA));
    }
}
