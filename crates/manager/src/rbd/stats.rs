//! What each image of some pools has been used for since this manager came into charge: what Prometheus is
//! told of images, where the option `rbd_stats_pools` names their pools.
//!
//! Invariants:
//! 1. OSDs are asked while the module is on and the option names a pool that is for images.
//! 2. There are at most [`IMAGES`], whatever pools hold. Which of them have no room is counted, and said.
//! 3. An image is told of when its name is known. What it did before counts, as long as there is room.
//!
//! Source: get_rbd_stats and refresh_rbd_stats_pools in src/pybind/mgr/prometheus/module.py (16.2).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use maps::OsdMap;
use messages::metrics::{MetricQuery, MetricSums};
use types::{Errno, Now, PoolId};

use super::perf::{Sums, image_of, literally, plus, query_of, sums_of};
use super::{Why, pools};
use crate::core::Manager;
use crate::io::Output;
use crate::job::{Failed, Found, Job, Space};

/// Images of all pools together: eight series each, which are about a kilobyte of text.
const IMAGES: usize = 8_192;
/// Namespaces of one pool, and entries of the option.
const SPACES: usize = 256;
const ENTRIES: usize = 256;
const NAME_BYTES: usize = 256;
/// After images of which no name is known, or an answer that did not come, names are asked for again.
const AGAIN: Duration = Duration::from_secs(20);
/// A regular expression that is longer is refused by OSDs; then they tell of all pools.
const REGEX_BYTES: usize = 1_000;

/// What is wanted of a pool: some namespaces, or all where there are none.
type Wanted = BTreeMap<PoolId, BTreeSet<String>>;

/// An image; its name is empty before it is known.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Image {
    pub name: String,
    pub sums: Sums,
}

/// What is known of a pool's names.
#[derive(Debug, Clone, PartialEq, Default)]
struct Pool {
    /// Of which names are still to be asked for, and when they last were.
    due: BTreeSet<Space>,
    asked: BTreeMap<Space, Duration>,
    /// When its namespaces are asked for again.
    look_at: Duration,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Stats {
    wanted: Wanted,
    query: Option<MetricQuery>,
    pools: BTreeMap<PoolId, Pool>,
    images: BTreeMap<Space, BTreeMap<String, Image>>,
    /// Images that there was no room for.
    left_out: BTreeMap<Space, usize>,
    said: bool,
}

impl Pool {
    /// A place whose names are to be asked for: whatever writes to objects that are no image's does not have
    /// them asked for all the time.
    fn next(&self, now: Now) -> Option<Space> {
        let is_due = |space: &&Space| self.asked.get(space).is_none_or(|at| now.mono >= *at + AGAIN);
        self.due.iter().find(is_due).cloned()
    }
}

impl Stats {
    pub fn query(&self) -> Option<&MetricQuery> {
        self.query.as_ref()
    }

    pub fn images(&self) -> impl Iterator<Item = (&Space, &Image)> {
        let all = self.images.iter().flat_map(|(space, images)| images.values().map(move |i| (space, i)));
        all.filter(|(_, image)| !image.name.is_empty())
    }

    /// Images that are not told of for want of room.
    pub fn left_out(&self) -> usize {
        self.left_out.values().sum()
    }

    /// Takes what an OSD has summed up since its last report.
    pub fn take(&mut self, metrics: &BTreeMap<MetricQuery, MetricSums>) {
        let Some(sums) = self.query.as_ref().and_then(|query| metrics.get(query)) else { return };
        if self.query.as_ref().is_none_or(|query| query.counters != sums.counters) {
            return;
        }
        let mut room = IMAGES.saturating_sub(self.count());
        for (key, packed) in &sums.packed {
            let (Some(((space, id), _)), Ok(sums)) = (image_of(key), sums_of(packed)) else { continue };
            if !is_wanted(&self.wanted, &space) {
                continue;
            }
            let images = self.images.entry(space.clone()).or_default();
            if !images.contains_key(&id) {
                if room == 0 {
                    continue;
                }
                room -= 1;
                // Its name is not known yet.
                self.pools.entry(space.pool).or_default().due.insert(space);
            }
            let image = images.entry(id).or_default();
            image.sums = plus(&image.sums, &sums);
        }
    }

