//! Authentication that a daemon's connections share: logins to the monitor, authorizers both ways.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use cephx::{
    AuthClient, AuthError, Authorizer, AuthorizerAcceptor, CONNECTION_SECRET_LEN, CryptoKey, METHOD_CEPHX,
    METHOD_NONE, MODE_OPTIONS, Renewed, Secret, ServiceSecrets, SharedSecrets, TicketForm, TicketTtl,
    Verdict, accept_none, mode_option, modes_allowed, none_authorizer, none_login_request, usual_modes,
};
use messages::auth::{MAuth, MAuthReply};
use msgr::ConMode;
use types::{AuthName, ConnId, EntityType, Entropy, Errno, GlobalId, Now, printable};

use crate::OsEntropy;
use crate::net::{AuthInput, AuthStep, ClientAuth, Established, Identity};

/// How a cluster authenticates: one setting for what are three options of Ceph's (auth_cluster_required,
/// auth_service_required, auth_client_required).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Cephx,
    None,
}

impl Method {
    pub fn number(self) -> u32 {
        match self {
            Self::Cephx => METHOD_CEPHX,
            Self::None => METHOD_NONE,
        }
    }
}

/// One process's identity towards the cluster.
pub struct SharedAuth {
    method: Method,
    name: AuthName,
    state: Mutex<State>,
}

struct State {
    client: AuthClient,
    /// The global id with method none, where there are no tickets.
    none_id: GlobalId,
    secrets: ServiceSecrets,
    /// The options `ms_*_mode` that this process was started with.
    own_modes: BTreeMap<String, String>,
    /// Those that the monitors gave it; its own win.
    monitors_modes: BTreeMap<String, String>,
    /// Why a monitor turned the last login away.
    refusal: Option<Errno>,
    /// Accepted connections whose peers have been sent a challenge.
    pending: BTreeMap<ConnId, (AuthorizerAcceptor, ConMode)>,
    /// Tickets in Ceph's form that were refused for it since that was last asked, and of whom the log has
    /// been told.
    old_tickets: u64,
    told: BTreeSet<AuthName>,
}

/// Of so many names the log is told.
const MAX_TOLD: usize = 64;

impl State {
    /// Tells the log why a peer was refused: of tickets in Ceph's form once for each name.
    fn refused(&mut self, why: &AuthError) {
        let AuthError::OldForm(name) = why else { return tracing::info!("refused a connection: {why}") };
        self.old_tickets += 1;
        if self.told.len() < MAX_TOLD && self.told.insert(name.clone()) {
            let why = why.to_string();
            tracing::warn!("refused a connection: {}; further ones are counted", printable(&why));
        }
    }
}

impl SharedAuth {
    /// `service`: the type of daemon that peers find here when they connect.
    pub fn new(method: Method, name: AuthName, key: CryptoKey, service: EntityType) -> Arc<Self> {
        let want = [EntityType::Mon, EntityType::Osd, EntityType::Mgr, EntityType::Mds];
        let client = AuthClient::new(name.clone(), key, &want);
        let secrets = ServiceSecrets::new(service);
        let state = State {
            client,
            none_id: GlobalId(0),
            secrets,
            own_modes: BTreeMap::new(),
            monitors_modes: BTreeMap::new(),
            refusal: None,
            pending: BTreeMap::new(),
            old_tickets: 0,
            told: BTreeSet::new(),
        };
        Arc::new(Self { method, name, state: Mutex::new(state) })
    }

    pub fn name(&self) -> &AuthName {
        &self.name
    }

    /// Takes the options `ms_*_mode` out of `options`; they win over those of the monitors.
    #[must_use]
    pub fn with_options(self: Arc<Self>, options: &BTreeMap<String, String>) -> Arc<Self> {
        self.state().own_modes = mode_options(options);
        self
    }

    /// From now on connecting peers bring tickets of this form, and no other form is opened.
    pub fn take_tickets_of(&self, form: TicketForm) {
        self.state().secrets.form = form;
    }

    /// Takes the options `ms_*_mode` out of the configuration that the monitors have for this process.
    pub fn options_from_mon(&self, options: &BTreeMap<String, String>) {
        self.state().monitors_modes = mode_options(options);
    }

