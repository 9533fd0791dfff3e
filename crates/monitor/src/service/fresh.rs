//! Answers that are not older than the question: what asks for one waits until everything acknowledged before is applied here.
//!
//! Invariants:
//! 1. A question is answered from a state that holds everything acknowledged before it came, wherever that was.
//! 2. One round of asking is under way at a time; what comes meanwhile waits for the next.

use std::collections::VecDeque;
use std::time::Duration;

use messages::Message;
use messages::osd::MOsdFailure;
use types::{ConnId, EntityType, Now};

use crate::io::{Input, Output};
use crate::monitor::Monitor;
use crate::peer::Who;
use crate::proposal::Waiting;
use crate::session::{Session, Stage};

/// Logins that may wait for a quorum; they take no place from those who are logged in.
const LOGINS_LIMIT: usize = 10_000;
/// A monitor that has no quorum for so long sends its clients to another. Source: mon_lease.
const LEAVE_AFTER: Duration = Duration::from_secs(5);

/// What waits.
#[derive(Debug, Clone)]
enum Item {
    Login(Input),
    Question(Waiting),
}

impl Item {
    fn is_of(&self, conn: ConnId) -> bool {
        match self {
            Item::Login(login) => is_login_of(login, conn),
            Item::Question(question) => question.conn == conn,
        }
    }
}

fn is_login_of(login: &Input, of: ConnId) -> bool {
    matches!(login, Input::AuthRequest { conn, .. } | Input::AuthMore { conn, .. } if *conn == of)
}

/// Rounds of asking.
#[derive(Debug, Clone)]
pub(crate) struct Freshness {
    next: VecDeque<Item>,
    /// What the round under way will answer.
    asked: Option<(u64, Vec<Item>)>,
    last_ctx: u64,
    /// Logins in `next`.
    logins: usize,
}

impl Freshness {
    /// `start`: rounds of an earlier life have other numbers.
    pub(crate) fn new(start: u64) -> Self {
        Self { next: VecDeque::new(), asked: None, last_ctx: start >> 1, logins: 0 }
    }
}

impl Monitor {
    /// A lone monitor knows all there is.
    pub(crate) fn is_alone(&self) -> bool {
        self.settings.quorum.monitors <= 1 && self.settings.quorum.is_leader()
    }

    pub(crate) fn when_fresh(&mut self, now: Now, question: Waiting, out: &mut Vec<Output>) {
        if self.is_alone() {
            return self.serve(now, question, out);
        }
        let Some(session) = self.sessions.get(&question.conn) else { return };
        let Some(charge) = self.shares.take(&session.name, self.handled_bytes) else {
            return out.push(self.too_much(question.conn, question.tid, &question.msg));
        };
        self.fresh.next.push_back(Item::Question(Waiting { charge: Some(charge), ..question }));
        self.ask(out);
    }

    pub(crate) fn login_when_fresh(&mut self, login: Input, out: &mut Vec<Output>) {
        if self.fresh.logins >= LOGINS_LIMIT {
            if let Input::AuthRequest { conn, .. } = login {
                out.push(Output::Close { conn });
            }
            return;
        }
        self.fresh.logins += 1;
        self.fresh.next.push_back(Item::Login(login));
        self.ask(out);
    }

    fn ask(&mut self, out: &mut Vec<Output>) {
        if self.fresh.asked.is_some() || self.fresh.next.is_empty() {
            return;
        }
        self.fresh.last_ctx += 1;
        self.fresh.logins = 0;
        let ctx = self.fresh.last_ctx;
        self.fresh.asked = Some((ctx, self.fresh.next.drain(..).collect()));
        out.push(Output::Read { ctx });
    }

    pub(crate) fn is_fresh(&mut self, now: Now, ctx: u64, out: &mut Vec<Output>) {
        if self.fresh.asked.as_ref().is_none_or(|(asked, _)| *asked != ctx) {
            return;
        }
        for item in self.fresh.asked.take().into_iter().flat_map(|(_, items)| items) {
            match item {
                Item::Login(login) => self.auth_request(now, login, out),
                Item::Question(question) => self.serve(now, question, out),
            }
        }
        self.ask(out);
    }

