//! How much each image is used, summed up from what OSDs tell of the objects of images.
//!
//! Invariants:
//! 1. OSDs are asked while somebody asks here, and for [`KEPT`] after.
//! 2. There are at most [`QUERIES`], each with at most [`IMAGES`] images, of which each pool and namespace
//!    has its part. What an OSD tells, and what is reported, is what is used most: whoever uses much hides
//!    others there, except from a question for their pool or namespace alone.
//! 3. Names are at most [`NAMED_FOR`] old, and a few seconds; of what has none nothing is shown.
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

use super::fair::{Fair, Key};
use super::{Rights, Why, pools, text};
use crate::core::Manager;
use crate::io::Output;
use crate::job::{Failed, Found, Job, Space};

const KEPT: Duration = Duration::from_secs(60);
/// Names of images are asked for again after this long; and after this where an image has none, or the names
/// were not found.
const NAMED_FOR: Duration = Duration::from_secs(60);
const NAMED_AGAIN: Duration = Duration::from_secs(20);
/// Rates are made of two sums that are at most so far apart.
const RATES_WITHIN_S: u64 = 60;
/// What an OSD tells of each counter, and what a report has, at most.
const FROM_OSD: u64 = 256;
const REPORTED: usize = 64;
const QUERIES: usize = 16;
const IMAGES: usize = 8_192;
/// Namespaces of one pool whose images' names are asked for at once.
const NAMED_AT_ONCE: usize = 2;
/// Bytes of an image's id, of its name and of a namespace.
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
pub(super) type Sums = [u64; 6];

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
    gathered: Fair<Sums>,
    images: Fair<Image>,
}

/// Names of images that are used, by id.
#[derive(Debug, Clone, PartialEq, Default)]
struct Names {
    /// `None` before they are found.
    of: Option<BTreeMap<String, String>>,
    asked_at: Duration,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Perf {
    queries: BTreeMap<Place, Query>,
    /// Of places that have been asked for names.
    names: BTreeMap<Space, Names>,
    look_at: Duration,
}

/// What is shown of each image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    Stats,
    Counters,
}

/// A text as a regular expression that is for it alone, for Ceph's OSDs as for ours.
pub(super) fn literally(text: &str) -> String {
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
    let only = |text: &str| format!("^({})$", literally(text));
    let of_pool = pool.map(|pool| only(&pool.0.to_string()));
    let of_namespace = pool.filter(|_| !namespace.is_empty()).map(|_| only(namespace));
    query_of(of_pool.as_deref(), of_namespace.as_deref())
}

/// The same for pools and namespaces that regular expressions match; all where there are none.
pub(super) fn query_of(pools: Option<&str>, namespaces: Option<&str>) -> MetricQuery {
    const ALL: &str = "^(.*)$";
    let part = |kind, regex: &str| KeyPart { kind, regex: regex.to_owned() };
    let counter = |(_, kind): (&str, u8)| MetricCounter { kind };
    MetricQuery {
        key: vec![
            part(key_kind::POOL_ID, pools.unwrap_or(ALL)),
            part(key_kind::NAMESPACE, namespaces.unwrap_or(ALL)),
            part(key_kind::OBJECT_NAME, r"^(?:rbd|journal)_data\.(?:([0-9]+)\.)?([^.]+)\."),
        ],
        counters: COUNTERS.map(counter).to_vec(),
    }
}

/// The image of a key, and where the data is. A name of an object has the pool of its image where that is
/// another one.
pub(super) fn image_of(key: &MetricKey) -> Option<(Key, Space)> {
    let text = |part: usize, group: usize| {
        let bytes = key.get(part)?.get(group)?;
        (bytes.len() <= NAME_BYTES).then(|| std::str::from_utf8(bytes).ok()).flatten()
    };
    let place = Space { pool: PoolId(text(0, 0)?.parse().ok()?), namespace: text(1, 0)?.to_owned() };
    let pool = match text(2, 0)? {
        "" => place.pool,
        other => PoolId(other.parse().ok()?),
    };
    let space = Space { pool, namespace: place.namespace.clone() };
    Some(((space, text(2, 1)?.to_owned()), place))
}

