//! Pings between OSDs that share a PG, and reports of those that do not answer.

use std::collections::BTreeMap;
use std::time::Duration;

use messages::osd::{MOsdPing, SignedSpan};
use types::{ConnId, Epoch, OsdId};

use super::maps::ShareTo;
use super::{OsdCore, mon};
use crate::io::Output;

/// How often a failure is reported again while the map does not show it.
const REPORT_AGAIN: Duration = Duration::from_secs(5);

/// How often a sign of life is asked for while reads wait for one.
const ASK_LEASE_AGAIN: Duration = Duration::from_millis(500);

/// What is known of a heartbeat peer.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Peer {
    /// Which life of the peer.
    up_from: Epoch,
    last_heard: Duration,
    reported: Option<Duration>,
}

/// Pings sent and heard.
#[derive(Debug, Default)]
pub(super) struct Heartbeats {
    peers: BTreeMap<i32, Peer>,
    last_sent: Duration,
    /// When signs of life were last asked for because reads waited.
    lease_asked: Duration,
}

impl Heartbeats {
    pub fn peers(&self) -> Vec<i32> {
        self.peers.keys().copied().collect()
    }
}

impl OsdCore {
    /// Follows the members of our PGs.
    pub(super) fn heartbeat_peers_changed(&mut self) {
        let cx = &self.shared;
        let mut wanted: BTreeMap<i32, Peer> = BTreeMap::new();
        let members = self.pgs.values().flat_map(|pg| pg.acting().iter().chain(pg.up()));
        for osd in members.copied().filter(|o| *o != cx.whoami) {
            let Some(o) = cx.map.osd(osd).filter(|o| o.is_up()) else { continue };
            let fresh = Peer { up_from: o.info.up_from, last_heard: cx.now.mono, reported: None };
            let known = self.heartbeats.peers.get(&osd).filter(|p| p.up_from == o.info.up_from);
            wanted.insert(osd, known.copied().unwrap_or(fresh));
        }
        self.shared.heard_at.retain(|osd, _| wanted.contains_key(osd));
        self.heartbeats.peers = wanted;
    }

    pub(super) fn heartbeat_tick(&mut self) {
        let now = self.shared.now;
        if !self.boot.is_up() || self.stopping {
            return;
        }
        let due = now.mono.saturating_sub(self.heartbeats.last_sent) >= self.shared.config.heartbeat_interval;
        if due {
            self.heartbeats.last_sent = now.mono;
        }
        let grace = self.shared.config.heartbeat_grace;
        let peers: Vec<(i32, Peer)> = self.heartbeats.peers.iter().map(|(o, p)| (*o, *p)).collect();
        for (osd, peer) in peers {
            if due {
                self.ping(osd);
            }
            let silent = now.mono.saturating_sub(peer.last_heard);
            let told = peer.reported.is_some_and(|at| now.mono.saturating_sub(at) < REPORT_AGAIN);
            if silent > grace && !told {
                self.report_failure(osd, silent, false);
            }
        }
    }

    fn ping(&mut self, osd: i32) {
        let now = self.shared.now;
        let msg = MOsdPing {
            fsid: self.shared.map.fsid,
            map_epoch: self.shared.epoch(),
            op: MOsdPing::PING,
            stamp: now.wall,
            mono_ping_stamp: to_span(now.mono),
            ..MOsdPing::default()
        };
        self.shared.out.push(Output::SendOsd { osd: OsdId(osd), msg: msg.into() });
    }

    /// Reads that wait for a sign of life: asks for one now, or lets them go on when it came.
    pub(super) fn retry_leases(&mut self) {
        if !std::mem::take(&mut self.shared.lease_waited) {
            return;
        }
        let cx = &mut self.shared;
        let mut silent = std::collections::BTreeSet::new();
        for pg in self.pgs.values_mut().filter(|pg| !pg.waiting_for_lease.is_empty()) {
            let lacking = pg.lacking_leases(cx);
            if lacking.is_empty() {
                pg.ready.append(&mut pg.waiting_for_lease);
            }
            silent.extend(lacking);
        }
        let asked = &mut self.heartbeats.lease_asked;
        if cx.now.mono.saturating_sub(*asked) >= ASK_LEASE_AGAIN && !silent.is_empty() {
            *asked = cx.now.mono;
            silent.into_iter().for_each(|osd| self.ping(osd));
        }
    }

    pub(super) fn handle_ping(&mut self, from: i32, conn: Option<ConnId>, tid: u64, m: &MOsdPing) {
        let now = self.shared.now.mono;
        if let Some(peer) = self.heartbeats.peers.get_mut(&from) {
            peer.last_heard = now;
            peer.reported = None;
        }
        if !self.shared.map.is_up(from) {
            // It may not know yet that it is out: it gets the map, and no sign that it is taken for alive.
            return self.share_map(ShareTo::Osd(from), m.map_epoch);
        }
        if m.op == MOsdPing::PING_REPLY {
            self.shared.heard(from, from_span(m.mono_ping_stamp));
            self.shared.lease_waited = true;
        }
        if m.op != MOsdPing::PING {
            return;
        }
        let reply = MOsdPing { op: MOsdPing::PING_REPLY, map_epoch: self.shared.epoch(), ..m.clone() };
        self.shared.out.push(match conn {
            Some(conn) => Output::Reply { conn, tid, msg: reply.into() },
            None => Output::SendOsd { osd: OsdId(from), msg: reply.into() },
        });
    }

    /// Nobody listens at that OSD's address: it is dead, and waiting for the grace time would help nobody.
    pub(super) fn osd_refused(&mut self, osd: i32) {
        let now = self.shared.now.mono;
        let told = self.heartbeats.peers.get(&osd).and_then(|p| p.reported);
        if told.is_some_and(|at| now.saturating_sub(at) < Duration::from_secs(1)) || !self.boot.is_up() {
            return;
        }
        self.report_failure(osd, Duration::ZERO, true);
    }

    fn report_failure(&mut self, osd: i32, silent: Duration, at_once: bool) {
        let cx = &mut self.shared;
        let Some(o) = cx.map.osd(osd).filter(|o| o.is_up()) else { return };
        let failed_for_s = i32::try_from(silent.as_secs()).unwrap_or(i32::MAX);
        let msg = mon::failure(cx.map.fsid, cx.map.epoch, osd, o.client_addrs.clone(), failed_for_s, at_once);
        let now = cx.now.mono;
        cx.send_mon(msg);
        if let Some(peer) = self.heartbeats.peers.get_mut(&osd) {
            peer.reported = Some(now);
        }
    }
}

fn to_span(d: Duration) -> SignedSpan {
    SignedSpan { sec: i32::try_from(d.as_secs()).unwrap_or(i32::MAX), nsec: d.subsec_nanos() as i32 }
}

fn from_span(s: SignedSpan) -> Duration {
    Duration::new(u64::try_from(s.sec).unwrap_or(0), u32::try_from(s.nsec).unwrap_or(0).min(999_999_999))
}
