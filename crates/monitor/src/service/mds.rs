//! Beacons of metadata servers: who is alive, in which state, and who wants to leave.
//!
//! Invariants:
//! 1. A daemon speaks for itself alone: the number and the name in a beacon are those of its session.
//! 2. A rank's holder is forgotten only together with its addresses being blocked at the OSDs, in one entry of
//!    the log. Its successor waits for that OSD map (`last_failure_osd_epoch`).
//! 3. The addresses of a daemon have the host that its session comes from, and are no other daemon's: whoever
//!    names them has them blocked when it fails.
//! 4. Tickets for metadata servers have Ceph's form exactly while a daemon of Ceph's holds or follows a rank
//!    (and cephx is in use).
//!
//! Source: MDSMonitor::preprocess_beacon, prepare_beacon, fail_mds_gid in src/mon/MDSMonitor.cc.

use std::collections::BTreeSet;
use std::time::Duration;

use cephx::METHOD_CEPHX;
use codec::Encode;
use maps::{MdsGid, MdsInfo, MdsState, NO_FS, NO_RANK};
use messages::mds::{MMdsBeacon, MMdsLoadTargets, MdsHealth, MdsHealthMetric};
use messages::mon::MMdsMap;
use types::{AddrKind, AddrVec, AuthName, ConnId, EntityAddr, EntityType, Epoch, Now};

use crate::monitor::Monitor;
use crate::proposal::Batch;
use crate::service::mgr::blocklist;
use crate::session::Session;
use crate::settings::Settings;
use crate::state::{Change, FsState, Priority};
use crate::text::cut;

/// Daemons in the map; a key has one of them.
const DAEMONS_LIMIT: usize = 1_024;
/// Bytes of all that is kept of file systems: it is committed as a whole.
const FS_BYTES: usize = 16 << 20;
/// Bytes of what one daemon says of itself, of its name and of a file system's; its addresses; features by name.
const INFO_BYTES: usize = 64 << 10;
const INFO_ENTRIES: usize = 256;
const NAME_BYTES: usize = 256;
const ADDRS_LIMIT: usize = 8;
const COMPAT_BYTES: usize = 8 << 10;
/// Of what it finds wrong: reasons, bytes of a message, and of what goes with it.
const METRICS_LIMIT: usize = 64;
const MESSAGE_BYTES: usize = 512;
const DETAILS_LIMIT: usize = 16;
/// All of that of one daemon.
const HEALTH_BYTES: usize = 32 << 10;
/// What a daemon finds wrong, and what it would rather serve, is taken this often: each change is committed.
const NEWS_EVERY: Duration = Duration::from_secs(1);
/// Daemons of one key come and go this often, but for so much at once: each change is committed.
const COMES_EVERY: Duration = Duration::from_secs(1);
const COMES_AT_ONCE: Duration = Duration::from_secs(5);

/// What the leader knows of a daemon and does not replicate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MdsSeen {
    /// When (monotonic) its last beacon came.
    pub(crate) at: Duration,
    pub(crate) seq: u64,
    /// When its connection ended, while it has no other.
    pub(crate) lost: Option<Duration>,
    /// When news of it were last taken.
    news: Option<Duration>,
}

impl MdsSeen {
    pub(crate) fn new(at: Duration) -> Self {
        Self { at, seq: 0, lost: None, news: None }
    }
}

