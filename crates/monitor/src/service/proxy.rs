//! Commands that are the manager's, passed on to the one in charge: over the session that one of ours has
//! with the monitors, or over the leader's session with one of Ceph's, which takes commands there alone.
//!
//! Source: Monitor::handle_command (C_MgrProxyCommand), MgrClient::start_command.

use std::time::Duration;

use messages::common::{MCommand, MCommandReply, MMgrCommand, MMgrCommandReply};
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
    way: Way,
    since: Duration,
    charge: Charge,
}

/// How a command gets to the manager.
#[derive(Debug, Clone, PartialEq)]
enum Way {
    /// Over the session of one of ours.
    Session(ConnId),
    /// Over our session with one of Ceph's; with what is to be sent when that stands.
    OwnSession(Option<Box<MMgrCommand>>),
}

impl Monitor {
    pub(crate) fn proxy(&mut self, now: Now, conn: ConnId, tid: u64, m: MMonCommand, out: &mut Vec<Output>) {
        let Some(mut way) = self.way_to_manager() else {
            return out.push(ack(conn, tid, &m.cmd, Reply::error(Errno::EAGAIN, "no active manager")));
        };
        if self.proxied.len() >= PROXIED_LIMIT {
            let reply = Reply::error(Errno::EAGAIN, "hit limit on proxied mgr commands");
            return out.push(ack(conn, tid, &m.cmd, reply));
        }
        let Some(name) = self.sessions.get(&conn).map(|s| s.name.clone()) else { return };
        let is_its = |p: &&Proxied| self.sessions.get(&p.conn).is_some_and(|s| s.name == name);
        let many = self.proxied.values().filter(is_its).count() >= PROXIED_SHARE;
        let Some(charge) = self.shares.take(&name, self.handled_bytes).filter(|_| !many) else {
            return out.push(self.too_much(conn, tid, &m.into()));
        };
        let proxy_tid = self.next_proxy_tid;
        let MMonCommand { fsid, cmd, input, .. } = m;
        match &mut way {
            Way::Session(manager) => {
                let msg = MCommand { fsid, cmd: cmd.clone(), input }.into();
                out.push(Output::Send { conn: *manager, tid: proxy_tid, msg });
            }
            Way::OwnSession(waits) => {
                let command = MMgrCommand { fsid, cmd: cmd.clone(), input };
                match self.reports {
                    true => out.push(Output::SendManager { tid: proxy_tid, msg: command.into() }),
                    false => *waits = Some(Box::new(command)),
                }
            }
        }
        self.next_proxy_tid += 1;
        self.proxied.insert(proxy_tid, Proxied { conn, tid, cmd, way, since: now.mono, charge });
    }

    /// The way to the manager in charge; `None` while there is none that answers commands.
    fn way_to_manager(&self) -> Option<Way> {
        let active = self.state.mgr.active.as_ref().filter(|a| a.available)?;
        if active.of_ceph {
            return Some(Way::OwnSession(None));
        }
        let is_active = |s: &crate::Session| s.name.kind == EntityType::Mgr && s.global_id.0 == active.gid;
        self.sessions.iter().find(|(_, s)| is_active(s)).map(|(conn, _)| Way::Session(*conn))
    }

    /// Our session with the manager stands: sends what waited for it. Only Ceph's takes commands there.
    pub(crate) fn send_proxied(&mut self, out: &mut Vec<Output>) {
        let of_ceph = self.state.mgr.active.as_ref().is_some_and(|a| a.of_ceph);
        let mut not_for_it = Vec::new();
        for (tid, proxied) in &mut self.proxied {
            let Way::OwnSession(waits) = &mut proxied.way else { continue };
            match waits.take().filter(|_| of_ceph) {
                Some(command) => out.push(Output::SendManager { tid: *tid, msg: (*command).into() }),
                None => not_for_it.push(*tid),
            }
        }
        self.give_up(not_for_it, out);
    }

    pub(crate) fn proxied_reply(&mut self, conn: ConnId, tid: u64, m: MCommandReply, out: &mut Vec<Output>) {
        if self.proxied.get(&tid).is_some_and(|p| p.way == Way::Session(conn)) {
            let reply = Reply { code: m.result, outs: m.status, data: m.output };
            self.answer_proxied(tid, reply, out);
        }
    }

    /// The answer of a manager of Ceph's.
    pub(crate) fn manager_answered(&mut self, tid: u64, m: MMgrCommandReply, out: &mut Vec<Output>) {
        if self.proxied.get(&tid).is_some_and(|p| matches!(p.way, Way::OwnSession(None))) {
            let reply = Reply { code: m.result, outs: m.status, data: m.output };
            self.answer_proxied(tid, reply, out);
        }
    }

    /// Our session with the manager is over, and what was under way on it comes to nothing: whether it was
    /// carried out is not known.
    pub(crate) fn proxied_lost(&mut self, out: &mut Vec<Output>) {
        let lost = |p: &Proxied| matches!(p.way, Way::OwnSession(None));
        let gone = self.proxied.iter().filter(|(_, p)| lost(p)).map(|(tid, _)| *tid).collect();
        self.give_up(gone, out);
    }

    /// Commands that the manager did not answer, or whose manager is gone.
    pub(crate) fn proxy_timeouts(&mut self, now: Now, out: &mut Vec<Output>) {
        let is_over = |way: &Way| matches!(way, Way::Session(conn) if !self.sessions.contains_key(conn));
        let lost = |p: &Proxied| now.mono.saturating_sub(p.since) > TIMEOUT || is_over(&p.way);
        let gone = self.proxied.iter().filter(|(_, p)| lost(p)).map(|(tid, _)| *tid).collect();
        self.give_up(gone, out);
    }

    fn give_up(&mut self, tids: Vec<u64>, out: &mut Vec<Output>) {
        for tid in tids {
            self.answer_proxied(tid, Reply::error(Errno::ETIMEDOUT, "the manager did not answer"), out);
        }
    }

    fn answer_proxied(&mut self, tid: u64, reply: Reply, out: &mut Vec<Output>) {
        if let Some(p) = self.proxied.remove(&tid) {
            out.push(ack(p.conn, p.tid, &p.cmd, reply));
        }
    }
}
