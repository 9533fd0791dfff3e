//! Subscriptions: what a session asked to follow is sent when it is newer than what the session has.
//!
//! Source: Monitor::handle_subscribe, OSDMonitor::check_osdmap_sub, MgrMonitor::check_sub, ConfigMonitor::check_sub,
//! LogMonitor::check_sub.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use codec::Encode;
use maps::{FsMapUser, MdsMap, OsdMap};
use messages::PaxosVersion;
use messages::log::MLog;
use messages::mon::{
    MConfig, MFsMap, MFsMapUser, MKvData, MMdsMap, MMgrMap, MMonMap, MMonSubscribe, MMonSubscribeAck,
    MOsdMap, MServiceMap,
};
use messages::osd::MMonGetOsdMap;
use messages::payload::RestOfFront;
use types::{AuthName, ConnId, EntityType, Epoch, Now};

use crate::command::fs_show::visible;
use crate::io::Output;
use crate::monitor::Monitor;
use crate::service::digest::MGR_DIGEST;
use crate::session::{Access, Session, Subscription};
use crate::state::{EntityView, Priority, State};

/// OSD map epochs in one message. Source: osd_map_message_max.
const EPOCHS_PER_MESSAGE: u32 = 40;
/// Bytes of maps in one message. Source: osd_map_message_max_bytes.
const BYTES_PER_MESSAGE: usize = 10 << 20;
/// Subscriptions of one session.
const SUBSCRIPTIONS_LIMIT: usize = 64;
/// Bytes of a subscription's or a host's name.
const NAME_LIMIT: usize = 256;
/// Clients with it know that subscriptions do not run out. Source: CEPH_FEATURE_MON_STATEFUL_SUB.
const STATEFUL_SUB: u64 = 1 << 57;
/// How long a client that asked for one OSD map is told of newer ones. The map that it got may name OSDs that are dead, and
/// found dead only after this long (osd_heartbeat_grace and a margin); librados, whose connection is refused, would ask
/// again only after objecter_timeout (10 s).
pub(crate) const MAP_FRESH_FOR: Duration = Duration::from_secs(30);

impl Monitor {
    pub(crate) fn subscribe(&mut self, now: Now, conn: ConnId, m: &MMonSubscribe, out: &mut Vec<Output>) {
        let Some(session) = self.sessions.get_mut(&conn) else { return };
        if !m.hostname.is_empty() && m.hostname.len() <= NAME_LIMIT {
            session.host.clone_from(&m.hostname);
        }
        let reads = session.may("mon", Access::R);
        let mut lasting = false;
        for (what, item) in &m.what {
            let free = what == "monmap" || what == "config";
            if !free && !reads
                || what.len() > NAME_LIMIT
                || session.subs.len() >= SUBSCRIPTIONS_LIMIT && !session.subs.contains_key(what)
            {
                continue;
            }
            lasting |= !item.is_onetime();
            if log_level(what).is_some() {
                // One level at a time: `ceph -w` changes it by subscribing anew.
                session.subs.retain(|other, _| log_level(other).is_none());
            }
            if what == "osdmap" && session.osd_epoch.0 as u64 > item.start {
                // The client wants earlier maps again, on purpose.
                session.osd_epoch = Epoch(0);
            }
            if what == "config" {
                session.config_sent = None;
            }
            session.subs.insert(what.clone(), Subscription { next: item.start, onetime: item.is_onetime() });
        }
        if lasting && session.features & STATEFUL_SUB == 0 {
            let ack = MMonSubscribeAck { interval_s: 86_400, fsid: self.state.fsid };
            out.push(Output::Send { conn, tid: 0, msg: ack.into() });
        }
        let names: Vec<String> = m.what.keys().cloned().collect();
        for what in names {
            if what == MGR_DIGEST {
                self.begin_digests(now, conn, out);
            }
            self.check_subscription(now, conn, &what, out);
        }
    }