impl Monitor {
    pub(crate) fn prepare_mds_beacon(
        &mut self,
        now: Now,
        batch: &mut Batch,
        conn: ConnId,
        tid: u64,
        m: &MMdsBeacon,
    ) {
        let Some(session) = self.sessions.get(&conn).filter(|s| is_own(s, m)) else { return };
        if m.fsid != batch.state().fsid {
            return;
        }
        let key = session.name.clone();
        let state = MdsState(m.state);
        let Some(info) = batch.state().fs.map.daemon(m.gid).cloned() else {
            if state == MdsState::BOOT {
                let addrs = own_addrs(session);
                if self.may_come_or_go(now, key) {
                    self.boot_mds(now, batch, conn, tid, m, addrs);
                }
                return;
            }
            return answer_with_nothing(batch, conn, tid, m.gid);
        };
        let seen = *self.mds_seen.entry(m.gid).or_insert_with(|| MdsSeen::new(now.mono));
        // What overtook a later one says nothing any more.
        if info.state_seq > m.seq || seen.seq > m.seq {
            return;
        }
        if state == MdsState::DNE {
            if self.may_come_or_go(now, key) {
                let mut fs = batch.edit_fs();
                fail(now, &self.settings, &mut fs, batch, m.gid);
                propose(now, &self.settings, fs, batch);
                answer(batch, conn, tid, m);
            }
            return;
        }
        let wanted = self.wanted_change(now, batch, &info, m);
        if state == MdsState::BOOT
            && wanted == Wanted::Nothing
            && batch.state().fs.map.epoch_for(m.gid) == Some(m.epoch)
        {
            // It has been told that it is in the map, and goes on as if it were not.
            return;
        }
        let seen = self.mds_seen.entry(m.gid).or_insert_with(|| MdsSeen::new(now.mono));
        (seen.at, seen.seq, seen.lost) = (now.mono, m.seq, None);
        self.apply_beacon(now, batch, (conn, tid), &info, m, wanted);
    }

    /// Whether one more daemon of a key may come or go. One that may not says so again with its next beacon.
    fn may_come_or_go(&mut self, now: Now, key: AuthName) -> bool {
        // When all that was taken is made up for.
        let paid = self.mds_comes.entry(key).or_default();
        let next = (*paid).max(now.mono) + COMES_EVERY;
        let may = next <= now.mono + COMES_AT_ONCE;
        if may {
            *paid = next;
        }
        may
    }

    /// What a beacon asks for, as far as its sender may ask for it.
    fn wanted_change(&self, now: Now, batch: &Batch, info: &MdsInfo, m: &MMdsBeacon) -> Wanted {
        let state = MdsState(m.state);
        // It decides by a map that is no longer so.
        if batch.state().fs.map.epoch_for(info.gid) != Some(m.epoch) || state == MdsState::BOOT {
            return Wanted::Nothing;
        }
        let has_rank = info.rank != NO_RANK && !info.follows();
        if state != info.state {
            let allowed = match state {
                _ if !has_rank => false,
                MdsState::STANDBY | MdsState::STANDBY_REPLAY => false,
                // Only whoever was told to stop has given away what it had.
                MdsState::STOPPED => info.state == MdsState::STOPPING,
                MdsState::DAMAGED => true,
                _ if info.state == MdsState::STOPPING => false,
                MdsState::NULL | MdsState::BOOT | MdsState::CREATING | MdsState::STARTING => false,
                MdsState::STOPPING => false,
                // There is no way back.
                next if info.state.0 > 0 => {
                    next.0 > info.state.0 && next.0 <= MdsState::ACTIVE.0 && info.state.may_become(next)
                }
                next => next == MdsState::ACTIVE,
            };
            return if allowed { Wanted::State(state) } else { Wanted::Nothing };
        }
        let due = self.mds_seen.get(&m.gid).and_then(|s| s.news);
        let is_due = due.is_none_or(|at| now.mono.saturating_sub(at) >= NEWS_EVERY);
        let fs = &batch.state().fs;
        let is_news = || {
            let none = MdsHealth::default();
            info.join_fscid != joins(fs, m) || *fs.health.get(&m.gid).unwrap_or(&none) != bounded(&m.health)
        };
        match is_due && is_news() {
            true => Wanted::News,
            false => Wanted::Nothing,
        }
    }

