//! Class `refcount`: references by tag in an object's attribute; the object goes with the last one.
//! Source: src/cls/refcount/cls_refcount.cc.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};
use types::Errno;

use crate::ObjectView;
use crate::registry::{Class, Method, MethodFlags as F, input, stored};

pub static CLASS: Class = Class {
    name: "refcount",
    methods: &[
        Method::new("get", F::RD_WR, get),
        Method::new("put", F::RD_WR, put),
        Method::new("set", F::RD_WR, set),
        Method::new("read", F::RD, read),
    ],
};

const ATTR: &[u8] = b"refcount";

/// The tag of the reference that an object has that was never counted.
const WILDCARD: Bytes = Bytes::new();

/// References, and tags whose reference was given back: those count no second time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Refs {
    refs: BTreeMap<Bytes, bool>,
    retired: BTreeSet<Bytes>,
}

impl Encode for Refs {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            self.refs.encode(w);
            self.retired.encode(w);
        });
    }
}
impl Decode for Refs {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("obj_refcount", 2, |r, env| {
            let refs = Decode::decode(r)?;
            let retired = if env.version >= 2 { Decode::decode(r)? } else { BTreeSet::new() };
            Ok(Self { refs, retired })
        })
    }
}

/// Input of `get` and `put`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagArgs {
    pub tag: Bytes,
    /// An object without references has one that any tag may take back.
    pub implicit: bool,
}
wire_struct!(TagArgs(1, 1) { tag, implicit });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetArgs {
    pub refs: Vec<Bytes>,
}
wire_struct!(SetArgs(1, 1) { refs });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadArgs {
    pub implicit: bool,
}
wire_struct!(ReadArgs(1, 1) { implicit });

fn load(v: &mut dyn ObjectView, implicit: bool) -> Result<Refs, Errno> {
    match v.xattr(ATTR) {
        Err(Errno::ENODATA) => {
            let refs = if implicit { BTreeMap::from([(WILDCARD, true)]) } else { BTreeMap::new() };
            Ok(Refs { refs, ..Refs::default() })
        }
        raw => stored(raw?),
    }
}

fn save(v: &mut dyn ObjectView, refs: &Refs) -> Result<i32, Errno> {
    v.set_xattr(ATTR, refs.to_bytes())?;
    Ok(0)
}

fn get(v: &mut dyn ObjectView, bytes: &Bytes, _: &mut Bytes) -> Result<i32, Errno> {
    let args: TagArgs = input(bytes)?;
    let mut refs = load(v, args.implicit)?;
    refs.refs.insert(args.tag, true);
    save(v, &refs)
}

fn put(v: &mut dyn ObjectView, bytes: &Bytes, _: &mut Bytes) -> Result<i32, Errno> {
    let args: TagArgs = input(bytes)?;
    let mut refs = load(v, args.implicit)?;
    if refs.refs.is_empty() {
        return Err(Errno::EINVAL);
    }
    let held = if refs.refs.contains_key(&args.tag) {
        args.tag.clone()
    } else if args.implicit && refs.refs.contains_key(&WILDCARD) {
        WILDCARD
    } else {
        return Ok(0);
    };
    if !refs.retired.insert(args.tag) {
        return Ok(0);
    }
    refs.refs.remove(&held);
    if refs.refs.is_empty() {
        v.remove()?;
        return Ok(0);
    }
    save(v, &refs)
}

fn set(v: &mut dyn ObjectView, bytes: &Bytes, _: &mut Bytes) -> Result<i32, Errno> {
    let args: SetArgs = input(bytes)?;
    if args.refs.is_empty() {
        v.remove()?;
        return Ok(0);
    }
    let refs = args.refs.into_iter().map(|tag| (tag, true)).collect();
    save(v, &Refs { refs, ..Refs::default() })
}

fn read(v: &mut dyn ObjectView, bytes: &Bytes, out: &mut Bytes) -> Result<i32, Errno> {
    let args: ReadArgs = input(bytes)?;
    let refs = load(v, args.implicit)?;
    *out = SetArgs { refs: refs.refs.into_keys().collect() }.to_bytes();
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    fn tag(tag: &'static str, implicit: bool) -> Bytes {
        TagArgs { tag: tag.into(), implicit }.to_bytes()
    }

    /// As src/test/cls_refcount/test_cls_refcount.cc goes about it.
    #[test]
    fn the_last_reference_takes_the_object_along() {
        let mut f = Fake::with_data("x");
        assert!(f.call("refcount", "get", tag("1", true)).is_ok());
        let refs = |f: &mut Fake| {
            let (_, out) = f.call("refcount", "read", ReadArgs { implicit: true }.to_bytes()).unwrap();
            SetArgs::from_bytes(out).unwrap().refs
        };
        assert_eq!(refs(&mut f), ["", "1"]);
        assert!(f.call("refcount", "put", tag("2", true)).is_ok());
        assert_eq!(refs(&mut f), ["1"]);
        // A tag counts once.
        assert!(f.call("refcount", "put", tag("2", true)).is_ok());
        assert_eq!(refs(&mut f), ["1"]);
        assert!(f.call("refcount", "put", tag("1", true)).is_ok());
        assert!(f.object.is_none());
        assert_eq!(f.call("refcount", "put", tag("1", true)), Err(Errno::ENOENT));
    }

    #[test]
    fn an_uncounted_object_has_no_reference_to_give_back() {
        let mut f = Fake::with_data("x");
        assert_eq!(f.call("refcount", "put", tag("1", false)), Err(Errno::EINVAL));
        assert_eq!(f.call("refcount", "get", ""), Err(Errno::EINVAL));
    }
}
