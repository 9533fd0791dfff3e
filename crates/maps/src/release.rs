//! Ceph release numbers as maps hold them.

use std::cmp::Ordering;

use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// A release: 0 is unknown, [`Release::UNSET`] means "no change" in increments. Source: src/common/ceph_releases.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Release(pub u8);

const NAMES: [&str; 20] = [
    "unknown",
    "argonaut",
    "bobtail",
    "cuttlefish",
    "dumpling",
    "emperor",
    "firefly",
    "giant",
    "hammer",
    "infernalis",
    "jewel",
    "kraken",
    "luminous",
    "mimic",
    "nautilus",
    "octopus",
    "pacific",
    "quincy",
    "reef",
    "squid",
];

impl Release {
    pub const UNKNOWN: Self = Self(0);
    pub const ARGONAUT: Self = Self(1);
    pub const DUMPLING: Self = Self(4);
    pub const FIREFLY: Self = Self(6);
    pub const HAMMER: Self = Self(8);
    pub const JEWEL: Self = Self(10);
    pub const LUMINOUS: Self = Self(12);
    pub const MIMIC: Self = Self(13);
    pub const NAUTILUS: Self = Self(14);
    pub const OCTOPUS: Self = Self(15);
    pub const PACIFIC: Self = Self(16);
    /// The value of an increment that changes nothing; sorts below all others.
    pub const UNSET: Self = Self(0xff);

    pub fn name(self) -> &'static str {
        NAMES.get(usize::from(self.0)).copied().unwrap_or("unknown")
    }

    /// The release called `name`; `None` for unknown names.
    pub fn from_name(name: &str) -> Option<Self> {
        (1u8..).zip(NAMES.iter().skip(1)).find(|(_, n)| **n == name).map(|(i, _)| Self(i))
    }
}

/// As signed bytes: values from 0x80 once meant "invalid" and sort first.
impl Ord for Release {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.0 as i8).cmp(&(other.0 as i8))
    }
}
impl PartialOrd for Release {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl std::fmt::Display for Release {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
impl Encode for Release {
    fn encode(&self, w: &mut Writer) {
        w.u8(self.0);
    }
}
impl Decode for Release {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.u8().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::Release;

    #[test]
    fn names_and_order() {
        assert_eq!(Release::PACIFIC.name(), "pacific");
        assert_eq!(Release::from_name("luminous"), Some(Release::LUMINOUS));
        assert_eq!((Release::from_name("unknown"), Release::from_name("x")), (None, None));
        assert!(Release::UNSET < Release::UNKNOWN && Release::UNKNOWN < Release::JEWEL);
    }
}