    fn apply_beacon(
        &mut self,
        now: Now,
        batch: &mut Batch,
        to: (ConnId, u64),
        info: &MdsInfo,
        m: &MMdsBeacon,
        wanted: Wanted,
    ) {
        if wanted == Wanted::Nothing && !info.is_laggy() {
            // Most are so. The working copy of all file systems is not for them.
            return answer(batch, to.0, to.1, m);
        }
        let mut fs = batch.edit_fs();
        if info.is_laggy() {
            fs.map.modify_daemon(info.gid, |i| i.laggy_since = types::Utime::ZERO);
        }
        if wanted != Wanted::Nothing {
            let join = joins(&fs, m);
            let mut news = info.join_fscid != join;
            if news {
                fs.map.modify_daemon(info.gid, |i| i.join_fscid = join);
            }
            news |= self.note_health(now, batch, &mut fs, info, &m.health);
            if let Some(seen) = self.mds_seen.get_mut(&info.gid).filter(|_| news) {
                seen.news = Some(now.mono);
            }
        }
        match wanted {
            Wanted::State(MdsState::STOPPED) => return self.stopped(now, batch, to, fs, info),
            Wanted::State(MdsState::DAMAGED) => {
                let at = block(now, &self.settings, &mut fs, batch, info);
                fs.map.damaged(info.gid, at);
                let text = format!("{} found rank {} damaged", info.human_name(), info.rank);
                batch.log(self.settings.log_entry(now, Priority::Error, "cluster", text));
            }
            Wanted::State(state) => {
                if state == MdsState::ACTIVE {
                    let name = fs.map.fs_of(info.gid).map_or("", |fs| fs.map.fs_name.as_str());
                    let text = format!(
                        "{} is now active in filesystem {name} as rank {}",
                        info.human_name(),
                        info.rank
                    );
                    batch.log(self.settings.log_entry(now, Priority::Info, "cluster", text));
                }
                let seq = m.seq;
                fs.map.modify_daemon(info.gid, |i| (i.state, i.state_seq) = (state, seq));
            }
            Wanted::News | Wanted::Nothing => {}
        }
        propose(now, &self.settings, fs, batch);
        answer(batch, to.0, to.1, m);
    }

    /// Takes what a daemon finds wrong, and says what it no longer finds; whether that is something new.
    fn note_health(
        &mut self,
        now: Now,
        batch: &mut Batch,
        fs: &mut FsState,
        info: &MdsInfo,
        health: &MdsHealth,
    ) -> bool {
        let health = bounded(health);
        let before = fs.health.get(&info.gid).cloned().unwrap_or_default();
        if before == health {
            return false;
        }
        if fs.to_bytes().len() + health.to_bytes().len() > FS_BYTES {
            let text = format!("what mds.{} finds wrong was left out: there is no room for it", info.name);
            self.log_refusal(now, batch, info.gid, text);
            return false;
        }
        let mut cleared = BTreeSet::new();
        for old in &before.metrics {
            if health.metrics.iter().all(|new| new.kind != old.kind) && cleared.insert(old.kind) {
                let text = format!("MDS health message cleared (mds.{}): {}", info.name, old.message);
                batch.log(self.settings.log_entry(now, Priority::Info, "cluster", text));
            }
        }
        fs.health.insert(info.gid, health);
        true
    }

