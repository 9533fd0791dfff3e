//! Ranges of objects that an OSD does not want operations on for now.

use std::collections::BTreeMap;

use types::{HObject, SpgId};

/// The backoffs of one session. Source: OSDSession::backoffs in src/osdc/Objecter.h, MOSDBackoff.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Backoffs {
    by_id: BTreeMap<u64, Range>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Range {
    pgid: SpgId,
    begin: HObject,
    /// Behind the range; equal to `begin` for that object alone.
    end: HObject,
}

impl Range {
    fn holds(&self, pgid: SpgId, object: &HObject) -> bool {
        self.pgid == pgid && (*object == self.begin || (self.begin <= *object && *object < self.end))
    }
}

/// What a peer may make us keep in one session.
const MAX_BACKOFFS: usize = 100_000;

impl Backoffs {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(crate) fn block(&mut self, id: u64, pgid: SpgId, begin: HObject, end: HObject) {
        if self.by_id.len() < MAX_BACKOFFS {
            self.by_id.insert(id, Range { pgid, begin, end });
        }
    }

    /// Whether there was such a backoff.
    pub(crate) fn unblock(&mut self, id: u64) -> bool {
        self.by_id.remove(&id).is_some()
    }

    pub(crate) fn blocks(&self, pgid: SpgId, object: &HObject) -> bool {
        self.by_id.values().any(|r| r.holds(pgid, object))
    }
}

#[cfg(test)]
mod tests {
    use types::{PgId, PoolId, SnapId};

    use super::*;

    #[test]
    fn a_range_has_its_begin_and_not_its_end() {
        let pg = |seed| SpgId::replicated(PgId::new(PoolId(1), seed));
        let object = |hash: u32| HObject { pool: PoolId(1), hash, snap: SnapId::HEAD, ..HObject::min() };
        // The order is that of the reversed hash: 4 < 2 < 1.
        let mut b = Backoffs::default();
        b.block(7, pg(0), object(4), object(1));
        b.block(8, pg(1), object(9), object(9));
        let blocked = |b: &Backoffs, seed, hash| b.blocks(pg(seed), &object(hash));
        assert!(blocked(&b, 0, 4) && blocked(&b, 0, 2) && !blocked(&b, 0, 1) && !blocked(&b, 1, 4));
        assert!(blocked(&b, 1, 9) && !blocked(&b, 1, 8));
        assert!(b.unblock(7) && !b.unblock(7) && !b.is_empty());
        assert!(!blocked(&b, 0, 4) && b.unblock(8) && b.is_empty());
    }
}