    /// The modes for connections with a `peer` of this type, the preferred one first. For a login, `peer` is
    /// a monitor.
    fn modes(&self, state: &State, peer: EntityType) -> Vec<ConMode> {
        let option = mode_option(self.name.kind, peer);
        let given = state.own_modes.get(option).or_else(|| state.monitors_modes.get(option));
        let text = given.map_or(usual_modes(option), String::as_str);
        modes_allowed(text, self.method.number()).into_iter().filter_map(ConMode::from_u32).collect()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn global_id(&self) -> GlobalId {
        let state = self.state();
        match self.method {
            Method::Cephx => state.client.global_id(),
            Method::None => state.none_id,
        }
    }

    /// How many tickets were refused for their form, since this was last asked: they have Ceph's, and only
    /// sealed ones are taken.
    pub fn take_old_tickets(&self) -> u64 {
        std::mem::take(&mut self.state().old_tickets)
    }

    /// Why a monitor turned the last login away, since this was last asked.
    pub fn take_refusal(&self) -> Option<Errno> {
        self.state().refusal.take()
    }

    /// The client's half of a login to a monitor.
    pub fn login(self: &Arc<Self>) -> Box<dyn ClientAuth> {
        Box::new(Login { shared: Arc::clone(self) })
    }

    /// The client's half of a connection to an OSD or manager.
    pub fn to_service(self: &Arc<Self>, service: EntityType) -> Box<dyn ClientAuth> {
        Box::new(ToService { shared: Arc::clone(self), service, given: None, authorizer: None })
    }

    /// The same with an authorizer that was made elsewhere: monitors make their own tickets.
    pub fn to_service_with(
        self: &Arc<Self>,
        service: EntityType,
        authorizer: Authorizer,
    ) -> Box<dyn ClientAuth> {
        let shared = Arc::clone(self);
        Box::new(ToService { shared, service, given: Some(authorizer), authorizer: None })
    }

    /// Requests to send to the monitor now: for tickets that run out, and for daemons also for their own
    /// service secrets.
    pub fn requests(&self, now: Now, daemon: bool) -> Vec<MAuth> {
        if self.method == Method::None {
            return Vec::new();
        }
        let mut state = self.state();
        let mut out = Vec::new();
        if daemon && state.secrets.need_new(now.wall, TicketTtl::default().service) {
            out.push(state.client.rotating_request());
        }
        match state.client.renewal_request(now.wall, &mut fill) {
            Ok(request) => out.extend(request),
            Err(error) => tracing::warn!("cannot renew tickets: {error}"),
        }
        out.into_iter().map(|payload| MAuth { protocol: METHOD_CEPHX, payload, ..MAuth::default() }).collect()
    }

    pub fn reply(&self, reply: &MAuthReply, now: Now) {
        let mut state = self.state();
        match state.client.handle_reply(reply.result, &reply.payload, now.wall) {
            Ok(Renewed::Rotating(rotating)) => state.secrets.rotating = rotating,
            Ok(Renewed::Tickets) => {}
            Err(error) => tracing::warn!("the monitor's answer about tickets: {error}"),
        }
    }

    /// Judges a peer that connects here with an authorizer.
    pub fn judge(&self, conn: ConnId, peer: EntityType, input: AuthInput, now: Now) -> AuthStep {
        let allowed = self.modes(&self.state(), peer);
        let refuse = |errno: Errno| AuthStep::Bad {
            errno: errno.0,
            methods: vec![self.method.number()],
            modes: allowed.clone(),
        };
        let (payload, mut acceptor, mode) = match input {
            AuthInput::Request { method, preferred_modes, payload } => {
                let preferred = preferred_modes.iter().filter_map(|m| ConMode::from_u32(*m));
                let mode = preferred.into_iter().find(|m| allowed.contains(m));
                let (true, Some(mode)) = (method == self.method.number(), mode) else {
                    return refuse(Errno::EOPNOTSUPP);
                };
                if self.method == Method::None {
                    return take_none(&payload, mode).unwrap_or_else(refuse);
                }
                (payload, AuthorizerAcceptor::new(), mode)
            }
            AuthInput::More { payload } => match self.state().pending.remove(&conn) {
                Some((acceptor, mode)) => (payload, acceptor, mode),
                None => return refuse(Errno::EACCES),
            },
        };
        let mut state = self.state();
        let secret_len = if mode == ConMode::Secure { CONNECTION_SECRET_LEN } else { 0 };
        match acceptor.verify(&state.secrets, &payload, secret_len, now.wall, &mut fill) {
            Verdict::NeedChallenge(bytes) => {
                state.pending.insert(conn, (acceptor, mode));
                AuthStep::More(bytes)
            }
            Verdict::Accepted(peer) => AuthStep::Done {
                identity: Identity { name: peer.name, global_id: peer.global_id, caps: peer.caps },
                mode,
                payload: peer.reply,
                session_key: peer.session_key.secret().into(),
                connection_secret: peer.connection_secret.into(),
            },
            Verdict::Refused(why) => {
                state.refused(&why);
                refuse(why.errno())
            }
        }
    }

    /// Call when a monitor has refused a login: the next login then does not claim the old global id, which
    /// the monitors may no longer accept.
    pub fn login_failed(&self) {
        self.state().client.forget_tickets();
    }

    /// Forgets a connection that ended in the middle of its authentication.
    pub fn forget(&self, conn: ConnId) {
        self.state().pending.remove(&conn);
    }
}

/// Accepts a peer without authentication, under the name that it states.
fn take_none(payload: &Bytes, mode: ConMode) -> Result<AuthStep, Errno> {
    let peer = accept_none(payload).map_err(|why| why.errno())?;
    Ok(AuthStep::Done {
        identity: Identity { name: peer.name, global_id: peer.global_id, caps: peer.caps },
        mode,
        payload: peer.reply,
        session_key: Secret::default(),
        connection_secret: Secret::default(),
    })
}

fn mode_options(options: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let known = |name: &String| MODE_OPTIONS.iter().any(|(known, _)| known == name);
    options.iter().filter(|(name, _)| known(name)).map(|(name, text)| (name.clone(), text.clone())).collect()
}

fn fill(out: &mut [u8]) {
    OsEntropy.fill(out);
}

struct Login {
    shared: Arc<SharedAuth>,
}

impl ClientAuth for Login {
    fn request(&mut self, _now: Now) -> Result<(u32, Vec<ConMode>, Bytes), String> {
        let shared = &self.shared;
        let mut state = shared.state();
        let modes = shared.modes(&state, EntityType::Mon);
        Ok(match shared.method {
            Method::Cephx => (METHOD_CEPHX, modes, state.client.start_login()),
            Method::None => (METHOD_NONE, modes, none_login_request(&shared.name, state.none_id)),
        })
    }

