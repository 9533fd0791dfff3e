//! What OSDs tell the monitor: that they start, live, fail, stop, want other acting sets; and PG creation.
//!
//! Source: src/mon/OSDMonitor.cc.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use maps::flags::osd_state;
use maps::{LaggyProbability, OsdMap, pool_flags};
use messages::Message;
use messages::osd::{
    MOsdAlive, MOsdBeacon, MOsdBoot, MOsdFailure, MOsdFull, MOsdMarkMeDead, MOsdMarkMeDown, MOsdPgCreate2,
    MOsdPgCreated, MOsdPgTemp, MRemoveSnaps,
};
use types::{AddrVec, ConnId, EntityType, Epoch, Now, PgId, PoolId, SpgId};

use crate::edit;
use crate::monitor::{Monitor, Prepared};
use crate::proposal::Batch;
use crate::service::pool::{is_of_file_system, queue_numbered_snaps};
use crate::service::subscribe::{Sent, place_of_osd};
use crate::session::{Access, Session, Subscription};
use crate::state::{Change, CreatingPool, PgDigest, Priority, State, is_of_ceph};
use crate::whose::OSDS_APART;

/// PGs in one creation message. Source: mon_osd_max_creating_pgs.
const CREATIONS_PER_MESSAGE: usize = 1_024;
/// OSDs that one may boot with a number of, at most. Source: mon_max_osd.
const MAX_OSD: i32 = 10_000;
/// How long a refused connection counts: reports from two hosts support each other when they lie no further
/// apart.
const REFUSAL_KEPT: Duration = Duration::from_secs(60);

/// What one OSD says about another that it does not hear.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FailureReport {
    /// Since when, in milliseconds of our monotonic clock; that may be before it began.
    pub(crate) since: i64,
    /// When we last heard so.
    pub(crate) told: Duration,
}

/// What the leader remembers of OSDs without replicating it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct OsdWatch {
    /// When each OSD was last heard of, and how often it reports.
    pub(crate) seen: BTreeMap<i32, (Duration, Duration)>,
    /// Since when an OSD is down and still in.
    pub(crate) down_since: BTreeMap<i32, Duration>,
    /// By failed OSD and reporter.
    pub(crate) failures: BTreeMap<i32, BTreeMap<i32, FailureReport>>,
    /// Connections that were refused at an OSD's address, by OSD.
    pub(crate) refusals: BTreeMap<i32, Refusals>,
    /// OSDs of which a report came with this batch. They are judged at its end: what waited long may be taken back by what
    /// waited behind it.
    pub(crate) to_judge: BTreeSet<i32>,
    /// The epoch in which each PG was last known to be clean, as its primaries told: what was before it, nobody needs.
    pub(crate) clean_epochs: BTreeMap<PgId, Epoch>,
    /// The map that each OSD had when it was last heard of.
    pub(crate) epochs: BTreeMap<i32, Epoch>,
    /// Since when we lead; timeouts begin then.
    pub(crate) since: Option<Duration>,
}

/// Refused connections at the address of one life of an OSD.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refusals {
    /// The epoch in which that life was marked up (`up_from`).
    life: Epoch,
    /// By reporting OSD: when (monotonic) it last found that nobody listens at the address.
    last: BTreeMap<i32, Duration>,
}

impl Refusals {
    fn of(life: Epoch) -> Self {
        Self { life, last: BTreeMap::new() }
    }
}

impl Monitor {
    /// The OSD that a session is, when the map's addresses say that it is the one that booted.
    pub(crate) fn live_osd(&self, map: &OsdMap, conn: ConnId) -> Option<i32> {
        let session = self.sessions.get(&conn)?;
        let id = osd_of(session)?;
        (map.is_up(id) && same_addrs(&map.osd(id)?.client_addrs, &session.addrs)).then_some(id)
    }