    /// What a connection that is gone asked for: answering a login would make a session that nobody ends, and what waits
    /// counts against the limit for everybody.
    pub(crate) fn forget_asker(&mut self, conn: ConnId) {
        self.fresh.next.retain(|item| !item.is_of(conn));
        self.fresh.logins = self.fresh.next.iter().filter(|item| matches!(item, Item::Login(_))).count();
        if let Some((_, items)) = &mut self.fresh.asked {
            items.retain(|item| !item.is_of(conn));
        }
        self.parked_logins.retain(|login| !is_login_of(login, conn));
    }

    /// A follower's part of a batch: it goes to the leader.
    pub(crate) fn forward_waiting(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.settings.quorum.leader.is_none() {
            return;
        }
        self.ask_for_ids(now, out);
        for w in std::mem::take(&mut self.waiting) {
            let Some(session) = self.sessions.get_mut(&w.conn) else { continue };
            session.forwarded = true;
            out.push(Output::Forward { conn: w.conn, tid: w.tid, msg: w.msg });
        }
    }

    /// While nobody leads: what an OSD did not hear from another one a while ago says little when somebody does. Who still does
    /// not hear it says so again; refused connections stay true.
    pub(crate) fn drop_old_reports(&mut self) {
        if self.settings.quorum.leader.is_none() {
            let silence = |m: &MOsdFailure| m.flags == MOsdFailure::FAILED;
            self.waiting.retain(|w| !matches!(&w.msg, Message::OsdFailure(m) if silence(m)));
        }
    }

    /// What was sent to the leader may be lost: those who sent it come again on a new connection.
    pub(crate) fn forget_forwarded(&mut self, out: &mut Vec<Output>) {
        for (conn, session) in &mut self.sessions {
            if std::mem::take(&mut session.forwarded) {
                out.push(Output::Close { conn: *conn });
            }
        }
    }

    /// Clients of a monitor without a quorum find another one.
    ///
    /// Source: the tick of a monitor out of quorum in src/mon/Monitor.cc.
    pub(crate) fn leave_clients(&mut self, now: Now, out: &mut Vec<Output>) {
        let quorum = &self.settings.quorum;
        if quorum.leader.is_some() || now.mono < self.settings.quorum_since + LEAVE_AFTER {
            return;
        }
        let client = |s: &Session| s.stage == Stage::Open && !s.adopted && s.name.kind != EntityType::Mon;
        let left = self.sessions.iter().filter(|(_, s)| client(s)).map(|(conn, _)| *conn);
        let before = out.len();
        out.extend(left.map(|conn| Output::Close { conn }));
        self.counters.sessions_trimmed += (out.len() - before) as u64;
    }

    /// Another member's client.
    pub(crate) fn adopt(&mut self, conn: ConnId, who: Who) {
        let Ok(caps) = cephx::MonCap::parse(&who.caps) else { return };
        let mut session = Session::new(who.name, who.addr, 0);
        session.stage = Stage::Open;
        session.peer = who.peer;
        session.global_id = who.global_id;
        session.caps = caps;
        session.addrs = who.addrs;
        session.features = who.features;
        session.host = who.host;
        session.adopted = true;
        self.sessions.insert(conn, session);
    }

    /// What a leader needs to know of one of our clients.
    pub(crate) fn who(&self, conn: ConnId) -> Option<Who> {
        let s = self.sessions.get(&conn)?;
        Some(Who {
            name: s.name.clone(),
            peer: s.peer,
            global_id: s.global_id,
            caps: s.caps.text().to_owned(),
            addrs: s.addrs.clone(),
            addr: s.addr,
            features: s.features,
            host: s.host.clone(),
        })
    }
}
