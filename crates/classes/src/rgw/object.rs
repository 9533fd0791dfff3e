//! Objects themselves: they are removed but for some attributes, and operations on them are held to
//! conditions.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Encode, wire_struct};
use types::{Errno, RealTime, Utime};

use crate::ObjectView;
use crate::registry::Done;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoveArgs {
    /// Attributes that begin with one of these stay, on an object that is empty otherwise.
    pub keep: Vec<Bytes>,
}
wire_struct!(RemoveArgs(1, 1) { keep });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreVersionArgs {
    pub attr: Bytes,
}
wire_struct!(StoreVersionArgs(1, 1) { attr });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckPrefixArgs {
    pub prefix: Bytes,
    /// The check fails if there is an attribute, otherwise if there is none.
    pub fail_if_exists: bool,
}
wire_struct!(CheckPrefixArgs(1, 1) { prefix, fail_if_exists });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckMtimeArgs {
    pub mtime: RealTime,
    /// Source: RGWCheckMTimeType in src/cls/rgw/cls_rgw_types.h.
    pub condition: u8,
    /// Times are compared with their nanoseconds.
    pub precise: bool,
}
wire_struct!(CheckMtimeArgs(2, 1) { mtime, condition } since 2 { precise });

/// None for an object that does not exist.
fn attributes(v: &mut dyn ObjectView) -> Result<BTreeMap<Bytes, Bytes>, Errno> {
    match v.xattrs() {
        Err(Errno::ENOENT) => Ok(BTreeMap::new()),
        other => other,
    }
}

pub(super) fn remove(v: &mut dyn ObjectView, args: RemoveArgs) -> Result<Done, Errno> {
    if args.keep.is_empty() {
        return v.remove().map(|()| Done);
    }
    let mut kept = attributes(v)?;
    let prefixes = Prefixes::new(args.keep);
    kept.retain(|name, _| prefixes.begin(name));
    v.remove()?;
    if !kept.is_empty() {
        v.create(false)?;
    }
    for (name, value) in kept {
        v.set_xattr(&name, value)?;
    }
    Ok(Done)
}

/// Prefixes in order, none of which begins with another: of these, the last one that is not behind a name is
/// the only one that can begin it.
struct Prefixes(Vec<Bytes>);

impl Prefixes {
    fn new(mut all: Vec<Bytes>) -> Self {
        all.sort_unstable();
        // Equal ones go with these.
        all.dedup_by(|next, earlier| next.starts_with(earlier));
        Self(all)
    }

    /// Whether one of them begins a name.
    fn begin(&self, name: &Bytes) -> bool {
        let behind = self.0.partition_point(|prefix| prefix <= name);
        behind.checked_sub(1).and_then(|last| self.0.get(last)).is_some_and(|prefix| name.starts_with(prefix))
    }
}

/// Keeps the version that the placement group has come to, so that a write can be told from an earlier one.
pub(super) fn store_pg_version(v: &mut dyn ObjectView, args: StoreVersionArgs) -> Result<Done, Errno> {
    // C's strings end there.
    let name = crate::wire::c_text(&args.attr);
    let version = v.current_version().to_bytes();
    v.set_xattr(name, version)?;
    Ok(Done)
}

pub(super) fn check_attrs_prefix(v: &mut dyn ObjectView, args: CheckPrefixArgs) -> Result<Done, Errno> {
    if args.prefix.is_empty() {
        return Err(Errno::EINVAL);
    }
    let exists = attributes(v)?.keys().any(|name| name.starts_with(&args.prefix));
    if exists == args.fail_if_exists { Err(Errno::ECANCELED) } else { Ok(Done) }
}

pub(super) fn check_mtime(v: &mut dyn ObjectView, args: CheckMtimeArgs) -> Result<Done, Errno> {
    let mtime = match v.stat() {
        Err(Errno::ENOENT) => Utime::ZERO,
        stat => stat?.mtime,
    };
    let whole = |t: Utime| if args.precise { t } else { Utime::new(t.sec, 0) };
    let (known, given) = (whole(mtime), whole(args.mtime.0));
    let holds = match args.condition {
        0 => known == given,
        1 => known < given,
        2 => known <= given,
        3 => known > given,
        4 => known >= given,
        _ => return Err(Errno::EINVAL),
    };
    if holds { Ok(Done) } else { Err(Errno::ECANCELED) }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use codec::Writer;

    use super::*;
    use crate::fake::{Fake, FakeObject};

    #[test]
    fn prefixes_begin_what_any_of_them_begins() {
        for prefixes in
            [&["a", "ab", "b", "abc", "b"][..], &["ab", "aa"], &["", "x"], &["abd", "abb", "a\0"], &[]]
        {
            let given: Vec<Bytes> = prefixes.iter().map(|p| Bytes::from(*p)).collect();
            let made = Prefixes::new(given);
            for name in ["", "a", "aa", "aab", "ab", "abb", "abc", "abe", "a\0", "b", "bz", "c", "x"] {
                let expected = prefixes.iter().any(|p| name.starts_with(p));
                assert_eq!(made.begin(&name.into()), expected, "{prefixes:?} {name:?}");
            }
        }
    }

    #[test]
    fn many_attributes_are_held_against_many_prefixes_at_once() {
        let attrs = (0..20_000).map(|i| (format!("user.{i:06}").into(), Bytes::new())).collect();
        let mut f = Fake::with(FakeObject { attrs, ..FakeObject::default() });
        let prefixes: Vec<Bytes> = (10_000..210_000).map(|i| format!("user.{i:06}").into()).collect();
        let args = Writer::collect(|w| w.envelope(1, 1, |w| prefixes.encode(w)));
        let begun = Instant::now();
        f.call("rgw", "obj_remove", args).unwrap();
        // Each against each takes minutes.
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        assert_eq!(f.object.unwrap().attrs.len(), 10_000);
    }
}
