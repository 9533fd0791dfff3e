//! Class `cas`: chunks that several objects share, each with the objects that refer to it; a chunk goes with its last
//! reference. Source: src/cls/cas/cls_cas.cc, src/cls/cas/cls_cas_internal.h.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};
use types::{Errno, HObject};

use crate::ObjectView;
use crate::registry::{Class, Done, methods, stored};

pub static CLASS: Class = Class {
    name: "cas",
    methods: methods![
        chunk_create_or_get_ref RD_WR create_or_get_ref,
        chunk_get_ref RD_WR get_ref,
        chunk_put_ref RD_WR put_ref,
        references_chunk RD references_chunk,
    ],
};

const ATTR: &[u8] = b"chunk_refs";

/// The chunk must hold what the caller brings.
const VERIFY: u64 = 1;

/// Ways to store references. What clusters of Ceph never make by themselves (sums by hash or pool) we do not read.
const BY_OBJECT: u8 = 1;
const COUNT: u8 = 5;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Refs {
    /// In order; an object may refer to the chunk more than once.
    Objects(Vec<HObject>),
    Count(u64),
}

struct Objects {
    objects: Vec<HObject>,
}
wire_struct!(Objects(1, 1) { objects });

struct Count {
    count: u64,
}
wire_struct!(Count(1, 1) { count });

impl Encode for Refs {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| match self {
            Self::Objects(objects) => {
                w.u8(BY_OBJECT);
                w.envelope(1, 1, |w| objects.encode(w));
            }
            Self::Count(count) => {
                w.u8(COUNT);
                Count { count: *count }.encode(w);
            }
        });
    }
}
impl Decode for Refs {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("chunk references", 1, |r, _| match r.u8()? {
            BY_OBJECT => {
                let mut objects = Objects::decode(r)?.objects;
                objects.sort();
                Ok(Self::Objects(objects))
            }
            COUNT => Ok(Self::Count(Count::decode(r)?.count)),
            other => Err(DecodeError::Invalid { what: "kind of chunk references", value: other.into() }),
        })
    }
}

impl Refs {
    fn get(&mut self, from: HObject) {
        match self {
            Self::Objects(objects) => {
                let at = objects.partition_point(|o| *o <= from);
                objects.insert(at, from);
            }
            Self::Count(count) => *count = count.saturating_add(1),
        }
    }

    /// ENOLINK without such a reference.
    fn put(&mut self, from: &HObject) -> Result<(), Errno> {
        match self {
            Self::Objects(objects) => {
                let at = objects.iter().position(|o| o == from).ok_or(Errno::ENOLINK)?;
                objects.remove(at);
            }
            Self::Count(count) => *count = count.checked_sub(1).ok_or(Errno::ENOLINK)?,
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Objects(objects) => objects.is_empty(),
            Self::Count(count) => *count == 0,
        }
    }
}

struct CreateArgs {
    from: HObject,
    flags: u64,
    data: Bytes,
}
wire_struct!(CreateArgs(1, 1) { from, flags, data });

struct RefArgs {
    from: HObject,
}
wire_struct!(RefArgs(1, 1) { from });

fn load(v: &mut dyn ObjectView) -> Result<Refs, Errno> {
    match v.xattr(ATTR) {
        Err(Errno::ENODATA) => Ok(Refs::Objects(Vec::new())),
        raw => stored(raw?),
    }
}

fn save(v: &mut dyn ObjectView, refs: &Refs) -> Result<Done, Errno> {
    v.set_xattr(ATTR, refs.to_bytes())?;
    Ok(Done)
}

fn create_or_get_ref(v: &mut dyn ObjectView, args: CreateArgs) -> Result<Done, Errno> {
    let mut refs = match load(v) {
        Err(Errno::ENOENT) => {
            v.write_full(args.data)?;
            Refs::Objects(Vec::new())
        }
        Err(e) => return Err(e),
        Ok(refs) => {
            if args.flags & VERIFY != 0 && v.read(0, 0)? != args.data {
                return Err(Errno::ENOMSG);
            }
            refs
        }
    };
    refs.get(args.from);
    save(v, &refs)
}

fn get_ref(v: &mut dyn ObjectView, args: RefArgs) -> Result<Done, Errno> {
    let mut refs = load(v)?;
    refs.get(args.from);
    save(v, &refs)
}

fn put_ref(v: &mut dyn ObjectView, args: RefArgs) -> Result<Done, Errno> {
    let mut refs = load(v)?;
    refs.put(&args.from)?;
    if refs.is_empty() {
        v.remove()?;
        return Ok(Done);
    }
    save(v, &refs)
}

/// Whether this object's manifest names a chunk. No object has a manifest here.
fn references_chunk(_: &mut dyn ObjectView, _: Bytes) -> Result<Done, Errno> {
    Err(Errno::ENOLINK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    #[test]
    fn the_last_reference_takes_the_chunk_along() {
        let mut f = Fake::default();
        let from = |name: &'static str| HObject { name: name.into(), ..HObject::min() };
        let create =
            |flags, data: &'static str| CreateArgs { from: from("a"), flags, data: data.into() }.to_bytes();
        assert!(f.call("cas", "chunk_create_or_get_ref", create(0, "x")).is_ok());
        assert_eq!(f.call("cas", "chunk_create_or_get_ref", create(VERIFY, "y")), Err(Errno::ENOMSG));
        assert!(f.call("cas", "chunk_create_or_get_ref", create(VERIFY, "x")).is_ok());
        let args = |name| RefArgs { from: from(name) }.to_bytes();
        assert!(f.call("cas", "chunk_get_ref", args("b")).is_ok());
        assert_eq!(f.call("cas", "chunk_put_ref", args("c")), Err(Errno::ENOLINK));
        for (name, left) in [("a", true), ("b", true), ("a", false)] {
            assert!(f.call("cas", "chunk_put_ref", args(name)).is_ok());
            assert_eq!(f.object.is_some(), left);
        }
    }
}
