//! The digest for managers: the monitors' status and health, in JSON, when they ask for it and then each
//! period.
//!
//! Ceph's manager waits for the first one before it serves. Source: MgrMonitor::check_sub,
//! MgrMonitor::send_digests, Mgr::background_init.

use std::time::Duration;

use bytes::Bytes;
use messages::mgr::MMgrDigest;
use types::{ConnId, Now};

use crate::command::mon::mon_status;
use crate::health::{Health, health_json};
use crate::io::Output;
use crate::monitor::Monitor;
use crate::session::{Access, Session};

/// The name of the subscription.
pub(crate) const MGR_DIGEST: &str = "mgrdigest";

impl Monitor {
    /// Sends the digest to all who follow it, when it is time for that.
    pub(crate) fn send_due_digests(&mut self, now: Now, out: &mut Vec<Output>) {
        let period = self.settings.span(&self.state, "mon_mgr_digest_period").max(Duration::from_secs(1));
        if self.digests_sent.is_some_and(|at| now.mono.saturating_sub(at) < period) {
            return;
        }
        let follows = |s: &Session| s.subs.contains_key(MGR_DIGEST) && may_follow(s);
        let followers: Vec<ConnId> =
            self.sessions.iter().filter(|(_, s)| follows(s)).map(|(conn, _)| *conn).collect();
        if followers.is_empty() || self.settings.quorum.leader.is_none() {
            return;
        }
        self.digests_sent = Some(now.mono);
        let digest = self.digest(now);
        out.extend(followers.into_iter().map(|conn| Output::Send {
            conn,
            tid: 0,
            msg: digest.clone().into(),
        }));
    }

    /// The first digest for who has just asked to follow it; without a quorum it comes with the next period.
    pub(crate) fn begin_digests(&mut self, now: Now, conn: ConnId, out: &mut Vec<Output>) {
        let may = self.sessions.get(&conn).is_some_and(may_follow);
        if may && self.settings.quorum.leader.is_some() {
            out.push(Output::Send { conn, tid: 0, msg: self.digest(now).into() });
        }
    }

    fn digest(&self, now: Now) -> MMgrDigest {
        let health = Health::of(&self.state, &self.settings, now);
        let bytes = |value: serde_json::Value| Bytes::from(value.to_string());
        MMgrDigest {
            mon_status_json: bytes(mon_status(&self.state, &self.settings)),
            health_json: bytes(health_json(&health, true)),
        }
    }
}

/// Whoever may send the monitors what a manager reports. Source: MonCap's profile mgr.
fn may_follow(session: &Session) -> bool {
    session.may("mgr", Access::X)
}
