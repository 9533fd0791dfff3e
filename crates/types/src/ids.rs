//! Small number newtypes: epochs, OSD and pool ids, the cluster's fsid.

use codec::{Decode, DecodeError, Encode, Reader, Writer};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($t:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $t);

        impl Encode for $name {
            fn encode(&self, w: &mut Writer) {
                self.0.encode(w);
            }
        }
        impl Decode for $name {
            const MIN_SIZE: usize = size_of::<$t>();
            fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
                <$t>::decode(r).map(Self)
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
        impl From<$t> for $name {
            fn from(v: $t) -> Self {
                Self(v)
            }
        }
    };
}

number! {
    /// The version of a cluster map; maps change by one epoch at a time. Source: epoch_t in src/include/types.h.
    Epoch(u32)
}
number! {
    /// An OSD's number; -1 in wire forms that mean "none".
    OsdId(i32)
}
number! {
    /// A pool's number; never reused within a cluster.
    PoolId(i64)
}
number! {
    /// The identity of one client or daemon session towards the cluster, handed out by the monitors.
    GlobalId(u64)
}

number! {
    /// An inode's number in a file system. Source: inodeno_t in src/include/fs_types.h.
    Ino(u64)
}

impl From<Ino> for u64 {
    fn from(ino: Ino) -> Self {
        ino.0
    }
}

impl Ino {
    /// The root of a file system.
    pub const ROOT: Self = Self(1);
}

impl OsdId {
    /// "No OSD", as a primary.
    pub const NONE: Self = Self(-1);
    /// "No OSD", at a place of an erasure-coded PG. Source: CRUSH_ITEM_NONE in src/crush/crush.h.
    pub const HOLE: Self = Self(0x7fff_ffff);

    /// Whether it is an OSD's number.
    pub fn is_osd(self) -> bool {
        self.0 >= 0 && self != Self::HOLE
    }
}

impl Epoch {
    /// The epoch after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
    /// The epoch before this one; 0 stays 0.
    #[must_use]
    pub fn prev(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

/// A cluster's (or an OSD's) UUID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Fsid(pub [u8; 16]);

impl Fsid {
    /// A version 4 UUID made from 16 random bytes.
    pub fn from_random(mut bytes: [u8; 16]) -> Self {
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        Self(bytes)
    }

    /// Parses the usual text form, with or without dashes.
    pub fn parse(text: &str) -> Option<Self> {
        let digits: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
        if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let mut out = [0u8; 16];
        for (slot, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
            *slot = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(out))
    }

    pub fn is_zero(&self) -> bool {
        self.0 == [0; 16]
    }
}

impl std::fmt::Display for Fsid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, b) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{b:02x}")?;
        }
        Ok(())
    }
}
impl std::fmt::Debug for Fsid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
impl Encode for Fsid {
    fn encode(&self, w: &mut Writer) {
        w.raw(&self.0);
    }
}
impl Decode for Fsid {
    const MIN_SIZE: usize = 16;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.array().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fsid_text_round_trip() {
        let text = "215f035f-8e81-42db-a68c-2ddf6b582ff3";
        assert_eq!(Fsid::parse(text).map(|f| f.to_string()), Some(text.to_owned()));
        assert_eq!(Fsid::parse("215f035f"), None);
        assert_eq!(Fsid::parse("zz5f035f-8e81-42db-a68c-2ddf6b582ff3"), None);
    }
}
