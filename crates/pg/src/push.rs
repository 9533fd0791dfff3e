//! What recovery sends: whole objects, pieces of objects, or only the changed parts of objects.
//!
//! Invariants of the pieces of one object, as one copy sends them to another:
//! 1. The first begins at `Cursor::default()`; each further one begins where the one before says; the last names no next one.
//! 2. They go in the order of the attributes, the omap's header, the data, then the omap.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::{Eversion, HObject};

/// How far an object was sent: attributes up to `attrs`, data below `data`, and omap keys up to `omap`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cursor {
    pub attrs: Option<Bytes>,
    /// Whether all attributes and the omap's header were sent.
    pub headed: bool,
    /// Bytes; `Cursor::ALL_DATA` when the omap is next.
    pub data: u64,
    pub omap: Option<Bytes>,
}

codec::wire_plain!(Cursor { attrs, headed, data, omap });

impl Cursor {
    pub const ALL_DATA: u64 = u64::MAX;

    /// The place at which data begins.
    pub fn headed() -> Self {
        Self { headed: true, ..Self::default() }
    }

    pub fn is_start(&self) -> bool {
        !self.headed && self.attrs.is_none()
    }
}

/// The older version that the receiving copy still has, and the parts in which the new version may differ
/// from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    pub version: Eversion,
    /// Ranges (offset, length) of data, sorted, apart from each other; the last may reach beyond the object's end.
    pub ranges: Vec<(u64, u64)>,
    /// Whether the omap may differ.
    pub omap: bool,
}

codec::wire_plain!(Base { version, ranges, omap });

/// A request for an object, or for its next piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    pub object: HObject,
    pub need: Eversion,
    pub base: Option<Base>,
    pub from: Cursor,
    /// Bytes that the piece may have.
    pub max_bytes: u64,
}

codec::wire_struct!(Want(1, 1) { object, need, base, from, max_bytes });

/// A whole object, or a piece of it. Attributes hold its info and snapset too.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectPush {
    pub object: ObjectName,
    pub version: Eversion,
    pub size: u64,
    /// Offsets and data of the ranges that hold data.
    pub extents: Vec<(u64, Bytes)>,
    pub attrs: Vec<(Bytes, Bytes)>,
    pub omap_header: Bytes,
    pub omap: Vec<(Bytes, Bytes)>,
    /// With a base, the receiver keeps what lies outside the base's ranges; without one it keeps nothing.
    pub base: Option<Base>,
    pub from: Cursor,
    pub next: Option<Cursor>,
}

codec::wire_struct!(ObjectPush(2, 2) {
    object, version, size, extents, attrs, omap_header, omap, base, from, next,
});

impl ObjectPush {
    /// Bytes of data, omap and attributes.
    pub fn bytes(&self) -> u64 {
        let pair = |(k, v): &(Bytes, Bytes)| k.len() + v.len();
        let data: usize = self.extents.iter().map(|(_, d)| d.len()).sum();
        let pairs: usize = self.attrs.iter().chain(&self.omap).map(pair).sum();
        (data + pairs + self.omap_header.len()) as u64
    }

    /// Whether this is the first and the last piece.
    pub fn is_all(&self) -> bool {
        self.from.is_start() && self.next.is_none()
    }

    /// Adds the piece that follows.
    pub fn append(&mut self, piece: Self) {
        self.attrs.extend(piece.attrs);
        if !piece.omap_header.is_empty() {
            self.omap_header = piece.omap_header;
        }
        self.extents.extend(piece.extents);
        self.omap.extend(piece.omap);
        self.next = piece.next;
    }

    /// The receiver's acknowledgement of it.
    pub fn stored(&self) -> Pushed {
        Pushed {
            object: self.object.0.clone(),
            version: self.version,
            next: self.next.clone(),
            lacks_base: false,
        }
    }
}

/// What became of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    pub object: HObject,
    pub version: Eversion,
    /// What is to follow; `None` when the object is there.
    pub next: Option<Cursor>,
    /// The copy has not the version that the push is based on: it needs all of the object.
    pub lacks_base: bool,
}

codec::wire_struct!(Pushed(1, 1) { object, version, next, lacks_base });

/// The object a push carries; its default is the least name, so that a push has a default too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectName(pub HObject);

impl Default for ObjectName {
    fn default() -> Self {
        Self(HObject::min())
    }
}
impl Encode for ObjectName {
    fn encode(&self, w: &mut Writer) {
        self.0.encode(w);
    }
}
impl Decode for ObjectName {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        HObject::decode(r).map(Self)
    }
}
