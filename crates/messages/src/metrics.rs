//! Queries for sums over what an OSD's clients do, and the answers: `rbd perf image iostat` is made of them.
//!
//! They travel as the last parts of [`MMgrConfigure`] and
//! [`MMgrReport`], which keep them encoded: only an OSD that is asked looks into a query.
//!
//! Source: src/mgr/OSDPerfMetricTypes.h, src/mgr/MetricTypes.h.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};

use crate::mgr::{MMgrConfigure, MMgrReport};
use crate::payload::RestOfFront;

/// METRIC_CONFIG_TYPE_OSD and METRIC_REPORT_TYPE_OSD.
const OF_OSDS: u32 = 0;

/// What a part of a key is made from. Source: OSDPerfMetricSubKeyType.
pub mod key_kind {
    pub const CLIENT_ID: u8 = 0;
    pub const CLIENT_ADDRESS: u8 = 1;
    pub const POOL_ID: u8 = 2;
    pub const NAMESPACE: u8 = 3;
    pub const OSD_ID: u8 = 4;
    pub const PG_ID: u8 = 5;
    pub const OBJECT_NAME: u8 = 6;
    pub const SNAP_ID: u8 = 7;
}

/// What is summed. Bytes; latencies in nanoseconds with how many they are of. Source: PerformanceCounterType.
pub mod counter_kind {
    pub const OPS: u8 = 0;
    pub const WRITE_OPS: u8 = 1;
    pub const READ_OPS: u8 = 2;
    pub const BYTES: u8 = 3;
    pub const WRITE_BYTES: u8 = 4;
    pub const READ_BYTES: u8 = 5;
    pub const LATENCY: u8 = 6;
    pub const WRITE_LATENCY: u8 = 7;
    pub const READ_LATENCY: u8 = 8;
}

/// One part of a key: what the groups of an ECMAScript regular expression match in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct KeyPart {
    /// One of [`key_kind`].
    pub kind: u8,
    pub regex: String,
}
wire_struct!(KeyPart(1, 1) { kind, regex });

/// One of [`counter_kind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct MetricCounter {
    pub kind: u8,
}
wire_struct!(MetricCounter(1, 1) { kind });

impl MetricCounter {
    /// Whether it is a sum together with how many it is of.
    pub fn is_latency(self) -> bool {
        matches!(self.kind, counter_kind::LATENCY | counter_kind::WRITE_LATENCY | counter_kind::READ_LATENCY)
    }
}

/// Sums by key. Source: OSDPerfMetricQuery.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct MetricQuery {
    pub key: Vec<KeyPart>,
    pub counters: Vec<MetricCounter>,
}

impl Encode for MetricQuery {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            put_list(&self.key, w);
            put_list(&self.counters, w);
        });
    }
}
impl Decode for MetricQuery {
    const MIN_SIZE: usize = 8;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("MetricQuery", 1, |r, _| Ok(Self { key: take_list(r)?, counters: take_list(r)? }))
    }
}

/// At most so many keys are told: those with the most of one counter. Source: OSDPerfMetricLimit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct MetricLimit {
    pub order_by: MetricCounter,
    pub max_count: u64,
}
wire_struct!(MetricLimit(1, 1) { order_by, max_count });

/// Queries with their limits; without one every key is told.
pub type MetricQueries = BTreeMap<MetricQuery, Vec<MetricLimit>>;

/// What the groups of each part matched.
pub type MetricKey = Vec<Vec<Bytes>>;

/// The answer to one query. Source: OSDPerfMetricReport.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MetricSums {
    /// Those of the query.
    pub counters: Vec<MetricCounter>,
    /// For each counter a u64, for a latency another one: of how many it is.
    pub packed: BTreeMap<MetricKey, Bytes>,
}

impl Encode for MetricSums {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            put_list(&self.counters, w);
            self.packed.encode(w);
        });
    }
}
impl Decode for MetricSums {
    const MIN_SIZE: usize = 11;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("MetricSums", 1, |r, _| Ok(Self { counters: take_list(r)?, packed: Decode::decode(r)? }))
    }
}

/// A list of denc's with a count of variable length. Source: the denc_traits in OSDPerfMetricTypes.h.
fn put_list<T: Encode>(list: &[T], w: &mut Writer) {
    let mut n = list.len();
    while n > 0x7f {
        w.u8((n & 0x7f) as u8 | 0x80);
        n >>= 7;
    }
    w.u8(n as u8);
    list.iter().for_each(|e| e.encode(w));
}

