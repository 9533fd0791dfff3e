//! Sums over what clients do, by the keys that the manager asks for: `rbd perf image iostat` asks for those
//! of images.
//!
//! A key is what the groups of regular expressions match in an operation's client, pool, object and so on.
//! Sums begin anew with each report.
//!
//! Invariants:
//! 1. There are at most `QUERIES`, each of a form that can be answered; others are left out.
//! 2. At most `FRESH` operations wait for the end of their batch.
//! 3. A query holds at most `KEYS` keys and `KEY_BYTES` of their text, and all queries together `HELD_BYTES`
//!    of keys and sums, lists counted as well. What more keys did until the next report is lost.
//!
//! Ceph picks the keys that a limit leaves by chance, with the more weight the more they did; here those that
//! did most are told, and it keeps any number of keys.
//!
//! Source: src/osd/DynamicPerfStats.h, OSD::set_perf_queries in src/osd/OSD.cc.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::Writer;
use messages::metrics::{
    KeyPart, MetricCounter, MetricKey, MetricLimit, MetricQueries, MetricQuery, MetricSums, counter_kind,
    key_kind,
};
use regex::bytes::{CaptureLocations, Regex, RegexBuilder};
use types::{EntityAddr, EntityName, HObject, OsdId, SnapId, SpgId};

/// Queries that are answered; more are not looked at.
pub(crate) const QUERIES: usize = 32;
const KEY_PARTS: usize = 16;
const COUNTERS: usize = 16;
const LIMITS: usize = 32;
const REGEX_BYTES: usize = 1 << 10;
/// Of one regular expression, when it is compiled, and of the states that it makes while it runs.
const PROGRAM_BYTES: usize = 256 << 10;
const GROUPS: usize = 16;
const KEYS: usize = 8_192;
const KEY_BYTES: usize = 1 << 20;
const HELD_BYTES: usize = 16 << 20;
/// Operations of one batch whose time is to come.
const FRESH: usize = 1_024;

/// An operation of a client: what keys are made from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub client: EntityName,
    pub addr: &'a EntityAddr,
    pub osd: OsdId,
    pub pgid: SpgId,
    pub object: &'a HObject,
}

/// What it did.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deed {
    pub reads: bool,
    pub writes: bool,
    pub in_bytes: u64,
    pub out_bytes: u64,
    pub latency_ns: u64,
}

/// See the module's invariants.
#[derive(Debug, Default)]
pub(crate) struct Queries {
    list: Vec<Asked>,
    /// What the present batch of inputs has done, by the query's place in `list`: how long the batch takes
    /// comes on top.
    fresh: Vec<(usize, MetricKey, Deed)>,
    /// Of keys and sums of all queries.
    held_bytes: usize,
}

/// A sum, and for a latency of how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Sum {
    sum: u64,
    count: u64,
}

#[derive(Debug)]
struct Asked {
    query: MetricQuery,
    limits: Vec<MetricLimit>,
    parts: Vec<Part>,
    sums: BTreeMap<MetricKey, Vec<Sum>>,
    /// Of the text of their keys.
    key_bytes: usize,
}

#[derive(Debug)]
struct Part {
    kind: u8,
    regex: Regex,
    groups: CaptureLocations,
}

impl Queries {
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Takes the manager's queries in place of the earlier ones. One that was there before keeps its sums.
    pub fn set(&mut self, queries: MetricQueries) {
        self.settle(0);
        let mut before = std::mem::take(&mut self.list);
        for (query, mut limits) in queries {
            limits.truncate(LIMITS);
            let known = before.iter().position(|a| a.query == query).map(|at| before.swap_remove(at));
            let asked = known.or_else(|| Asked::new(query));
            self.list.extend(asked.map(|a| Asked { limits, ..a }));
        }
        self.list.truncate(QUERIES);
        let keys = self.list.iter().flat_map(|a| a.sums.iter().map(|(key, sums)| held(key, sums.len())));
        self.held_bytes = keys.sum();
    }

    /// Adds an operation to the sums of its key.
    pub fn add(&mut self, subject: &Subject<'_>, deed: Deed) {
        for (at, asked) in self.list.iter_mut().enumerate() {
            self.fresh.extend(asked.key(subject).map(|key| (at, key, deed)));
        }
        if self.fresh.len() >= FRESH {
            self.settle(0);
        }
    }