    fn stopped(&mut self, now: Now, batch: &mut Batch, to: (ConnId, u64), mut fs: FsState, info: &MdsInfo) {
        let ranks = fs.map.fs_of(info.gid).map(|fs| (fs.map.fs_name.clone(), fs.map.r#in.len()));
        let (name, ranks) = ranks.unwrap_or_default();
        let text = format!(
            "{} finished stopping rank {} in filesystem {name} (now has {} ranks)",
            info.human_name(),
            info.rank,
            ranks.saturating_sub(1)
        );
        batch.log(self.settings.log_entry(now, Priority::Info, "cluster", text));
        fs.map.stop(info.gid);
        propose(now, &self.settings, fs, batch);
        answer_with_nothing(batch, to.0, to.1, info.gid);
    }

    /// A daemon that is not in the map yet. An earlier one of its name is gone.
    fn boot_mds(
        &mut self,
        now: Now,
        batch: &mut Batch,
        conn: ConnId,
        tid: u64,
        m: &MMdsBeacon,
        addrs: AddrVec,
    ) {
        let mut fs = batch.edit_fs();
        if let Some(why) = why_refused(batch, &fs, m, &addrs) {
            return self.log_refusal(now, batch, m.gid, format!("mds.{} was refused: {why}", m.name));
        }
        while let Some(old) = fs.map.daemon_named(&m.name).map(|i| (i.gid, i.human_name())) {
            fail(now, &self.settings, &mut fs, batch, old.0);
            let text = format!("{} restarted", old.1);
            batch.log(self.settings.log_entry(now, Priority::Info, "cluster", text));
        }
        let join = joins(&fs, m);
        fs.map.insert_standby(MdsInfo {
            gid: m.gid,
            name: m.name.clone(),
            addrs,
            features: m.features,
            state_seq: m.seq,
            join_fscid: join,
            compat: m.compat.clone(),
            ..MdsInfo::default()
        });
        fs.metadata.insert(m.gid, m.sys_info.clone());
        self.mds_seen.insert(m.gid, MdsSeen { seq: m.seq, ..MdsSeen::new(now.mono) });
        propose(now, &self.settings, fs, batch);
        answer(batch, conn, tid, m);
    }

    /// Says once why something of a daemon was not taken.
    fn log_refusal(&mut self, now: Now, batch: &mut Batch, gid: MdsGid, text: String) {
        if self.mds_refused.replace(gid) != Some(gid) {
            batch.log(self.settings.log_entry(now, Priority::Warn, "cluster", text));
        }
    }

    /// The ranks to which a daemon gives subtrees.
    pub(crate) fn prepare_mds_targets(
        &mut self,
        now: Now,
        batch: &mut Batch,
        conn: ConnId,
        m: &MMdsLoadTargets,
    ) {
        if self.sessions.get(&conn).is_none_or(|s| s.global_id.0 != m.gid) {
            return;
        }
        let Some(of) = batch.state().fs.map.fs_of(m.gid) else { return };
        let known = of.map.info.get(&m.gid).is_some_and(|i| i.export_targets == m.targets);
        if known || !m.targets.is_subset(&of.map.r#in) {
            return;
        }
        let mut fs = batch.edit_fs();
        fs.map.modify_daemon(m.gid, |i| i.export_targets.clone_from(&m.targets));
        propose(now, &self.settings, fs, batch);
    }

    /// A session of a metadata server ended. A daemon that lives comes back at once.
    pub(crate) fn mds_left(&mut self, now: Now, session: &Session) {
        // The connection before may end after its successor has begun.
        let same = |s: &Session| s.name.kind == EntityType::Mds && s.global_id == session.global_id;
        if same(session) && !self.sessions.values().any(same) {
            if let Some(seen) = self.mds_seen.get_mut(&session.global_id.0) {
                seen.lost = Some(now.mono);
            }
        }
    }

    /// A session of a metadata server began.
    pub(crate) fn mds_came(&mut self, conn: ConnId) {
        let gid = self.sessions.get(&conn).filter(|s| s.name.kind == EntityType::Mds).map(|s| s.global_id.0);
        if let Some(seen) = gid.and_then(|gid| self.mds_seen.get_mut(&gid)) {
            seen.lost = None;
        }
    }
}

/// What a beacon changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// Its sender is alive, and no more.
    Nothing,
    /// What it finds wrong, and what it would rather serve.
    News,
    /// The same, and the state that it is in now.
    State(MdsState),
}

/// Whether a beacon speaks for its sender, within bounds.
fn is_own(session: &Session, m: &MMdsBeacon) -> bool {
    let own = session.global_id.0 != 0 && session.global_id.0 == m.gid && session.name.id == m.name;
    own && m.name.len() <= NAME_BYTES
        && m.fs.len() <= NAME_BYTES
        && m.compat.to_bytes().len() <= COMPAT_BYTES
        && session.addrs.0.len() <= ADDRS_LIMIT
}

/// Of the addresses that a daemon states those with the host that its session comes from: of others nobody
/// knows whether they are its own.
fn own_addrs(session: &Session) -> AddrVec {
    let host = |a: &EntityAddr| a.socket.map(|s| s.ip().to_canonical());
    let from = host(&session.addr);
    AddrVec(session.addrs.0.iter().copied().filter(|a| from.is_some() && host(a) == from).collect())
}

/// Why a daemon cannot be in the map.
fn why_refused(batch: &Batch, fs: &FsState, m: &MMdsBeacon, addrs: &AddrVec) -> Option<&'static str> {
    let info_bytes: usize = m.sys_info.iter().map(|(k, v)| k.len() + v.len() + 8).sum();
    let full = fs.map.daemons().count() >= DAEMONS_LIMIT && fs.map.daemon_named(&m.name).is_none();
    if full || info_bytes > INFO_BYTES || m.sys_info.len() > INFO_ENTRIES {
        return Some("there is no room for it, or for what it says of itself");
    }
    // It cannot be reached, nor blocked.
    if addrs.is_empty() || !addrs.0.iter().all(|a| a.socket.is_some_and(|s| s.port() != 0)) {
        return Some("it states no address of the host that it comes from");
    }
    if addrs.0.iter().any(|addr| is_taken(batch, fs, &m.name, addr)) {
        return Some("it states an address of another daemon");
    }
    (fs.to_bytes().len() + info_bytes > FS_BYTES).then_some("there is no room for what it says of itself")
}