pub(super) fn sums_of(packed: &Bytes) -> Result<Sums, DecodeError> {
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

pub(super) fn plus(a: &Sums, b: &Sums) -> Sums {
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
    fn new(now: Now, pool: Option<PoolId>, namespace: &str) -> Self {
        Self {
            asked_at: now.mono,
            pool,
            metric: metric(pool, namespace),
            gathered: Fair::new(IMAGES),
            images: Fair::new(IMAGES),
        }
    }

    fn take(&mut self, place: &Place, sums: &MetricSums) {
        if sums.counters != self.metric.counters {
            return;
        }
        for (key, packed) in &sums.packed {
            let (Some((image, data)), Ok(sums)) = (image_of(key), sums_of(packed)) else { continue };
            let is_here = place.as_ref().is_none_or(|(_, namespace)| *namespace == image.0.namespace)
                && self.pool.is_none_or(|pool| pool == image.0.pool);
            if let Some(sum) = is_here.then(|| self.gathered.entry(&data, &image)).flatten() {
                *sum = plus(sum, &sums);
            }
        }
    }

    fn look(&mut self, now_s: u64) {
        for (key, image) in self.images.iter_mut() {
            image.look(now_s, self.gathered.remove(key));
        }
        for (key, place, sums) in self.gathered.drain() {
            if let Some(image) = self.images.entry(&place, &key) {
                image.look(now_s, Some(sums));
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
        self.queries.values_mut().for_each(|query| query.look(now.wall.sec.into()));
    }

    /// Where names of images are to be asked for, of each pool: a place where that was not done yet, and the
    /// one where it is due for longest.
    fn unnamed(&mut self, now: Now) -> Vec<Space> {
        // Whether all images that are used have names.
        let mut used: BTreeMap<&Space, bool> = BTreeMap::new();
        for ((space, id), _) in self.queries.values().flat_map(|query| query.images.iter()) {
            let names = self.names.get(space).and_then(|names| names.of.as_ref());
            *used.entry(space).or_insert(true) &= names.is_some_and(|names| names.contains_key(id));
        }
        self.names.retain(|space, _| used.contains_key(space));
        let mut ask: BTreeMap<(PoolId, bool), (Duration, &Space)> = BTreeMap::new();
        for (space, has_all) in used {
            let asked_at = self.names.get(space).map(|names| names.asked_at);
            let wait = if has_all { NAMED_FOR } else { NAMED_AGAIN };
            if asked_at.is_none_or(|at| now.mono >= at + wait) {
                let due = (asked_at.unwrap_or_default(), space);
                let first = ask.entry((space.pool, asked_at.is_none())).or_insert(due);
                *first = due.min(*first);
            }
        }
        ask.into_values().map(|(_, space)| space.clone()).collect()
    }

    fn asked(&mut self, now: Now, space: Space) {
        self.names.entry(space).or_default().asked_at = now.mono;
    }

    /// Takes the names of images; what has none is no image.
    pub fn named(&mut self, space: &Space, result: Result<Found, Failed>) {
        let mut names = match result {
            Ok(Found::Names(names)) => names,
            Err(failed) if failed.errno != Errno::ENOENT => return,
            _ => BTreeMap::new(),
        };
        names.retain(|_, name| name.len() <= NAME_BYTES);
        for query in self.queries.values_mut() {
            query.images.retain(|(of, id)| of != space || names.contains_key(id));
        }
        let is_used =
            |id: &String| self.queries.values().any(|q| q.images.contains(&(space.clone(), id.clone())));
        names.retain(|id, _| is_used(id));
        if let Some(known) = self.names.get_mut(space) {
            known.of = Some(names);
        }
    }

    /// Source: PerfHandler.generate_report.
    fn report(&self, now: Now, map: &OsdMap, place: &Place, sort_by: &str, how: Shown) -> Value {
        let by = COUNTERS.iter().position(|(name, _)| *name == sort_by).unwrap_or(0);
        let Some(query) = self.queries.get(place) else { return Value::Null };
        let of_images: BTreeSet<PoolId> = pools(map).collect();
        let is_here = |pool: &PoolId| query.pool.map_or_else(|| of_images.contains(pool), |p| p == *pool);
        let name = |(space, id): &Key| self.names.get(space)?.of.as_ref()?.get(id);
        let of_here = query.images.iter().filter(|((space, _), _)| is_here(&space.pool));
        // What has no name leaves its place to others.
        let mut images: Vec<_> =
            of_here.filter_map(|(key, image)| Some((&key.0, name(key)?, image))).collect();
        images.sort_by(|a, b| b.2.rate(by).total_cmp(&a.2.rate(by)));
        let mut places: Vec<String> = Vec::new();
        let mut rows = Vec::new();
        for (space, name, image) in images.into_iter().take(REPORTED) {
            let Some(pool) = map.pool_name(space.pool) else { continue };
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
        let new = || Query::new(now, id, &namespace);
        self.queries.entry(place.clone()).or_insert_with(new).asked_at = now.mono;
        text::answer(text::python(&self.report(now, map, &place, sort_by, how)))
    }
}

impl Manager {
    /// Looks at what OSDs have told, once in their period, and asks for names.
    pub(super) fn tick_perf(&mut self, now: Now, out: &mut Vec<Output>) {
        let period = u64::try_from(self.options.int("mgr_stats_period")).unwrap_or(5);
        let (rbd, client) = (&mut self.rbd, &mut self.client);
        if now.mono < rbd.perf.look_at || rbd.perf.queries.is_empty() {
            return;
        }
        rbd.perf.look_at = now.mono + Duration::from_secs(period.max(1));
        rbd.perf.look(now);
        for space in rbd.perf.unnamed(now) {
            let why = Why::Names(space.clone());
            let names = |why: &Why, pool| pool == space.pool && matches!(why, Why::Names(_));
            let of_pool = client.of_rbd().filter(|(_, why, pool)| names(why, *pool)).count();
            if of_pool >= NAMED_AT_ONCE || client.is_under_way(&why) {
                continue;
            }
            if client.submit(Job::Names { space: space.clone() }, why, out).is_some() {
                rbd.perf.asked(now, space);
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
            let space = |pool| Space { pool: PoolId(pool), namespace: namespace.to_owned() };
            Some(((space(pool), id.to_owned()), space(3)))
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