    fn count(&self) -> usize {
        self.images.values().map(BTreeMap::len).sum()
    }

    /// What is wanted from now on.
    fn want(&mut self, wanted: Wanted) {
        if wanted == self.wanted {
            return;
        }
        self.images.retain(|space, _| is_wanted(&wanted, space));
        self.left_out.retain(|space, _| is_wanted(&wanted, space));
        self.pools = wanted.keys().map(|pool| (*pool, Pool::default())).collect();
        self.query = (!wanted.is_empty()).then(|| query(&wanted));
        self.wanted = wanted;
    }

    /// Takes a pool's namespaces; the names of each one's images are asked for next.
    pub fn spaces_known(&mut self, now: Now, id: PoolId, result: Result<Found, Failed>) {
        let (Some(of), Some(pool)) = (self.wanted.get(&id), self.pools.get_mut(&id)) else { return };
        let Ok(Found::Namespaces { names, .. }) = result else {
            pool.look_at = pool.look_at.min(now.mono + AGAIN);
            return;
        };
        let all = names.into_iter().chain([String::new()]);
        let spaces: BTreeSet<Space> = all
            .filter(|name| name.len() <= NAME_BYTES && (of.is_empty() || of.contains(name)))
            .take(SPACES)
            .map(|namespace| Space { pool: id, namespace })
            .collect();
        self.images.retain(|space, _| space.pool != id || spaces.contains(space));
        self.left_out.retain(|space, _| space.pool != id || spaces.contains(space));
        pool.asked.retain(|space, _| spaces.contains(space));
        pool.due = spaces;
    }