/// Whether an address is that of an OSD, of a manager or of a metadata server of another name.
fn is_taken(batch: &Batch, fs: &FsState, name: &str, addr: &EntityAddr) -> bool {
    let same = |a: &EntityAddr| a.socket == addr.socket && a.nonce == addr.nonce;
    let has = |addrs: &AddrVec| addrs.0.iter().any(same);
    let mgr = &batch.state().mgr;
    let mut managers = mgr.active.iter().chain(mgr.standbys.values());
    let of_manager = managers.any(|d| has(&d.addrs) || d.clients.iter().any(|(_, addrs)| has(addrs)));
    let mut osds = batch.osdmap().existing_osds();
    of_manager
        || osds.any(|(_, o)| {
            [&o.client_addrs, &o.cluster_addrs, &o.hb_back_addrs, &o.hb_front_addrs].into_iter().any(has)
        })
        || fs.map.daemons().any(|i| i.name != name && has(&i.addrs))
}

/// The file system that a daemon would rather serve.
fn joins(fs: &FsState, m: &MMdsBeacon) -> i32 {
    fs.map.by_name(&m.fs).filter(|_| !m.fs.is_empty()).map_or(NO_FS, |fs| fs.fscid)
}

fn bounded(health: &MdsHealth) -> MdsHealth {
    let short = |text: &str| {
        let mut text = text.to_owned();
        cut(&mut text, MESSAGE_BYTES);
        text
    };
    let mut metrics: Vec<MdsHealthMetric> = Vec::new();
    let mut left = HEALTH_BYTES;
    for m in health.metrics.iter().filter(|m| m.names().is_some()).take(METRICS_LIMIT) {
        let details = m.metadata.iter().take(DETAILS_LIMIT).map(|(k, v)| (short(k), short(v)));
        let metric = MdsHealthMetric { message: short(&m.message), metadata: details.collect(), ..m.clone() };
        let bytes: usize = metric.metadata.iter().map(|(k, v)| k.len() + v.len()).sum();
        let Some(rest) = left.checked_sub(metric.message.len() + bytes) else { break };
        left = rest;
        metrics.push(metric);
    }
    MdsHealth { metrics }
}

/// A beacon is answered with itself: its sender knows by it that monitors hear it.
fn answer(batch: &mut Batch, conn: ConnId, tid: u64, m: &MMdsBeacon) {
    let epoch = batch.state().fs.map.epoch;
    let reply = MMdsBeacon {
        epoch,
        fsid: m.fsid,
        gid: m.gid,
        name: m.name.clone(),
        state: m.state,
        seq: m.seq,
        features: types::features::PACIFIC,
        ..MMdsBeacon::default()
    };
    batch.answer(conn, tid, reply);
}

