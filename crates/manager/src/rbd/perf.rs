//! How much each image is used, summed up from what OSDs tell of the objects of images.
//!
//! Invariants:
//! 1. OSDs are asked while somebody asks here, and for [`KEPT`] after.
//! 2. There are at most [`QUERIES`], each with at most [`IMAGES`] images.
//!
//! Source: src/pybind/mgr/rbd_support/perf.py, src/mgr/OSDPerfMetricCollector.cc (16.2).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use codec::{DecodeError, Reader};
use maps::OsdMap;
use messages::metrics::{
    KeyPart, MetricCounter, MetricKey, MetricLimit, MetricQueries, MetricQuery, MetricSums, counter_kind,
    key_kind,
};
use monitor::command::Reply;
use serde_json::{Map, Value, json};
use types::{Errno, Now, PoolId};

use super::job::{Failed, Found, Job, Space};
use super::{Rights, Why, pools, text};
use crate::core::Manager;
use crate::io::Output;

const KEPT: Duration = Duration::from_secs(60);
/// Names of images are asked for again after this long.
const NAMED_FOR: Duration = Duration::from_secs(300);
/// Rates are made of two sums that are at most so far apart.
const RATES_WITHIN_S: u64 = 60;
/// What an OSD tells of each counter, and what a report has, at most.
const FROM_OSD: u64 = 256;
const REPORTED: usize = 64;
const QUERIES: usize = 16;
const IMAGES: usize = 8_192;
/// Namespaces of one pool whose images' names are asked for at once.
const NAMED_AT_ONCE: usize = 2;
/// Bytes of an image's id and of a namespace.
const NAME_BYTES: usize = 256;

const COUNTERS: [(&str, u8); 6] = [
    ("write_ops", counter_kind::WRITE_OPS),
    ("read_ops", counter_kind::READ_OPS),
    ("write_bytes", counter_kind::WRITE_BYTES),
    ("read_bytes", counter_kind::READ_BYTES),
    ("write_latency", counter_kind::WRITE_LATENCY),
    ("read_latency", counter_kind::READ_LATENCY),
];
/// By place in `COUNTERS`; latencies are nanoseconds.
type Sums = [u64; 6];

/// A pool and a namespace; `None` for all pools.
type Place = Option<(String, String)>;

/// Sums since the last look, those before, and all.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Image {
    last: Option<(u64, Sums)>,
    before: Option<(u64, Sums)>,
    total: Option<Sums>,
}

#[derive(Debug, Clone, PartialEq)]
struct Query {
    asked_at: Duration,
    pool: Option<PoolId>,
    metric: MetricQuery,
    /// What OSDs have told since the last look.
    gathered: BTreeMap<(Space, String), Sums>,
    images: BTreeMap<(Space, String), Image>,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Perf {
    queries: BTreeMap<Place, Query>,
    /// By id.
    names: BTreeMap<Space, BTreeMap<String, String>>,
    named_at: Duration,
    /// Where there are images whose names are not known.
    unnamed: BTreeSet<Space>,
    look_at: Duration,
}

/// What is shown of each image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    Stats,
    Counters,
}

/// A text as a regular expression that is for it alone, for Ceph's OSDs as for ours.
fn literally(text: &str) -> String {
    let mut regex = String::with_capacity(text.len());
    for c in text.chars() {
        if r"\^$.|?*+()[]{}".contains(c) {
            regex.push('\\');
        }
        regex.push(c);
    }
    regex
}

/// What OSDs are asked for a place.
fn metric(pool: Option<PoolId>, namespace: &str) -> MetricQuery {
    const ALL: &str = "^(.*)$";
    let only = |text: &str| format!("^({})$", literally(text));
    let part = |kind, regex: &str| KeyPart { kind, regex: regex.to_owned() };
    let of_pool = pool.map(|pool| only(&pool.0.to_string()));
    let of_namespace = pool.filter(|_| !namespace.is_empty()).map(|_| only(namespace));
    let counter = |(_, kind): (&str, u8)| MetricCounter { kind };
    MetricQuery {
        key: vec![
            part(key_kind::POOL_ID, of_pool.as_deref().unwrap_or(ALL)),
            part(key_kind::NAMESPACE, of_namespace.as_deref().unwrap_or(ALL)),
            part(key_kind::OBJECT_NAME, r"^(?:rbd|journal)_data\.(?:([0-9]+)\.)?([^.]+)\."),
        ],
        counters: COUNTERS.map(counter).to_vec(),
    }
}

