//! Pings between OSDs that share a PG or are neighbours, over both networks, and reports of silent ones.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use messages::Message;
use messages::osd::{MOsdPing, SignedSpan};
use types::{ConnId, Epoch, OsdId};

use super::maps::ShareTo;
use super::neighbours::{self, Bounds};
use super::{OsdCore, mon};
use crate::io::{HeartbeatNet, Output};

/// How often a failure is reported again while the map does not show it.
const REPORT_AGAIN: Duration = Duration::from_secs(5);

/// How often a lease is asked for while requests wait for it.
const ASK_LEASE_AGAIN: Duration = Duration::from_millis(500);

/// How long the monitors have to bring a map to an OSD before its peers do, and how often these do.
const TELL_AFTER: Duration = Duration::from_secs(1);

/// What is known of a heartbeat peer.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Peer {
    /// Which life of the peer.
    up_from: Epoch,
    /// When it last answered, and how long that took, by network.
    back: Heard,
    front: Heard,
    /// When we last told the monitors that it failed; they have to hear when it answers again.
    reported: Option<Duration>,
}

impl Peer {
    fn on(&mut self, net: HeartbeatNet) -> &mut Heard {
        match net {
            HeartbeatNet::Back => &mut self.back,
            HeartbeatNet::Front => &mut self.front,
        }
    }

    /// For how long one of the networks has been silent. Both have to work: clients use the one, replicas the other.
    fn silent(&self, now: Duration) -> Duration {
        now.saturating_sub(self.back.at.min(self.front.at))
    }

    /// The grace that its measured round trips ask for on top of the configured one.
    fn trip(&self) -> Duration {
        self.back.bound().max(self.front.bound())
    }
}

/// Answers over one network. The estimate of the round trip is that of TCP. Source: RFC 6298.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Heard {
    at: Duration,
    mean: Duration,
    deviation: Duration,
}

impl Heard {
    fn since(at: Duration) -> Self {
        Self { at, ..Self::default() }
    }

    fn answered(&mut self, now: Duration, trip: Duration) {
        self.at = now;
        if self.mean.is_zero() {
            self.mean = trip;
            self.deviation = trip / 2;
            return;
        }
        self.deviation = (self.deviation * 3 + self.mean.abs_diff(trip)) / 4;
        self.mean = (self.mean * 7 + trip) / 8;
    }

    /// What a round trip hardly ever exceeds.
    fn bound(&self) -> Duration {
        self.mean + self.deviation * 4
    }
}

/// One of so many of the peers that an OSD looks for after it was marked down has to be reached before it
/// boots again: else it would come and go for as long as the network is cut. Source: OSD::_is_healthy,
/// osd_heartbeat_min_healthy_ratio (0.33).
const SEARCH_SHARE: usize = 3;
const SEARCH_EVERY: Duration = Duration::from_secs(1);

/// Whom we reach over which networks, as one that was marked down.
#[derive(Debug, Default)]
struct Search {
    asked: Option<Duration>,
    heard: BTreeMap<OsdId, BTreeSet<HeartbeatNet>>,
}

/// Pings sent and heard.
#[derive(Debug, Default)]
pub(super) struct Heartbeats {
    /// While we are down in the map for others not hearing us.
    search: Option<Search>,
    peers: BTreeMap<OsdId, Peer>,
    last_sent: Duration,
    /// When signs of life were last asked for because reads waited.
    lease_asked: Duration,
    /// The epoch that a ping last found here, and since when.
    newest: (Epoch, Duration),
    /// When peers that lag behind it were told.
    told: BTreeMap<OsdId, Duration>,
}

impl Heartbeats {
    pub fn peers(&self) -> Vec<OsdId> {
        self.peers.keys().copied().collect()
    }

    /// We were marked down: others have to be reached before we come again.
    pub fn begin_search(&mut self) {
        self.search = Some(Search::default());
    }

    /// A new session with the monitors: nobody knows whether what was reported over the last one has arrived.
    pub fn report_again(&mut self) {
        for reported in self.peers.values_mut().filter_map(|p| p.reported.as_mut()) {
            *reported = Duration::ZERO;
        }
    }

