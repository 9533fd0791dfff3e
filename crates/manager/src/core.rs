//! The manager's core: sessions, reports, the beacon, the digest.

use std::collections::BTreeMap;
use std::time::Duration;

use codec::{Decode, Encode};
use maps::{Incremental, OsdMap};
use messages::Message;
use messages::mgr::{MMgrBeacon, MMgrConfigure, MPgDigest};
use messages::mon::{MMonSubscribe, MOsdMap, SubscribeItem};
use messages::pool_stats::{MPgStats, MPgStatsAck};
use types::{AddrVec, ConnId, EntityType, Epoch, Fsid, Now, OsdId};

use crate::digest::digest;
use crate::io::{Input, Output, PeerInfo};
use crate::pg_map::PgMap;

const BEACON_EVERY: Duration = Duration::from_secs(2);
/// A digest goes out at once when PG states changed, at this pace while anything changes, and rarely otherwise.
const DIGEST_SOON: Duration = Duration::from_millis(20);
const DIGEST_EVERY: Duration = Duration::from_secs(2);
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// What a manager is told at start.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// `x` of `mgr.x`.
    pub name: String,
    pub addrs: AddrVec,
    pub metadata: BTreeMap<String, String>,
}

/// See the crate's documentation.
pub struct Manager {
    settings: Settings,
    pub(crate) map: Option<OsdMap>,
    pub(crate) pgs: PgMap,
    sessions: BTreeMap<ConnId, PeerInfo>,
    gid: u64,
    mon: bool,
    beacon_at: Duration,
    digest_at: Duration,
    sample_at: Duration,
    /// Version of the PG map that the last digest was made of.
    digested: u64,
    /// PG states of the last digest: when these change, the next one does not wait.
    states: BTreeMap<u64, u32>,
}

