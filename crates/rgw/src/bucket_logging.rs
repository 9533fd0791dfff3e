//! Where a bucket's requests are logged: records are gathered in an object that is no client's, and become
//! one of another bucket's now and then. 16.2 has nothing of the kind, and passes over it. Source:
//! src/rgw/rgw_bucket_logging.h of 20.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};

use crate::KeyFilter;

/// Names of logs: behind their prefix they have their time, or in front of that also whose bucket it was,
/// where, and the day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogKeys {
    Partitioned,
    #[default]
    Simple,
}

/// What is logged: all requests, or what changed, in a few words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogKind {
    #[default]
    Standard,
    Journal,
}

/// The attribute `user.rgw.logging`. Source: configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BucketLogging {
    /// `[tenant:]bucket`.
    pub target: Bytes,
    pub keys: LogKeys,
    pub prefix: Bytes,
    /// Seconds until a log is closed.
    pub roll_s: u32,
    pub kind: LogKind,
    /// Records that are gathered in memory; 0 for none.
    pub batch: u32,
    /// Whether days in names are those of the events.
    pub by_event: bool,
    /// Of journals alone.
    pub filter: KeyFilter,
}

fn known<T>(value: u32, of: [T; 2]) -> Result<T, DecodeError> {
    let place = usize::try_from(value).unwrap_or(usize::MAX);
    let wrong = DecodeError::Invalid { what: "bucket logging", value: value.into() };
    of.into_iter().nth(place).ok_or(wrong)
}

impl Encode for BucketLogging {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            self.target.encode(w);
            u32::from(self.keys == LogKeys::Simple).encode(w);
            self.prefix.encode(w);
            self.roll_s.encode(w);
            u32::from(self.kind == LogKind::Journal).encode(w);
            self.batch.encode(w);
            u32::from(self.by_event).encode(w);
            if self.kind == LogKind::Journal {
                self.filter.encode(w);
            }
        });
    }
}
impl Decode for BucketLogging {
    const MIN_SIZE: usize = 34;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("bucket logging", 1, |r, _| {
            let (target, keys) = (r.blob()?, known(r.u32()?, [LogKeys::Partitioned, LogKeys::Simple])?);
            let (prefix, roll_s) = (r.blob()?, r.u32()?);
            let kind = known(r.u32()?, [LogKind::Standard, LogKind::Journal])?;
            let (batch, by_event) = (r.u32()?, known(r.u32()?, [false, true])?);
            let filter = if kind == LogKind::Journal { Decode::decode(r)? } else { KeyFilter::default() };
            Ok(Self { target, keys, prefix, roll_s, kind, batch, by_event, filter })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the source: no release that writes it is at hand.
    #[test]
    fn settings_are_as_later_releases_have_them() {
        let plain =
            BucketLogging { target: "t:b".into(), prefix: "p/".into(), roll_s: 300, ..Default::default() };
        let want =
            b"\x01\x01\x21\0\0\0\x03\0\0\0t:b\x01\0\0\0\x02\0\0\0p/\x2c\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        assert_eq!(&plain.to_bytes()[..], want);
        let filter = KeyFilter { prefix: "a".into(), ..KeyFilter::default() };
        let journal = BucketLogging {
            kind: LogKind::Journal,
            keys: LogKeys::Partitioned,
            by_event: true,
            filter,
            ..plain.clone()
        };
        for all in [plain, journal] {
            let bytes = all.to_bytes();
            assert_eq!(BucketLogging::from_bytes(bytes.clone()), Ok(all));
            for end in 0..bytes.len() {
                assert!(BucketLogging::from_bytes(bytes.slice(..end)).is_err(), "{end}");
            }
        }
        let mut odd = want.to_vec();
        odd[13] = 2;
        assert!(BucketLogging::from_bytes(Bytes::from(odd)).is_err());
    }
}