    pub(crate) fn prepare_boot(
        &mut self,
        now: Now,
        batch: &mut Batch,
        conn: ConnId,
        m: &MOsdBoot,
    ) -> Prepared {
        let Some(session) = self.sessions.get(&conn) else { return Prepared::Done };
        let addrs = session.addrs.clone();
        let Some(id) = osd_of(session) else { return Prepared::Done };
        if is_of_ceph(&m.metadata) {
            self.refuse_osd_of_ceph(now, batch, id);
            return Prepared::Done;
        }
        let sb = &m.superblock;
        let map = batch.osdmap();
        let maps_from = sb.current_epoch.next();
        let known = map.osd(id).filter(|o| o.exists());
        let other_disk = known.is_some_and(|o| !o.uuid.is_zero() && o.uuid != sb.osd_fsid);
        let misfit = sb.cluster_fsid != batch.state().fsid || sb.whoami != id || addrs.is_empty();
        if misfit || other_disk || !(0..MAX_OSD).contains(&id) || known.is_none() {
            return Prepared::Done;
        }
        if let Some(o) = known.filter(|o| o.is_up()) {
            if same_addrs(&o.client_addrs, &addrs) && same_addrs(&o.cluster_addrs, &m.cluster_addrs) {
                // It is up already and may have missed that.
                batch.answer_with_maps(conn, maps_from);
                return Prepared::Done;
            }
            // An earlier life of it was never marked down: that comes first, in an epoch of its own.
            edit::mark_down(batch.osdmap_mut(), id);
            return Prepared::Retry;
        }
        // Just marked down in this very batch: the map has to say so before it comes up again.
        if self.state.osdmap().is_up(id) {
            return Prepared::Retry;
        }
        if map.is_noup(id) {
            batch.answer_with_maps(conn, maps_from);
            return Prepared::Done;
        }
        // A process with the addresses that were up is the one that was: it may have missed the map that says
        // so.
        if known.is_some_and(|o| lacks_its_data(o, m) && !same_addrs(&o.client_addrs, &addrs)) {
            self.refuse_empty_store(now, batch, id, m);
            batch.answer_with_maps(conn, maps_from);
            return Prepared::Done;
        }
        boot(batch.osdmap_mut(), id, addrs.clone(), m, now, self.settings_of_boot());
        batch.change(Change::OsdMetadata(id, Some(m.metadata.clone())));
        self.watch.seen.insert(id, (now.mono, Duration::ZERO));
        self.watch.failures.remove(&id);
        let text = format!("osd.{id} {addrs} boot");
        batch.log(self.settings.log_entry(now, Priority::Info, "cluster", text));
        batch.answer_with_maps(conn, maps_from);
        Prepared::Done
    }

    /// Refuses the boot of an empty store while the cluster still counts on the OSD's data, and says so in
    /// health and in the log. Ceph declares the data lost here, for which a mistaken mkfs or a folder that is
    /// not mounted is enough; here an operator has to give the data up. Source: OSDMonitor::prepare_boot in
    /// src/mon/OSDMonitor.cc.
    fn refuse_empty_store(&mut self, now: Now, batch: &mut Batch, id: i32, m: &MOsdBoot) {
        let mut about = m.metadata.clone();
        about.insert(EMPTY_STORE.to_owned(), "refused".to_owned());
        if batch.state().osd_metadata.get(&id) == Some(&about) {
            return;
        }
        batch.change(Change::OsdMetadata(id, Some(about)));
        let text = format!("osd.{id} does not boot: {}", empty_store_advice(id));
        batch.log(self.settings.log_entry(now, Priority::Error, "cluster", text));
    }

    /// An OSD of Ceph's that was told to leave the CRUSH map alone says nothing before its boot.
    fn refuse_osd_of_ceph(&mut self, now: Now, batch: &mut Batch, id: i32) {
        if (0..MAX_OSD).contains(&id) && self.osds_of_ceph.insert(id) {
            let text = format!("osd.{id} does not boot: {OSDS_APART}");
            batch.log(self.settings.log_entry(now, Priority::Error, "cluster", text));
        }
    }

    fn settings_of_boot(&self) -> BootSettings {
        BootSettings {
            mark_new_in: self.settings.switch(&self.state, "mon_osd_auto_mark_new_in"),
            mark_auto_out_in: self.settings.switch(&self.state, "mon_osd_auto_mark_auto_out_in"),
            mark_in: self.settings.switch(&self.state, "mon_osd_auto_mark_in"),
            laggy_weight: self.number("mon_osd_laggy_weight").clamp(0.0, 1.0) as f32,
            laggy_max_interval_s: self.number("mon_osd_laggy_max_interval").clamp(0.0, 1e9) as u32,
        }
    }

