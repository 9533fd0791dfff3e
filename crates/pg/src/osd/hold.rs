//! When clients have to wait: a client when it has more than its share of requests or bytes here, all of them
//! when the store cannot keep up.
//!
//! While one client alone has requests here, its share is the whole. With others, a share is as much as is
//! still free, so that there is always room for another; where nothing is free, it is an even part of a
//! quarter of the whole. The same holds for entities: many connections of one have no more than one entity's
//! share. A client beyond its share is held back alone.
//!
//! What waits for a map is apart: only its client knows that map, and may have made it up. A client with more
//! than a few such requests is held. Beyond half of the whole, the connection that has most of them is
//! closed: its client sends again. So is one that is held for them for long, for it may be that of a client
//! which is gone.
//!
//! Source: osd_client_message_cap and osd_client_message_size_cap, as throttles in src/ceph_osd.cc; those are
//! one for all.

use std::collections::BTreeMap;
use std::time::Duration;

use types::{AuthName, ConnId, EntityType};

use super::OsdCore;
use super::account::Held;
use crate::io::Output;

/// Requests of one connection that may wait for a map before it is held.
const PARKED_OPS: u64 = 32;
/// How long a connection may be held for them. Longer than a request takes to be called slow: that this OSD
/// lacks maps which its clients have is worth a warning.
const PARKED_LONGEST: Duration = Duration::from_secs(120);
/// What a request that waits for a map counts for at least, in bytes.
const PARKED_COST: u64 = 16 << 10;

/// Whether peers of a kind are held. What an OSD or a monitor sends may be what another waits for; OSDs wait
/// for no metadata server and no manager, and these are clients to them.
pub fn has_share(kind: EntityType) -> bool {
    !matches!(kind, EntityType::Osd | EntityType::Mon)
}

/// What may be held altogether.
#[derive(Debug, Clone, Copy)]
struct Whole(Held);

impl Whole {
    /// The share of one of `n`, while `total` is held.
    fn share(self, total: Held, n: u64) -> Held {
        let share = |whole: u64, total: u64| match (whole, n) {
            (0, _) => u64::MAX,
            (_, 0 | 1) => whole,
            _ => (whole / n.saturating_mul(4)).max(whole.saturating_sub(total)).max(1),
        };
        Held { ops: share(self.0.ops, total.ops), bytes: share(self.0.bytes, total.bytes) }
    }

    /// Whether so little is held that no client can be beyond its share.
    fn has_plenty(self, total: Held) -> bool {
        let plenty = |whole: u64, total: u64| whole == 0 || total <= whole / 2;
        plenty(self.0.ops, total.ops) && plenty(self.0.bytes, total.bytes)
    }
}

fn exceeds(held: Held, share: Held) -> bool {
    held.ops > share.ops || held.bytes > share.bytes
}

/// A held client goes on when a quarter of its share is free again, so that it is not held and let go for
/// each request.
fn to_go_on(share: Held) -> Held {
    Held { ops: share.ops - share.ops / 4, bytes: share.bytes - share.bytes / 4 }
}

/// An entity's connections with requests here, and what they hold together.
#[derive(Debug, Clone, Copy, Default)]
struct OfEntity {
    held: Held,
    conns: u64,
}

impl OsdCore {
    /// Tells the shell which clients to hold, and which ones to let go on.
    pub(super) fn hold_clients_if_full(&mut self) {
        let throttled = self.shared.store.throttled();
        if throttled != self.holding {
            self.holding = throttled;
            self.shared.out.push(Output::HoldClients(throttled));
        }
        if self.clients.active.is_empty() {
            return;
        }
        let quiet = self.held_conns == 0 && self.clients.parked() == Held::default();
        if quiet && self.whole().has_plenty(self.clients.running()) {
            return;
        }
        self.hold_clients();
    }

    fn whole(&self) -> Whole {
        let config = &self.shared.config;
        Whole(Held { ops: config.client_message_cap, bytes: config.client_message_size_cap })
    }

