//! Logins at the monitor, tickets over an open session, and the supply of global ids.
//!
//! Invariant: a global id is given out once. Ids are reserved in the replicated log for one process of one member; what it did
//! not give out when it ends is lost.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cephx::{
    AuthMode, AuthSession, CONNECTION_SECRET_LEN, Granted, LoginRequest, METHOD_CEPHX, METHOD_NONE, MonCap,
    TicketTtl, login_none, mode_option, modes_allowed, usual_modes,
};
use messages::auth::{MAuth, MAuthReply};
use types::{AuthName, ConnId, EntityAddr, EntityName, EntityType, Errno, GlobalId, Now};

use crate::io::{AuthRefusal, CON_MODE_SECURE, Input, Output};
use crate::monitor::Monitor;
use crate::proposal::Batch;
use crate::service::subscribe::MAP_FRESH_FOR;
use crate::session::{Session, Stage};
use crate::state::Change;

/// Ids reserved at a time. Source: mon_globalid_prealloc.
const GLOBAL_IDS_AT_ONCE: u64 = 10_000;
/// A follower asks again for ids after so long.
const IDS_RETRY: Duration = Duration::from_secs(1);
/// What monitors have towards each other; below the ids that are given out.
const MONITORS_ID: GlobalId = GlobalId(1);
/// Hosts of monitors of Ceph's that the log tells of.
const MONS_OF_CEPH_LIMIT: usize = 64;
/// Logins that wait for ids while the reservation is being committed.
const PARKED_LIMIT: usize = 10_000;

impl Monitor {
    /// A login; it must see every change of keys and capabilities that was acknowledged.
    pub(crate) fn login(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        let Input::AuthRequest { ref payload, .. } = input else { return };
        let is_mon = LoginRequest::parse(payload).is_ok_and(|r| self.is_monitors(&r.name));
        if is_mon || self.is_alone() {
            // Monitors must find each other before there is a quorum.
            return self.auth_request(now, input, out);
        }
        self.login_when_fresh(input, out);
    }

    pub(crate) fn auth_request(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        let Input::AuthRequest { conn, peer_type, method, ref preferred_modes, ref payload, peer_addr } =
            input
        else {
            return;
        };
        let refuse = |errno| self.refusal(conn, peer_type, method, errno);
        if !self.settings.auth_methods.contains(&method) {
            return out.push(refuse(Errno::EOPNOTSUPP));
        }
        let modes = self.modes_with(peer_type, method);
        let Some(mode) = preferred_modes.iter().find(|m| modes.contains(m)).copied() else {
            return out.push(refuse(Errno::EOPNOTSUPP));
        };
        let request = match AuthMode::of(payload) {
            Ok(AuthMode::Login) => LoginRequest::parse(payload),
            // Monitors of ours reach each other over the quorum's own connections.
            Ok(AuthMode::Authorizer) => {
                let refused = refuse(Errno::EOPNOTSUPP);
                return out.push(self.explain_to_monitor(peer_type, peer_addr, refused));
            }
            Err(e) => Err(e),
        };
        let request = match request {
            Ok(request) => request,
            Err(e) => return out.push(refuse(e.errno())),
        };
        let fresh = match request.global_id {
            _ if self.is_monitors(&request.name) => MONITORS_ID,
            // Without authentication there is nothing to prove first: every connection gets an id at once.
            GlobalId(0) if method == METHOD_NONE => match self.take_global_id() {
                Some(id) => id,
                None => return self.park_login(conn, input, out),
            },
            // With cephx the id is given out when the entity has proven itself.
            _ => GlobalId(0),
        };
        self.start_login(now, conn, method, mode, peer_addr, request, fresh, out);
    }