    pub(crate) fn prepare_alive(&mut self, batch: &mut Batch, conn: ConnId, m: &MOsdAlive) {
        let Some(id) = self.live_osd(batch.osdmap(), conn) else { return };
        let version = Epoch(u32::try_from(m.version.0).unwrap_or(0));
        if batch.osdmap().osd(id).is_some_and(|o| o.info.up_thru < m.want) {
            raise_up_thru(batch, id, version);
        }
        batch.answer_with_maps(conn, version.next());
    }

    pub(crate) fn prepare_failure(&mut self, now: Now, batch: &mut Batch, conn: ConnId, m: &MOsdFailure) {
        if m.fsid != batch.state().fsid {
            return;
        }
        let map = batch.osdmap();
        let Some(reporter) = self.live_osd(map, conn) else {
            // It does not know yet that it is down itself.
            return batch.answer_with_maps(conn, m.epoch.next());
        };
        let target = m.target_osd;
        if m.flags & MOsdFailure::FAILED != 0 && m.flags & MOsdFailure::IMMEDIATE != 0 {
            self.note_refusal(now, batch, reporter, m);
        }
        let map = batch.osdmap();
        let current = map.osd(target).filter(|o| o.is_up());
        let stale =
            current.is_none_or(|o| o.info.up_from > m.epoch || !same_addrs(&o.client_addrs, &m.target_addrs));
        if stale {
            if m.epoch < self.state.osds.newest() {
                batch.answer_with_maps(conn, m.epoch.next());
            }
            return;
        }
        if m.flags & MOsdFailure::FAILED == 0 {
            if let Some(reports) = self.watch.failures.get_mut(&target) {
                reports.remove(&reporter);
            }
            return;
        }
        if !edit::can_mark_down(map, target, self.min_up_ratio()) {
            return;
        }
        if m.flags & MOsdFailure::IMMEDIATE != 0 {
            let text = format!(
                "osd.{target} failed ({}) (connection refused reported by osd.{reporter})",
                place(map, target)
            );
            batch.log(self.settings.log_entry(now, Priority::Info, "cluster", text));
            edit::mark_down(batch.osdmap_mut(), target);
            self.judge_refusals(now, batch, target);
            return;
        }
        let since = now.mono.as_millis() as i64 - i64::from(m.failed_for_s.max(0)) * 1_000;
        let report = FailureReport { since, told: now.mono };
        self.watch.failures.entry(target).or_default().insert(reporter, report);
        self.watch.to_judge.insert(target);
    }

    /// Notes that an OSD's address refused a connection. If the OSD is down already, this may complete the
    /// proof that it is dead.
    fn note_refusal(&mut self, now: Now, batch: &mut Batch, reporter: i32, m: &MOsdFailure) {
        let (map, target) = (batch.osdmap(), m.target_osd);
        let Some(o) = map.osd(target).filter(|o| o.exists()) else { return };
        if o.info.up_from > m.epoch || !same_addrs(&o.client_addrs, &m.target_addrs) {
            return;
        }
        let (life, down) = (o.info.up_from, !o.is_up());
        let refusals = self.watch.refusals.entry(target).or_insert_with(|| Refusals::of(life));
        if refusals.life != life {
            *refusals = Refusals::of(life);
        }
        refusals.last.insert(reporter, now.mono);
        if down {
            self.judge_refusals(now, batch, target);
        }
    }