/// The image of a key. A name of an object has the pool of its image where that is another one.
fn image_of(key: &MetricKey) -> Option<(Space, String)> {
    let text = |part: usize, group: usize| {
        let bytes = key.get(part)?.get(group)?;
        (bytes.len() <= NAME_BYTES).then(|| std::str::from_utf8(bytes).ok()).flatten()
    };
    let pool = text(2, 0).filter(|pool| !pool.is_empty()).or_else(|| text(0, 0))?;
    let space = Space { pool: PoolId(pool.parse().ok()?), namespace: text(1, 0)?.to_owned() };
    Some((space, text(2, 1)?.to_owned()))
}

fn sums_of(packed: &Bytes) -> Result<Sums, DecodeError> {
    let mut r = Reader::new(packed.clone());
    let mut sums = Sums::default();
    for (sum, (_, kind)) in sums.iter_mut().zip(COUNTERS) {
        *sum = r.u64()?;
        if (MetricCounter { kind }).is_latency() {
            r.u64()?;
        }
    }
    Ok(sums)
}

fn plus(a: &Sums, b: &Sums) -> Sums {
    std::array::from_fn(|at| a.get(at).unwrap_or(&0).saturating_add(*b.get(at).unwrap_or(&0)))
}

impl Image {
    /// What came since the last look, at this second.
    fn look(&mut self, now_s: u64, news: Option<Sums>) {
        match news {
            Some(sums) => {
                if self.last.is_none_or(|(at, _)| at < now_s) {
                    self.before = self.last.or(self.before);
                    self.last = Some((now_s, sums));
                }
                self.total = Some(self.total.map_or(sums, |total| plus(&total, &sums)));
            }
            None if self.last.is_some_and(|(at, _)| at < now_s) => {
                self.before = self.last.replace((now_s, Sums::default()));
            }
            None => {}
        }
    }

    /// By second; latencies by operation. Source: PerfHandler.extract_stat.
    fn rate(&self, at: usize) -> f64 {
        let (Some((now, sums)), Some((before, _))) = (self.last, self.before) else { return 0.0 };
        if now <= before || now - before > RATES_WITHIN_S {
            return 0.0;
        }
        let rate = sums.get(at).copied().unwrap_or(0) as f64 / (now - before) as f64;
        match at {
            // Of writes and reads, which come first.
            4 | 5 => rate / self.rate(at - 4).max(1.0),
            _ => rate,
        }
    }

    fn shown(&self, how: Shown) -> Vec<Value> {
        let value = |at: usize| match how {
            Shown::Stats => json!(self.rate(at)),
            Shown::Counters => json!(self.total.and_then(|t| t.get(at).copied()).unwrap_or(0)),
        };
        (0..COUNTERS.len()).map(value).collect()
    }
}

impl Query {
    fn take(&mut self, place: &Place, sums: &MetricSums) {
        if sums.counters != self.metric.counters {
            return;
        }
        for (key, packed) in &sums.packed {
            let (Some(image), Ok(sums)) = (image_of(key), sums_of(packed)) else { continue };
            let is_here = place.as_ref().is_none_or(|(_, namespace)| *namespace == image.0.namespace);
            let is_known = self.gathered.contains_key(&image);
            if is_here && (is_known || self.gathered.len() < IMAGES) {
                let sum = self.gathered.entry(image).or_default();
                *sum = plus(sum, &sums);
            }
        }
    }

    fn look(&mut self, now_s: u64) {
        let mut news = std::mem::take(&mut self.gathered);
        for (key, image) in &mut self.images {
            image.look(now_s, news.remove(key));
        }
        for (key, sums) in news {
            if self.images.len() < IMAGES {
                self.images.entry(key).or_default().look(now_s, Some(sums));
            }
        }
    }
}

impl Perf {
    /// What OSDs are to sum up.
    pub fn queries(&self) -> MetricQueries {
        let limit =
            |(_, kind): (&str, u8)| MetricLimit { order_by: MetricCounter { kind }, max_count: FROM_OSD };
        self.queries.values().map(|q| (q.metric.clone(), COUNTERS.map(limit).to_vec())).collect()
    }