    fn start_login(
        &mut self,
        now: Now,
        conn: ConnId,
        method: u32,
        con_mode: u32,
        addr: EntityAddr,
        request: LoginRequest,
        fresh: GlobalId,
        out: &mut Vec<Output>,
    ) {
        let mut session = Session::new(request.name.clone(), addr, con_mode);
        if request.global_id != GlobalId(0) && request.name.kind == EntityType::Client {
            // It comes back, from before a loss of the session or of this monitor: what it was to be told is forgotten.
            session.osd_fresh = Some((self.state.osds.newest(), now.mono + MAP_FRESH_FOR));
        }
        if method == METHOD_NONE {
            let granted = login_none(request, fresh);
            return self.logged_in(conn, session, granted, Bytes::new(), out);
        }
        let entropy = &mut self.entropy;
        let (auth, challenge) = AuthSession::start(request, fresh, &mut |b: &mut [u8]| entropy.fill(b));
        session.auth = Some(auth);
        self.sessions.insert(conn, session);
        out.push(Output::AuthMore { conn, payload: challenge });
    }

    /// Whether this is the monitors' own entity (`mon.`), or a monitor's name (`mon.a`) with the monitors'
    /// key.
    pub(crate) fn is_monitors(&self, name: &AuthName) -> bool {
        let key = || self.state.auth.get(name).map(|e| &e.key);
        let has_key = || key().is_some_and(|key| Some(key) == self.state.mon_key());
        name.kind == EntityType::Mon && (name.id.is_empty() || has_key())
    }

    /// The authentication method that a peer will try after `method` was refused.
    fn method_offered(&self, method: u32) -> u32 {
        let allowed = &self.settings.auth_methods;
        if allowed.contains(&method) { method } else { allowed.first().copied().unwrap_or(method) }
    }

    /// The connection modes that a peer of this type may use, the preferred one first. Source:
    /// AuthRegistry::get_supported_modes.
    fn modes_with(&self, peer: EntityType, method: u32) -> Vec<u32> {
        let option = mode_option(EntityType::Mon, peer);
        let text = self.settings.option(&self.state, option);
        modes_allowed(text.as_deref().unwrap_or(usual_modes(option)), method)
    }

    /// Tickets given out from now on live as long as the options say.
    fn refresh_ticket_ttl(&mut self) {
        let usual = TicketTtl::default();
        let life = |name, usual: Duration| {
            let secs = self.settings.number(&self.state, name);
            Duration::try_from_secs_f64(secs).unwrap_or(usual).max(Duration::from_secs(1))
        };
        let ttl = TicketTtl {
            auth: life("auth_mon_ticket_ttl", usual.auth),
            service: life("auth_service_ticket_ttl", usual.service),
        };
        if self.state.auth.ttl != ttl {
            Arc::make_mut(&mut self.state.auth).ttl = ttl;
        }
    }

    pub(crate) fn auth_more(&mut self, now: Now, conn: ConnId, payload: &Bytes, out: &mut Vec<Output>) {
        let Some(mut session) = self.sessions.remove(&conn).filter(|s| s.stage == Stage::Challenged) else {
            return out.push(Output::Close { conn });
        };
        self.refresh_ticket_ttl();
        let secret_len = if session.con_mode == CON_MODE_SECURE { CONNECTION_SECRET_LEN } else { 0 };
        let Some(auth) = session.auth.as_mut() else { return out.push(Output::Close { conn }) };
        if auth.needs_id() {
            // The id is used up only if this proof succeeds; a failed one leaves it to the next login.
            let Some(id) = self.global_ids.clone().next() else {
                self.sessions.insert(conn, session);
                return self.park_login(conn, Input::AuthMore { conn, payload: payload.clone() }, out);
            };
            auth.offer_id(GlobalId(id));
        }
        let entropy = &mut self.entropy;
        let mut fill = |b: &mut [u8]| entropy.fill(b);
        match auth.handle_request(&self.state.auth, payload, Some(secret_len), now.wall, &mut fill) {
            Ok(reply) => match reply.granted {
                Some(granted) => {
                    if self.global_ids.start == granted.global_id.0 {
                        self.take_global_id();
                    }
                    self.logged_in(conn, session, granted, reply.payload, out);
                }
                None => {
                    self.sessions.insert(conn, session);
                    out.push(Output::AuthMore { conn, payload: reply.payload });
                }
            },
            Err(e) => out.push(self.refusal(conn, EntityType::Client, METHOD_CEPHX, e.errno())),
        }
    }

