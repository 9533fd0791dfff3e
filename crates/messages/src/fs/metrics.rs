//! What a client tells of its own speed and of what it keeps.
//!
//! Source: src/messages/MClientMetrics.h, src/include/cephfs/metrics/Types.h; the later kinds as 16.2.15
//! sends them.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_plain};
use types::Utime;

use crate::payload::message;
use crate::type_numbers;

/// Times of operations: the last one's and the mean are stamps of 64 bits, as `Utime` travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Latency {
    pub last: Utime,
    /// Since the second form, like what follows.
    pub mean: Utime,
    pub squares: u64,
    pub count: u64,
}

/// Two numbers of one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pair {
    pub first: u64,
    pub second: u64,
}
wire_plain!(Pair { first, second });

/// Found in the cache, not found there, and how many are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hits {
    pub hits: u64,
    pub misses: u64,
    pub kept: u64,
}
wire_plain!(Hits { hits, misses, kept });

/// One metric.
#[derive(Debug, Clone, PartialEq)]
pub enum Metric {
    Caps(Hits),
    Read(Latency),
    Write(Latency),
    Metadata(Latency),
    Leases(Hits),
    /// Open files of all inodes.
    OpenFiles(Pair),
    /// Inodes kept by capabilities of all.
    PinnedCaps(Pair),
    /// Open inodes of all.
    OpenInodes(Pair),
    /// Operations and their bytes.
    ReadSizes(Pair),
    WriteSizes(Pair),
    /// Of a later release, as it came.
    Other {
        kind: u32,
        version: u8,
        compat: u8,
        body: Bytes,
    },
}

impl Metric {
    fn kind(&self) -> u32 {
        match self {
            Self::Caps(_) => 0,
            Self::Read(_) => 1,
            Self::Write(_) => 2,
            Self::Metadata(_) => 3,
            Self::Leases(_) => 4,
            Self::OpenFiles(_) => 5,
            Self::PinnedCaps(_) => 6,
            Self::OpenInodes(_) => 7,
            Self::ReadSizes(_) => 8,
            Self::WriteSizes(_) => 9,
            Self::Other { kind, .. } => *kind,
        }
    }
}

fn latency(r: &mut Reader, version: u8) -> Result<Latency, DecodeError> {
    let last = Utime::decode(r)?;
    if version < 2 {
        return Ok(Latency { last, ..Latency::default() });
    }
    Ok(Latency { last, mean: Utime::decode(r)?, squares: r.u64()?, count: r.u64()? })
}

impl Encode for Metric {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.kind());
        match self {
            Self::Caps(hits) | Self::Leases(hits) => w.envelope(1, 1, |w| hits.encode(w)),
            Self::Read(of) | Self::Write(of) | Self::Metadata(of) => w.envelope(2, 1, |w| {
                of.last.encode(w);
                of.mean.encode(w);
                w.u64(of.squares);
                w.u64(of.count);
            }),
            Self::OpenFiles(pair)
            | Self::PinnedCaps(pair)
            | Self::OpenInodes(pair)
            | Self::ReadSizes(pair)
            | Self::WriteSizes(pair) => w.envelope(1, 1, |w| pair.encode(w)),
            Self::Other { version, compat, body, .. } => w.envelope(*version, *compat, |w| w.raw(body)),
        }
    }
}
impl Decode for Metric {
    const MIN_SIZE: usize = 10;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        let kind = r.u32()?;
        r.envelope("client metric", u8::MAX, |r, env| {
            Ok(match kind {
                0 => Self::Caps(Decode::decode(r)?),
                1 => Self::Read(latency(r, env.version)?),
                2 => Self::Write(latency(r, env.version)?),
                3 => Self::Metadata(latency(r, env.version)?),
                4 => Self::Leases(Decode::decode(r)?),
                5 => Self::OpenFiles(Decode::decode(r)?),
                6 => Self::PinnedCaps(Decode::decode(r)?),
                7 => Self::OpenInodes(Decode::decode(r)?),
                8 => Self::ReadSizes(Decode::decode(r)?),
                9 => Self::WriteSizes(Decode::decode(r)?),
                _ => Self::Other { kind, version: env.version, compat: env.compat, body: r.rest() },
            })
        })
    }
}

message! {
    /// Metrics of a client, every few seconds.
    #[derive(Default)]
    MClientMetrics = type_numbers::CLIENT_METRICS, "client_metrics", 1, 1 { metrics: Vec<Metric> }
}
