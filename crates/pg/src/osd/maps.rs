//! Following OSD maps: storing them, moving PGs from epoch to epoch, and telling others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use codec::Decode;
use maps::{ApplyError, Incremental, OsdMap};
use messages::mon::MOsdMap;
use store::Txn;
use types::{ConnId, EntityType, Epoch, OsdId, SpgId};

use super::shared::{Done, Shared};
use super::{OsdCore, mon, superblock};
use crate::interval::IntervalKey;
use crate::io::{FatalReason, LogLevel, Output};
use crate::pg::{self, Pg};

/// Increments sent to a client or peer in one message. Source: osd_map_share_max_epochs.
const SHARE_MAX: u32 = 40;

/// An OSD tells its clients of a map that shows another OSD down only after so long, which leaves it to the
/// monitors first.
///
/// Without that, a client whose monitor is cut off together with the dead OSD would wait until it gives the
/// monitor up, half a minute later (mon_client_ping_timeout), although other clients have long gone on.
const TELL_CLIENTS_AFTER: Duration = Duration::from_millis(200);
/// Clients that have asked for nothing for so long are not told.
const IDLE_CLIENT: Duration = Duration::from_secs(60);

/// What a run of maps changed.
#[derive(Default)]
struct Advanced {
    /// PGs with a new interval.
    changed: BTreeSet<SpgId>,
    /// PGs whose pool is gone.
    removed: BTreeSet<SpgId>,
    /// Maps of this run.
    maps: BTreeMap<Epoch, Arc<OsdMap>>,
}

impl OsdCore {
    /// Takes maps from whoever connected to this OSD or was reached by it, but for the monitors. Another cluster's are not
    /// taken: they show that the peer is a stranger, not that this OSD is.
    pub(super) fn osdmap_of_peer(&mut self, m: &MOsdMap) {
        if m.fsid == self.shared.store.identity().fsid {
            self.handle_osdmap(m);
        }
    }

    /// Takes maps from the monitors.
    pub(super) fn handle_osdmap(&mut self, m: &MOsdMap) {
        let ours = self.shared.store.identity().fsid;
        if m.fsid != ours {
            return self.shared.fail(FatalReason::ForeignCluster { ours, theirs: m.fsid });
        }
        let (Some(first), Some(last)) = (m.first(), m.last()) else { return };
        let current = self.shared.epoch();
        self.count_maps(first, last);
        if last <= current {
            return;
        }
        // Maps are left out only when the monitors have forgotten them: then every PG has been clean since.
        let forgotten = first <= m.oldest && m.full.contains_key(&first);
        if first > current.next() && !forgotten {
            self.shared.send_mon(mon::subscribe(current.next()));
            return;
        }
        let mut txn = Txn::new();
        let mut done = Advanced::default();
        let mut at = self.shared.map.clone();
        let mut next = if first > current.next() { first } else { current.next() };
        while next <= last {
            let Some(map) = self.read_map(m, next, &at, &mut txn) else { break };
            let map = Arc::new(map);
            if let Err(e) = self.advance_pgs(&at, &map, &mut txn, &mut done) {
                return self.shared.fail(FatalReason::Store(e.to_string()));
            }
            done.maps.insert(next, map.clone());
            at = map;
            next = next.next();
        }
        if at.epoch > current {
            self.take_map(at, first > current.next(), m.oldest, txn, done);
        }
        self.ask_for_more(m, last);
    }

    fn count_maps(&mut self, first: Epoch, last: Epoch) {
        let epochs = |from: Epoch, to: Epoch| u64::from(to.0).saturating_sub(from.0.into()).saturating_add(1);
        let (current, c) = (self.shared.map.epoch, &mut self.shared.counters);
        c.map_messages += 1;
        c.map_epochs += epochs(first, last);
        if first <= current {
            c.map_epochs_known += epochs(first, last.min(current));
        }
    }

    /// A damaged or missing epoch is asked for again; whole when its increment leads elsewhere.
    fn ask_for_more(&mut self, m: &MOsdMap, last: Epoch) {
        let at = self.shared.epoch();
        let whole_came = self.whole_map_wanted.take_if(|e| *e <= at).is_some();
        match self.whole_map_wanted {
            Some(wanted) if wanted <= last => self.shared.send_mon(mon::whole_osdmap(wanted)),
            _ if at < m.newest && (at < last || whole_came) => {
                self.shared.send_mon(mon::subscribe(at.next()));
            }
            _ => {}
        }
    }