fn take_list<T: Decode>(r: &mut Reader) -> Result<Vec<T>, DecodeError> {
    let mut claimed = 0_u64;
    for shift in (0..).step_by(7) {
        let byte = r.u8()?;
        if shift > 28 {
            return Err(DecodeError::Invalid { what: "length of a list", value: byte.into() });
        }
        claimed |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    let bound = (r.remaining() / T::MIN_SIZE.max(1)) as u64;
    if claimed > bound {
        return Err(DecodeError::TooLarge { what: "list", claimed, bound });
    }
    (0..claimed).map(|_| T::decode(r)).collect()
}

impl MMgrConfigure {
    /// The queries for OSDs, from either of the two places where they may stand; at most `most` of them.
    pub fn metric_queries(&self, most: usize) -> Result<MetricQueries, DecodeError> {
        let mut r = Reader::new(self.queries.0.clone());
        let queries = take_queries(&mut r, most)?;
        // Before version 4 there was no second place.
        if !queries.is_empty() || r.is_empty() || r.u8()? == 0 || r.u32()? != OF_OSDS {
            return Ok(queries);
        }
        r.envelope("OSDConfigPayload", 1, |r, _| take_queries(r, most))
    }

    #[must_use]
    pub fn with_metric_queries(self, queries: &MetricQueries) -> Self {
        let mut w = Writer::new();
        queries.encode(&mut w);
        w.u8(0);
        Self { queries: RestOfFront(w.into_bytes()), ..self }
    }
}

fn take_queries(r: &mut Reader, most: usize) -> Result<MetricQueries, DecodeError> {
    let n = r.count("queries", MetricQuery::MIN_SIZE + 4)?;
    let mut queries = MetricQueries::new();
    for _ in 0..n {
        let (query, limits) = Decode::decode(r)?;
        if queries.len() < most {
            queries.insert(query, limits);
        }
    }
    Ok(queries)
}

impl MMgrReport {
    /// Adds an OSD's answers to the queries.
    #[must_use]
    pub fn with_metrics(self, metrics: &BTreeMap<MetricQuery, MetricSums>) -> Self {
        let mut w = Writer::new();
        // No answers in the form of earlier versions, and no status of tasks.
        w.u32(0);
        w.u8(0);
        w.u8(1);
        w.u32(OF_OSDS);
        w.envelope(1, 1, |w| metrics.encode(w));
        Self { rest: RestOfFront(w.into_bytes()), ..self }
    }

    /// An OSD's answers to the queries; nothing when there are none of the present form.
    pub fn metrics(&self) -> Result<BTreeMap<MetricQuery, MetricSums>, DecodeError> {
        let mut r = Reader::new(self.rest.0.clone());
        if r.is_empty() {
            return Ok(BTreeMap::new());
        }
        BTreeMap::<MetricQuery, MetricSums>::decode(&mut r)?;
        Option::<BTreeMap<String, String>>::decode(&mut r)?;
        if r.is_empty() || r.u8()? == 0 || r.u32()? != OF_OSDS {
            return Ok(BTreeMap::new());
        }
        r.envelope("OSDMetricPayload", 1, |r, _| Decode::decode(r))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query() -> MetricQuery {
        let part = |kind, regex: &str| KeyPart { kind, regex: regex.to_owned() };
        MetricQuery {
            key: vec![
                part(key_kind::POOL_ID, "^(.*)$"),
                part(key_kind::OBJECT_NAME, "^rbd_data\\.([^.]+)\\."),
            ],
            counters: [counter_kind::WRITE_OPS, counter_kind::READ_LATENCY]
                .map(|kind| MetricCounter { kind })
                .to_vec(),
        }
    }

    #[test]
    fn queries_come_back_and_are_bounded() {
        let limit = MetricLimit { order_by: MetricCounter { kind: 1 }, max_count: 256 };
        let other = MetricQuery { counters: Vec::new(), ..query() };
        let queries: MetricQueries = [(query(), vec![limit]), (other, Vec::new())].into();
        let m = MMgrConfigure::default().with_metric_queries(&queries);
        assert_eq!(m.metric_queries(10), Ok(queries.clone()));
        assert_eq!(m.metric_queries(1).map(|q| q.len()), Ok(1));
        assert_eq!(MMgrConfigure::default().metric_queries(10), Ok(MetricQueries::new()));
        for n in 0..m.queries.0.len() - 1 {
            let cut = MMgrConfigure { queries: RestOfFront(m.queries.0.slice(..n)), ..m.clone() };
            assert!(cut.metric_queries(10).is_err(), "{n}");
        }
        // The second place.
        let mut w = Writer::new();
        w.u32(0);
        w.u8(1);
        w.u32(OF_OSDS);
        w.envelope(1, 1, |w| queries.encode(w));
        let m = MMgrConfigure { queries: RestOfFront(w.into_bytes()), ..m };
        assert_eq!(m.metric_queries(10), Ok(queries));
    }

    #[test]
    fn lists_are_as_long_as_they_say() {
        let many = MetricQuery { counters: vec![MetricCounter { kind: 3 }; 300], ..query() };
        assert_eq!(MetricQuery::from_bytes(many.to_bytes()), Ok(many));
        for bytes in [&[0xff_u8; 12][..], &[1, 1, 6, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f, 0, 0]] {
            assert!(MetricQuery::from_bytes(bytes.to_vec()).is_err(), "{bytes:?}");
        }
    }

    /// Worked out from the encoders in OSDPerfMetricTypes.h; ceph-mgr 16.2.15 takes it.
    #[test]
    fn counts_of_counters_are_short_and_others_are_not() {
        let sums = MetricSums { counters: vec![MetricCounter { kind: 1 }], packed: BTreeMap::new() };
        assert_eq!(sums.to_bytes()[..], [1, 1, 12, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn answers_come_back_and_leave_no_status_of_tasks() {
        let key = vec![vec![Bytes::from_static(b"3")], vec![Bytes::from_static(b"ab12")]];
        let sums =
            MetricSums { counters: query().counters, packed: [(key, Bytes::from_static(&[7; 24]))].into() };
        let metrics: BTreeMap<_, _> = [(query(), sums)].into();
        let m = MMgrReport::default().with_metrics(&metrics);
        assert_eq!((m.metrics(), m.task_status()), (Ok(metrics), None));
        let none = MMgrReport { rest: MMgrReport::NO_REST, ..MMgrReport::default() };
        assert_eq!(none.metrics(), Ok(BTreeMap::new()));
        assert_eq!(MMgrReport::default().metrics(), Ok(BTreeMap::new()));
    }
}