    fn logged_in(
        &mut self,
        conn: ConnId,
        mut session: Session,
        granted: Granted,
        payload: Bytes,
        out: &mut Vec<Output>,
    ) {
        let Ok(caps) = MonCap::from_info(&granted.caps) else {
            return out.push(self.refusal(conn, EntityType::Client, METHOD_CEPHX, Errno::EACCES));
        };
        session.caps = caps;
        session.key =
            self.state.auth.get(&granted.name).filter(|_| session.auth.is_some()).map(|e| e.key.clone());
        session.global_id = granted.global_id;
        session.peer = EntityName::new(granted.name.kind, i64::try_from(granted.global_id.0).unwrap_or(0));
        session.name = granted.name.clone();
        session.stage = Stage::Authenticated;
        let con_mode = session.con_mode;
        self.sessions.insert(conn, session);
        out.push(Output::AuthDone {
            conn,
            name: granted.name,
            global_id: granted.global_id,
            con_mode,
            payload,
            session_key: granted.session_key.secret().into(),
            connection_secret: granted.connection_secret.into(),
        });
    }

    /// A MAuth message of an open session: more tickets, or a daemon's rotating secrets.
    pub(crate) fn auth_renewal(
        &mut self,
        now: Now,
        conn: ConnId,
        tid: u64,
        m: &MAuth,
        out: &mut Vec<Output>,
    ) {
        self.refresh_ticket_ttl();
        let Some(session) = self.sessions.get_mut(&conn) else { return };
        let Some(auth) = session.auth.as_mut() else {
            // With method none there is nothing to renew.
            let reply = MAuthReply { protocol: m.protocol, ..MAuthReply::default() };
            return out.push(Output::Send { conn, tid, msg: reply.into() });
        };
        let entropy = &mut self.entropy;
        let mut fill = |b: &mut [u8]| entropy.fill(b);
        let mut reply = MAuthReply { protocol: METHOD_CEPHX, ..MAuthReply::default() };
        match auth.handle_request(&self.state.auth, &m.payload, None, now.wall, &mut fill) {
            Ok(done) => {
                reply.payload = done.payload;
                reply.global_id = session.global_id.0;
                if let Some(caps) = done.granted.and_then(|g| MonCap::from_info(&g.caps).ok()) {
                    session.caps = caps;
                }
            }
            Err(e) => reply.result = e.errno().neg(),
        }
        out.push(Output::Send { conn, tid, msg: reply.into() });
    }

    /// Sends new tickets to every session that holds a ticket which its service no longer opens. Call it
    /// before maps are published: a client that hears of another manager must have a ticket for it already.
    pub(crate) fn send_all_changed_tickets(&mut self, now: Now, out: &mut Vec<Output>) {
        let open: Vec<ConnId> =
            self.sessions.iter().filter(|(_, s)| s.stage == Stage::Open).map(|(conn, _)| *conn).collect();
        for conn in open {
            self.send_changed_tickets(now, conn, out);
        }
    }

    /// Sends one session new tickets, if it needs them. A login that was under way while the ticket forms
    /// changed may.
    pub(crate) fn send_changed_tickets(&mut self, now: Now, conn: ConnId, out: &mut Vec<Output>) {
        self.refresh_ticket_ttl();
        let Some(session) = self.sessions.get_mut(&conn) else { return };
        let Some(auth) = session.auth.as_mut() else { return };
        let entropy = &mut self.entropy;
        let mut fill = |b: &mut [u8]| entropy.fill(b);
        let Some(payload) = auth.changed_tickets(&self.state.auth, now.wall, &mut fill) else { return };
        let global_id = session.global_id.0;
        let reply = MAuthReply { protocol: METHOD_CEPHX, payload, global_id, ..MAuthReply::default() };
        out.push(Output::Send { conn, tid: 0, msg: reply.into() });
    }