    /// Sends every session what it follows and does not have yet.
    pub(crate) fn publish(&mut self, now: Now, out: &mut Vec<Output>) {
        // Looking options up anew for everybody is worth it only when they, or places in the CRUSH map, changed.
        let options = (self.state.config.version, self.state.osdmap().crush_version);
        let options_changed = std::mem::replace(&mut self.options_published, options) != options;
        let due: Vec<(ConnId, String)> = self
            .sessions
            .iter()
            .flat_map(|(conn, s)| s.subs.keys().map(|what| (*conn, what.clone())))
            .filter(|(_, what)| options_changed || what != "config")
            .collect();
        for (conn, what) in due {
            self.check_subscription(now, conn, &what, out);
        }
        self.publish_to_fresh(now, out);
    }

    /// Newer OSD maps for those who asked for one a short while ago.
    fn publish_to_fresh(&mut self, now: Now, out: &mut Vec<Output>) {
        let newest = self.state.osds.newest();
        let mut due = Vec::new();
        for (conn, session) in &mut self.sessions {
            match session.osd_fresh {
                Some((_, until)) if now.mono >= until => session.osd_fresh = None,
                Some((have, _)) if have < newest && session.follows_osdmaps() => due.push((*conn, have)),
                _ => {}
            }
        }
        for (conn, have) in due {
            self.send_osdmap_range(conn, have.next(), false, out);
        }
    }

    fn check_subscription(&mut self, now: Now, conn: ConnId, what: &str, out: &mut Vec<Output>) {
        let Some(sub) = self.sessions.get(&conn).and_then(|s| s.subs.get(what)).copied() else { return };
        if what == "osdmap" {
            return self.check_osdmap(now, conn, sub, out);
        }
        let Some(session) = self.sessions.get(&conn) else { return };
        let sent = match what {
            "monmap" => self.monmap_for(sub),
            "mgrmap" => self.mgrmap_for(sub),
            "servicemap" => self.service_map_for(sub),
            "config" => return self.check_config(conn, out),
            // Digests are sent by time, not by version.
            MGR_DIGEST => return,
            "osd_pg_creates" => self.pg_creates_for(session, sub),
            _ if what.starts_with("kv:") => self.kv_for(session, what, sub),
            _ if what.starts_with("mdsmap") || what.starts_with("fsmap") => {
                self.fs_maps_for(session, what, sub)
            }
            _ => match log_level(what) {
                Some((channel, level)) => self.log_for(session, channel, level, sub),
                // A map that only other releases have: nothing is sent.
                None => None,
            },
        };
        let _ = now;
        let Some((have, msg)) = sent else { return };
        if let Some(msg) = msg {
            out.push(Output::Send { conn, tid: 0, msg });
        }
        let Some(session) = self.sessions.get_mut(&conn) else { return };
        if sub.onetime {
            session.subs.remove(what);
        } else if let Some(sub) = session.subs.get_mut(what) {
            sub.next = have + 1;
        }
    }

    fn check_osdmap(&mut self, now: Now, conn: ConnId, sub: Subscription, out: &mut Vec<Output>) {
        let newest = self.state.osds.newest();
        let Some(session) = self.sessions.get_mut(&conn) else { return };
        if sub.next > u64::from(newest.0) || !session.may("osd", Access::R) {
            return;
        }
        if sub.onetime {
            session.subs.remove("osdmap");
            let have = Epoch(u32::try_from(sub.next.saturating_sub(1)).unwrap_or(u32::MAX));
            session.osd_fresh = Some((have, now.mono + MAP_FRESH_FOR));
        } else if let Some(sub) = session.subs.get_mut("osdmap") {
            sub.next = u64::from(newest.0) + 1;
        }
        if sub.next == 0 {
            self.note_fresh(conn, newest);
            let full = self.state.osds.full(newest).unwrap_or_default();
            let msg = self.osdmap_message(BTreeMap::new(), [(newest, full)].into());
            return out.push(Output::Send { conn, tid: 0, msg: msg.into() });
        }
        let from = Epoch(u32::try_from(sub.next).unwrap_or(u32::MAX));
        self.send_osdmap_range(conn, from, sub.onetime, out);
    }