    /// The map of epoch `e`, from the message and the map before; it goes into the transaction.
    fn read_map(&mut self, m: &MOsdMap, e: Epoch, before: &OsdMap, txn: &mut Txn) -> Option<OsdMap> {
        let increment = m.incremental.get(&e).filter(|_| before.epoch.next() == e);
        if let Some(raw) = m.full.get(&e) {
            match OsdMap::from_bytes(raw.clone()) {
                Ok(map) if map.epoch == e => {
                    superblock::put_full_map(txn, e, raw.clone());
                    let right = |inc: &Incremental| before.clone().apply_checked(inc).is_ok();
                    if let Some(inc) =
                        increment.filter(|i| Incremental::from_bytes((*i).clone()).is_ok_and(|i| right(&i)))
                    {
                        superblock::put_increment(txn, e, inc.clone());
                    }
                    return Some(map);
                }
                Ok(map) => self.bad_map(e, &format!("it says {}", map.epoch)),
                Err(error) => self.bad_map(e, &error.to_string()),
            }
        }
        let increment = increment?;
        let inc = match Incremental::from_bytes(increment.clone()) {
            Ok(inc) => inc,
            Err(error) => {
                self.bad_map(e, &error.to_string());
                return None;
            }
        };
        let mut map = before.clone();
        match map.apply_checked(&inc) {
            Ok(raw) => {
                superblock::put_increment(txn, e, increment.clone());
                superblock::put_full_map(txn, e, raw);
                Some(map)
            }
            Err(error) => {
                if matches!(error, ApplyError::Crc { .. }) {
                    // What comes out is not the map that the others have.
                    self.whole_map_wanted = Some(e);
                }
                self.bad_map(e, &error.to_string());
                None
            }
        }
    }

    fn bad_map(&mut self, e: Epoch, why: &str) {
        let who = self.shared.whoami;
        self.shared.cluster_log(LogLevel::Error, format!("osd.{who} got a bad OSD map {e}: {why}"));
    }

    /// Moves every PG one epoch on.
    fn advance_pgs(
        &mut self,
        last: &OsdMap,
        map: &OsdMap,
        txn: &mut Txn,
        done: &mut Advanced,
    ) -> Result<(), crate::object::LoadError> {
        let mut born: Vec<Pg> = Vec::new();
        let presume = self.shared.config.presumes_writes();
        for (id, pg) in &mut self.pgs {
            if map.pool(id.pgid.pool).is_none() {
                done.removed.insert(*id);
            }
            let Some(key) = IntervalKey::placed(map, id.pgid, &mut self.placements) else { continue };
            let was = pg.key.pg_num;
            if pg.advance_map(last, map, key, presume, txn) {
                done.changed.insert(*id);
            }
            let Some(pool) = map.pool(id.pgid.pool).filter(|p| p.pg_num > was && was > 0) else { continue };
            let children = pg::split::children(id.pgid, was, pool.pg_num);
            let divided = !children.is_empty();
            for child in children {
                let mut child = pg.split_off(child, pool, &mut self.shared.store, txn)?;
                if types::is_planted!(self.shared.config.planted, SplitForgetsDups) {
                    child.log = child.log.without_dups();
                }
                child.key = IntervalKey::placed(map, child.id.pgid, &mut self.placements).unwrap_or_default();
                done.changed.insert(child.id);
                born.push(child);
            }
            if divided {
                pg.save_after_split(txn);
            }
        }
        self.pgs.extend(born.into_iter().map(|pg| (pg.id, pg)));
        for (id, pool) in &map.pools {
            if let Some(was) = last.pool(*id).map(|p| p.pg_num).filter(|was| *was > pool.pg_num) {
                self.join_pgs(*id, pool, was, txn, done);
            }
        }
        Ok(())
    }

