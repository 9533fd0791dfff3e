//! The connections by their ids, which are given out one after the other: one is found without a search.

use std::collections::VecDeque;

use types::ConnId;

use crate::net::Conn;

/// Ids are given out by [`Conns::add`] and never again. A connection that is gone leaves a hole until all
/// before it are gone.
#[derive(Default)]
pub struct Conns {
    /// Of the first place.
    first: u64,
    places: VecDeque<Option<Box<Conn>>>,
}

impl Conns {
    /// Ids begin at 1.
    pub fn add(&mut self, conn: Conn) -> ConnId {
        self.places.push_back(Some(Box::new(conn)));
        ConnId(self.first + self.places.len() as u64)
    }

    fn place(&self, id: ConnId) -> Option<usize> {
        usize::try_from(id.0.checked_sub(self.first + 1)?).ok()
    }

    pub fn get(&self, id: &ConnId) -> Option<&Conn> {
        self.places.get(self.place(*id)?)?.as_deref()
    }

    pub fn get_mut(&mut self, id: &ConnId) -> Option<&mut Conn> {
        let place = self.place(*id)?;
        self.places.get_mut(place)?.as_deref_mut()
    }

    pub fn remove(&mut self, id: &ConnId) {
        if let Some(place) = self.place(*id).and_then(|place| self.places.get_mut(place)) {
            *place = None;
        }
        while self.places.front().is_some_and(Option::is_none) {
            self.places.pop_front();
            self.first += 1;
        }
    }

    /// In the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (ConnId, &Conn)> {
        let ids = self.first + 1..;
        ids.zip(&self.places).filter_map(|(id, conn)| Some((ConnId(id), conn.as_deref()?)))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (ConnId, &mut Conn)> {
        let ids = self.first + 1..;
        ids.zip(&mut self.places).filter_map(|(id, conn)| Some((ConnId(id), conn.as_deref_mut()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Node;

    fn conn(opener: usize) -> Conn {
        Conn::new([Node::Client(opener), Node::Mgr], [1, 1], true, None)
    }

    #[test]
    fn ids_are_never_given_again() {
        let mut conns = Conns::default();
        let ids: Vec<ConnId> = (0..5).map(|i| conns.add(conn(i))).collect();
        assert_eq!(ids, [1, 2, 3, 4, 5].map(ConnId));
        for id in [3, 1, 2, 3, 9, 0] {
            conns.remove(&ConnId(id));
        }
        let left: Vec<_> = conns.iter().map(|(id, c)| (id.0, c.nodes[0])).collect();
        assert_eq!(left, [(4, Node::Client(3)), (5, Node::Client(4))]);
        assert!((0..4).all(|id| conns.get(&ConnId(id)).is_none() && conns.get_mut(&ConnId(id)).is_none()));
        conns.remove(&ConnId(4));
        conns.remove(&ConnId(5));
        assert_eq!(conns.iter_mut().count(), 0);
        assert_eq!(conns.add(conn(6)), ConnId(6));
        assert_eq!(conns.get(&ConnId(6)).map(|c| c.nodes[0]), Some(Node::Client(6)));
        assert!(conns.get(&ConnId(7)).is_none());
    }
}
