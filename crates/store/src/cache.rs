//! A least-recently-used cache bounded in bytes.

use std::collections::BTreeMap;

/// Marks the end of the recency list.
const NONE: u32 = u32::MAX;

/// Keys to values with a weight in bytes; inserting evicts the values used longest ago until the weights fit.
///
/// Invariants: (1) `index` and `slots` hold the same keys; (2) the list from `newest` to `oldest` runs through every
/// used slot once; (3) `bytes` is the sum of the weights and at most `limit` after each call.
#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    index: BTreeMap<K, u32>,
    slots: Vec<Slot<K, V>>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
    bytes: usize,
    limit: usize,
}

#[derive(Debug)]
struct Slot<K, V> {
    entry: Option<(K, V)>,
    weight: usize,
    newer: u32,
    older: u32,
}

impl<K: Ord + Clone, V: Clone> Cache<K, V> {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self {
            index: BTreeMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            bytes: 0,
            limit: limit_bytes,
        }
    }

    /// Moves the bound; what no longer fits goes.
    pub(crate) fn set_limit(&mut self, limit_bytes: usize) {
        self.limit = limit_bytes;
        while self.bytes > self.limit {
            self.evict_oldest();
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn get<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: std::borrow::Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let at = *self.index.get(key)?;
        if self.newest != at {
            self.unlink(at);
            self.link_newest(at);
        }
        let slot = self.slots.get(at as usize)?;
        slot.entry.as_ref().map(|(_, v)| v.clone())
    }

    pub(crate) fn insert(&mut self, key: K, value: V, weight: usize) {
        self.remove(&key);
        if weight > self.limit {
            return;
        }
        while self.bytes + weight > self.limit {
            self.evict_oldest();
        }
        let slot = Slot { entry: Some((key.clone(), value)), weight, newer: NONE, older: NONE };
        let at = match self.free.pop() {
            Some(at) => at,
            None => self.slots.len() as u32,
        };
        match self.slots.get_mut(at as usize) {
            Some(place) => *place = slot,
            None => self.slots.push(slot),
        }
        self.index.insert(key, at);
        self.bytes += weight;
        self.link_newest(at);
    }

    pub(crate) fn remove<Q>(&mut self, key: &Q)
    where
        K: std::borrow::Borrow<Q>,
        Q: Ord + ?Sized,
    {
        if let Some(at) = self.index.remove(key) {
            self.unlink(at);
            self.release(at);
        }
    }

    fn evict_oldest(&mut self) {
        let at = self.oldest;
        assert!(at != NONE, "a cache over its limit holds something");
        self.unlink(at);
        if let Some((key, _)) = self.release(at) {
            self.index.remove(&key);
        }
    }

    fn release(&mut self, at: u32) -> Option<(K, V)> {
        let slot = self.slots.get_mut(at as usize)?;
        self.bytes -= slot.weight;
        self.free.push(at);
        slot.entry.take()
    }

    fn unlink(&mut self, at: u32) {
        let Some(slot) = self.slots.get(at as usize) else { return };
        let (newer, older) = (slot.newer, slot.older);
        match self.slots.get_mut(newer as usize) {
            Some(n) => n.older = older,
            None => self.newest = older,
        }
        match self.slots.get_mut(older as usize) {
            Some(o) => o.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link_newest(&mut self, at: u32) {
        let older = self.newest;
        if let Some(slot) = self.slots.get_mut(at as usize) {
            slot.newer = NONE;
            slot.older = older;
        }
        match self.slots.get_mut(older as usize) {
            Some(o) => o.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes_first_and_the_bound_holds() {
        let mut c = Cache::new(10);
        for k in 0..5u32 {
            c.insert(k, k * 10, 2);
        }
        assert_eq!(c.get(&0), Some(0));
        c.insert(5, 50, 3);
        assert_eq!(
            (c.get(&0), c.get(&1), c.get(&2), c.get(&3), c.get(&5)),
            (Some(0), None, None, Some(30), Some(50))
        );
        assert!(c.bytes() <= 10);
        c.remove(&0);
        c.insert(3, 31, 1);
        assert_eq!((c.get(&0), c.get(&3), c.bytes()), (None, Some(31), 6));
        c.insert(9, 90, 11);
        assert_eq!(c.get(&9), None);
        c.insert(10, 100, 4);
        c.set_limit(4);
        assert_eq!((c.get(&3), c.get(&10), c.bytes()), (None, Some(100), 4));
        c.set_limit(20);
        c.insert(9, 90, 11);
        assert_eq!((c.get(&9), c.bytes()), (Some(90), 15));
    }
}