    fn hold_clients(&mut self) {
        let whole = self.whole();
        let (uses, exempt) = self.uses(whole);
        // Requests under way whose clients are gone count, too.
        let total = self.clients.running().minus(exempt);
        let entities = self.entities(&uses);
        let n = uses.len() as u64;
        let mut told = Vec::new();
        for conn in &self.clients.active {
            let Some(session) = self.shared.sessions.get(conn) else { continue };
            if !session.peer.name.entity_type().is_some_and(has_share) {
                continue;
            }
            let was_held = session.account.is_held;
            let bound = |share: Held| if was_held { to_go_on(share) } else { share };
            let mut share = bound(whole.share(total, n));
            let of = entities.get(&session.peer.auth_name).copied().unwrap_or_default();
            let theirs = bound(whole.share(total, entities.len() as u64));
            if exceeds(of.held, theirs) {
                share.ops = share.ops.min((theirs.ops / of.conns.max(1)).max(1));
                share.bytes = share.bytes.min((theirs.bytes / of.conns.max(1)).max(1));
            }
            let held = uses.get(conn).copied().unwrap_or_default();
            let parks = session.account.parked.held().ops > PARKED_OPS;
            let hold = parks || exceeds(held, share);
            if hold != was_held && (hold || !types::is_planted!(self.shared.config.planted, HeldForEver)) {
                told.push((*conn, hold));
            }
        }
        for (conn, hold) in told {
            if let Some(session) = self.shared.sessions.get_mut(&conn) {
                session.account.is_held = hold;
            }
            self.held_conns = if hold { self.held_conns + 1 } else { self.held_conns.saturating_sub(1) };
            self.shared.out.push(Output::HoldClient { conn, hold });
        }
        let sessions = &self.shared.sessions;
        self.clients.active.retain(|conn| {
            sessions.get(conn).is_some_and(|s| {
                let a = &s.account;
                a.is_held || a.running.held().ops > 0 || a.parked.held().ops > 0
            })
        });
    }

    /// What each connection with requests has in PGs that serve; and the sum that was left out of this.
    ///
    /// Requests for PGs that do not serve hold up nobody, as long as there is memory for them: their bytes
    /// have half as much room again of their own.
    fn uses(&self, whole: Whole) -> (BTreeMap<ConnId, Held>, Held) {
        let mut idle: BTreeMap<ConnId, Held> = BTreeMap::new();
        for op in self.pgs.values().flat_map(|pg| &pg.waiting_for_active) {
            let bytes = op.charge.as_ref().map_or(0, |c| c.bytes);
            let sum = idle.entry(op.conn).or_default();
            *sum = sum.plus(Held { ops: 1, bytes });
        }
        let room = whole.0.bytes / 2 / (idle.len() as u64).max(1);
        idle.values_mut().for_each(|held| held.bytes = held.bytes.min(room));
        let active = self.clients.active.iter().filter_map(|conn| {
            let all = self.shared.sessions.get(conn)?.account.running.held();
            let held = all.minus(idle.get(conn).copied().unwrap_or_default());
            (held != Held::default()).then_some((*conn, held))
        });
        (active.collect(), idle.values().fold(Held::default(), |sum, held| sum.plus(*held)))
    }

    fn entities(&self, uses: &BTreeMap<ConnId, Held>) -> BTreeMap<AuthName, OfEntity> {
        let mut entities: BTreeMap<AuthName, OfEntity> = BTreeMap::new();
        for (conn, held) in uses {
            let Some(session) = self.shared.sessions.get(conn) else { continue };
            let of = entities.entry(session.peer.auth_name.clone()).or_default();
            *of = OfEntity { held: of.held.plus(*held), conns: of.conns + 1 };
        }
        entities
    }

    /// Closes connections until what waits for maps has room.
    pub(super) fn make_room_for_parked(&mut self) {
        let weight = |held: Held| held.bytes.saturating_add(held.ops.saturating_mul(PARKED_COST));
        let most = match self.shared.config.client_message_size_cap {
            0 => return,
            cap => cap / 2,
        };
        while weight(self.clients.parked()) > most {
            let active = self.clients.active.iter();
            let parked = active.filter_map(|conn| Some((*conn, self.shared.sessions.get(conn)?)));
            let heaviest = parked.max_by_key(|(_, s)| weight(s.account.parked.held()));
            let Some((conn, _)) = heaviest.filter(|(_, s)| s.account.parked.held().ops > 0) else { return };
            self.close_client(conn);
        }
    }

    /// Closes connections that have been held for too long for what waits for maps.
    pub(super) fn parked_tick(&mut self) {
        let now = self.shared.now.mono;
        let mut overdue = Vec::new();
        for conn in &self.clients.active {
            let Some(session) = self.shared.sessions.get_mut(conn) else { continue };
            let account = &mut session.account;
            if !account.is_held || account.parked.held().ops <= PARKED_OPS {
                account.parks_since = None;
            } else if now.saturating_sub(*account.parks_since.get_or_insert(now)) >= PARKED_LONGEST {
                overdue.push(*conn);
            }
        }
        overdue.into_iter().for_each(|conn| self.close_client(conn));
    }

    /// Closes a client's connection. A client that still exists connects again, and sends again what was not
    /// answered.
    fn close_client(&mut self, conn: ConnId) {
        self.shared.out.push(Output::CloseConn { conn });
        self.tracker.disconnected(conn);
        self.disconnected(conn);
    }
}