    fn more(&mut self, now: Now, payload: Bytes) -> Result<Bytes, String> {
        let mut state = self.shared.state();
        state.client.handle_challenge(&payload, now.wall, &mut fill).map_err(|e| e.to_string())
    }

    fn refused(&mut self, errno: Errno) {
        self.shared.state().refusal = Some(errno);
    }

    fn done(
        &mut self,
        now: Now,
        global_id: u64,
        mode: ConMode,
        payload: Bytes,
    ) -> Result<Established, String> {
        let mut state = self.shared.state();
        let our_num = (self.shared.name.kind == EntityType::Client).then_some(global_id as i64);
        if self.shared.method == Method::None {
            state.none_id = GlobalId(global_id);
            return Ok(Established { our_num, ..Established::default() });
        }
        let shared =
            state.client.handle_done(GlobalId(global_id), &payload, now.wall).map_err(|e| e.to_string())?;
        established(&shared, mode, our_num)
    }
}

struct ToService {
    shared: Arc<SharedAuth>,
    service: EntityType,
    /// Used instead of one that is made from a ticket held.
    given: Option<Authorizer>,
    authorizer: Option<Authorizer>,
}

impl ClientAuth for ToService {
    fn request(&mut self, now: Now) -> Result<(u32, Vec<ConMode>, Bytes), String> {
        let state = self.shared.state();
        let modes = self.shared.modes(&state, self.service);
        if self.shared.method == Method::None {
            let payload = none_authorizer(&self.shared.name, state.none_id);
            return Ok((METHOD_NONE, modes, payload));
        }
        let authorizer = match &self.given {
            Some(given) => given.clone(),
            None => state.client.authorizer(self.service, now.wall, &mut fill).map_err(|e| e.to_string())?,
        };
        let payload = authorizer.payload();
        self.authorizer = Some(authorizer);
        Ok((METHOD_CEPHX, modes, payload))
    }

    fn more(&mut self, _now: Now, payload: Bytes) -> Result<Bytes, String> {
        let authorizer = self.authorizer.as_mut().ok_or("a challenge without an authorizer")?;
        authorizer.add_challenge(&payload).map_err(|e| e.to_string())
    }

    fn done(&mut self, _: Now, _: u64, mode: ConMode, payload: Bytes) -> Result<Established, String> {
        let Some(authorizer) = &self.authorizer else { return Ok(Established::default()) };
        let shared = authorizer.verify_reply(&payload).map_err(|e| e.to_string())?;
        established(&shared, mode, None)
    }
}

fn established(shared: &SharedSecrets, mode: ConMode, our_num: Option<i64>) -> Result<Established, String> {
    if mode == ConMode::Secure && shared.connection_secret.len() != CONNECTION_SECRET_LEN {
        return Err("the peer gave no connection secret for secure mode".to_owned());
    }
    Ok(Established {
        session_key: shared.session_key.secret().to_vec(),
        connection_secret: shared.connection_secret.to_vec(),
        our_num,
    })
}

#[cfg(test)]
mod tests {
    use cephx::{AuthTicket, FIXED_SECRET_ID, TicketInfo, seal_ticket};
    use codec::{Encode, Writer};
    use types::Utime;

