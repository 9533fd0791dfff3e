//! Places of connections that have proven who they are. Each costs a file descriptor and a receive buffer,
//! whether or not its peer ever sends anything.
//!
//! Invariants:
//! 1. Entities that have shares (`Identity::has_share`) have at most `limit` connections together.
//! 2. While there is room, an entity may have all of them. When there is none, a newcomer takes the place of
//!    the entity that has most, if that one has more than the newcomer's own; else the newcomer is refused.
//!    So an entity that opens many connections loses its own, and never those of one that has fewer. A
//!    metadata server or a manager without any takes a client's only one: clients wait for daemons.
//! 3. The youngest goes: those that an entity had before it began to open many are in use.

use std::collections::{BTreeMap, BTreeSet};

use types::{AuthName, ConnId, EntityType};

#[derive(Debug)]
pub(super) struct Places {
    limit: usize,
    by_entity: BTreeMap<AuthName, BTreeSet<ConnId>>,
    entities: BTreeMap<ConnId, AuthName>,
}

/// What became of a newcomer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seated {
    Free,
    /// This connection is to be closed for it.
    InsteadOf(ConnId),
    Refused,
}

impl Places {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, by_entity: BTreeMap::new(), entities: BTreeMap::new() }
    }

    pub(super) fn take(&mut self, entity: &AuthName, conn: ConnId) -> Seated {
        // A peer asks again for a session on the same connection when its first question was answered so.
        if self.entities.contains_key(&conn) {
            return Seated::Free;
        }
        let mut seated = Seated::Free;
        if self.entities.len() >= self.limit {
            let own = self.by_entity.get(entity).map_or(0, BTreeSet::len);
            let fullest = self.by_entity.values().max_by_key(|conns| conns.len());
            // Ids count up, so the last is the youngest.
            let more = if entity.kind == EntityType::Client { own + 1 } else { own };
            let loses = fullest.filter(|conns| conns.len() > more).and_then(|conns| conns.last().copied());
            let Some(youngest) = loses else { return Seated::Refused };
            self.leave(youngest);
            seated = Seated::InsteadOf(youngest);
        }
        self.by_entity.entry(entity.clone()).or_default().insert(conn);
        self.entities.insert(conn, entity.clone());
        seated
    }

    /// The connection is over. One that has no place is ignored.
    pub(super) fn leave(&mut self, conn: ConnId) {
        let Some(entity) = self.entities.remove(&conn) else { return };
        let Some(conns) = self.by_entity.get_mut(&entity) else { return };
        conns.remove(&conn);
        if conns.is_empty() {
            self.by_entity.remove(&entity);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(id: &str) -> AuthName {
        AuthName::new(EntityType::Client, id)
    }

    #[test]
    fn an_entity_that_opens_many_connections_loses_its_own() {
        let (many, few, third) = (named("many"), named("few"), named("third"));
        let mut places = Places::new(6);
        assert_eq!(places.take(&few, ConnId(1)), Seated::Free);
        for nr in 2..=6 {
            assert_eq!(places.take(&many, ConnId(nr)), Seated::Free, "there is room");
        }
        assert_eq!(places.take(&many, ConnId(7)), Seated::Refused);
        assert_eq!(places.take(&many, ConnId(6)), Seated::Free, "it has its place");
        assert_eq!(places.take(&few, ConnId(8)), Seated::InsteadOf(ConnId(6)), "its youngest");
        assert_eq!(places.take(&third, ConnId(9)), Seated::InsteadOf(ConnId(5)));
        // Three, two and one of six.
        assert_eq!(
            places.take(&few, ConnId(10)),
            Seated::Refused,
            "as many as the fullest would be left with"
        );
        assert_eq!(places.take(&third, ConnId(11)), Seated::InsteadOf(ConnId(4)));
        assert_eq!(places.take(&third, ConnId(12)), Seated::Refused);
        places.leave(ConnId(1));
        places.leave(ConnId(1));
        assert_eq!(places.take(&many, ConnId(13)), Seated::Free);
        for nr in 1..=13 {
            places.leave(ConnId(nr));
        }
        assert!(places.by_entity.is_empty() && places.entities.is_empty());
    }

    #[test]
    fn a_daemon_finds_a_place_among_clients_with_one_each() {
        let mut places = Places::new(2);
        let mgr = AuthName::new(EntityType::Mgr, "x");
        assert_eq!(places.take(&named("a"), ConnId(1)), Seated::Free);
        assert_eq!(places.take(&named("b"), ConnId(2)), Seated::Free);
        assert_eq!(places.take(&named("c"), ConnId(3)), Seated::Refused);
        assert!(matches!(places.take(&mgr, ConnId(4)), Seated::InsteadOf(_)));
        assert_eq!(places.take(&mgr, ConnId(5)), Seated::Refused, "it has one");
    }
}