    /// PGs that this map has no more go into others. What is here of a PG without a copy of the one that takes it in is of no
    /// use: all members of a clean pair have both.
    fn join_pgs(
        &mut self,
        id: types::PoolId,
        pool: &maps::Pool,
        was: u32,
        txn: &mut Txn,
        done: &mut Advanced,
    ) {
        // Shards join the shards of their places.
        let shards =
            if pool.is_erasure() { 0..i8::try_from(pool.size).unwrap_or(0) } else { SpgId::NO_SHARD..0 };
        let joins = pg::join::joins(id, was, pool.pg_num);
        for (shard, (target, sources)) in shards.flat_map(|shard| joins.iter().map(move |join| (shard, join)))
        {
            let mut taken = Vec::new();
            for source in sources.iter().copied() {
                let id = SpgId { pgid: source, shard };
                let mut pg = self.pgs.remove(&id);
                if let Some(pg) = &mut pg {
                    pg.stop(&mut self.shared);
                    pg.waiting_for_active.drain(..).for_each(|op| op.drop_it(&mut self.shared));
                    // The logs end here.
                    pg.forget_all_kept(txn, &mut self.shared);
                }
                done.changed.remove(&id);
                self.shared.sessions.values_mut().for_each(|s| s.backoffs.forget(id));
                taken.push((source, pg));
            }
            let target = SpgId { pgid: *target, shard };
            let cx = &mut self.shared;
            if let Some(pg) = self.pgs.get_mut(&target) {
                let range = crate::range::pg_range(target.pgid, pool.pg_num);
                let whole = !pg::remove::make_way(target.shard, &range, txn, cx);
                pg.forget_all_kept(txn, cx);
                let ended = pg.past.iter().next_back().map(|i| i.first);
                let served = pg.phase == pg::Phase::Active
                    && ended.is_some_and(|e| e == pg.info.history.last_interval_clean);
                if !pg.join(taken, pool, whole, txn) && served {
                    let text =
                        format!("pg {target} was merged at versions that its primary does not stand at");
                    cx.cluster_log(LogLevel::Error, text);
                }
                done.changed.insert(target);
                continue;
            }
            for pg in taken.into_iter().filter_map(|(_, pg)| pg) {
                pg::remove::give_up(pg.id, crate::range::pg_range(pg.id.pgid, was), txn, cx);
            }
        }
    }

    /// Makes `map` the current one: stores everything in one transaction, then lets PGs act on it.
    fn take_map(&mut self, map: Arc<OsdMap>, gap: bool, oldest: Epoch, mut txn: Txn, mut done: Advanced) {
        let before = std::mem::replace(&mut self.shared.map, map.clone());
        let first_kept = done.maps.keys().next().copied().unwrap_or(map.epoch);
        let sb = &mut self.superblock;
        sb.current_epoch = map.epoch;
        sb.cluster_fsid = map.fsid;
        sb.clean = false;
        if gap || sb.oldest_map.0 == 0 {
            superblock::forget_maps_before(&mut txn, sb.oldest_map, first_kept);
            sb.oldest_map = first_kept;
        }
        self.trim_maps(oldest, &mut txn);
        for id in &done.removed {
            done.changed.remove(id);
        }
        self.instantiate(&done.maps, &mut txn, &mut done.changed);
        // This process, and not another one under its number: by this the monitors know a store that never served.
        let me = map.osd(self.shared.whoami).filter(|o| o.is_up());
        if me.is_some_and(|o| o.cluster_addrs == self.addrs.cluster) {
            self.superblock.mounted = map.epoch;
        }
        self.superblock.save(&mut txn);
        self.shared.submit(txn, Done::Nothing);
        self.note_purged_snaps(&done.maps);
        self.remove_pools(&before, &done.removed);
        self.drop_sessions(&before, &map);
        self.shared.out.push(Output::MapChanged);
        self.check_up();
        let up = self.boot.is_up();
        for (id, pg) in &mut self.pgs {
            match (done.changed.contains(id), up) {
                (true, true) => pg.start_interval(&mut self.shared),
                (true, false) => pg.stop(&mut self.shared),
                (false, true) => pg.map_changed(&mut self.shared),
                (false, false) => {}
            }
        }
        self.heartbeat_peers_changed();
        self.map_arrived();
    }

    fn note_purged_snaps(&mut self, new: &BTreeMap<Epoch, Arc<OsdMap>>) {
        let Shared { map, purged_snaps, .. } = &mut self.shared;
        for (pool, snaps) in new.values().flat_map(|m| &m.new_purged_snaps) {
            purged_snaps.entry(*pool).or_default().union_of(snaps);
        }
        purged_snaps.retain(|pool, _| map.pool(*pool).is_some());
    }

    /// Forgets maps that no OSD needs (`oldest` is the monitors' oldest) beyond the number to keep.
    fn trim_maps(&mut self, oldest: Epoch, txn: &mut Txn) {
        let keep_from =
            self.superblock.current_epoch.0.saturating_sub(self.shared.config.map_cache_size.max(1));
        let to = Epoch(keep_from).min(oldest);
        if to > self.superblock.oldest_map {
            superblock::forget_maps_before(txn, self.superblock.oldest_map, to);
            self.superblock.oldest_map = to;
        }
    }