    pub fn is_searching(&self) -> bool {
        self.search.is_some()
    }
}

impl OsdCore {
    /// Follows the members of our PGs and our neighbours, while this OSD is up: it pings nobody before.
    pub(super) fn heartbeat_peers_changed(&mut self) {
        let cx = &self.shared;
        let now = cx.now.mono;
        let mut wanted: BTreeMap<OsdId, Peer> = BTreeMap::new();
        for osd in self.wanted_peers() {
            let Some(o) = cx.map.osd(osd).filter(|o| o.is_up()) else { continue };
            let heard = Heard::since(now);
            let fresh = Peer { up_from: o.info.up_from, back: heard, front: heard, reported: None };
            let known = self.heartbeats.peers.get(&osd).filter(|p| p.up_from == o.info.up_from);
            wanted.insert(osd, known.copied().unwrap_or(fresh));
        }
        self.shared.leases.tidy(|osd| wanted.contains_key(&osd), now);
        self.heartbeats.peers = wanted;
    }

    fn wanted_peers(&self) -> BTreeSet<OsdId> {
        if !self.boot.is_up() {
            return BTreeSet::new();
        }
        let (map, me) = (&self.shared.map, self.shared.whoami);
        let members = self.pgs.values().flat_map(|pg| pg.acting().chain(pg.up())).map(|copy| copy.osd);
        let mut wanted: BTreeSet<OsdId> = members.filter(|osd| *osd != me && map.is_up(*osd)).collect();
        let level = self.values.get("mon_osd_reporter_subtree_level").unwrap_or_default();
        let reporters = usize::try_from(self.values.int("mon_osd_min_down_reporters")).unwrap_or(0);
        let bounds = Bounds { reporters, least: self.shared.config.heartbeat_min_peers };
        neighbours::add_neighbours(&mut wanted, me, &neighbours::up_by_subtree(map, &level), bounds);
        // A map that gives it other peers interrupts no suspicion, and takes back no report that is true.
        let (now, doubt) = (self.shared.now.mono, self.shared.config.heartbeat_interval * 2);
        let suspects = self.heartbeats.peers.iter().filter(|(osd, peer)| {
            let same = map.osd(**osd).is_some_and(|o| o.is_up() && o.info.up_from == peer.up_from);
            same && (peer.reported.is_some() || peer.silent(now) > doubt)
        });
        wanted.extend(suspects.map(|(osd, _)| *osd));
        wanted
    }

    pub(super) fn heartbeat_tick(&mut self) {
        let now = self.shared.now;
        if !self.boot.is_up() || self.stopping {
            return self.search_tick();
        }
        let due = now.mono.saturating_sub(self.heartbeats.last_sent) >= self.shared.config.heartbeat_interval;
        if due {
            self.heartbeats.last_sent = now.mono;
        }
        let grace = self.shared.config.heartbeat_grace;
        let peers: Vec<(OsdId, Peer)> = self.heartbeats.peers.iter().map(|(o, p)| (*o, *p)).collect();
        for (osd, peer) in peers {
            if due {
                self.ping(osd, HeartbeatNet::Back);
                self.ping(osd, HeartbeatNet::Front);
            }
            let silent = peer.silent(now.mono);
            let told = peer.reported.is_some_and(|at| now.mono.saturating_sub(at) < REPORT_AGAIN);
            // A slow network or a busy peer may take twice the grace, but not for ever.
            if silent > grace + peer.trip().min(grace) && !told {
                self.report_failure(osd, silent, false);
            }
        }
    }

    /// The OSDs that are up, from our own number on.
    fn search_peers(&self) -> Vec<OsdId> {
        let (me, map) = (self.shared.whoami, &self.shared.map);
        let all = (me.0 + 1..map.max_osd()).chain(0..me.0).map(OsdId);
        all.filter(|osd| map.is_up(*osd)).take(self.shared.config.heartbeat_min_peers.max(2)).collect()
    }