/// A map without its receiver: a metadata server that is not in the map starts anew.
fn answer_with_nothing(batch: &mut Batch, conn: ConnId, tid: u64, gid: MdsGid) {
    let map = batch.state().fs.map.map_for_standby(gid);
    let msg = MMdsMap {
        fsid: batch.state().fsid,
        epoch: map.epoch,
        map: map.to_bytes(),
        fs_name: map.fs_name.clone(),
    };
    batch.answer(conn, tid, msg);
}

/// Takes a daemon out of the map, and what it holds from it, also when it is frozen: that keeps out what the
/// monitors decide by themselves, not what is asked for. A rank's holder may write no more.
///
/// Source: MDSMonitor::fail_mds_gid, as 16.2.15 has it.
pub(crate) fn fail(now: Now, settings: &Settings, fs: &mut FsState, batch: &mut Batch, gid: MdsGid) {
    let Some(info) = fs.map.daemon(gid).cloned() else { return };
    let holds = info.rank != NO_RANK && !info.follows();
    let at = if holds { block(now, settings, fs, batch, &info) } else { None };
    fs.map.erase(gid, at);
}

/// Blocks all addresses of a daemon at the OSDs; the OSD map from which on they are blocked.
fn block(
    now: Now,
    settings: &Settings,
    fs: &mut FsState,
    batch: &mut Batch,
    info: &MdsInfo,
) -> Option<Epoch> {
    let secs = settings.number(batch.state(), "mon_mds_blocklist_interval").clamp(0.0, 1e9);
    let until = settings.quorum.fastest_wall(now.wall).plus(Duration::from_secs_f64(secs));
    let any = |a: &EntityAddr| EntityAddr { kind: AddrKind::Any, ..*a };
    let addrs: Vec<EntityAddr> = info.addrs.0.iter().filter(|a| !a.is_blank()).map(any).collect();
    for addr in &addrs {
        blocklist(batch, *addr, until);
        if batch.osdmap().blocklist.get(addr).is_some_and(|known| *known < until) {
            // An entry cannot be made longer while it is there: it is kept instead.
            fs.fences.insert(*addr, until);
        }
    }
    (!addrs.is_empty()).then(|| batch.blocked_since(&addrs))
}

/// Proposes the file systems when they changed. What only the monitors keep beside the map makes no new epoch.
pub(crate) fn propose(now: Now, settings: &Settings, mut fs: FsState, batch: &mut Batch) {
    fs.forget_the_gone();
    let of_ceph = fs.ranked().find(|i| fs.is_of_ceph(i.gid)).map(|i| i.name.clone());
    let of_ceph = of_ceph.filter(|_| settings.auth_methods.contains(&METHOD_CEPHX));
    if fs.ceph_tickets != of_ceph.is_some() {
        fs.ceph_tickets = of_ceph.is_some();
        let text = match of_ceph {
            Some(name) => {
                format!("tickets for metadata servers have Ceph's form from now on: mds.{name} is Ceph's")
            }
            None => "tickets for metadata servers are sealed again".to_owned(),
        };
        batch.log(settings.log_entry(now, Priority::Info, "audit", text));
    }
    let made = fs.map.epoch;
    for of in fs.map.filesystems.values_mut().filter(|of| of.map.epoch == made) {
        of.map.modified = now.wall;
    }
    let known = &batch.state().fs;
    let same_map = {
        let epoch = known.map.epoch;
        let mut map = fs.map.clone();
        map.epoch = epoch;
        map == known.map
    };
    if same_map {
        // Nobody who follows the map hears of it; what an earlier request of the batch made keeps its epoch.
        fs.map.epoch = known.map.epoch;
    }
    if **known != fs {
        debug_assert_eq!(fs.map.check(), Ok(()));
        batch.change(Change::Fs(fs.to_bytes()));
    }
}