    /// Marks an OSD that is down as dead, if the refused connections prove it: an OSD of the same host has
    /// reported one, or OSDs of two hosts have. Ceph takes a single one for proof, but a firewall or a proxy
    /// refuses connections too while the OSD goes on answering clients. Without a proof, new primaries wait
    /// until the OSD's leases are over. Source: OSDMonitor::force_failure in src/mon/OSDMonitor.cc.
    fn judge_refusals(&mut self, now: Now, batch: &mut Batch, target: i32) {
        let map = batch.osdmap();
        let Some(o) = map.osd(target).filter(|o| !o.is_up()) else { return };
        let Some(Refusals { life, last }) = self.watch.refusals.get_mut(&target) else { return };
        last.retain(|_, at| *at + REFUSAL_KEPT >= now.mono);
        if *life != o.info.up_from || o.xinfo.dead_epoch >= *life {
            return;
        }
        let host = |osd: i32| place_of_osd(map, osd).location.get("host").cloned();
        let hosts: BTreeSet<String> = last.keys().filter_map(|r| host(*r)).collect();
        let neighbour = last.keys().any(|r| is_same_host(batch.state(), *r, target));
        if neighbour || hosts.len() >= 2 {
            mark_dead(batch, target);
            self.watch.refusals.remove(&target);
        }
    }

    pub(crate) fn prepare_mark_me_down(
        &mut self,
        now: Now,
        batch: &mut Batch,
        conn: ConnId,
        tid: u64,
        m: &MOsdMarkMeDown,
    ) {
        let id = m.target_osd;
        // The very process that booted: a copy of its disk has its key, and may be told to stop while it serves.
        let own = self.live_osd(batch.osdmap(), conn) == Some(id);
        let current = batch.osdmap().osd(id).filter(|o| o.is_up());
        let fits = current.is_some_and(|o| same_addrs(&o.client_addrs, &m.target_addrs));
        if own
            && fits
            && m.fsid == batch.state().fsid
            && edit::can_mark_down(batch.osdmap(), id, self.min_up_ratio())
        {
            edit::mark_down(batch.osdmap_mut(), id);
            if m.down_and_dead {
                mark_dead(batch, id);
            }
            let text = format!("osd.{id} marked itself down");
            batch.log(self.settings.log_entry(now, Priority::Info, "cluster", text));
        }
        if m.request_ack {
            let ack = MOsdMarkMeDown { request_ack: false, ..m.clone() };
            batch.answer(conn, tid, ack);
        }
    }

    pub(crate) fn prepare_mark_me_dead(&mut self, batch: &mut Batch, conn: ConnId, m: &MOsdMarkMeDead) {
        let own = self.sessions.get(&conn).and_then(osd_of) == Some(m.target_osd);
        if !own || m.fsid != batch.state().fsid || batch.osdmap().is_up(m.target_osd) {
            return;
        }
        // It speaks of what it knew when it sent this: a later life may be down by now, and not know.
        let said = m.epoch.min(batch.osdmap().epoch);
        if let Some(o) = edit::osd_mut(batch.osdmap_mut(), m.target_osd).filter(|o| o.exists()) {
            o.xinfo.dead_epoch = o.xinfo.dead_epoch.max(said);
        }
        batch.answer_with_maps(conn, m.epoch.next());
    }

    pub(crate) fn prepare_pg_temp(&mut self, batch: &mut Batch, conn: ConnId, m: &MOsdPgTemp) {
        let Some(from) = self.live_osd(batch.osdmap(), conn) else { return };
        for (pg, osds) in &m.pg_temp {
            let map = batch.osdmap();
            if !map.pg_exists(*pg) || (!m.forced && map.pg_to_up_acting(*pg).acting_primary != from) {
                continue;
            }
            // More than any pool's size, or numbers that do not exist: nonsense.
            if osds.len() > 255
                || osds.iter().any(|o| *o < 0 || *o >= map.max_osd() && *o != crush::ITEM_NONE)
            {
                continue;
            }
            let had = map.pg_temp.get(pg).map(Vec::as_slice).unwrap_or_default();
            if had == osds.as_slice() && !map.primary_temp.contains_key(pg) {
                continue;
            }
            let map = batch.osdmap_mut();
            match osds.is_empty() {
                true => map.pg_temp.remove(pg),
                false => map.pg_temp.insert(*pg, osds.clone()),
            };
            map.primary_temp.remove(pg);
        }
        raise_up_thru(batch, from, m.map_epoch);
        batch.answer_with_maps(conn, m.map_epoch.next());
    }