    use super::*;

    fn osd(method: Method, options: &[(&str, &str)]) -> Arc<SharedAuth> {
        let options = options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let name = AuthName::new(EntityType::Osd, "0");
        SharedAuth::new(method, name, CryptoKey::EMPTY, EntityType::Osd).with_options(&options)
    }

    /// The modes that the refusal of these names; `None`: they were not the reason, if it was refused.
    fn refused(auth: &SharedAuth, peer: EntityType, preferred: &[ConMode]) -> Option<Vec<ConMode>> {
        let payload = none_authorizer(&AuthName::new(EntityType::Client, "a"), GlobalId(5));
        let preferred_modes = preferred.iter().map(|m| *m as u32).collect();
        let input = AuthInput::Request { method: auth.method.number(), preferred_modes, payload };
        let now = Now { mono: std::time::Duration::ZERO, wall: Utime::ZERO };
        match auth.judge(ConnId(1), peer, input, now) {
            AuthStep::Bad { errno, modes, .. } if errno == Errno::EOPNOTSUPP.0 => Some(modes),
            _ => None,
        }
    }

    #[test]
    fn secure_means_that_crc_is_refused() {
        use ConMode::{Crc, Secure};
        let auth = osd(Method::Cephx, &[("ms_service_mode", "secure")]);
        assert_eq!(refused(&auth, EntityType::Client, &[Crc]), Some(vec![Secure]));
        assert_eq!(refused(&auth, EntityType::Client, &[Crc, Secure]), None);
        assert_eq!(refused(&auth, EntityType::Osd, &[Crc]), None, "another option's");
        // The monitors may say so too, and the file wins.
        let given = [("ms_cluster_mode", "secure"), ("ms_service_mode", "crc")];
        auth.options_from_mon(&given.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect());
        assert_eq!(refused(&auth, EntityType::Osd, &[Crc]), Some(vec![Secure]));
        assert_eq!(refused(&auth, EntityType::Client, &[Crc]), Some(vec![Secure]));
        // What it asks for itself.
        let (_, modes, _) = auth
            .login()
            .request(Now { mono: std::time::Duration::ZERO, wall: Utime::ZERO })
            .expect("a login");
        assert_eq!(modes, [Secure, Crc]);
    }

    #[test]
    fn tickets_in_the_form_that_is_not_taken_are_counted() {
        let auth = osd(Method::Cephx, &[]);
        let key = CryptoKey::new([7; 16], Utime::ZERO);
        auth.state().secrets.fixed = Some(key.clone());
        let offer = |form: TicketForm, name: &str, key: &CryptoKey| {
            let name = AuthName::new(EntityType::Client, name);
            let ticket = AuthTicket { name, ..AuthTicket::default() };
            let info = TicketInfo { ticket, session_key: key.clone() };
            let sealed = seal_ticket(form, EntityType::Osd, FIXED_SECRET_ID, key, &info, &mut fill);
            let mut w = Writer::new();
            w.u8(1);
            GlobalId(5).encode(&mut w);
            w.u32(EntityType::Osd as u32);
            sealed.expect("a ticket").encode(&mut w);
            let (method, preferred_modes) = (METHOD_CEPHX, vec![ConMode::Crc as u32]);
            let input = AuthInput::Request { method, preferred_modes, payload: w.into_bytes() };
            let now = Now { mono: std::time::Duration::ZERO, wall: Utime::ZERO };
            let step = auth.judge(ConnId(1), EntityType::Client, input, now);
            assert!(matches!(step, AuthStep::Bad { .. }));
        };
        for name in ["a", "a", "b"] {
            offer(TicketForm::Ceph, name, &key);
        }
        assert_eq!((auth.take_old_tickets(), auth.take_old_tickets(), auth.state().told.len()), (3, 0, 2));
        offer(TicketForm::Sealed, "a", &key);
        offer(TicketForm::Ceph, "a", &CryptoKey::new([8; 16], Utime::ZERO));
        assert_eq!(auth.take_old_tickets(), 0, "what is refused for other reasons");
        (0..80).for_each(|n| offer(TicketForm::Ceph, &n.to_string(), &key));
        assert_eq!((auth.take_old_tickets(), auth.state().told.len()), (80, MAX_TOLD));
    }

    #[test]
    fn without_a_key_only_crc_is_offered() {
        let auth = osd(Method::None, &[]);
        assert_eq!(refused(&auth, EntityType::Client, &[ConMode::Secure]), Some(vec![ConMode::Crc]));
        assert_eq!(refused(&auth, EntityType::Client, &[ConMode::Secure, ConMode::Crc]), None);
    }
}
