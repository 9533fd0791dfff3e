//! Requests to the monitor: commands, pool operations, statistics, versions; asked again on every new session.

use codec::Decode;
use maps::{MgrMap, MonMap};
use messages::Message;
use messages::mon::{MMonCommand, MMonGetVersion, MPoolOp, MStatfs};
use messages::payload::PaxosVersion;
use messages::pool_stats::MGetPoolStats;
use types::{Epoch, Fsid};

use crate::core::Objecter;
use crate::io::{CommandReply, Effect, Outcome, Request, ServicePeer, Ticket};

/// One request to the monitor.
#[derive(Debug)]
pub(crate) struct MonRequest {
    /// `None`: we ask for ourselves.
    ticket: Option<Ticket>,
    what: Request,
}

impl MonRequest {
    pub(crate) fn is_of(&self, ticket: Ticket) -> bool {
        self.ticket == Some(ticket)
    }

    fn message(&self, fsid: Fsid, tid: u64, map: Epoch) -> Message {
        let version = PaxosVersion(map.0.into());
        match &self.what {
            Request::MonCommand { cmd, input } => {
                let (cmd, input) = (cmd.clone(), input.clone());
                MMonCommand { fsid, cmd, input, ..MMonCommand::default() }.into()
            }
            Request::PoolOp { pool, op, snap, name, crush_rule } => {
                let (op, snap, name, crush_rule) = (*op, *snap, name.clone(), *crush_rule);
                MPoolOp { version, fsid, pool: pool.0 as u32, op, snap, name, crush_rule }.into()
            }
            Request::Statfs { pool } => {
                MStatfs { version: PaxosVersion::default(), fsid, data_pool: *pool }.into()
            }
            Request::PoolStats { pools } => {
                MGetPoolStats { version: PaxosVersion::default(), fsid, pools: pools.clone() }.into()
            }
            _ => MMonGetVersion { handle: tid, what: "osdmap".to_owned() }.into(),
        }
    }
}

impl Objecter {
    pub(crate) fn submit_mon(&mut self, ticket: Ticket, what: Request, out: &mut Vec<Effect>) {
        self.ask_mon(Some(ticket), what, out);
    }

    fn ask_mon(&mut self, ticket: Option<Ticket>, what: Request, out: &mut Vec<Effect>) -> u64 {
        let tid = self.next_tid();
        self.mon_requests.insert(tid, MonRequest { ticket, what });
        self.send_mon_request(tid, out);
        tid
    }

    fn send_mon_request(&self, tid: u64, out: &mut Vec<Effect>) {
        let (true, Some(fsid), Some(r)) = (self.mon_ready, self.fsid, self.mon_requests.get(&tid)) else {
            return;
        };
        out.push(Effect::SendMon { tid, msg: r.message(fsid, tid, self.map.epoch) });
    }

    fn send_mon_requests(&self, out: &mut Vec<Effect>) {
        self.mon_requests.keys().for_each(|tid| self.send_mon_request(*tid, out));
    }

    pub(crate) fn mon_ready(&mut self, out: &mut Vec<Effect>) {
        self.mon_ready = true;
        self.subs.forget_sent();
        self.renew_subs(out);
        self.send_mon_requests(out);
    }

    /// The cluster's id came with a map: requests that waited for it can go.
    pub(crate) fn know_fsid(&mut self, fsid: Fsid, out: &mut Vec<Effect>) {
        if self.fsid.is_none() {
            self.fsid = Some(fsid);
            self.send_mon_requests(out);
            let ready: Vec<_> =
                self.sessions.iter().filter(|(_, s)| s.is_ready()).map(|(id, _)| *id).collect();
            ready.into_iter().for_each(|id| self.send_commands(id, out));
        }
    }

    /// Asks which OSD map is the newest, for requests that name something which our map does not have.
    pub(crate) fn ask_for_newest(&mut self, out: &mut Vec<Effect>) {
        if self.newest_query.is_none() {
            self.newest_query = Some(self.ask_mon(None, Request::LatestMap, out));
        }
    }