    pub(crate) fn prepare_beacon(&mut self, now: Now, batch: &mut Batch, conn: ConnId, m: &MOsdBeacon) {
        let version = Epoch(u32::try_from(m.version.0).unwrap_or(0));
        let Some(id) = self.live_osd(batch.osdmap(), conn) else {
            if version < self.state.osds.newest() {
                batch.answer_with_maps(conn, version.next());
            }
            return;
        };
        let every = Duration::from_secs(u64::try_from(m.report_interval_s).unwrap_or(0));
        self.watch.seen.insert(id, (now.mono, every));
        self.watch.epochs.insert(id, version);
        let there = |pg: &&PgId| batch.osdmap().pool(pg.pool).is_some_and(|p| pg.seed < p.pg_num);
        let told = m.pgs.iter().filter(there).map(|pg| (*pg, m.min_last_epoch_clean));
        self.watch.clean_epochs.extend(told);
        let scrubbed = batch.osdmap().osd(id).map(|o| o.xinfo.last_purged_snaps_scrub);
        if scrubbed.is_some_and(|s| s < m.last_purged_snaps_scrub) {
            if let Some(o) = edit::osd_mut(batch.osdmap_mut(), id) {
                o.xinfo.last_purged_snaps_scrub = m.last_purged_snaps_scrub;
            }
        }
    }

    pub(crate) fn prepare_full(&mut self, batch: &mut Batch, conn: ConnId, m: &MOsdFull) {
        const MASK: u32 = osd_state::FULL | osd_state::BACKFILLFULL | osd_state::NEARFULL;
        let Some(id) = self.live_osd(batch.osdmap(), conn) else { return };
        let have = batch.osdmap().osd(id).map_or(0, |o| o.state) & MASK;
        if have != m.state & MASK {
            if let Some(o) = edit::osd_mut(batch.osdmap_mut(), id) {
                o.state = o.state & !MASK | m.state & MASK;
            }
        }
        batch.answer_with_maps(conn, m.map_epoch.next());
    }

    pub(crate) fn prepare_pg_created(&mut self, batch: &mut Batch, m: &MOsdPgCreated) {
        created(batch, m.pgid.pool, &[m.pgid.seed]);
    }

    /// Snapshots go that their owner, a metadata server, has numbered itself: the pool has not counted them.
    /// The answer has those that are queued, or need not be: their owner asks again for the others.
    ///
    /// Source: OSDMonitor::prepare_remove_snaps.
    pub(crate) fn prepare_remove_snaps(&self, batch: &mut Batch, conn: ConnId, tid: u64, m: &MRemoveSnaps) {
        let is_mds = self.sessions.get(&conn).is_some_and(|s| s.name.kind == EntityType::Mds);
        let mut done = BTreeMap::new();
        for (number, snaps) in &m.snaps {
            let id = PoolId((*number).into());
            let queued = match batch.osdmap().pool(id) {
                // They went with it.
                None => snaps.clone(),
                Some(pool) if pool.is_pool_snaps_mode() => continue,
                Some(pool) if is_mds && !is_of_file_system(&batch.state().fs.map, id, pool) => continue,
                Some(_) => queue_numbered_snaps(batch, id, snaps),
            };
            done.insert(*number, queued);
        }
        batch.answer(conn, tid, MRemoveSnaps { snaps: done, ..MRemoveSnaps::default() });
    }

    /// PGs that the session's OSD leads and that do not exist yet.
    pub(crate) fn pg_creates_for(&self, session: &Session, sub: Subscription) -> Sent {
        let (id, map) = (osd_of(session)?, self.state.osdmap());
        if self.state.creating.is_empty()
            || sub.next > u64::from(map.epoch.0)
            || !session.may("osd", Access::W)
        {
            return None;
        }
        let mut pgs = BTreeMap::new();
        for (pool, c) in self.state.creating.iter() {
            let mine = c.seeds.iter().map(|seed| types::PgId::new(*pool, *seed));
            for pg in mine.filter(|pg| map.pg_to_up_acting(*pg).acting_primary == id) {
                pgs.insert(SpgId::replicated(pg), (c.epoch, c.stamp));
                if pgs.len() >= CREATIONS_PER_MESSAGE {
                    break;
                }
            }
        }
        let epoch = u64::from(map.epoch.0);
        if pgs.is_empty() {
            return Some((epoch, None));
        }
        let msg = MOsdPgCreate2 { epoch: map.epoch, pgs, extra: BTreeMap::new() };
        Some((epoch, Some(Message::from(msg))))
    }

