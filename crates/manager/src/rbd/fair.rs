//! Values of images, of which somebody else decides how many there are: with a bound for all together, in
//! which nobody keeps others' images out with many of their own.
//!
//! Invariants:
//! 1. There are no more than `most`.
//! 2. When it is full a new one displaces one of the pool that has most, and there of the namespace that has
//!    most; but only where that has more than those of the new one have with it.
//!
//! Whose an image is says the place of its data, not a name that anybody can give to an object.

use std::collections::{BTreeMap, BTreeSet};

use types::PoolId;

use crate::job::Space;

/// Where an image is, and its id.
pub(crate) type Key = (Space, String);

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fair<V> {
    most: usize,
    /// With the place of its data.
    values: BTreeMap<Key, (Space, V)>,
    of: BTreeMap<Space, BTreeSet<Key>>,
    pools: Counts<PoolId>,
    spaces: BTreeMap<PoolId, Counts<String>>,
}

impl<V> Fair<V> {
    pub fn new(most: usize) -> Self {
        Self {
            most,
            values: BTreeMap::new(),
            of: BTreeMap::new(),
            pools: Counts::default(),
            spaces: BTreeMap::new(),
        }
    }

    /// By key.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &V)> {
        self.values.iter().map(|(key, (_, value))| (key, value))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Key, &mut V)> {
        self.values.iter_mut().map(|(key, (_, value))| (key, value))
    }

    pub fn contains(&self, key: &Key) -> bool {
        self.values.contains_key(key)
    }

    /// The value of an image whose data is at a place; `None` where there is none yet, and no room for it.
    pub fn entry(&mut self, place: &Space, key: &Key) -> Option<&mut V>
    where
        V: Default,
    {
        if !self.contains(key) {
            if self.values.len() >= self.most {
                let displaced = self.displaced_by(place)?;
                self.remove(&displaced);
            }
            self.values.insert(key.clone(), (place.clone(), V::default()));
            self.of.entry(place.clone()).or_default().insert(key.clone());
            self.recount(place);
        }
        self.values.get_mut(key).map(|(_, value)| value)
    }

    pub fn remove(&mut self, key: &Key) -> Option<V> {
        let (place, value) = self.values.remove(key)?;
        if let Some(keys) = self.of.get_mut(&place) {
            keys.remove(key);
            if keys.is_empty() {
                self.of.remove(&place);
            }
        }
        self.recount(&place);
        Some(value)
    }

    pub fn retain(&mut self, keeps: impl Fn(&Key) -> bool) {
        let gone: Vec<Key> = self.values.keys().filter(|key| !keeps(key)).cloned().collect();
        gone.iter().for_each(|key| drop(self.remove(key)));
    }

    /// All of them, with the places of their data.
    pub fn drain(&mut self) -> impl Iterator<Item = (Key, Space, V)> + use<V> {
        let all = std::mem::replace(self, Self::new(self.most));
        all.values.into_iter().map(|(key, (place, value))| (key, place, value))
    }

    fn displaced_by(&self, place: &Space) -> Option<Key> {
        let (most, fullest) = self.pools.fullest()?;
        let pool = if most > self.pools.get(&place.pool) + 1 { *fullest } else { place.pool };
        let spaces = self.spaces.get(&pool)?;
        let (most, namespace) = spaces.fullest()?;
        if pool == place.pool && most <= spaces.get(&place.namespace) + 1 {
            return None;
        }
        self.of.get(&Space { pool, namespace: namespace.clone() })?.first().cloned()
    }

    /// A place has another number of images.
    fn recount(&mut self, place: &Space) {
        let now = self.of.get(place).map_or(0, BTreeSet::len);
        let spaces = self.spaces.entry(place.pool).or_default();
        let of_pool = self.pools.get(&place.pool) + now - spaces.get(&place.namespace);
        spaces.set(&place.namespace, now);
        self.pools.set(&place.pool, of_pool);
        if of_pool == 0 {
            self.spaces.remove(&place.pool);
        }
    }
}