    /// Takes an OSD's answers.
    pub fn take(&mut self, metrics: &BTreeMap<MetricQuery, MetricSums>) {
        for (place, query) in &mut self.queries {
            if let Some(sums) = metrics.get(&query.metric) {
                query.take(place, sums);
            }
        }
    }

    fn look(&mut self, now: Now) {
        self.queries.retain(|_, q| now.mono < q.asked_at + KEPT);
        if now.mono >= self.named_at + NAMED_FOR {
            self.names.clear();
        }
        for query in self.queries.values_mut() {
            query.look(now.wall.sec.into());
            for (space, id) in query.images.keys() {
                if !self.names.get(space).is_some_and(|names| names.contains_key(id)) {
                    self.unnamed.insert(space.clone());
                }
            }
        }
        if self.queries.is_empty() {
            (self.names, self.unnamed) = Default::default();
        }
    }

    /// Takes the names of images; what has none is no image.
    pub fn named(&mut self, space: &Space, result: Result<Found, Failed>) {
        let mut names = match result {
            Ok(Found::Names(names)) => names,
            Err(failed) if failed.errno != Errno::ENOENT => return,
            _ => BTreeMap::new(),
        };
        for query in self.queries.values_mut() {
            query.images.retain(|(of, id), _| of != space || names.contains_key(id));
        }
        let is_used =
            |id: &String| self.queries.values().any(|q| q.images.contains_key(&(space.clone(), id.clone())));
        names.retain(|id, _| is_used(id));
        self.names.insert(space.clone(), names);
    }

    /// Source: PerfHandler.generate_report.
    fn report(&self, now: Now, map: &OsdMap, place: &Place, sort_by: &str, how: Shown) -> Value {
        let by = COUNTERS.iter().position(|(name, _)| *name == sort_by).unwrap_or(0);
        let Some(query) = self.queries.get(place) else { return Value::Null };
        let of_images: BTreeSet<PoolId> = pools(map).collect();
        let is_here = |pool: &PoolId| query.pool.map_or_else(|| of_images.contains(pool), |p| p == *pool);
        let mut images: Vec<_> = query.images.iter().filter(|((space, _), _)| is_here(&space.pool)).collect();
        images.sort_by(|a, b| b.1.rate(by).total_cmp(&a.1.rate(by)));
        let mut places: Vec<String> = Vec::new();
        let mut rows = Vec::new();
        for ((space, id), image) in images.into_iter().take(REPORTED) {
            let name = self.names.get(space).and_then(|names| names.get(id));
            let (Some(name), Some(pool)) = (name, map.pool_name(space.pool)) else { continue };
            let place = match space.namespace.as_str() {
                "" => pool.to_owned(),
                namespace => format!("{pool}/{namespace}"),
            };
            let at = places.iter().position(|p| *p == place).unwrap_or_else(|| {
                places.push(place);
                places.len() - 1
            });
            let values = image.shown(how);
            if values.iter().any(|v| v.as_f64() != Some(0.0)) {
                rows.push(Value::Object(Map::from_iter([(format!("{at}/{name}"), values.into())])));
            }
        }
        let kind = if how == Shown::Stats { "stat" } else { "counter" };
        let places = places.into_iter().enumerate().map(|(at, place)| (at.to_string(), place.into()));
        Value::Object(Map::from_iter([
            ("timestamp".to_owned(), json!(f64::from(now.wall.sec))),
            (format!("{kind}_descriptors"), COUNTERS.iter().map(|(name, _)| *name).collect()),
            ("pool_descriptors".to_owned(), Value::Object(places.collect())),
            (format!("{kind}s"), rows.into()),
        ]))
    }