    /// Makes open sessions follow the key database: they get their entity's present capabilities, and a
    /// session is closed if its entity was removed, has another key, or has no capability at the monitors.
    /// `of`: sessions of this entity alone; `None`: of all.
    pub(crate) fn renew_sessions(&mut self, of: Option<&AuthName>, out: &mut Vec<Output>) {
        for (conn, session) in &mut self.sessions {
            let Some(key) = session.key.clone().filter(|_| of.is_none_or(|name| *name == session.name))
            else {
                continue;
            };
            let info = self.state.auth.caps(&session.name, EntityType::Mon);
            let text = info.text().unwrap_or_default();
            let same = self.state.auth.get(&session.name).is_some_and(|e| e.key.secret() == key.secret());
            if same && text == session.caps.text() {
                continue;
            }
            match MonCap::from_info(&info) {
                Ok(caps) if same && !text.is_empty() => session.caps = caps,
                _ => {
                    session.caps = MonCap::default();
                    session.key = None;
                    session.auth = None;
                    out.push(Output::Close { conn: *conn });
                }
            }
        }
    }

    fn refusal(&self, conn: ConnId, peer: EntityType, method: u32, errno: Errno) -> Output {
        let refusal = AuthRefusal {
            method,
            errno,
            allowed_methods: self.settings.auth_methods.clone(),
            allowed_modes: self.modes_with(peer, self.method_offered(method)),
            why: None,
        };
        Output::AuthBad { conn, refusal }
    }

    /// Says why, once for each host, when the peer is a monitor of Ceph's.
    fn explain_to_monitor(&mut self, peer: EntityType, addr: EntityAddr, refused: Output) -> Output {
        let Output::AuthBad { conn, mut refusal } = refused else { return refused };
        let host = addr.socket.map(|s| s.ip()).filter(|_| peer == EntityType::Mon);
        let known = &mut self.mons_of_ceph;
        if host.is_some_and(|ip| known.len() < MONS_OF_CEPH_LIMIT && known.insert(ip)) {
            refusal.why = Some(format!("a monitor of Ceph's at {addr}: it forms no quorum with Loligo's"));
        }
        Output::AuthBad { conn, refusal }
    }

    fn take_global_id(&mut self) -> Option<GlobalId> {
        self.global_ids.next().map(GlobalId)
    }

    fn park_login(&mut self, conn: ConnId, login: Input, out: &mut Vec<Output>) {
        if self.parked_logins.len() >= PARKED_LIMIT {
            return out.push(Output::Close { conn });
        }
        self.parked_logins.push_back(login);
    }

    fn ids_run_out(&self) -> bool {
        self.global_ids.end - self.global_ids.start < GLOBAL_IDS_AT_ONCE / 2
    }

    /// Reserves ids before they run out, so that logins do not wait.
    pub(crate) fn reserve_global_ids(&mut self, batch: &mut Batch) {
        if self.ids_run_out() {
            self.ids_wanted.insert(self.origin.clone());
        }
        for origin in std::mem::take(&mut self.ids_wanted) {
            batch.change(Change::GlobalIds(origin, GLOBAL_IDS_AT_ONCE));
        }
    }

    /// The same for a member that does not lead.
    pub(crate) fn ask_for_ids(&mut self, now: Now, out: &mut Vec<Output>) {
        if !self.ids_run_out() || self.ids_asked.is_some_and(|at| at + IDS_RETRY > now.mono) {
            return;
        }
        self.ids_asked = Some(now.mono);
        out.push(Output::WantIds { origin: self.origin.clone() });
    }

    /// A reservation, before it is applied.
    pub(crate) fn note_ids(&mut self, change: &Change) {
        if let Change::GlobalIds(origin, count) = change {
            if *origin == self.origin {
                let from = self.state.global_id_bound;
                self.global_ids = from..from + count;
            }
        }
    }

    pub(crate) fn resume_logins(&mut self, now: Now, out: &mut Vec<Output>) {
        for login in std::mem::take(&mut self.parked_logins) {
            match login {
                Input::AuthMore { conn, payload } => self.auth_more(now, conn, &payload, out),
                login => self.auth_request(now, login, out),
            }
        }
    }
}