    /// A batch of inputs is through: its operations took so much longer.
    pub fn settle(&mut self, took_ns: u64) {
        for (at, key, deed) in self.fresh.drain(..) {
            if let Some(asked) = self.list.get_mut(at) {
                let room = HELD_BYTES.saturating_sub(self.held_bytes);
                self.held_bytes +=
                    asked.add(key, Deed { latency_ns: deed.latency_ns + took_ns, ..deed }, room);
            }
        }
    }

    /// The sums since the last call.
    pub fn take(&mut self) -> BTreeMap<MetricQuery, MetricSums> {
        self.settle(0);
        self.held_bytes = 0;
        self.list.iter_mut().map(|a| (a.query.clone(), a.take())).collect()
    }
}

impl Asked {
    /// Nothing when the query cannot be answered. Source: OSDPerfMetricQuery's decoders.
    fn new(query: MetricQuery) -> Option<Self> {
        let counts = |c: &MetricCounter| c.kind <= counter_kind::READ_LATENCY;
        let fits =
            (1..=KEY_PARTS).contains(&query.key.len()) && (1..=COUNTERS).contains(&query.counters.len());
        if !fits || !query.counters.iter().all(counts) {
            return None;
        }
        let parts = query.key.iter().map(Part::new).collect::<Option<Vec<Part>>>()?;
        Some(Self { query, limits: Vec::new(), parts, sums: BTreeMap::new(), key_bytes: 0 })
    }

    fn key(&mut self, subject: &Subject<'_>) -> Option<MetricKey> {
        self.parts.iter_mut().map(|part| part.matched(subject)).collect()
    }

    /// Adds to the sums of a key; the bytes that are held more by it. A new key has to fit into `room`.
    fn add(&mut self, key: MetricKey, deed: Deed, room: usize) -> usize {
        let mut more = 0;
        if !self.sums.contains_key(&key) {
            more = held(&key, self.query.counters.len());
            let text = self.key_bytes.saturating_add(text_len(&key));
            if self.sums.len() >= KEYS || text > KEY_BYTES || more > room {
                return 0;
            }
            self.key_bytes = text;
        }
        let sums = self.sums.entry(key).or_insert_with(|| vec![Sum::default(); self.query.counters.len()]);
        for (sum, counter) in sums.iter_mut().zip(&self.query.counters) {
            sum.add(*counter, deed);
        }
        more
    }

    fn take(&mut self) -> MetricSums {
        self.key_bytes = 0;
        let sums = std::mem::take(&mut self.sums);
        let kept = self.within_limits(&sums);
        let counters = self.query.counters.clone();
        let pack = |sums: &[Sum]| {
            Writer::collect(|w| {
                for (sum, counter) in sums.iter().zip(&counters) {
                    w.u64(sum.sum);
                    if counter.is_latency() {
                        w.u64(sum.count);
                    }
                }
            })
        };
        let told = sums.iter().filter(|(key, _)| kept.as_ref().is_none_or(|kept| kept.contains(*key)));
        let packed = told.map(|(key, sums)| (key.clone(), pack(sums))).collect();
        MetricSums { packed, counters }
    }

    /// The keys that are told; `None`: all. One limit that has room for all of them is enough. Source:
    /// DynamicPerfStats::add_to_reports.
    fn within_limits<'a>(&self, sums: &'a BTreeMap<MetricKey, Vec<Sum>>) -> Option<BTreeSet<&'a MetricKey>> {
        let all = |l: &MetricLimit| l.max_count >= sums.len() as u64;
        if self.limits.is_empty() || self.limits.iter().any(all) {
            return None;
        }
        let mut kept = BTreeSet::new();
        for limit in &self.limits {
            let Some(at) = self.query.counters.iter().position(|c| *c == limit.order_by) else { continue };
            let mut order: Vec<_> =
                sums.iter().map(|(key, s)| (s.get(at).map_or(0, |s| s.sum), key)).collect();
            order.sort_by_key(|(sum, _)| Reverse(*sum));
            let most = usize::try_from(limit.max_count).unwrap_or(usize::MAX);
            kept.extend(order.into_iter().take(most).map(|(_, key)| key));
        }
        Some(kept)
    }
}

/// Bytes that a key with so many sums takes: groups that matched nothing are places in a list, too.
fn held(key: &MetricKey, counters: usize) -> usize {
    let lists = key.iter().map(|groups| size_of_val(groups) + groups.len() * size_of::<Bytes>());
    lists.sum::<usize>() + text_len(key) + counters * size_of::<Sum>()
}

