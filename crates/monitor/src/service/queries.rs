//! Questions that are answered at once from the committed state: versions, maps, space, pools' statistics, options.

use std::collections::BTreeMap;
use std::time::Duration;

use codec::Encode;
use messages::PaxosVersion;
use messages::common::MPing;
use messages::mon::{
    MConfig, MGetConfig, MMonGetVersion, MMonGetVersionReply, MMonMap, MStatfs, MStatfsReply,
};
use messages::osd::{MMonGetPurgedSnaps, MMonGetPurgedSnapsReply};
use messages::payload::RestOfFront;
use messages::pool_stats::{MGetPoolStats, MGetPoolStatsReply};
use serde_json::json;
use types::{ConnId, Epoch, Now};

use crate::command::{Format, json_text, mon_status};
use crate::health::{Health, health_json};
use crate::io::Output;
use crate::monitor::Monitor;
use crate::session::Access;
use crate::state::EntityView;

/// How often the answer to pings is made anew.
const PONG_EVERY: Duration = Duration::from_secs(1);

impl Monitor {
    pub(crate) fn send_monmap(&self, conn: ConnId, tid: u64, out: &mut Vec<Output>) {
        out.push(Output::Send { conn, tid, msg: MMonMap { map: self.state.monmap_bytes() }.into() });
    }

    /// Source: Monitor::handle_get_version. Names that are no map get no answer.
    pub(crate) fn get_version(&self, conn: ConnId, tid: u64, m: &MMonGetVersion, out: &mut Vec<Output>) {
        let (version, oldest_version) = match m.what.as_str() {
            "osdmap" => (self.state.osds.newest().0, self.state.osds.oldest().0),
            "monmap" => (self.state.monmap_epoch().0, 1),
            "mdsmap" | "fsmap" => {
                let oldest = self.state.fs_history.oldest().unwrap_or(Epoch(1));
                (self.state.fsmap_epoch().0, oldest.0)
            }
            "mgrmap" => (self.state.mgr.epoch.0, 1),
            _ => return,
        };
        let (version, oldest_version) = (version.into(), oldest_version.into());
        let reply = MMonGetVersionReply { handle: m.handle, version, oldest_version };
        out.push(Output::Send { conn, tid, msg: reply.into() });
    }

    /// A ping from `ceph ping` is answered with health and status as text; daemons do not look at it.
    /// The text is made once a second: whoever can connect may ping, and health is not cheap.
    /// Source: Monitor::handle_ping.
    pub(crate) fn pong(&mut self, now: Now, conn: ConnId, tid: u64, out: &mut Vec<Output>) {
        let text = match self.pong.take().filter(|(at, _)| now.mono.saturating_sub(*at) < PONG_EVERY) {
            Some(made) => made,
            None => {
                let health = Health::of(&self.state, &self.settings, now);
                let status = mon_status(&self.state, &self.settings);
                let value = json!({ "health": health_json(&health, false), "mon_status": status });
                (now.mono, json_text(Format::JsonPretty, &value).to_bytes())
            }
        };
        let pong = MPing { payload: RestOfFront(text.1.clone()) };
        self.pong = Some(text);
        out.push(Output::Send { conn, tid, msg: pong.into() });
    }

    /// Options for somebody who has no session of its own yet. It tells no secrets: options never are.
    pub(crate) fn get_config(&self, conn: ConnId, tid: u64, m: &MGetConfig, out: &mut Vec<Output>) {
        let view = EntityView {
            name: Some(&m.name),
            location: [("host".to_owned(), m.host.clone())].into(),
            device_class: m.device_class.clone(),
            ..EntityView::default()
        };
        let options = self.state.config.resolve(&view).into_iter().map(|(k, e)| (k, e.value)).collect();
        out.push(Output::Send { conn, tid, msg: MConfig { options }.into() });
    }

    /// Source: MgrStatMonitor::preprocess_statfs, PGMapDigest::get_statfs.
    pub(crate) fn statfs(&self, conn: ConnId, tid: u64, m: &MStatfs, out: &mut Vec<Output>) {
        let Some(session) = self.sessions.get(&conn) else { return };
        if !session.may("pg", Access::R) || m.fsid != self.state.fsid {
            return;
        }
        let digest = &self.state.digest;
        let mut reply = MStatfsReply { fsid: m.fsid, version: self.index, ..MStatfsReply::default() };
        match m.data_pool.filter(|p| p.0 > 0) {
            Some(id) => {
                let Some(pool) = self.state.osdmap().pool(id) else { return };
                let copies = u64::from(pool.size.max(1));
                if let Some(usage) = digest.pools.get(&id) {
                    let used = usage.stat.stats.sum.num_bytes.max(0) as u64;
                    let avail = usage.avail_raw / copies;
                    reply.kb_used = used >> 10;
                    reply.kb_avail = avail >> 10;
                    reply.kb = (used + avail) >> 10;
                    reply.num_objects = usage.stat.stats.sum.num_objects.max(0) as u64;
                }
            }
            None => {
                let all = digest.statfs();
                reply.kb = all.total >> 10;
                reply.kb_used = all.used_raw() >> 10;
                reply.kb_avail = all.available >> 10;
                reply.num_objects = digest.totals().num_objects.max(0) as u64;
            }
        }
        out.push(Output::Send { conn, tid, msg: reply.into() });
    }

    /// Source: MgrStatMonitor::preprocess_getpoolstats. Names that do not exist are left out.
    pub(crate) fn pool_stats(&self, conn: ConnId, tid: u64, m: &MGetPoolStats, out: &mut Vec<Output>) {
        let Some(session) = self.sessions.get(&conn) else { return };
        if !session.may("pg", Access::R) || m.fsid != self.state.fsid {
            return;
        }
        let map = self.state.osdmap();
        let known = m.pools.iter().filter_map(|name| Some((name, map.pool_by_name(name)?)));
        let stat = |id| self.state.digest.pools.get(&id).map(|p| p.stat).unwrap_or_default();
        let reply = MGetPoolStatsReply {
            version: PaxosVersion(self.index),
            fsid: m.fsid,
            pools: known.map(|(name, id)| (name.clone(), stat(id))).collect(),
            per_pool: true,
        };
        out.push(Output::Send { conn, tid, msg: reply.into() });
    }

    /// OSDs of other releases ask this when they scrub their snapshots. We keep no such history: what is purged is known
    /// from the maps, and an empty answer for the whole range says that there is nothing to purge again.
    pub(crate) fn purged_snaps(&self, conn: ConnId, tid: u64, m: &MMonGetPurgedSnaps, out: &mut Vec<Output>) {
        let reply = MMonGetPurgedSnapsReply {
            start: m.start,
            last: m.last,
            purged: BTreeMap::new(),
            ..MMonGetPurgedSnapsReply::default()
        };
        out.push(Output::Send { conn, tid, msg: reply.into() });
    }
}