    /// Maps from an epoch on, as an answer; 0 asks for the newest, whole.
    pub(crate) fn send_osdmaps(&mut self, conn: ConnId, from: Epoch, out: &mut Vec<Output>) {
        if !self.sessions.contains_key(&conn) {
            return;
        }
        if from.0 == 0 {
            let newest = self.state.osds.newest();
            let full = self.state.osds.full(newest).unwrap_or_default();
            let msg = self.osdmap_message(BTreeMap::new(), [(newest, full)].into());
            return out.push(Output::Send { conn, tid: 0, msg: msg.into() });
        }
        self.send_osdmap_range(conn, from, false, out);
    }

    /// Increments from `first` on, or a whole map first when increments do not reach back that far; one message when that
    /// is enough for the asker. Source: OSDMonitor::send_incremental.
    fn send_osdmap_range(&mut self, conn: ConnId, first: Epoch, one_message: bool, out: &mut Vec<Output>) {
        let (oldest, newest) = (self.state.osds.oldest(), self.state.osds.newest());
        let already = self.sessions.get(&conn).map_or(Epoch(0), |s| s.osd_epoch);
        let mut at = first.max(already.next());
        if at <= oldest && self.state.osds.increment(at).is_none() && at <= newest {
            let full = self.state.osds.full(oldest).unwrap_or_default();
            let msg = self.osdmap_message(BTreeMap::new(), [(oldest, full)].into());
            out.push(Output::Send { conn, tid: 0, msg: msg.into() });
            self.note_osd_epoch(conn, oldest);
            at = oldest.next();
        }
        while at <= newest {
            let mut incremental = BTreeMap::new();
            let mut bytes = 0;
            while at <= newest && incremental.len() < EPOCHS_PER_MESSAGE as usize && bytes < BYTES_PER_MESSAGE
            {
                let Some(inc) = self.state.osds.increment(at) else { return };
                bytes += inc.len();
                incremental.insert(at, inc.clone());
                at = at.next();
            }
            let msg = self.osdmap_message(incremental, BTreeMap::new());
            out.push(Output::Send { conn, tid: 0, msg: msg.into() });
            self.note_osd_epoch(conn, at.prev());
            if one_message {
                return;
            }
        }
    }

    /// Sends the OSD maps of the epochs that were asked for, as far as they are kept and fit into one
    /// message. Source: OSDMonitor::preprocess_get_osdmap.
    pub(crate) fn get_osdmaps(&self, conn: ConnId, tid: u64, m: &MMonGetOsdMap, out: &mut Vec<Output>) {
        if !self.sessions.get(&conn).is_some_and(|s| s.may("osd", Access::R)) {
            return;
        }
        let osds = &self.state.osds;
        let (mut full, mut incremental) = (BTreeMap::new(), BTreeMap::new());
        let (mut left, mut bytes) = (EPOCHS_PER_MESSAGE, 0);
        let from = |first: Epoch| first.max(osds.oldest());
        let first_full = from(m.full_first);
        // The first whole map may have to be made from earlier ones: not for a request that wants none.
        let wholes = (first_full <= m.full_last).then(|| osds.fulls_from(first_full));
        let wholes = wholes.into_iter().flatten().take_while(|(e, _)| *e <= m.full_last);
        let mut fits = |raw: &Bytes| {
            let fits = left > 0 && bytes < BYTES_PER_MESSAGE;
            (left, bytes) = (left.saturating_sub(1), bytes + raw.len());
            fits
        };
        full.extend(wholes.take_while(|(_, raw)| fits(raw)));
        let steps = (from(m.inc_first).0..=m.inc_last.min(osds.newest()).0).map(Epoch);
        let steps = steps.filter_map(|e| Some((e, osds.increment(e)?.clone())));
        incremental.extend(steps.take_while(|(_, raw)| fits(raw)));
        let msg = self.osdmap_message(incremental, full);
        out.push(Output::Send { conn, tid, msg: msg.into() });
    }

    fn note_osd_epoch(&mut self, conn: ConnId, epoch: Epoch) {
        if let Some(session) = self.sessions.get_mut(&conn) {
            session.osd_epoch = epoch;
        }
        self.note_fresh(conn, epoch);
    }

