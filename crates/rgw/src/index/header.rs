//! The header of a bucket index: how much the bucket holds by category, and the state of its log and its
//! resharding.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};

use super::entry::{Entry, Meta};

/// Sizes are also counted in whole blocks of this many bytes. Source: ROUND_BLOCK_SIZE in
/// src/cls/rgw/cls_rgw_types.h.
const BLOCK: u64 = 4096;

/// Sums over the objects of one category.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes as clients see them.
    pub size: u64,
    /// The same, each object in whole blocks.
    pub size_rounded: u64,
    /// Objects.
    pub entries: u64,
    /// Bytes as stored, after compression and encryption.
    pub stored: u64,
}

impl Stats {
    fn add(&mut self, meta: &Meta) {
        self.entries = self.entries.wrapping_add(1);
        self.size = self.size.wrapping_add(meta.accounted_size);
        self.size_rounded = self.size_rounded.wrapping_add(rounded(meta.accounted_size));
        self.stored = self.stored.wrapping_add(meta.size);
    }

    fn subtract(&mut self, meta: &Meta) {
        self.entries = self.entries.wrapping_sub(1);
        self.size = self.size.wrapping_sub(meta.accounted_size);
        self.size_rounded = self.size_rounded.wrapping_sub(rounded(meta.accounted_size));
        self.stored = self.stored.wrapping_sub(meta.size);
    }

    pub fn merge(&mut self, other: &Self) {
        self.entries = self.entries.wrapping_add(other.entries);
        self.size = self.size.wrapping_add(other.size);
        self.size_rounded = self.size_rounded.wrapping_add(other.size_rounded);
        self.stored = self.stored.wrapping_add(other.stored);
    }
}

fn rounded(size: u64) -> u64 {
    size.wrapping_add(BLOCK - 1) & !(BLOCK - 1)
}

impl Encode for Stats {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 2, |w| {
            self.size.encode(w);
            self.size_rounded.encode(w);
            self.entries.encode(w);
            self.stored.encode(w);
        });
    }
}
impl Decode for Stats {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope("category stats", 3, 2, |r, version| {
            let (size, size_rounded, entries) = (r.u64()?, r.u64()?, r.u64()?);
            let stored = if version >= 3 { r.u64()? } else { size };
            Ok(Self { size, size_rounded, entries, stored })
        })
    }
}

/// Whether the bucket moves to other shards, and to which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resharding {
    /// 0 when it does not, 1 under way, 2 done; others are kept as they are.
    pub status: u8,
    pub new_instance: Bytes,
    /// Shards of the new instance; -1 when there never was one.
    pub shards: i32,
}
wire_struct!(Resharding(1, 1) { status, new_instance, shards });

impl Default for Resharding {
    fn default() -> Self {
        Self { status: 0, new_instance: Bytes::new(), shards: -1 }
    }
}

/// Source: rgw_bucket_dir_header in src/cls/rgw/cls_rgw_types.h.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Header {
    /// By category of objects.
    pub stats: BTreeMap<u8, Stats>,
    /// Seconds after which a prepared change that was not completed counts no more; 0 for the default.
    pub tag_timeout_s: u64,
    /// Counts the changes of this header.
    pub version: u64,
    pub master_version: u64,
    /// The largest id in the log so far.
    pub max_marker: Bytes,
    pub resharding: Resharding,
    /// No change is logged.
    pub log_stopped: bool,
}

impl Encode for Header {
    fn encode(&self, w: &mut Writer) {
        w.envelope(7, 2, |w| {
            self.stats.encode(w);
            self.tag_timeout_s.encode(w);
            self.version.encode(w);
            self.master_version.encode(w);
            self.max_marker.encode(w);
            self.resharding.encode(w);
            self.log_stopped.encode(w);
        });
    }
}
impl Decode for Header {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.legacy_envelope("bucket header", 6, 2, |r, version| {
            let mut h = Self { stats: Decode::decode(r)?, ..Self::default() };
            if version > 2 {
                h.tag_timeout_s = r.u64()?;
            }
            if version >= 4 {
                (h.version, h.master_version) = (r.u64()?, r.u64()?);
            }
            if version >= 5 {
                h.max_marker = r.blob()?;
            }
            if version >= 6 {
                h.resharding = Decode::decode(r)?;
            }
            if version >= 7 {
                h.log_stopped = Decode::decode(r)?;
            }
            Ok(h)
        })
    }
}

impl Header {
    /// Counts an object in.
    pub fn count(&mut self, entry: &Entry) {
        self.category(entry.meta.category).add(&entry.meta);
    }

    /// Counts an object out, if its entry says that there is one.
    pub fn uncount(&mut self, entry: &Entry) {
        if entry.exists {
            self.category(entry.meta.category).subtract(&entry.meta);
        }
    }

    /// A category's sums, from now on in the header.
    pub fn category(&mut self, category: u8) -> &mut Stats {
        self.stats.entry(category).or_default()
    }
}