    fn remove_pools(&mut self, before: &OsdMap, removed: &BTreeSet<SpgId>) {
        for id in removed {
            if let Some(mut pg) = self.pgs.remove(id) {
                pg.stop(&mut self.shared);
            }
            self.shared.sessions.values_mut().for_each(|s| s.backoffs.forget(*id));
            let pg_num = before.pool(id.pgid.pool).map_or(1, |p| p.pg_num);
            let range = crate::range::pg_range(id.pgid, pg_num.max(id.pgid.seed.saturating_add(1)));
            pg::remove::remove_copy(*id, range, &mut self.shared);
        }
    }

    /// Sessions to OSDs that went down or moved are of no use.
    fn drop_sessions(&mut self, before: &OsdMap, now: &OsdMap) {
        for (osd, old) in before.existing_osds().filter(|(_, o)| o.is_up()) {
            let same = now.osd(osd.0).is_some_and(|o| o.is_up() && o.info.up_from == old.info.up_from);
            if !same && osd != self.shared.whoami {
                self.shared.out.push(Output::DropOsd { osd });
            }
            if !now.is_up(osd.0) {
                // While one after the other goes down, the clients are told of the first in time.
                self.tell_clients.get_or_insert(self.shared.now.mono + TELL_CLIENTS_AFTER);
            }
        }
    }

    /// An OSD went down: clients that work with us and have not shown that they know get our map.
    pub(super) fn tell_clients(&mut self) {
        let (now, current) = (self.shared.now.mono, self.shared.epoch());
        if self.tell_clients.take_if(|at| *at <= now).is_none() {
            return;
        }
        let sessions = self.shared.sessions.iter();
        let behind = sessions.filter(|(_, s)| {
            let works = s.epoch.0 > 0 && now.saturating_sub(s.asked) < IDLE_CLIENT;
            works && s.epoch < current && s.peer.name.entity_type() == Some(EntityType::Client)
        });
        let behind: Vec<(ConnId, Epoch)> = behind.map(|(conn, s)| (*conn, s.epoch)).collect();
        for (conn, theirs) in behind {
            self.share_map(ShareTo::Conn(conn), theirs);
        }
    }

    /// Whose operations were dropped gets our map: only with that a client sends them again. It had the map that was ours
    /// when they came, and asks nobody for another.
    pub(super) fn tell_senders(&mut self, dropped: &[(ConnId, u64)]) {
        for (conn, _) in dropped {
            if let Some(theirs) = self.shared.sessions.get(conn).map(|s| s.epoch) {
                self.share_map(ShareTo::Conn(*conn), theirs);
            }
        }
    }

    /// Sends a peer the increments it lacks, as far as they are kept.
    pub(super) fn share_map(&mut self, to: ShareTo, theirs: Epoch) {
        let current = self.shared.epoch();
        if theirs >= current || theirs.0 == 0 {
            return;
        }
        let mut m = MOsdMap {
            fsid: self.shared.map.fsid,
            oldest: self.superblock.oldest_map,
            newest: current,
            ..MOsdMap::default()
        };
        let last = current.min(Epoch(theirs.0.saturating_add(SHARE_MAX)));
        let mut e = theirs.next();
        while e <= last {
            match superblock::increment_raw(&mut self.shared.store, e) {
                Ok(Some(raw)) => {
                    m.incremental.insert(e, raw);
                }
                _ => break,
            }
            e = e.next();
        }
        if m.incremental.is_empty() {
            if let Ok(Some(raw)) = superblock::full_map_raw(&mut self.shared.store, current) {
                m.full.insert(current, raw);
            }
        }
        let reached = m.last().unwrap_or(theirs);
        match to {
            ShareTo::Conn(conn) => {
                if let Some(s) = self.shared.sessions.get_mut(&conn) {
                    s.epoch = reached;
                }
                self.shared.out.push(Output::Reply { conn, tid: 0, msg: m.into() });
                if reached > theirs {
                    // A client takes what it is given for all there is, and would ask the monitors only after seconds.
                    self.share_map(to, reached);
                }
            }
            ShareTo::Osd(osd) => self.shared.out.push(Output::SendOsd { osd, msg: m.into() }),
        }
    }
}

/// Whom maps are shared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShareTo {
    Conn(ConnId),
    Osd(OsdId),
}