    fn note_fresh(&mut self, conn: ConnId, epoch: Epoch) {
        if let Some((have, _)) = self.sessions.get_mut(&conn).and_then(|s| s.osd_fresh.as_mut()) {
            *have = epoch;
        }
    }

    fn osdmap_message(&self, incremental: BTreeMap<Epoch, Bytes>, full: BTreeMap<Epoch, Bytes>) -> MOsdMap {
        let (oldest, newest) = (self.state.osds.oldest(), self.state.osds.newest());
        MOsdMap { fsid: self.state.fsid, incremental, full, oldest, newest }
    }

    fn monmap_for(&self, sub: Subscription) -> Sent {
        let epoch = u64::from(self.state.monmap_epoch().0);
        (sub.next <= epoch).then(|| (epoch, Some(MMonMap { map: self.state.monmap_bytes() }.into())))
    }

    fn mgrmap_for(&self, sub: Subscription) -> Sent {
        let epoch = u64::from(self.state.mgr.epoch.0);
        let msg = || MMgrMap { map: RestOfFront(self.state.mgr.map_bytes()) };
        (sub.next <= epoch).then(|| (epoch, Some(msg().into())))
    }

    fn service_map_for(&self, sub: Subscription) -> Sent {
        let map = &self.state.service_map;
        // Before a manager has made a map, subscribers get an empty one of epoch 1.
        let epoch = map.epoch.max(Epoch(1));
        let msg = || maps::ServiceMap { epoch, ..maps::ServiceMap::clone(map) };
        let msg = || MServiceMap { map: RestOfFront(msg().to_bytes()) };
        (sub.next <= u64::from(epoch.0)).then(|| (u64::from(epoch.0), Some(msg().into())))
    }

    /// The file systems, in the forms that each kind of follower knows. Source: MDSMonitor::check_sub.
    fn fs_maps_for(&self, session: &Session, what: &str, sub: Subscription) -> Sent {
        let map = &self.state.fs.map;
        if sub.next > u64::from(map.epoch.0) || !session.may("mds", Access::R) {
            return None;
        }
        let epoch = u64::from(map.epoch.0);
        let seen = visible(map, Some(session));
        match what {
            "fsmap" => {
                let map = RestOfFront(seen.to_bytes());
                Some((epoch, Some(MFsMap { epoch: seen.epoch, map }.into())))
            }
            "fsmap.user" => {
                let map = RestOfFront(FsMapUser::of(&seen).to_bytes());
                Some((epoch, Some(MFsMapUser { epoch: seen.epoch, map }.into())))
            }
            _ if session.name.kind == EntityType::Mds => {
                // Whatever it asks for, a daemon is told of its own file system.
                let gid = session.global_id.0;
                match map.fs_of(gid) {
                    Some(fs) => self.mds_map_for(&fs.map, sub),
                    None => self.mds_map_for(&map.map_for_standby(gid), sub),
                }
            }
            _ => {
                let named = what.strip_prefix("mdsmap.").map(str::parse);
                let fscid = match (what, named) {
                    ("mdsmap", _) => seen.legacy_client_fscid,
                    (_, Some(Ok(fscid))) => fscid,
                    _ => return None,
                };
                // Of a file system that is not there yet, followers hear when it is.
                self.mds_map_for(&seen.filesystems.get(&fscid)?.map, sub)
            }
        }
    }

    fn mds_map_for(&self, map: &MdsMap, sub: Subscription) -> Sent {
        let epoch = u64::from(map.epoch.0);
        let msg = || MMdsMap {
            fsid: self.state.fsid,
            epoch: map.epoch,
            map: map.to_bytes(),
            fs_name: map.fs_name.clone(),
        };
        (sub.next <= epoch).then(|| (epoch, Some(msg().into())))
    }