    /// Keeps the leader's notes in step with a new map.
    pub(crate) fn osdmap_changed(&mut self, now: Now, before: Epoch) {
        let _ = before;
        let map = self.state.osdmap();
        self.watch.refusals.retain(|id, r| map.osd(*id).is_some_and(|o| o.info.up_from == r.life));
        for id in 0..map.max_osd() {
            let waits = map.exists(id) && map.is_down(id) && map.is_in(id);
            if !waits {
                self.watch.down_since.remove(&id);
            } else {
                self.watch.down_since.entry(id).or_insert(now.mono);
            }
            if !map.is_up(id) {
                self.watch.failures.remove(&id);
                self.watch.seen.remove(&id);
                self.watch.failures.values_mut().for_each(|reports| {
                    reports.remove(&id);
                });
            }
        }
    }
}

/// PGs that exist now: forgotten, and with the pool's last one its `creating` flag.
pub(crate) fn created(batch: &mut Batch, pool: PoolId, seeds: &[u32]) {
    let Some(creating) = batch.state().creating.get(&pool) else { return };
    let mut left = creating.seeds.clone();
    seeds.iter().for_each(|s| {
        left.remove(s);
    });
    if left.len() == creating.seeds.len() {
        return;
    }
    if !left.is_empty() {
        let creating = CreatingPool { seeds: left, ..creating.clone() };
        return batch.change(Change::Creating(pool, Some(creating)));
    }
    batch.change(Change::Creating(pool, None));
    if batch.osdmap().pool(pool).is_some_and(|p| p.has_flag(pool_flags::CREATING)) {
        if let Some(p) = batch.osdmap_mut().pools.get_mut(&pool) {
            p.unset_flag(pool_flags::CREATING);
        }
    }
}

/// The same from the manager's report: once every PG of the cluster has been reported in some state, none is missing.
pub(crate) fn created_by_report(batch: &mut Batch, pool: PoolId, digest: &PgDigest) {
    const UNKNOWN: u64 = 0;
    const CREATING: u64 = 1;
    let Some(creating) = batch.state().creating.get(&pool) else { return };
    let missing = digest.pg_states.keys().any(|state| *state == UNKNOWN || state & CREATING != 0);
    if missing || digest.epoch < creating.epoch || !digest.pools.contains_key(&pool) {
        return;
    }
    let seeds: Vec<u32> = creating.seeds.iter().copied().collect();
    created(batch, pool, &seeds);
}

/// Whether two OSDs run on one machine: they state the same hostname and have the same cluster address.
/// Containers on one machine have hostnames of their own, so they do not count.
fn is_same_host(state: &State, a: i32, b: i32) -> bool {
    let name = |osd: i32| state.osd_metadata.get(&osd).and_then(|m| m.get("hostname"));
    let address = |osd: i32| state.osdmap().osd(osd)?.cluster_addrs.msgr2()?.socket.map(|at| at.ip());
    name(a).is_some() && name(a) == name(b) && address(a).is_some() && address(a) == address(b)
}

/// Records that nothing of an OSD, which goes down with this batch, serves any more.
fn mark_dead(batch: &mut Batch, id: i32) {
    let epoch = batch.next_osdmap_epoch();
    if let Some(o) = edit::osd_mut(batch.osdmap_mut(), id) {
        o.xinfo.dead_epoch = epoch;
    }
}

