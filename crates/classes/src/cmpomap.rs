//! Class `cmpomap`: omap values are compared, and on that set or removed. Source: src/cls/cmpomap/server.cc.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, wire_struct};
use types::Errno;

use crate::ObjectView;
use crate::registry::{Class, Done, methods};

pub static CLASS: Class = Class {
    name: "cmpomap",
    methods: methods![
        cmp_vals RD cmp_vals,
        cmp_set_vals RD_WR cmp_set_vals,
        cmp_rm_keys RD_WR cmp_rm_keys,
    ],
};

/// Operators that need no order.
const EQUAL: u8 = 1;
const UNEQUAL: u8 = 2;

/// How values are compared: a mode and an operator of `CEPH_OSD_CMPXATTR`. What is given stands on the left,
/// what is stored on the right. Source: src/include/rados.h.
struct Args {
    mode: u8,
    operator: u8,
    values: BTreeMap<Bytes, Bytes>,
    /// Stands for a key that is not there.
    default: Option<Bytes>,
}
wire_struct!(Args(1, 1) { mode, operator, values, default });

struct RemoveArgs {
    mode: u8,
    operator: u8,
    values: BTreeMap<Bytes, Bytes>,
}
wire_struct!(RemoveArgs(1, 1) { mode, operator, values });

fn holds(operator: u8, order: Ordering) -> Result<bool, Errno> {
    Ok(match operator {
        EQUAL => order.is_eq(),
        UNEQUAL => order.is_ne(),
        3 => order.is_gt(),
        4 => order.is_ge(),
        5 => order.is_lt(),
        6 => order.is_le(),
        _ => return Err(Errno::EINVAL),
    })
}

/// The order of two strings of bytes as Ceph's comparisons of buffers see it: bytes have a sign there.
/// Whether strings are equal is told by their lengths first.
fn text_order(operator: u8, given: &[u8], there: &[u8]) -> Ordering {
    match operator {
        EQUAL | UNEQUAL => given.len().cmp(&there.len()).then_with(|| given.cmp(there)),
        _ => given.iter().map(|b| *b as i8).cmp(there.iter().map(|b| *b as i8)),
    }
}

/// EIO when what is stored should be a number and is none; nothing counts as 0.
fn compare(mode: u8, operator: u8, given: &Bytes, there: &Bytes) -> Result<bool, Errno> {
    match mode {
        1 => holds(operator, text_order(operator, given, there)),
        2 => {
            let given = u64::from_bytes(given.clone()).map_err(|_| Errno::EINVAL)?;
            let number = if there.is_empty() { Ok(0) } else { u64::from_bytes(there.clone()) };
            holds(operator, given.cmp(&number.map_err(|_| Errno::EIO)?))
        }
        _ => Err(Errno::EINVAL),
    }
}

/// As `compare`; what is stored and is no number compares as false.
fn compare_or_false(mode: u8, operator: u8, given: &Bytes, there: &Bytes) -> Result<bool, Errno> {
    match compare(mode, operator, given, there) {
        Err(Errno::EIO) => Ok(false),
        other => other,
    }
}

fn stored(v: &mut dyn ObjectView, values: &BTreeMap<Bytes, Bytes>) -> Result<BTreeMap<Bytes, Bytes>, Errno> {
    let keys: Vec<Bytes> = values.keys().cloned().collect();
    Ok(v.omap_get(&keys)?.into_iter().collect())
}

/// Takes the bytes that a comparison may look at: a default counts anew for each key.
fn spend(v: &mut dyn ObjectView, given: &Bytes, there: &Bytes) -> Result<(), Errno> {
    v.spend(given.len().min(there.len()) as u64)
}

/// ECANCELED when a comparison does not hold, or a key is missing and there is no default.
fn cmp_vals(v: &mut dyn ObjectView, args: Args) -> Result<Done, Errno> {
    let there = stored(v, &args.values)?;
    for (key, given) in &args.values {
        let value = there.get(key).or(args.default.as_ref()).ok_or(Errno::ECANCELED)?;
        spend(v, given, value)?;
        if !compare(args.mode, args.operator, given, value)? {
            return Err(Errno::ECANCELED);
        }
    }
    Ok(Done)
}