/// How many each has, and who has most.
#[derive(Debug, Clone, PartialEq)]
struct Counts<K> {
    of: BTreeMap<K, usize>,
    order: BTreeSet<(usize, K)>,
}

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Self { of: BTreeMap::new(), order: BTreeSet::new() }
    }
}

impl<K: Ord + Clone> Counts<K> {
    fn get(&self, whose: &K) -> usize {
        self.of.get(whose).copied().unwrap_or(0)
    }

    fn set(&mut self, whose: &K, count: usize) {
        if let Some(before) = self.of.remove(whose) {
            self.order.remove(&(before, whose.clone()));
        }
        if count > 0 {
            self.of.insert(whose.clone(), count);
            self.order.insert((count, whose.clone()));
        }
    }

    fn fullest(&self) -> Option<(usize, &K)> {
        self.order.last().map(|(count, whose)| (*count, whose))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(pool: i64, namespace: &str) -> Space {
        Space { pool: PoolId(pool), namespace: namespace.to_owned() }
    }

    /// How many of those from 0 on a place has when it wants so many.
    fn fill(fair: &mut Fair<u64>, at: &Space, images: usize) {
        for n in 0..images {
            if let Some(value) = fair.entry(at, &(at.clone(), format!("{n:04}"))) {
                *value += 1;
            }
        }
    }

    fn count(fair: &Fair<u64>, at: &Space) -> usize {
        let found = fair.iter().filter(|((space, _), _)| space == at).count();
        assert_eq!(found, fair.of.get(at).map_or(0, BTreeSet::len));
        assert_eq!(found, fair.spaces.get(&at.pool).map_or(0, |s| s.get(&at.namespace)));
        found
    }

    #[test]
    fn whoever_comes_later_finds_room() {
        let mut fair = Fair::new(64);
        let (many, few, other) = (place(1, ""), place(1, "ns"), place(2, ""));
        fill(&mut fair, &many, 1_000);
        assert_eq!(count(&fair, &many), 64, "there is room for all when nobody else comes");
        fill(&mut fair, &other, 1_000);
        assert_eq!([&many, &other].map(|at| count(&fair, at)), [32, 32]);
        fill(&mut fair, &few, 10);
        assert_eq!([&many, &few, &other].map(|at| count(&fair, at)), [22, 10, 32]);
        fill(&mut fair, &many, 1_000);
        assert_eq!([&many, &few, &other].map(|at| count(&fair, at)), [22, 10, 32], "it displaces nobody");
        // Namespaces of its own are no more than its pool has.
        for n in 0..1_000 {
            fill(&mut fair, &place(1, &n.to_string()), 1);
        }
        assert_eq!(count(&fair, &other), 32);
        fair.retain(|(space, _)| *space == other);
        assert_eq!((fair.values.len(), fair.of.len(), fair.spaces.len(), fair.pools.of.len()), (32, 1, 1, 1));
        assert_eq!(fair.drain().count(), 32);
        assert_eq!(fair, Fair::new(64));
    }

    /// Anybody can name objects after images of other pools.
    #[test]
    fn an_image_is_of_the_place_of_its_data() {
        let mut fair: Fair<u64> = Fair::new(8);
        let (own, other) = (place(1, ""), place(2, ""));
        for n in 0..8 {
            assert!(fair.entry(&own, &(other.clone(), format!("made up {n}"))).is_some());
        }
        for n in 0..4 {
            assert!(fair.entry(&other, &(other.clone(), format!("true {n}"))).is_some());
        }
        let is_true = |fair: &Fair<u64>| fair.iter().filter(|((_, id), _)| id.starts_with("true")).count();
        assert_eq!(is_true(&fair), 4);
        assert!(fair.entry(&own, &(other.clone(), "made up".to_owned())).is_none());
        assert_eq!(is_true(&fair), 4);
    }
}
