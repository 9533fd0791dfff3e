//! Shards that copies which get no writes have refused to give: what they have does not change in an
//! interval, so they are not asked again.

use std::collections::BTreeMap;

use types::{Eversion, HObject, PgShard};

/// Refusals that are remembered. With more of them, all are forgotten, and copies asked once more.
const MAX: usize = 16_384;

/// The versions that were refused, by object and copy.
#[derive(Debug, Default)]
pub(crate) struct Refused(BTreeMap<(HObject, PgShard), Eversion>);

impl Refused {
    pub fn note(&mut self, object: &HObject, copy: PgShard, version: Eversion) {
        if self.0.len() >= MAX {
            self.0.clear();
        }
        self.0.insert((object.clone(), copy), version);
    }

    pub fn has(&self, object: &HObject, copy: PgShard, version: Eversion) -> bool {
        !self.0.is_empty() && self.0.get(&(object.clone(), copy)) == Some(&version)
    }

    /// The copy was given the object: what it said before says nothing any more.
    pub fn forget(&mut self, object: &HObject, copy: PgShard) {
        self.0.remove(&(object.clone(), copy));
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use types::OsdId;

    use super::*;

    #[test]
    fn what_copies_refuse_is_remembered_up_to_a_bound() {
        let (mut refused, copy) = (Refused::default(), PgShard { osd: OsdId(3), shard: 1 });
        let object = |n: usize| HObject { name: n.to_string().into(), ..HObject::min() };
        let version = Eversion::default();
        for n in 0..3 * MAX {
            refused.note(&object(n), copy, version);
            assert!(refused.0.len() <= MAX && refused.has(&object(n), copy, version));
        }
        let last = object(3 * MAX - 1);
        let newer = Eversion { version: 1, ..version };
        assert!(!refused.has(&last, copy, newer));
        refused.forget(&last, copy);
        assert!(!refused.has(&last, copy, version));
    }
}
