//! Objects that a copy's log speaks of but that its store does not hold in that version.
//!
//! Invariants:
//! 1. `items` and `by_version` are two views of the same set.
//! 2. An item's `need` is above its `have`.

use std::collections::{BTreeMap, BTreeSet};

use types::{Eversion, HObject};

use crate::entry::LogEntry;

/// What a copy needs of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingItem {
    /// The version that the log names.
    pub need: Eversion,
    /// The version in the store; zero for none, or one that cannot be told.
    pub have: Eversion,
}

codec::wire_plain!(MissingItem { need, have });

/// See the module's invariants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Missing {
    items: BTreeMap<HObject, MissingItem>,
    /// The order in which recovery takes them. After PGs were merged, objects may need equal versions.
    by_version: BTreeSet<(Eversion, HObject)>,
}

impl Missing {
    pub fn from_items(items: impl IntoIterator<Item = (HObject, MissingItem)>) -> Self {
        let mut m = Self::default();
        for (o, i) in items {
            m.insert(o, i);
        }
        m
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
    pub fn len(&self) -> usize {
        self.items.len()
    }
    pub fn get(&self, o: &HObject) -> Option<&MissingItem> {
        self.items.get(o)
    }
    pub fn contains(&self, o: &HObject) -> bool {
        !self.items.is_empty() && self.items.contains_key(o)
    }
    /// In object order.
    pub fn iter(&self) -> impl Iterator<Item = (&HObject, &MissingItem)> {
        self.items.iter()
    }
    /// The objects from one to another, both included.
    pub fn between<'a>(&'a self, first: &'a HObject, last: &'a HObject) -> impl Iterator<Item = &'a HObject> {
        self.items.range(first..=last).map(|(object, _)| object)
    }
    /// In the order of the needed versions.
    pub fn by_version(&self) -> impl Iterator<Item = (&Eversion, &HObject)> {
        self.by_version.iter().map(|(need, o)| (need, o))
    }
    /// Everything below this version is there.
    pub fn first_need(&self) -> Option<Eversion> {
        self.by_version.first().map(|(need, _)| *need)
    }

    pub fn insert(&mut self, o: HObject, item: MissingItem) {
        self.remove(&o);
        self.by_version.insert((item.need, o.clone()));
        self.items.insert(o, item);
    }

    pub fn remove(&mut self, o: &HObject) -> Option<MissingItem> {
        let (o, item) = self.items.remove_entry(o)?;
        self.by_version.remove(&(item.need, o));
        Some(item)
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Follows a log entry that the copy learnt of without its data. Deletes need no data: the caller removes the
    /// object from the store at once, and nothing is missing.
    pub fn follow(&mut self, e: &LogEntry) {
        if e.is_error() {
            return;
        }
        if e.is_delete() {
            self.remove(&e.object);
            return;
        }
        let have = match self.items.get(&e.object) {
            Some(item) => item.have,
            None => e.prior_version,
        };
        self.insert(e.object.clone(), MissingItem { need: e.version, have });
    }

    /// Keeps only objects that `keep` accepts; returns the others.
    pub fn split_off(&mut self, goes: impl Fn(&HObject) -> bool) -> Self {
        let all = std::mem::take(self);
        let (theirs, ours): (Vec<_>, Vec<_>) = all.items.into_iter().partition(|(o, _)| goes(o));
        *self = Self::from_items(ours);
        Self::from_items(theirs)
    }

    /// Checks the invariants that the module states.
    pub fn assert_invariants(&self) {
        assert_eq!(self.items.len(), self.by_version.len(), "1: sizes differ");
        for (o, i) in &self.items {
            assert!(self.by_version.contains(&(i.need, o.clone())), "1: {o}");
            assert!(i.need > i.have, "2: {o} needs {} and has {}", i.need, i.have);
        }
    }
}

#[cfg(test)]
mod tests {
    use types::Epoch;

    use super::*;

    #[test]
    fn objects_of_merged_pgs_may_need_equal_versions() {
        let object = |name: &str| HObject { name: name.into(), ..HObject::min() };
        let need = Eversion::new(Epoch(3), 5);
        let item = MissingItem { need, have: Eversion::ZERO };
        let mut m = Missing::from_items([(object("a"), item), (object("b"), item)]);
        m.assert_invariants();
        assert_eq!(m.by_version().collect::<Vec<_>>(), [(&need, &object("a")), (&need, &object("b"))]);
        assert_eq!(m.remove(&object("b")), Some(item));
        m.assert_invariants();
        assert_eq!(m.first_need(), Some(need));
        assert_eq!(m.remove(&object("a")), Some(item));
        assert_eq!((m.first_need(), m.remove(&object("a"))), (None, None));
    }
}