impl Manager {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            map: None,
            pgs: PgMap::default(),
            sessions: BTreeMap::new(),
            gid: 0,
            mon: false,
            beacon_at: Duration::ZERO,
            digest_at: Duration::ZERO,
            sample_at: Duration::ZERO,
            digested: 0,
            states: BTreeMap::new(),
        }
    }

    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Connected { conn, peer } => {
                self.sessions.insert(conn, peer);
            }
            Input::Disconnected { conn } => {
                self.sessions.remove(&conn);
            }
            Input::Message { conn, tid, msg } => self.message(now, conn, tid, msg, out),
            Input::FromMon(msg) => self.from_mon(msg, out),
            Input::MonConnected { gid } => self.mon_connected(now, gid, out),
            Input::Tick => self.tick(now, out),
        }
        self.maybe_digest(now, out);
    }

    fn mon_connected(&mut self, now: Now, gid: u64, out: &mut Vec<Output>) {
        self.gid = gid;
        self.mon = true;
        self.beacon(now, out);
        let start = self.map.as_ref().map_or(0, |m| u64::from(m.epoch.0) + 1);
        self.subscribe(start, out);
        // A new leader has to be told everything again.
        self.digested = 0;
    }

    fn subscribe(&self, start: u64, out: &mut Vec<Output>) {
        let what = [("osdmap".to_owned(), SubscribeItem { start, flags: 0 })].into();
        out.push(Output::SendMon(MMonSubscribe { what, ..MMonSubscribe::default() }.into()));
    }

    fn beacon(&mut self, now: Now, out: &mut Vec<Output>) {
        self.beacon_at = now.mono + BEACON_EVERY;
        let beacon = MMgrBeacon {
            addrs: self.settings.addrs.clone(),
            gid: self.gid,
            available: true,
            name: self.settings.name.clone(),
            fsid: self.fsid(),
            commands: crate::command::descriptions(),
            metadata: self.settings.metadata.clone(),
            features: types::features::PACIFIC,
            ..MMgrBeacon::default()
        };
        out.push(Output::SendMon(beacon.into()));
    }

    fn fsid(&self) -> Fsid {
        self.map.as_ref().map(|m| m.fsid).unwrap_or_default()
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.mon && now.mono >= self.beacon_at {
            self.beacon(now, out);
        }
        if now.mono >= self.sample_at {
            self.sample_at = now.mono + SAMPLE_EVERY;
            self.pgs.sample(now.mono);
        }
    }

    fn maybe_digest(&mut self, now: Now, out: &mut Vec<Output>) {
        let Some(map) = &self.map else { return };
        if !self.mon || self.pgs.version == self.digested {
            return;
        }
        let mut states: BTreeMap<u64, u32> = BTreeMap::new();
        let due = now.mono >= self.digest_at;
        let soon = now.mono + DIGEST_EVERY >= self.digest_at + DIGEST_SOON;
        if !due {
            if !soon {
                return;
            }
            for pg in map.pgs() {
                *states.entry(self.pgs.pgs.get(&pg).map_or(0, |s| s.state)).or_default() += 1;
            }
            if states == self.states {
                return;
            }
        }
        let made = digest(&self.pgs, map, now.wall);
        self.states = made.pg_states.clone();
        self.digested = self.pgs.version;
        self.digest_at = now.mono + DIGEST_EVERY;
        let message = MPgDigest { epoch: map.epoch, gid: self.gid, summary: made.to_bytes() };
        out.push(Output::SendMon(message.into()));
    }

    fn from_mon(&mut self, msg: Message, out: &mut Vec<Output>) {
        if let Message::OsdMap(m) = msg {
            self.osd_map(&m, out);
        }
    }

    fn osd_map(&mut self, m: &MOsdMap, out: &mut Vec<Output>) {
        let Some(last) = m.last() else { return };
        let mut have = self.map.as_ref().map_or(Epoch(0), |map| map.epoch);
        while have < last {
            let next = have.next();
            let full = m.full.get(&next).or_else(|| m.full.get(&last).filter(|_| !m.incremental.contains_key(&next)));
            let ok = match (full, m.incremental.get(&next), &mut self.map) {
                (Some(bytes), _, map) => OsdMap::from_bytes(bytes.clone()).map(|new| *map = Some(new)).is_ok(),
                (None, Some(bytes), Some(map)) => {
                    Incremental::from_bytes(bytes.clone()).is_ok_and(|inc| map.apply(&inc).is_ok())
                }
                _ => false,
            };
            let now_at = self.map.as_ref().map_or(Epoch(0), |map| map.epoch);
            if !ok || now_at <= have {
                // A gap, or a map that does not fit: start over from a whole one.
                self.map = None;
                self.subscribe(0, out);
                return;
            }
            have = now_at;
        }
        if let Some(map) = &self.map {
            self.pgs.map_changed(map);
        }
        self.subscribe(u64::from(have.0) + 1, out);
    }

    fn message(&mut self, now: Now, conn: ConnId, tid: u64, msg: Message, out: &mut Vec<Output>) {
        let Some(peer) = self.sessions.get(&conn).cloned() else { return };
        match msg {
            Message::MgrOpen(_) => {
                out.push(Output::Send { conn, tid: 0, msg: MMgrConfigure::default().into() });
            }
            Message::MgrClose(close) => out.push(Output::Send { conn, tid, msg: close.into() }),
            Message::PgStats(report) => self.pg_stats(now, conn, &peer, report, out),
            Message::Command(_) | Message::MgrCommand(_) => {
                crate::command::run(self, now, conn, tid, &peer, msg, out);
            }
            Message::Ping(ping) => out.push(Output::Send { conn, tid, msg: ping.into() }),
            _ => {}
        }
    }

    fn pg_stats(
        &mut self,
        now: Now,
        conn: ConnId,
        peer: &PeerInfo,
        report: MPgStats,
        out: &mut Vec<Output>,
    ) {
        let (Some(EntityType::Osd), Some(map)) = (peer.name.entity_type(), &self.map) else { return };
        let Ok(osd) = i32::try_from(peer.name.num) else { return };
        if report.fsid != map.fsid {
            return;
        }
        let pgs = self.pgs.report(OsdId(osd), report, map, now.mono);
        out.push(Output::Send { conn, tid: 0, msg: MPgStatsAck { pgs }.into() });
    }
}
