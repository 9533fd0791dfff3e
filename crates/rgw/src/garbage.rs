//! Garbage: objects in RADOS that nothing needs any more, and that are removed some time later.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};
use types::RealTime;

use crate::index::Key;

/// An object to be removed. Source: cls_rgw_obj in src/cls/rgw/cls_rgw_types.h.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GarbageObject {
    pub pool: Bytes,
    pub name: Bytes,
    /// Its version, where it has one.
    pub instance: Bytes,
    pub locator: Bytes,
}

impl Encode for GarbageObject {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            self.pool.encode(w);
            self.name.encode(w);
            self.locator.encode(w);
            Key { name: self.name.clone(), instance: self.instance.clone() }.encode(w);
        });
    }
}
impl Decode for GarbageObject {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("garbage object", 2, |r, env| {
            let (pool, name, locator) = (r.blob()?, r.blob()?, r.blob()?);
            let key = if env.version >= 2 { Key::decode(r)? } else { Key::plain(name) };
            Ok(Self { pool, name: key.name, instance: key.instance, locator })
        })
    }
}

/// Objects that are removed together. Source: cls_rgw_obj_chain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chain {
    pub objects: Vec<GarbageObject>,
}
wire_struct!(Chain(1, 1) { objects });

/// Objects that one tag stands for, and from when on they are garbage. Source: cls_rgw_gc_obj_info.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Garbage {
    pub tag: Bytes,
    pub chain: Chain,
    pub time: RealTime,
}
wire_struct!(Garbage(1, 1) { tag, chain, time });
