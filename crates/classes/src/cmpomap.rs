//! Class `cmpomap`: omap values are compared, and on that set or removed. Source: src/cls/cmpomap/server.cc.

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

/// How values are compared: a mode and an operator of `CEPH_OSD_CMPXATTR`. What is given stands on the left, what is
/// stored on the right. Source: src/include/rados.h.
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

/// The order of two strings of bytes as Ceph's comparisons of buffers see it: bytes have a sign there.
fn signed(bytes: &[u8]) -> impl Ord + use<> {
    bytes.iter().map(|b| *b as i8).collect::<Vec<_>>()
}

fn holds<T: PartialOrd + ?Sized>(operator: u8, given: &T, there: &T) -> Result<bool, Errno> {
    Ok(match operator {
        1 => given == there,
        2 => given != there,
        3 => given > there,
        4 => given >= there,
        5 => given < there,
        6 => given <= there,
        _ => return Err(Errno::EINVAL),
    })
}

/// EIO when what is stored should be a number and is none; nothing counts as 0.
fn compare(mode: u8, operator: u8, given: &Bytes, there: &Bytes) -> Result<bool, Errno> {
    match mode {
        1 => holds(operator, &signed(given), &signed(there)),
        2 => {
            let given = u64::from_bytes(given.clone()).map_err(|_| Errno::EINVAL)?;
            let number = if there.is_empty() { Ok(0) } else { u64::from_bytes(there.clone()) };
            holds(operator, &given, &number.map_err(|_| Errno::EIO)?)
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

/// ECANCELED when a comparison does not hold, or a key is missing and there is no default.
fn cmp_vals(v: &mut dyn ObjectView, args: Args) -> Result<Done, Errno> {
    let there = stored(v, &args.values)?;
    for (key, given) in &args.values {
        let value = there.get(key).or(args.default.as_ref()).ok_or(Errno::ECANCELED)?;
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
        if compare_or_false(args.mode, args.operator, &given, value)? {
            v.omap_remove(key)?;
        }
    }
    Ok(Done)
}

#[cfg(test)]
mod tests {
    use super::*;

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