fn text_len(key: &MetricKey) -> usize {
    key.iter().flatten().map(Bytes::len).sum()
}

impl Sum {
    /// Source: DynamicPerfStats::add.
    fn add(&mut self, counter: MetricCounter, deed: Deed) {
        use counter_kind::*;
        let counts = match counter.kind {
            WRITE_OPS | WRITE_BYTES | WRITE_LATENCY => deed.writes,
            READ_OPS | READ_BYTES | READ_LATENCY => deed.reads,
            _ => true,
        };
        if !counts {
            return;
        }
        self.sum += match counter.kind {
            OPS | WRITE_OPS | READ_OPS => 1,
            BYTES => deed.in_bytes + deed.out_bytes,
            WRITE_BYTES => deed.in_bytes,
            READ_BYTES => deed.out_bytes,
            _ => deed.latency_ns,
        };
        self.count += u64::from(counter.is_latency());
    }
}

impl Part {
    fn new(part: &KeyPart) -> Option<Self> {
        if part.kind > key_kind::SNAP_ID || part.regex.len() > REGEX_BYTES {
            return None;
        }
        // Bytes, as in Ceph: names need not be text.
        let regex = RegexBuilder::new(&part.regex)
            .unicode(false)
            .size_limit(PROGRAM_BYTES)
            .dfa_size_limit(PROGRAM_BYTES)
            .build()
            .ok()?;
        // The whole match is one more.
        let groups = regex.captures_len().saturating_sub(1);
        let locations = regex.capture_locations();
        (1..=GROUPS).contains(&groups).then_some(Self { kind: part.kind, regex, groups: locations })
    }

    /// What each group matched, empty where it had no part in the match.
    fn matched(&mut self, subject: &Subject<'_>) -> Option<Vec<Bytes>> {
        let shown;
        let text: &[u8] = match self.kind {
            key_kind::NAMESPACE => subject.object.nspace.as_bytes(),
            key_kind::OBJECT_NAME => subject.object.name.as_bytes(),
            kind => {
                shown = subject.shown(kind);
                shown.as_bytes()
            }
        };
        self.regex.captures_read(&mut self.groups, text)?;
        let group = |at: usize| {
            let range = self.groups.get(at).and_then(|(from, to)| text.get(from..to));
            Bytes::copy_from_slice(range.unwrap_or_default())
        };
        Some((1..self.groups.len()).map(group).collect())
    }
}

