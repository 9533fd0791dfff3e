//! The version of a PG's log entry: the map epoch it was made in, and a counter.

use codec::wire_plain;

use crate::Epoch;

/// Orders a PG's log entries across intervals: by epoch first, then by version.
///
/// Field order on the wire is version, then epoch. Source: eversion_t in src/osd/osd_types.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Eversion {
    pub version: u64,
    pub epoch: Epoch,
}

wire_plain!(Eversion { version, epoch });

impl Eversion {
    pub const ZERO: Self = Self { version: 0, epoch: Epoch(0) };

    pub fn new(epoch: Epoch, version: u64) -> Self {
        Self { version, epoch }
    }
}

impl Ord for Eversion {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.epoch, self.version).cmp(&(other.epoch, other.version))
    }
}
impl PartialOrd for Eversion {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl std::fmt::Display for Eversion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}'{}", self.epoch, self.version)
    }
}