/// Sets those for which the comparison holds.
fn cmp_set_vals(v: &mut dyn ObjectView, args: Args) -> Result<Done, Errno> {
    let there = stored(v, &args.values)?;
    let mut set = BTreeMap::new();
    for (key, given) in args.values {
        let Some(value) = there.get(&key).or(args.default.as_ref()) else { continue };
        spend(v, &given, value)?;
        if compare_or_false(args.mode, args.operator, &given, value)? {
            set.insert(key, given);
        }
    }
    if !set.is_empty() {
        v.omap_set(set)?;
    }
    Ok(Done)
}

/// Removes those for which the comparison holds.
fn cmp_rm_keys(v: &mut dyn ObjectView, args: RemoveArgs) -> Result<Done, Errno> {
    let there = stored(v, &args.values)?;
    for (key, given) in args.values {
        let Some(value) = there.get(&key) else { continue };
        spend(v, &given, value)?;
        if compare_or_false(args.mode, args.operator, &given, value)? {
            v.omap_remove(key)?;
        }
    }
    Ok(Done)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use codec::Encode;

    use super::*;
    use crate::fake::Fake;

    /// The default is not copied for each key: 2,000 copies of 1 MiB take 16 s in a build of tests.
    #[test]
    fn a_long_default_costs_what_is_compared() {
        for (operator, spent) in [(EQUAL, 8_000), (UNEQUAL, 8_000), (3, 8_000), (6, 8_000)] {
            let key = |n: u32| (Bytes::from(format!("{n:04}")), Bytes::from_static(b"same"));
            let values = (0..2_000).map(key).collect();
            let default = Some(Bytes::from(vec![b's'; 1 << 20]));
            let (mut f, begun) = (Fake::default(), Instant::now());
            let args = Args { mode: 1, operator, values, default };
            f.call("cmpomap", "cmp_set_vals", args.to_bytes()).unwrap();
            assert_eq!(f.spent, spent, "{operator}");
            assert!(begun.elapsed() < Duration::from_secs(5), "{operator}: {:?}", begun.elapsed());
        }
    }

    #[test]
    fn unequal_lengths_are_unequal_strings() {
        for (given, there, equal) in
            [("a", "ab", false), ("ab", "ab", true), ("ab", "ac", false), ("", "", true)]
        {
            let (given, there) = (Bytes::from(given), Bytes::from(there));
            assert_eq!(compare(1, EQUAL, &given, &there), Ok(equal), "{given:?} {there:?}");
            assert_eq!(compare(1, UNEQUAL, &given, &there), Ok(!equal), "{given:?} {there:?}");
        }
    }

    #[test]
    fn bytes_compare_with_their_sign() {
        for (given, there, greater) in
            [("b", "a", true), ("a", "ab", false), ("ab", "a", true), ("é", "a", false), ("", "", false)]
        {
            let (given, there) = (Bytes::from(given), Bytes::from(there));
            assert_eq!(compare(1, 3, &given, &there), Ok(greater), "{given:?} {there:?}");
            assert_eq!(compare(1, 6, &given, &there), Ok(!greater), "{given:?} {there:?}");
        }
    }

    #[test]
    fn numbers_are_told_from_what_is_none() {
        let number = |n: u64| Bytes::copy_from_slice(&n.to_le_bytes());
        let compare = |given: Bytes, there: Bytes| compare(2, 4, &given, &there);
        assert_eq!(compare(number(256), number(255)), Ok(true));
        assert_eq!(compare(number(0), Bytes::new()), Ok(true));
        assert_eq!(compare(number(0), "short".into()), Err(Errno::EIO));
        assert_eq!(compare("short".into(), "short".into()), Err(Errno::EINVAL));
    }
}