    pub(crate) fn on_mon(&mut self, tid: u64, msg: Message, out: &mut Vec<Effect>) {
        match msg {
            Message::OsdMap(m) => self.take_maps(&m, out),
            Message::MonMap(m) => {
                let Ok(map) = MonMap::from_bytes(m.map) else { return };
                self.subs.got("monmap", map.epoch.0.into());
                self.know_fsid(map.fsid, out);
                out.push(Effect::NewMonMap(Box::new(map)));
            }
            Message::MgrMap(m) => {
                let Ok(map) = MgrMap::from_bytes(m.map.0) else { return };
                self.new_mgr_map(map, out);
            }
            Message::MonCommandAck(m) => {
                let reply = CommandReply { result: m.result, status: m.status, output: m.output };
                self.mon_answer(tid, Outcome::Command(reply), out);
            }
            Message::StatfsReply(m) => self.mon_answer(tid, Outcome::Statfs(m), out),
            Message::GetPoolStatsReply(m) => {
                self.mon_answer(tid, Outcome::PoolStats { pools: m.pools, per_pool: m.per_pool }, out);
            }
            Message::PoolOpReply(m) => {
                let Some(ticket) = self.take_answered(tid, |r| matches!(r, Request::PoolOp { .. })) else {
                    return;
                };
                // Who made a snapshot expects to see it in the map.
                let outcome = Outcome::PoolOp { result: m.result, response: m.response };
                out.extend(ticket.map(|t| Effect::Done(t, outcome)));
                if self.map.epoch < m.epoch {
                    self.want_map(out);
                }
            }
            Message::MonGetVersionReply(m) => self.version_answer(m.handle, m.version, out),
            _ => {}
        }
    }

    /// Takes out the request that an answer is to; `None` when the answer fits none.
    fn take_answered(&mut self, tid: u64, fits: impl FnOnce(&Request) -> bool) -> Option<Option<Ticket>> {
        if !self.mon_requests.get(&tid).is_some_and(|r| fits(&r.what)) {
            return None;
        }
        self.mon_requests.remove(&tid).map(|r| r.ticket)
    }

    fn mon_answer(&mut self, tid: u64, outcome: Outcome, out: &mut Vec<Effect>) {
        let fits = |r: &Request| {
            matches!(
                (r, &outcome),
                (Request::MonCommand { .. }, Outcome::Command(_))
                    | (Request::Statfs { .. }, Outcome::Statfs(_))
                    | (Request::PoolStats { .. }, Outcome::PoolStats { .. })
            )
        };
        if let Some(Some(ticket)) = self.take_answered(tid, fits) {
            out.push(Effect::Done(ticket, outcome));
        }
    }

    fn version_answer(&mut self, tid: u64, version: u64, out: &mut Vec<Effect>) {
        let newest = Epoch(u32::try_from(version).unwrap_or(u32::MAX));
        match self.take_answered(tid, |r| matches!(r, Request::LatestMap)) {
            Some(Some(ticket)) => {
                self.map_waits.push((newest, ticket));
                self.check_map_waits(out);
            }
            Some(None) => {
                self.newest_query = None;
                self.newest_known(newest, out);
            }
            None => {}
        }
    }

    fn new_mgr_map(&mut self, map: MgrMap, out: &mut Vec<Effect>) {
        self.subs.got("mgrmap", map.epoch.0.into());
        if self.mgr.as_ref().is_some_and(|old| old.epoch >= map.epoch) {
            return;
        }
        self.mgr = Some(map);
        self.close_moved(out);
        self.scan_commands(out);
    }

    pub(crate) fn want_mgr_map(&mut self, out: &mut Vec<Effect>) {
        if self.mgr.is_none() && self.subs.want("mgrmap", 0, 0) {
            self.renew_subs(out);
        }
    }

    /// The session with the manager, when a map names one.
    pub(crate) fn mgr_session(&mut self, out: &mut Vec<Effect>) -> Option<crate::io::SessionId> {
        self.want_mgr_map(out);
        self.session_with(ServicePeer::Mgr, out)
    }
}
