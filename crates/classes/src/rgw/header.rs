//! The header of a bucket index, as methods load and store it.

use std::collections::BTreeMap;

use codec::{Encode, wire_struct};
use types::Errno;

pub(super) use ::rgw::index::{Header, Resharding, Stats};

use crate::ObjectView;
use crate::registry::{Done, Nothing, stored};

/// A header in the omap of its object.
pub(super) trait InOmap: Sized {
    /// The default where there is none yet; EIO when it does not decode.
    fn load(v: &mut dyn ObjectView) -> Result<Self, Errno>;

    /// Stores it under its next version.
    fn save(self, v: &mut dyn ObjectView) -> Result<Done, Errno>;
}

impl InOmap for Header {
    fn load(v: &mut dyn ObjectView) -> Result<Self, Errno> {
        match v.omap_header()? {
            raw if raw.is_empty() => Ok(Self::default()),
            raw => stored(raw),
        }
    }

    fn save(mut self, v: &mut dyn ObjectView) -> Result<Done, Errno> {
        self.version = self.version.wrapping_add(1);
        v.omap_set_header(self.to_bytes())?;
        Ok(Done)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagTimeoutArgs {
    pub timeout_s: u64,
}
wire_struct!(TagTimeoutArgs(1, 1) { timeout_s });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdateStatsArgs {
    /// The sums replace those that are there, instead of being added.
    pub absolute: bool,
    pub stats: BTreeMap<u8, Stats>,
}
wire_struct!(UpdateStatsArgs(1, 1) { absolute, stats });

pub(super) fn init_index(v: &mut dyn ObjectView, _: Nothing) -> Result<Done, Errno> {
    match v.omap_header() {
        Ok(raw) if !raw.is_empty() => Err(Errno::EINVAL),
        Ok(_) | Err(Errno::ENOENT | Errno::ENODATA) => Header::default().save(v),
        Err(e) => Err(e),
    }
}

pub(super) fn set_tag_timeout(v: &mut dyn ObjectView, args: TagTimeoutArgs) -> Result<Done, Errno> {
    let header = Header::load(v)?;
    Header { tag_timeout_s: args.timeout_s, ..header }.save(v)
}

pub(super) fn update_stats(v: &mut dyn ObjectView, args: UpdateStatsArgs) -> Result<Done, Errno> {
    let mut header = Header::load(v)?;
    for (category, given) in args.stats {
        let stats = header.category(category);
        if args.absolute {
            *stats = given;
        } else {
            stats.merge(&given);
        }
    }
    header.save(v)
}
