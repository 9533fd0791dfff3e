//! Commands that are the manager's, passed on over the active manager's own session.

use std::time::Duration;

use messages::Message;
use messages::common::{MCommand, MCommandReply};
use messages::mon::MMonCommand;
use types::{ConnId, EntityType, Errno, Now};

use crate::command::Reply;
use crate::io::Output;
use crate::monitor::Monitor;
use crate::service::commands::ack;
use crate::shares::Charge;

/// Commands under way at the manager at once.
const PROXIED_LIMIT: usize = 1_024;
/// Of one entity.
const PROXIED_SHARE: usize = 64;
const TIMEOUT: Duration = Duration::from_secs(60);

/// A command that the manager has.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Proxied {
    pub(crate) conn: ConnId,
    tid: u64,
    cmd: Vec<String>,
    manager: ConnId,
    since: Duration,
    charge: Charge,
}

impl Monitor {
    pub(crate) fn proxy(&mut self, now: Now, conn: ConnId, tid: u64, m: MMonCommand, out: &mut Vec<Output>) {
        if let Some(a) = self.state.mgr.active.as_ref().filter(|a| a.of_ceph) {
            // It takes commands over connections of their own, not over its session with the monitors.
            let text =
                format!("mgr.{} is Ceph's: commands for managers go to it, not through the monitors", a.name);
            return out.push(ack(conn, tid, &m.cmd, Reply::error(Errno::EOPNOTSUPP, text)));
        }
        let active = self.state.mgr.active.as_ref().filter(|a| a.available).map(|a| a.gid);
        let is_active = |s: &crate::Session| s.name.kind == EntityType::Mgr && Some(s.global_id.0) == active;
        let Some(manager) = self.sessions.iter().find(|(_, s)| is_active(s)).map(|(c, _)| *c) else {
            return out.push(ack(conn, tid, &m.cmd, Reply::error(Errno::EAGAIN, "no active manager")));
        };
        if self.proxied.len() >= PROXIED_LIMIT {
            let reply = Reply::error(Errno::EAGAIN, "hit limit on proxied mgr commands");
            return out.push(ack(conn, tid, &m.cmd, reply));
        }
        let Some(name) = self.sessions.get(&conn).map(|s| s.name.clone()) else { return };
        let is_its = |p: &&Proxied| self.sessions.get(&p.conn).is_some_and(|s| s.name == name);
        let many = self.proxied.values().filter(is_its).count() >= PROXIED_SHARE;
        let msg = Message::from(m.clone());
        let Some(charge) = self.shares.take(&name, &msg).filter(|_| !many) else {
            return out.push(self.too_much(conn, tid, &msg));
        };
        let proxy_tid = self.next_proxy_tid;
        self.next_proxy_tid += 1;
        let command = MCommand { fsid: m.fsid, cmd: m.cmd.clone(), input: m.input };
        let proxied = Proxied { conn, tid, cmd: m.cmd, manager, since: now.mono, charge };
        self.proxied.insert(proxy_tid, proxied);
        out.push(Output::Send { conn: manager, tid: proxy_tid, msg: command.into() });
    }

    pub(crate) fn proxied_reply(&mut self, conn: ConnId, tid: u64, m: MCommandReply, out: &mut Vec<Output>) {
        if self.proxied.get(&tid).is_none_or(|p| p.manager != conn) {
            return;
        }
        if let Some(p) = self.proxied.remove(&tid) {
            let reply = Reply { code: m.result, outs: m.status, data: m.output };
            out.push(ack(p.conn, p.tid, &p.cmd, reply));
        }
    }

    /// Commands that the manager did not answer, or whose manager is gone.
    pub(crate) fn proxy_timeouts(&mut self, now: Now, out: &mut Vec<Output>) {
        let lost = |p: &Proxied| {
            now.mono.saturating_sub(p.since) > TIMEOUT || !self.sessions.contains_key(&p.manager)
        };
        let gone: Vec<u64> = self.proxied.iter().filter(|(_, p)| lost(p)).map(|(t, _)| *t).collect();
        for tid in gone {
            if let Some(p) = self.proxied.remove(&tid) {
                let reply = Reply::error(Errno::ETIMEDOUT, "the manager did not answer");
                out.push(ack(p.conn, p.tid, &p.cmd, reply));
            }
        }
    }
}