    fn search_tick(&mut self) {
        let (now, peers) = (self.shared.now.mono, self.search_peers());
        let Some(search) = self.heartbeats.search.as_mut().filter(|_| !self.stopping) else { return };
        let reached = peers.iter().filter(|osd| search.heard.get(*osd).is_some_and(|nets| nets.len() == 2));
        if reached.count() * SEARCH_SHARE >= peers.len() {
            self.heartbeats.search = None;
            return self.try_boot();
        }
        if search.asked.is_none_or(|at| now.saturating_sub(at) >= SEARCH_EVERY) {
            search.asked = Some(now);
            for osd in peers {
                HeartbeatNet::BOTH.into_iter().for_each(|net| self.ping(osd, net));
            }
        }
    }

    fn ping(&mut self, osd: OsdId, net: HeartbeatNet) {
        let now = self.shared.now;
        let lease = self.shared.config.read_lease();
        self.shared.leases.ask(osd, now, lease);
        let msg = MOsdPing {
            fsid: self.shared.map.fsid,
            map_epoch: self.shared.epoch(),
            op: MOsdPing::PING,
            stamp: now.wall,
            mono_ping_stamp: to_span(now.mono),
            delta_ub: Some(to_span(lease)),
            ..MOsdPing::default()
        };
        self.shared.out.push(Output::Heartbeat { osd, net, msg: msg.into() });
    }

    /// Requests that wait for a lease: asks for it now, or lets them go on when it came.
    pub(super) fn retry_leases(&mut self) {
        if !std::mem::take(&mut self.shared.leases.waited) {
            return;
        }
        let cx = &mut self.shared;
        let mut silent = std::collections::BTreeSet::new();
        for pg in self.pgs.values_mut().filter(|pg| !pg.waiting_for_lease.is_empty()) {
            let lacking = pg.lacking_leases(cx);
            if !pg.lacks_a_lease(cx) {
                let waiting = std::mem::take(&mut pg.waiting_for_lease);
                pg.let_go(waiting, cx);
            }
            silent.extend(lacking);
        }
        let asked = &mut self.heartbeats.lease_asked;
        if cx.now.mono.saturating_sub(*asked) >= ASK_LEASE_AGAIN && !silent.is_empty() {
            *asked = cx.now.mono;
            silent.into_iter().for_each(|osd| self.ping(osd, HeartbeatNet::Back));
        }
    }

    /// What comes back over a heartbeat session of ours.
    pub(super) fn heartbeat_message(&mut self, from: OsdId, net: HeartbeatNet, msg: &Message) {
        match msg {
            Message::OsdPing(m) => self.handle_ping(from, &[net], None, 0, m),
            Message::OsdMap(m) => self.osdmap_of_peer(m),
            _ => {}
        }
    }

    /// A ping or the answer to one of ours; the answer came over `nets`. Only answers are signs of life: hearing a peer that
    /// cannot hear us is not enough to work with it.
    pub(super) fn handle_ping(
        &mut self,
        from: OsdId,
        nets: &[HeartbeatNet],
        conn: Option<ConnId>,
        tid: u64,
        m: &MOsdPing,
    ) {
        if !self.shared.map.is_up(from) {
            // It may not know yet that it is out: it gets the map, and no sign that it is taken for alive. That it can be heard
            // is worth knowing to one that waits to come again.
            if m.op == MOsdPing::PING {
                self.answer_ping(from, conn, tid, m, MOsdPing::YOU_DIED);
            }
            return self.share_map(ShareTo::Osd(from), m.map_epoch);
        }
        if let (MOsdPing::PING_REPLY | MOsdPing::YOU_DIED, Some(search)) = (m.op, &mut self.heartbeats.search)
        {
            search.heard.entry(from).or_default().extend(nets);
            self.search_tick();
        }
        if m.op == MOsdPing::PING_REPLY {
            let (now, sent) = (self.shared.now.mono, from_span(m.mono_ping_stamp));
            if let Some(peer) = self.heartbeats.peers.get_mut(&from) {
                for net in nets {
                    peer.on(*net).answered(now, now.saturating_sub(sent));
                }
                // Both networks have to work again.
                let healthy = peer.silent(now) <= self.shared.config.heartbeat_grace;
                if healthy && peer.reported.take().is_some() {
                    self.take_back_report(from);
                }
            }
            // Who knows a newer map may know another primary; and what nobody asked is no answer.
            let asked =
                self.shared.leases.asked_at(from, sent).filter(|_| m.map_epoch <= self.shared.epoch());
            if let (Some(asked), Some(lease)) = (asked, m.delta_ub) {
                let lease = from_span(lease).min(self.shared.config.read_lease());
                self.shared.leases.granted(from, asked, lease);
            }
        }
        if m.op != MOsdPing::PING {
            return;
        }
        self.answer_ping(from, conn, tid, m, MOsdPing::PING_REPLY);
        self.tell_one_that_lags(from, m.map_epoch);
    }

