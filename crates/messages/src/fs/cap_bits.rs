//! The bits of capabilities: which parts of an inode a client may read, change, cache or buffer.
//!
//! Two bits for each of auth, link and xattr (shared, exclusive), eight for file, one that pins the inode.
//! Source: CEPH_CAP_* in src/include/ceph_fs.h.

use std::fmt::{self, Display, Formatter};
use std::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign, Not};

use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// A set of capability bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Caps(pub u32);

impl Caps {
    pub const NONE: Self = Self(0);
    pub const PIN: Self = Self(1);
    pub const AUTH_SHARED: Self = Self(1 << 2);
    pub const AUTH_EXCL: Self = Self(2 << 2);
    pub const LINK_SHARED: Self = Self(1 << 4);
    pub const LINK_EXCL: Self = Self(2 << 4);
    pub const XATTR_SHARED: Self = Self(1 << 6);
    pub const XATTR_EXCL: Self = Self(2 << 6);
    pub const FILE_SHARED: Self = Self(1 << 8);
    pub const FILE_EXCL: Self = Self(2 << 8);
    /// Reads may be answered from a cache.
    pub const FILE_CACHE: Self = Self(4 << 8);
    pub const FILE_RD: Self = Self(8 << 8);
    pub const FILE_WR: Self = Self(16 << 8);
    /// Writes may be put off.
    pub const FILE_BUFFER: Self = Self(32 << 8);
    /// The file may be made longer; of getattr: recursive statistics are wanted.
    pub const FILE_WREXTEND: Self = Self(64 << 8);
    pub const FILE_LAZYIO: Self = Self(128 << 8);

    /// What all attributes need.
    pub const ALL_SHARED: Self = Self(
        Self::PIN.0 | Self::AUTH_SHARED.0 | Self::LINK_SHARED.0 | Self::XATTR_SHARED.0 | Self::FILE_SHARED.0,
    );
    pub const ANY_EXCL: Self =
        Self(Self::AUTH_EXCL.0 | Self::LINK_EXCL.0 | Self::XATTR_EXCL.0 | Self::FILE_EXCL.0);
    pub const ANY_FILE_WR: Self = Self(Self::FILE_WR.0 | Self::FILE_BUFFER.0 | Self::FILE_EXCL.0);
    /// Whoever holds one of these may have changed something.
    pub const ANY_WR: Self = Self(Self::ANY_EXCL.0 | Self::ANY_FILE_WR.0);

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all of `wanted` are here.
    pub fn contains(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    /// Whether any of `some` is here.
    pub fn intersects(self, some: Self) -> bool {
        self.0 & some.0 != 0
    }

    #[must_use]
    pub fn without(self, gone: Self) -> Self {
        Self(self.0 & !gone.0)
    }
}

impl BitOr for Caps {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
impl BitOrAssign for Caps {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}
impl BitAnd for Caps {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}
impl BitAndAssign for Caps {
    fn bitand_assign(&mut self, other: Self) {
        self.0 &= other.0;
    }
}
impl Not for Caps {
    type Output = Self;
    fn not(self) -> Self {
        Self(!self.0)
    }
}

impl Encode for Caps {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.0);
    }
}
impl Decode for Caps {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.u32().map(Self)
    }
}

/// `pAsLsXsFscr`, `-` for none. Source: ccap_string in src/mds/mdstypes.cc.
impl Display for Caps {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("-");
        }
        if self.intersects(Self::PIN) {
            f.write_str("p")?;
        }
        let letters = ["s", "x", "c", "r", "w", "b", "a", "l"];
        for (name, shift, bits) in [("A", 2, 2), ("L", 4, 2), ("X", 6, 2), ("F", 8, 8)] {
            let of = self.0 >> shift & ((1 << bits) - 1);
            if of != 0 {
                f.write_str(name)?;
            }
            for (bit, letter) in letters.iter().enumerate() {
                if of & 1 << bit != 0 {
                    f.write_str(letter)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Caps;

    #[test]
    fn caps_are_shown_as_ceph_shows_them() {
        assert_eq!(Caps::NONE.to_string(), "-");
        assert_eq!(Caps(0x155).to_string(), "pAsLsXsFs");
        assert_eq!(Caps(0x3fdd).to_string(), "pAsxLsXsxFsxcrwb");
        assert!(Caps(0x155).contains(Caps::ALL_SHARED) && !Caps(0x154).contains(Caps::ALL_SHARED));
    }
}