    /// Takes the names of images of a place. Those that are not among them are gone.
    pub fn named(&mut self, now: Now, space: &Space, result: Result<Found, Failed>) -> Option<String> {
        let names = match result {
            Ok(Found::Names(names)) => names,
            Err(failed) if failed.errno != Errno::ENOENT => {
                if let Some(pool) = self.pools.get_mut(&space.pool) {
                    pool.look_at = pool.look_at.min(now.mono + AGAIN);
                }
                return None;
            }
            _ => BTreeMap::new(),
        };
        if !is_wanted(&self.wanted, space) {
            return None;
        }
        let mut before = self.images.remove(space).unwrap_or_default();
        let room = IMAGES.saturating_sub(self.count());
        let all = names.len();
        let fits =
            names.into_iter().filter(|(_, name)| !name.is_empty() && name.len() <= NAME_BYTES).take(room);
        let images: BTreeMap<String, Image> = fits
            .map(|(id, name)| {
                let sums = before.remove(&id).unwrap_or_default().sums;
                (id, Image { name, sums })
            })
            .collect();
        self.left_out.insert(space.clone(), all - images.len());
        self.images.insert(space.clone(), images);
        let left_out = self.left_out();
        let is_news = left_out > 0 && !self.said;
        self.said = left_out > 0;
        is_news.then(|| {
            format!("rbd_stats_pools: {left_out} images are left out, for there is room for {IMAGES}")
        })
    }
}

fn is_wanted(wanted: &Wanted, space: &Space) -> bool {
    wanted.get(&space.pool).is_some_and(|of| of.is_empty() || of.contains(&space.namespace))
}

/// What OSDs are asked.
fn query(wanted: &Wanted) -> MetricQuery {
    let any = |parts: Vec<String>| {
        let regex = format!("^({})$", parts.join("|"));
        if regex.len() > REGEX_BYTES { None } else { Some(regex) }
    };
    let pools = any(wanted.keys().map(|pool| pool.0.to_string()).collect());
    let is_all = wanted.values().any(BTreeSet::is_empty);
    let namespaces: BTreeSet<&String> = wanted.values().flatten().collect();
    let namespaces = if is_all { None } else { any(namespaces.into_iter().map(|n| literally(n)).collect()) };
    query_of(pools.as_deref(), namespaces.as_deref())
}

/// Which pools and namespaces an option names: `pool[/namespace]`, separated by commas or blanks; `*` for all
/// pools that are for images, or for all namespaces.
fn wanted(map: &OsdMap, option: &str) -> Wanted {
    let of_images: BTreeMap<&str, PoolId> =
        pools(map).filter_map(|id| Some((map.pool_name(id)?, id))).collect();
    let mut out: BTreeMap<PoolId, Option<BTreeSet<String>>> = BTreeMap::new();
    let entries = option.split(|c: char| c == ',' || c.is_whitespace()).filter(|e| !e.is_empty());
    for entry in entries.take(ENTRIES) {
        let (pool, namespace) = entry.split_once('/').unwrap_or((entry, ""));
        let chosen: Vec<PoolId> = match pool {
            "*" => of_images.values().copied().collect(),
            name => of_images.get(name).copied().into_iter().collect(),
        };
        for id in chosen {
            let of = out.entry(id).or_insert_with(|| Some(BTreeSet::new()));
            match (namespace, of.as_mut()) {
                ("" | "*", _) => *of = None,
                (name, Some(names)) => drop(names.insert(name.to_owned())),
                (_, None) => {}
            }
        }
    }
    out.into_iter().map(|(id, of)| (id, of.unwrap_or_default())).collect()
}

impl Manager {
    /// Follows the option, and asks for names where that is due.
    pub(super) fn tick_image_stats(&mut self, now: Now, out: &mut Vec<Output>) {
        let Some(map) = &self.map else { return };
        let (option, refresh) = self.image_stats_wanted();
        let (rbd, client) = (&mut self.rbd, &mut self.client);
        rbd.stats.want(wanted(map, &option));
        let mut jobs = Vec::new();
        for (id, pool) in &mut rbd.stats.pools {
            if now.mono >= pool.look_at {
                pool.look_at = now.mono + refresh;
                jobs.push((*id, Job::Namespaces { pool: *id }, Why::StatSpaces(*id)));
            } else if let Some(space) = pool.next(now) {
                jobs.push((*id, Job::Names { space: space.clone() }, Why::StatNames(space)));
            }
        }
        for (pool, job, why) in jobs {
            let is_busy = |(_, why, of): (u64, &Why, PoolId)| {
                of == pool && matches!(why, Why::StatNames(_) | Why::StatSpaces(_))
            };
            let was_sent = !client.of_rbd().any(is_busy) && client.submit(job, why.clone(), out).is_some();
            let Some(pool) = rbd.stats.pools.get_mut(&pool) else { continue };
            match why {
                Why::StatNames(space) if was_sent => {
                    pool.due.remove(&space);
                    pool.asked.insert(space, now.mono);
                }
                Why::StatSpaces(_) if !was_sent => pool.look_at = now.mono,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use maps::PoolType;

    use super::*;

    fn map(names: &[(&str, bool)]) -> OsdMap {
        let mut map = OsdMap::default();
        for (id, (name, is_for_images)) in (1..).map(PoolId).zip(names) {
            let mut pool = maps::Pool::new(PoolType::Replicated, 8);
            if *is_for_images {
                pool.application_metadata.insert("rbd".to_owned(), BTreeMap::new());
            }
            map.pools.insert(id, pool);
            map.pool_names.insert(id, (*name).to_owned());
        }
        map
    }

    const NOW: Now = Now { mono: Duration::ZERO, wall: types::Utime::ZERO };

    fn space(pool: i64, namespace: &str) -> Space {
        Space { pool: PoolId(pool), namespace: namespace.to_owned() }
    }

    #[test]
    fn an_option_names_pools_and_namespaces() {
        let map = map(&[("a", true), ("b", true), ("c", false)]);
        let check = |option: &str, want: &[(i64, &[&str])]| {
            let got: Vec<(i64, Vec<String>)> =
                wanted(&map, option).into_iter().map(|(id, of)| (id.0, of.into_iter().collect())).collect();
            let want: Vec<(i64, Vec<String>)> =
                want.iter().map(|(id, of)| (*id, of.iter().map(|n| (*n).to_owned()).collect())).collect();
            assert_eq!(got, want, "{option}");
        };
        check("", &[]);
        check("a, b", &[(1, &[]), (2, &[])]);
        check("a/n a/m,nobody,c", &[(1, &["m", "n"])]);
        check("a/n,a", &[(1, &[])]);
        check("a,a/n", &[(1, &[])]);
        check("*/n,b/*", &[(1, &["n"]), (2, &[])]);
        assert_eq!(wanted(&map, &"a/n ".repeat(9_999)).len(), 1);
    }

    fn sums(stats: &Stats, of: &[(&str, u64)]) -> BTreeMap<MetricQuery, MetricSums> {
        let query = stats.query().expect("a query").clone();
        let part = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let packed = of.iter().map(|(id, n)| {
            let key = vec![vec![part("1")], vec![part("")], vec![part(""), part(id)]];
            let values = [*n, 0, *n * 4_096, 0, *n * 1_000, *n, 0, 0];
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            (key, Bytes::from(bytes))
        });
        let sums = MetricSums { counters: query.counters.clone(), packed: packed.collect() };
        [(query, sums)].into()
    }

    #[test]
    fn what_images_do_is_summed_up_once_they_have_names() {
        let mut stats = Stats::default();
        stats.want([(PoolId(1), BTreeSet::new())].into());
        let first = sums(&stats, &[("i1", 3), ("gone", 1)]);
        stats.take(&first);
        assert_eq!(stats.images().count(), 0, "their names are not known");
        let names =
            Found::Names([("i1".to_owned(), "one".to_owned()), ("i2".to_owned(), "two".to_owned())].into());
        assert_eq!(stats.named(NOW, &space(1, ""), Ok(names)), None);
        stats.take(&sums(&stats, &[("i1", 2)]));
        let told: Vec<_> = stats.images().map(|(_, i)| (i.name.as_str(), i.sums)).collect();
        assert_eq!(told, [("one", [5, 0, 20_480, 0, 5_000, 0]), ("two", [0; 6])]);
        // What does not fit the query, or is of another pool, is not taken.
        let mut odd = sums(&stats, &[("i1", 9)]);
        odd.values_mut().for_each(|s| s.counters.clear());
        stats.take(&odd);
        assert_eq!(stats.named(NOW, &space(2, ""), Ok(Found::Nothing)), None);
        assert_eq!(stats.images().map(|(_, i)| i.sums[0]).sum::<u64>(), 5);
        stats.want(Wanted::new());
        assert_eq!((stats.query(), stats.images().count()), (None, 0));
    }

    #[test]
    fn ten_thousand_images_are_bounded_and_said() {
        let mut stats = Stats::default();
        stats.want([(PoolId(1), BTreeSet::new())].into());
        let names =
            |n: usize| Ok(Found::Names((0..n).map(|i| (format!("id{i}"), format!("image{i}"))).collect()));
        let said = stats.named(NOW, &space(1, ""), names(10_000)).expect("a line");
        assert!(said.contains("1808 images are left out"), "{said}");
        assert_eq!((stats.images().count(), stats.left_out()), (IMAGES, 10_000 - IMAGES));
        assert_eq!(stats.named(NOW, &space(1, ""), names(10_000)), None, "said once");
        let many: Vec<String> = (0..9_000).map(|i| format!("new{i}")).collect();
        stats.take(&sums(&stats, &many.iter().map(|id| (id.as_str(), 1)).collect::<Vec<_>>()));
        assert_eq!(stats.count(), IMAGES);
        stats.named(NOW, &space(1, ""), names(3));
        assert_eq!((stats.images().count(), stats.left_out()), (3, 0));
    }

    #[test]
    fn many_pools_are_asked_for_together() {
        let pools: Wanted = (1..=500).map(|id| (PoolId(id), BTreeSet::from(["n.".to_owned()]))).collect();
        let asked = query(&pools);
        assert!(asked.key.iter().all(|part| part.regex.len() <= REGEX_BYTES));
        assert_eq!(asked.key.get(1).map(|part| part.regex.as_str()), Some(r"^(n\.)$"));
        let two: Wanted =
            [(PoolId(1), BTreeSet::new()), (PoolId(7), BTreeSet::from(["n".to_owned()]))].into();
        assert_eq!(
            query(&two).key.iter().map(|p| p.regex.as_str()).take(2).collect::<Vec<_>>(),
            ["^(1|7)$", "^(.*)$"]
        );
    }
}