    /// What follows the config-key store under a prefix gets all of it once, then all of it at each change.
    fn kv_for(&self, session: &Session, what: &str, sub: Subscription) -> Sent {
        let version = self.state.kv_version.max(1);
        if sub.next > version || !session.may("config-key", Access::R) {
            return None;
        }
        let prefix = what.strip_prefix("kv:").unwrap_or_default();
        let under = self.state.kv.range(prefix.to_owned()..).take_while(|(k, _)| k.starts_with(prefix));
        let data = under.map(|(k, v)| (k.clone(), Some(v.clone()))).collect();
        let msg = MKvData { version, prefix: prefix.to_owned(), incremental: false, data };
        Some((version, Some(msg.into())))
    }

    fn check_config(&mut self, conn: ConnId, out: &mut Vec<Output>) {
        let Some(session) = self.sessions.get_mut(&conn) else { return };
        let options = options_of(&self.state, session);
        if session.config_sent.as_ref() == Some(&options) {
            return;
        }
        session.config_sent = Some(options.clone());
        if session.subs.get("config").is_some_and(|s| s.onetime) {
            session.subs.remove("config");
        }
        out.push(Output::Send { conn, tid: 0, msg: MConfig { options }.into() });
    }

    fn log_for(&self, session: &Session, channel: &str, level: Priority, sub: Subscription) -> Sent {
        let log = &self.state.log;
        // A new follower starts with the newest entry; `next` counts entries.
        let sub = if sub.next == 0 { Subscription { next: log.seq.max(1), ..sub } } else { sub };
        if sub.next > log.seq || !session.may("mon", Access::R) {
            return None;
        }
        let entries: Vec<_> = log.since(sub.next - 1, level, channel).into_iter().cloned().collect();
        if entries.is_empty() {
            return Some((log.seq, None));
        }
        // Clients drop what is not newer than the last version they saw.
        let msg = MLog { version: PaxosVersion(log.seq), fsid: self.state.fsid, entries };
        Some((log.seq, Some(msg.into())))
    }
}

/// What a subscription is sent: the version that it has then, and the message.
pub(crate) type Sent = Option<(u64, Option<messages::Message>)>;

/// The config database's options for a session.
pub(crate) fn options_of(state: &State, session: &Session) -> BTreeMap<String, String> {
    let view = EntityView { name: Some(&session.name), ..place_of(state.osdmap(), session) };
    state.config.resolve(&view).into_iter().map(|(name, e)| (name, e.value)).collect()
}

/// Where a daemon is, for masks: an OSD's place in the CRUSH map, else the host that it named.
fn place_of<'a>(map: &OsdMap, session: &Session) -> EntityView<'a> {
    let osd = match session.name.kind {
        EntityType::Osd => session.name.id.parse::<i32>().ok().filter(|id| map.exists(*id)),
        _ => None,
    };
    let mut view = match osd {
        Some(id) => place_of_osd(map, id),
        None => EntityView::default(),
    };
    if !session.host.is_empty() {
        view.location.entry("host".to_owned()).or_insert_with(|| session.host.clone());
    }
    view.type_ids = map.crush.type_names.iter().map(|(id, name)| (name.clone(), *id)).collect();
    view
}

/// The view of an entity by its name alone.
pub(crate) fn view_of<'a>(map: &OsdMap, name: &'a AuthName) -> EntityView<'a> {
    let osd = (name.kind == EntityType::Osd).then(|| name.id.parse::<i32>().ok()).flatten();
    let place = osd.filter(|id| map.exists(*id)).map(|id| place_of_osd(map, id)).unwrap_or_default();
    let type_ids = map.crush.type_names.iter().map(|(id, name)| (name.clone(), *id)).collect();
    EntityView { name: Some(name), type_ids, ..place }
}

/// An OSD's ancestors by type, and its device class.
pub(crate) fn place_of_osd<'a>(map: &OsdMap, id: i32) -> EntityView<'a> {
    EntityView {
        location: map.crush.full_location(id),
        device_class: map.crush.item_class(id).unwrap_or_default().to_owned(),
        ..EntityView::default()
    }
}

/// `log-info` follows the cluster channel, `log-<channel>-...` is not of this release. Source: sub_name_to_id.
fn log_level(what: &str) -> Option<(&'static str, Priority)> {
    Priority::from_name(what.strip_prefix("log-")?).map(|level| ("*", level))
}