/// Raises an OSD's `up_thru` to the map that it has.
fn raise_up_thru(batch: &mut Batch, id: i32, epoch: Epoch) {
    if batch.osdmap().osd(id).is_some_and(|o| o.info.up_thru < epoch) && epoch <= batch.osdmap().epoch {
        if let Some(o) = edit::osd_mut(batch.osdmap_mut(), id) {
            o.info.up_thru = epoch;
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct BootSettings {
    mark_new_in: bool,
    mark_auto_out_in: bool,
    mark_in: bool,
    /// How much the newest observation counts.
    laggy_weight: f32,
    laggy_max_interval_s: u32,
}

fn boot(map: &mut OsdMap, id: i32, addrs: AddrVec, m: &MOsdBoot, now: Now, settings: BootSettings) {
    let sb = &m.superblock;
    let noin = map.is_noin(id);
    let Some(o) = edit::osd_mut(map, id) else { return };
    let was = o.state;
    o.state |= osd_state::UP;
    o.state &= !osd_state::STOP;
    o.uuid = sb.osd_fsid;
    o.client_addrs = addrs;
    o.cluster_addrs = m.cluster_addrs.clone();
    o.hb_back_addrs = m.hb_back_addrs.clone();
    o.hb_front_addrs = m.hb_front_addrs.clone();
    if (sb.mounted, sb.clean_thru) > (o.info.last_clean_begin, o.info.last_clean_end) {
        o.info.last_clean_begin = sb.mounted;
        o.info.last_clean_end = sb.clean_thru;
    }
    let x = &mut o.xinfo;
    let newest = settings.laggy_weight;
    let keep = 1.0 - newest;
    let probability = x.laggy_probability.as_f32() * keep;
    if m.boot_epoch.0 == 0 {
        x.laggy_probability = LaggyProbability::from_f32(probability);
        x.laggy_interval = (x.laggy_interval as f32 * keep) as u32;
    } else {
        // It was up in this very life and wrongly marked down.
        if !x.down_stamp.is_zero() {
            let interval = now.wall.sec.saturating_sub(x.down_stamp.sec).min(settings.laggy_max_interval_s);
            x.laggy_interval = (interval as f32 * newest + x.laggy_interval as f32 * keep) as u32;
        }
        x.laggy_probability = LaggyProbability::from_f32(newest + probability);
    }
    if m.features != 0 {
        x.features = m.features;
    }
    let wanted = settings.mark_auto_out_in && was & osd_state::AUTOOUT != 0
        || settings.mark_new_in && was & osd_state::NEW != 0
        || settings.mark_in;
    if wanted && !noin {
        edit::mark_in(map, id);
    }
}

/// The mark in an OSD's metadata of a boot that was refused because its store is empty; the next boot replaces it.
pub(crate) const EMPTY_STORE: &str = "loligo_empty_store";

/// Whether a booting store has never been up, although its OSD has, and nobody has given up the data which
/// that OSD held.
fn lacks_its_data(known: &maps::Osd, m: &MOsdBoot) -> bool {
    let sb = &m.superblock;
    // A clean stop (`clean_thru`) tells nothing: a store that was refused has one too.
    let never_up = sb.newest_map.0 == 0 || sb.mounted.0 == 0;
    never_up && is_data_wanted(known)
}

/// Whether what an OSD held when it was last up has not been given up.
pub(crate) fn is_data_wanted(known: &maps::Osd) -> bool {
    known.info.up_from > known.info.lost_at
}

/// What is wrong with an empty store, and what an operator can do.
pub(crate) fn empty_store_advice(id: i32) -> String {
    format!(
        "its store is empty, and the cluster still counts on what osd.{id} held; mount the right disk, or give the data up: \
         ceph osd lost {id} --yes-i-really-mean-it"
    )
}

/// The number of the OSD that a session belongs to.
pub(crate) fn osd_of(session: &Session) -> Option<i32> {
    if session.name.kind != EntityType::Osd {
        return None;
    }
    session.name.id.parse().ok()
}

/// Whether two address lists mean the same process. Ours may be without the old protocol's entry.
fn same_addrs(a: &AddrVec, b: &AddrVec) -> bool {
    match (a.msgr2(), b.msgr2()) {
        (Some(x), Some(y)) => x.socket == y.socket && x.nonce == y.nonce,
        _ => a == b,
    }
}

/// `root=default,host=h1`. Source: CrushWrapper::get_full_location_ordered_string.
pub(crate) fn place(map: &OsdMap, id: i32) -> String {
    let mut levels = map.crush.full_location_ordered(id);
    levels.reverse();
    let texts: Vec<String> = levels.into_iter().map(|(kind, name)| format!("{kind}={name}")).collect();
    texts.join(",")
}