impl Subject<'_> {
    /// As Ceph writes it.
    fn shown(&self, kind: u8) -> String {
        match kind {
            key_kind::CLIENT_ID => self.client.to_string(),
            key_kind::CLIENT_ADDRESS => self.addr.to_string(),
            key_kind::POOL_ID => self.pgid.pgid.pool.0.to_string(),
            key_kind::OSD_ID => self.osd.to_string(),
            key_kind::PG_ID => self.pgid.to_string(),
            key_kind::SNAP_ID => match self.object.snap {
                SnapId::HEAD => "head".to_owned(),
                SnapId::SNAPDIR => "snapdir".to_owned(),
                SnapId(snap) => format!("{snap:x}"),
            },
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use types::{PgId, PoolId};

    use super::*;

    const IMAGE: &str = "^(?:rbd|journal)_data\\.(?:([0-9]+)\\.)?([^.]+)\\.";

    fn query(parts: &[(u8, &str)], counters: &[u8]) -> MetricQuery {
        let part = |(kind, regex): &(u8, &str)| KeyPart { kind: *kind, regex: (*regex).to_owned() };
        MetricQuery {
            key: parts.iter().map(part).collect(),
            counters: counters.iter().map(|kind| MetricCounter { kind: *kind }).collect(),
        }
    }

    fn images() -> MetricQuery {
        query(
            &[(key_kind::POOL_ID, "^(.*)$"), (key_kind::NAMESPACE, "^(.*)$"), (key_kind::OBJECT_NAME, IMAGE)],
            &[counter_kind::WRITE_OPS, counter_kind::READ_BYTES, counter_kind::WRITE_LATENCY],
        )
    }

    fn object(name: &str) -> HObject {
        HObject {
            pool: PoolId(3),
            nspace: "ns".into(),
            name: name.into(),
            snap: SnapId(26),
            ..HObject::min()
        }
    }

    const WRITE: Deed = Deed { reads: false, writes: true, in_bytes: 4096, out_bytes: 0, latency_ns: 700 };
    const READ: Deed = Deed { reads: true, writes: false, in_bytes: 0, out_bytes: 512, latency_ns: 300 };

    fn add(q: &mut Queries, name: &str, deed: Deed) {
        let (object, addr) = (object(name), EntityAddr::default());
        let pgid = SpgId::replicated(PgId::new(PoolId(3), 0x1a));
        q.add(
            &Subject { client: EntityName::client(41), addr: &addr, osd: OsdId(2), pgid, object: &object },
            deed,
        );
    }

    fn numbers(packed: &Bytes) -> Vec<u64> {
        let mut r = codec::Reader::new(packed.clone());
        (0..r.remaining() / 8).map(|_| r.u64().expect("a number")).collect()
    }

    /// Keys as one text each, with their sums.
    fn told(q: &mut Queries, query: &MetricQuery) -> Vec<(String, Vec<u64>)> {
        let sums = q.take().remove(query).expect("an answer");
        let text = |key: &MetricKey| {
            let parts = key.iter().map(|groups| {
                groups.iter().map(|g| String::from_utf8_lossy(g).into_owned()).collect::<Vec<_>>().join(",")
            });
            parts.collect::<Vec<_>>().join("/")
        };
        sums.packed.iter().map(|(key, packed)| (text(key), numbers(packed))).collect()
    }

    #[test]
    fn operations_are_summed_by_image_from_one_report_to_the_next() {
        let mut q = Queries::default();
        q.set([(images(), Vec::new())].into());
        add(&mut q, "rbd_data.ab12.0001", WRITE);
        add(&mut q, "rbd_data.ab12.0002", WRITE);
        add(&mut q, "rbd_data.7.ab12.0002", READ);
        add(&mut q, "rbd_header.ab12", WRITE);
        let first =
            [("3/ns/,ab12".to_owned(), vec![2, 0, 1400, 2]), ("3/ns/7,ab12".to_owned(), vec![0, 512, 0, 0])];
        assert_eq!(told(&mut q, &images()), first);
        assert_eq!(told(&mut q, &images()), []);
        // A query that stays keeps what it has; one that goes is not answered.
        add(&mut q, "rbd_data.c.1", WRITE);
        q.set([(images(), Vec::new()), (query(&[(key_kind::OSD_ID, "(.)")], &[0]), Vec::new())].into());
        add(&mut q, "rbd_data.c.1", WRITE);
        assert_eq!(q.take().len(), 2);
        q.set(MetricQueries::new());
        assert!(q.is_empty() && q.take().is_empty());
    }

    #[test]
    fn the_end_of_a_batch_is_waited_for() {
        let mut q = Queries::default();
        q.set([(images(), Vec::new())].into());
        add(&mut q, "rbd_data.a.0", WRITE);
        q.settle(50);
        q.settle(9_000);
        add(&mut q, "rbd_data.a.0", WRITE);
        assert_eq!(told(&mut q, &images()), [("3/ns/,a".to_owned(), vec![2, 0, 700 + 50 + 700, 2])]);
        (0..FRESH * 3).for_each(|_| add(&mut q, "rbd_data.a.0", WRITE));
        assert!(q.fresh.len() < FRESH);
        assert_eq!(told(&mut q, &images()).first().map(|(_, sums)| sums[0]), Some(3 * FRESH as u64));
    }

    #[test]
    fn keys_are_written_as_ceph_does() {
        let kinds = [
            (key_kind::CLIENT_ID, "client.41"),
            (key_kind::POOL_ID, "3"),
            (key_kind::NAMESPACE, "ns"),
            (key_kind::OSD_ID, "2"),
            (key_kind::PG_ID, "3.1a"),
            (key_kind::OBJECT_NAME, "name"),
            (key_kind::SNAP_ID, "1a"),
        ];
        let query =
            query(&kinds.map(|(kind, _)| (kind, "^(.*)$")), &[counter_kind::OPS, counter_kind::BYTES]);
        let mut q = Queries::default();
        q.set([(query.clone(), Vec::new())].into());
        add(&mut q, "name", READ);
        let key = kinds.map(|(_, text)| text).join("/");
        assert_eq!(told(&mut q, &query), [(key, vec![1, 512])]);
    }

    #[test]
    fn limits_leave_the_keys_that_did_most() {
        let limit = |kind, max_count| MetricLimit { order_by: MetricCounter { kind }, max_count };
        let check = |limits: Vec<MetricLimit>, expected: &[&str]| {
            let mut q = Queries::default();
            q.set([(images(), limits)].into());
            for (image, writes) in [("a", 3), ("b", 1), ("c", 2)] {
                (0..writes).for_each(|_| add(&mut q, &format!("rbd_data.{image}.0"), WRITE));
            }
            add(&mut q, "rbd_data.b.0", READ);
            let told: Vec<String> = told(&mut q, &images()).into_iter().map(|(key, _)| key).collect();
            assert_eq!(told, expected.iter().map(|i| format!("3/ns/,{i}")).collect::<Vec<_>>());
        };
        let (writes, reads) = (counter_kind::WRITE_OPS, counter_kind::READ_BYTES);
        check(vec![limit(writes, 2)], &["a", "c"]);
        check(vec![limit(writes, 1), limit(reads, 1)], &["a", "b"]);
        check(vec![limit(writes, 1), limit(reads, 3)], &["a", "b", "c"]);
        // The query does not count what this one orders by.
        check(vec![limit(counter_kind::LATENCY, 1)], &[]);
    }

    #[test]
    fn what_cannot_be_answered_is_left_out() {
        let check = |q: MetricQuery, answered: bool| {
            let mut queries = Queries::default();
            queries.set([(q.clone(), Vec::new())].into());
            assert_eq!(!queries.is_empty(), answered, "{q:?}");
        };
        check(query(&[(0, "(.)")], &[0]), true);
        for regex in ["no group", "(", "(?=ahead)(.)", "(.)\\1", &"(a)".repeat(17), &"x".repeat(2_000)] {
            check(query(&[(0, regex)], &[0]), false);
        }
        check(query(&[(0, "((a{900}){900})")], &[0]), false);
        check(query(&[(8, "(.)")], &[0]), false);
        check(query(&[(0, "(.)")], &[9]), false);
        check(query(&[(0, "(.)")], &[]), false);
        check(query(&[], &[0]), false);
        check(query(&[(0, "(.)"); 17], &[0]), false);
        let many = (0..100).map(|i| (query(&[(0, &format!("({i})"))], &[0]), Vec::new())).collect();
        let mut queries = Queries::default();
        queries.set(many);
        assert_eq!(queries.list.len(), QUERIES);
    }

    #[test]
    fn keys_are_bounded_in_number_and_in_bytes() {
        let by_name = query(&[(key_kind::OBJECT_NAME, "^(.*)$")], &[0]);
        let check = |names: &dyn Fn(usize) -> String, most: usize| {
            let mut q = Queries::default();
            q.set([(by_name.clone(), Vec::new())].into());
            (0..KEYS + 10).for_each(|i| add(&mut q, &names(i), WRITE));
            assert_eq!(told(&mut q, &by_name).len(), most);
            // There is room again.
            add(&mut q, "x", WRITE);
            assert_eq!(told(&mut q, &by_name), [("x".to_owned(), vec![1])]);
        };
        check(&|i| format!("{i}"), KEYS);
        check(&|i| format!("{i:01024}"), KEY_BYTES / 1024);
    }

    /// Sixteen groups of which one matches take half a kilobyte, however short the text is.
    #[test]
    fn what_all_queries_hold_is_bounded_empty_groups_included() {
        let groups = format!("^({})", ["()"; GROUPS - 1].concat() + ".*");
        let part = (key_kind::OBJECT_NAME, groups.as_str());
        let list = (0..8).map(|n: u8| {
            let counters: Vec<u8> = (0..n % 8).chain([counter_kind::OPS]).take(COUNTERS).collect();
            (query(&vec![part; usize::from(n % 4) + 12], &counters), Vec::new())
        });
        let mut q = Queries::default();
        q.set(list.collect());
        assert_eq!(q.list.len(), 8);
        (0..KEYS).for_each(|i| add(&mut q, &format!("{i}"), WRITE));
        q.settle(0);
        let counted: usize =
            q.list.iter().flat_map(|a| a.sums.iter().map(|(key, sums)| held(key, sums.len()))).sum();
        assert_eq!(q.held_bytes, counted);
        assert!((HELD_BYTES / 2..=HELD_BYTES).contains(&counted), "{counted}");
        q.take();
        assert_eq!(q.held_bytes, 0);
    }
}
