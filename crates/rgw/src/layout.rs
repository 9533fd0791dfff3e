//! How a bucket's index is spread over objects, and which of them keep its log.
//!
//! Source: src/rgw/rgw_bucket_layout.cc.

use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// Whether there is an index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexType(pub u8);

impl IndexType {
    pub const NORMAL: Self = Self(0);
    /// Its objects cannot be listed.
    pub const INDEXLESS: Self = Self(1);
}

/// How an object's shard follows from its name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HashType(pub u8);

impl HashType {
    pub const MOD: Self = Self(0);
}

/// Objects of an index; 0 for one without a number in its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shards {
    pub count: u32,
    pub hash: HashType,
}

impl Default for Shards {
    fn default() -> Self {
        Self { count: 1, hash: HashType::MOD }
    }
}

impl Encode for Shards {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            self.count.encode(w);
            self.hash.0.encode(w);
        });
    }
}
impl Decode for Shards {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("shards", 1, |r, _| Ok(Self { count: r.u32()?, hash: HashType(r.u8()?) }))
    }
}

/// An index, and how often the bucket was given another one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexGeneration {
    pub generation: u64,
    pub kind: IndexType,
    pub shards: Shards,
}

impl Encode for IndexGeneration {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            self.generation.encode(w);
            w.envelope(1, 1, |w| {
                self.kind.0.encode(w);
                if self.kind == IndexType::NORMAL {
                    self.shards.encode(w);
                }
            });
        });
    }
}
impl Decode for IndexGeneration {
    const MIN_SIZE: usize = 21;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("index generation", 1, |r, _| {
            let generation = r.u64()?;
            r.envelope("index", 1, |r, _| {
                let kind = IndexType(r.u8()?);
                let shards = if kind == IndexType::NORMAL { Decode::decode(r)? } else { Shards::default() };
                Ok(Self { generation, kind, shards })
            })
        })
    }
}

/// A log of changes, which is in the index of the same generation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogGeneration {
    pub generation: u64,
    /// Of the index that it is in.
    pub index: u64,
    pub shards: Shards,
}

/// A log in an index. Source: BucketLogType::InIndex.
const IN_INDEX: u8 = 0;

impl Encode for LogGeneration {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            self.generation.encode(w);
            w.envelope(1, 1, |w| {
                IN_INDEX.encode(w);
                w.envelope(1, 1, |w| {
                    self.index.encode(w);
                    self.shards.encode(w);
                });
            });
        });
    }
}
impl Decode for LogGeneration {
    const MIN_SIZE: usize = 21;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("log generation", 1, |r, _| {
            let generation = r.u64()?;
            r.envelope("log", 1, |r, _| match r.u8()? {
                IN_INDEX => r.envelope("log in index", 1, |r, _| {
                    Ok(Self { generation, index: r.u64()?, shards: Decode::decode(r)? })
                }),
                other => Err(DecodeError::Invalid { what: "kind of log", value: other.into() }),
            })
        })
    }
}

/// Source: BucketLayout.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    /// 1 while the index is spread anew.
    pub resharding: u8,
    pub current: IndexGeneration,
    pub target: Option<IndexGeneration>,
    /// Those that are not trimmed yet, the one in use last.
    pub logs: Vec<LogGeneration>,
}

impl Layout {
    /// Of a new bucket.
    pub fn of_shards(count: u32) -> Self {
        let shards = Shards { count, hash: HashType::MOD };
        let current = IndexGeneration { shards, ..IndexGeneration::default() };
        let logs = vec![LogGeneration { shards, ..LogGeneration::default() }];
        Self { current, logs, ..Self::default() }
    }
}

impl Encode for Layout {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            self.resharding.encode(w);
            self.current.encode(w);
            self.target.encode(w);
            self.logs.encode(w);
        });
    }
}
impl Decode for Layout {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("layout", 2, |r, env| {
            let resharding = r.u8()?;
            let current: IndexGeneration = Decode::decode(r)?;
            let target = Decode::decode(r)?;
            let logs = if env.version >= 2 {
                Decode::decode(r)?
            } else if current.kind == IndexType::NORMAL {
                let (generation, shards) = (current.generation, current.shards);
                vec![LogGeneration { generation, index: generation, shards }]
            } else {
                Vec::new()
            };
            Ok(Self { resharding, current, target, logs })
        })
    }
}