    /// Answers for a place, from what is known so far; from now on OSDs are asked.
    pub fn answer(
        &mut self,
        now: Now,
        map: &OsdMap,
        rights: &Rights,
        [spec, sort_by]: [&str; 2],
        how: Shown,
    ) -> Reply {
        let Some(place) = text::pool_key(spec) else {
            return Reply::error(Errno::EINVAL, format!("Invalid pool spec: {spec}"));
        };
        let (pool, namespace) = place.clone().unwrap_or_default();
        if namespace.len() > NAME_BYTES {
            return Reply::error(Errno::EINVAL, format!("the namespace has more than {NAME_BYTES} bytes"));
        }
        if let Some(refusal) = rights.refusal(&pool, &namespace) {
            return refusal;
        }
        let id = map.pool_by_name(&pool);
        if place.is_some() && id.is_none() {
            let text = format!("[errno 2] RADOS object not found (Pool '{pool}' not found)");
            return Reply::error(Errno::ENOENT, text);
        }
        // One that was deleted and made again is another pool.
        self.queries.retain(|p, q| *p != place || q.pool == id);
        if !self.queries.contains_key(&place) && self.queries.len() >= QUERIES {
            return Reply::error(Errno::EAGAIN, "too many pools are looked at");
        }
        let new = || Query {
            asked_at: now.mono,
            pool: id,
            metric: metric(id, &namespace),
            gathered: BTreeMap::new(),
            images: BTreeMap::new(),
        };
        self.queries.entry(place.clone()).or_insert_with(new).asked_at = now.mono;
        text::answer(text::python(&self.report(now, map, &place, sort_by, how)))
    }
}

impl Manager {
    /// Looks at what OSDs have told, once in their period, and asks for names.
    pub(super) fn tick_perf(&mut self, now: Now, out: &mut Vec<Output>) {
        let period = u64::try_from(self.options.int("mgr_stats_period")).unwrap_or(5);
        let rbd = &mut self.rbd;
        if now.mono < rbd.perf.look_at || rbd.perf.queries.is_empty() {
            return;
        }
        rbd.perf.look_at = now.mono + Duration::from_secs(period.max(1));
        rbd.perf.look(now);
        for space in std::mem::take(&mut rbd.perf.unnamed) {
            let why = Why::Names(space.clone());
            let of_pool = |(why, pool): &&(Why, PoolId)| *pool == space.pool && matches!(why, Why::Names(_));
            if rbd.jobs.values().filter(of_pool).count() >= NAMED_AT_ONCE {
                continue;
            }
            if !rbd.is_under_way(&why) && rbd.submit(Job::Names { space }, why, out).is_some() {
                rbd.perf.named_at = now.mono;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_two_looks_and_latencies_of_an_operation() {
        let mut image = Image::default();
        let sums = [50, 0, 5_000, 0, 100_000, 0];
        image.look(100, Some(sums));
        assert_eq!(image.rate(0), 0.0, "there is nothing to compare with");
        image.look(105, Some(sums));
        assert_eq!([0, 2, 4, 5].map(|at| image.rate(at)), [10.0, 1_000.0, 2_000.0, 0.0]);
        assert_eq!(image.total, Some(sums.map(|s| s * 2)));
        image.look(110, None);
        assert_eq!((image.rate(0), image.total), (0.0, Some(sums.map(|s| s * 2))));
        image.look(200, Some(sums));
        assert_eq!(image.rate(0), 0.0, "too long ago");
    }

    #[test]
    fn keys_name_an_image_and_its_pool() {
        let key = |parts: [&[&str]; 3]| -> MetricKey {
            parts.iter().map(|p| p.iter().map(|g| Bytes::copy_from_slice(g.as_bytes())).collect()).collect()
        };
        let image = |pool, namespace: &str, id: &str| {
            Some((Space { pool: PoolId(pool), namespace: namespace.to_owned() }, id.to_owned()))
        };
        assert_eq!(image_of(&key([&["3"], &["n"], &["", "ab"]])), image(3, "n", "ab"));
        assert_eq!(image_of(&key([&["3"], &[""], &["5", "ab"]])), image(5, "", "ab"));
        let long = "x".repeat(NAME_BYTES + 1);
        for bad in [
            key([&["x"], &[""], &["", "ab"]]),
            key([&["3"], &[""], &[""]]),
            key([&["3"], &[""], &["", &long]]),
        ] {
            assert_eq!(image_of(&bad), None);
        }
        assert!(sums_of(&Bytes::from_static(&[0; 63])).is_err());
        assert_eq!(sums_of(&Bytes::from_static(&[0; 64])), Ok([0; 6]));
    }
}