    fn answer_ping(&mut self, from: OsdId, conn: Option<ConnId>, tid: u64, m: &MOsdPing, op: u8) {
        let asked = m.delta_ub.filter(|_| op == MOsdPing::PING_REPLY).map(from_span);
        let lease = asked.map(|asked| self.shared.grant(from, asked));
        let delta_ub = lease.map(to_span);
        let reply = MOsdPing { op, map_epoch: self.shared.epoch(), delta_ub, ..m.clone() };
        self.shared.out.push(match conn {
            Some(conn) => Output::Reply { conn, tid, msg: reply.into() },
            None => Output::SendOsd { osd: from, msg: reply.into() },
        });
    }

    /// A peer's map is older than ours, which is not quite new: the monitors seem not to reach it, and it needs the map to go on
    /// as a primary.
    fn tell_one_that_lags(&mut self, osd: OsdId, theirs: Epoch) {
        let (epoch, now) = (self.shared.epoch(), self.shared.now.mono);
        let known = &mut self.heartbeats.newest;
        if known.0 != epoch {
            *known = (epoch, now);
            self.heartbeats.told.clear();
        }
        if theirs >= epoch || now.saturating_sub(self.heartbeats.newest.1) < TELL_AFTER {
            return;
        }
        let told = self.heartbeats.told.get(&osd);
        if told.is_none_or(|at| now.saturating_sub(*at) >= TELL_AFTER) {
            self.heartbeats.told.insert(osd, now);
            self.share_map(ShareTo::Osd(osd), theirs);
        }
    }

    /// Nobody listens at that OSD's address: it is dead, and waiting for the grace time would help nobody.
    pub(super) fn osd_refused(&mut self, osd: OsdId) {
        let now = self.shared.now.mono;
        let told = self.heartbeats.peers.get(&osd).and_then(|p| p.reported);
        if told.is_some_and(|at| now.saturating_sub(at) < Duration::from_secs(1)) || !self.boot.is_up() {
            return;
        }
        self.report_failure(osd, Duration::ZERO, true);
    }

    fn take_back_report(&mut self, osd: OsdId) {
        let cx = &mut self.shared;
        let Some(o) = cx.map.osd(osd).filter(|o| o.is_up()) else { return };
        let msg = mon::still_alive(cx.map.fsid, cx.map.epoch, osd, o.client_addrs.clone());
        cx.send_mon(msg);
    }

    fn report_failure(&mut self, osd: OsdId, silent: Duration, at_once: bool) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grace_follows_the_measured_round_trips() {
        let ms = Duration::from_millis;
        let mut heard = Heard::since(ms(1_000));
        assert_eq!(heard.bound(), Duration::ZERO, "nothing is known yet");
        (0..50).for_each(|i| heard.answered(ms(1_000 + i), ms(10)));
        assert!(heard.bound() < ms(12), "a steady network: {:?}", heard.bound());
        heard.answered(ms(2_000), ms(400));
        assert!(heard.bound() > ms(400), "one slow answer widens it: {:?}", heard.bound());
        (0..50).for_each(|i| heard.answered(ms(3_000 + i), ms(10)));
        assert!(heard.bound() < ms(12), "and it narrows again: {:?}", heard.bound());
    }

    #[test]
    fn the_network_that_is_silent_longer_counts() {
        let at = |s| Heard::since(Duration::from_secs(s));
        let peer = Peer { up_from: Epoch(1), back: at(10), front: at(4), reported: None };
        assert_eq!(peer.silent(Duration::from_secs(12)), Duration::from_secs(8));
    }
}
