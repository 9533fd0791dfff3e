//! Authentication that a daemon's connections share: logins to the monitor, authorizers both ways.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use cephx::{
    AuthClient, Authorizer, AuthorizerAcceptor, CONNECTION_SECRET_LEN, CryptoKey, METHOD_CEPHX, METHOD_NONE,
    Renewed, ServiceSecrets, SharedSecrets, TicketTtl, Verdict, accept_none, none_authorizer,
    none_login_request,
};
use messages::auth::{MAuth, MAuthReply};
use msgr::ConMode;
use types::{AuthName, ConnId, EntityType, Entropy, Errno, GlobalId, Now};

use crate::OsEntropy;
use crate::net::{AuthInput, AuthStep, ClientAuth, Established, Identity};

/// How a cluster authenticates. Source: auth_cluster_required and its like; we use one setting for all three.
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
    /// Why a monitor turned the last login away.
    refusal: Option<Errno>,
    /// Connections that are in the middle of proving themselves to us.
    pending: BTreeMap<ConnId, (AuthorizerAcceptor, ConMode)>,
}

impl SharedAuth {
    /// `service` is what we are for those who connect to us.
    pub fn new(method: Method, name: AuthName, key: CryptoKey, service: EntityType) -> Arc<Self> {
        let want = [EntityType::Mon, EntityType::Osd, EntityType::Mgr, EntityType::Mds];
        let client = AuthClient::new(name.clone(), key, &want);
        let secrets = ServiceSecrets::new(service);
        let state = State { client, none_id: GlobalId(0), secrets, refusal: None, pending: BTreeMap::new() };
        Arc::new(Self { method, name, state: Mutex::new(state) })
    }

    pub fn name(&self) -> &AuthName {
        &self.name
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
        Box::new(ToService { shared: Arc::clone(self), service, authorizer: None })
    }

    /// What to ask the monitor for now: tickets that run out, our own service secrets (daemons).
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

    /// Whether connections from others can be judged: their tickets are sealed with secrets we must have.
    pub fn can_accept(&self, now: Now) -> bool {
        self.method == Method::None || !self.state().secrets.need_new(now.wall, TicketTtl::default().service)
    }

    pub fn reply(&self, reply: &MAuthReply, now: Now) {
        let mut state = self.state();
        match state.client.handle_reply(reply.result, &reply.payload, now.wall) {
            Ok(Renewed::Rotating(rotating)) => state.secrets.rotating = rotating,
            Ok(Renewed::Tickets) => {}
            Err(error) => tracing::warn!("the monitor's answer about tickets: {error}"),
        }
    }

    /// Judges a peer that connects to us with an authorizer.
    pub fn judge(&self, conn: ConnId, input: AuthInput, now: Now) -> AuthStep {
        let (payload, mut acceptor, mode) = match input {
            AuthInput::Request { method, preferred_modes, payload } => {
                let mode = preferred_modes.iter().find_map(|m| ConMode::from_u32(*m));
                let (true, Some(mode)) = (method == self.method.number(), mode) else {
                    return self.refuse(Errno::EOPNOTSUPP);
                };
                if self.method == Method::None {
                    return self.take_none(&payload, mode);
                }
                (payload, AuthorizerAcceptor::new(), mode)
            }
            AuthInput::More { payload } => match self.state().pending.remove(&conn) {
                Some((acceptor, mode)) => (payload, acceptor, mode),
                None => return self.refuse(Errno::EACCES),
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
                session_key: peer.session_key.secret().to_vec(),
                connection_secret: peer.connection_secret.to_vec(),
            },
            Verdict::Refused(why) => {
                tracing::info!("refused a connection: {why}");
                drop(state);
                self.refuse(why.errno())
            }
        }
    }

    /// The monitor did not take a login: the next one does not claim the old global id, which it may not know any more.
    pub fn login_failed(&self) {
        self.state().client.forget_tickets();
    }

    /// Forgets what a connection left behind that never finished.
    pub fn forget(&self, conn: ConnId) {
        self.state().pending.remove(&conn);
    }

    fn take_none(&self, payload: &Bytes, mode: ConMode) -> AuthStep {
        match accept_none(payload) {
            // Without a shared key there is nothing to encrypt with.
            Ok(_) if mode == ConMode::Secure => self.refuse(Errno::EOPNOTSUPP),
            Ok(peer) => AuthStep::Done {
                identity: Identity { name: peer.name, global_id: peer.global_id, caps: peer.caps },
                mode,
                payload: peer.reply,
                session_key: Vec::new(),
                connection_secret: Vec::new(),
            },
            Err(why) => self.refuse(why.errno()),
        }
    }

    fn refuse(&self, errno: Errno) -> AuthStep {
        AuthStep::Bad {
            errno: errno.0,
            methods: vec![self.method.number()],
            modes: vec![ConMode::Crc, ConMode::Secure],
        }
    }
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
        Ok(match shared.method {
            // Logins carry secrets of services: prefer encryption. Source: ms_mon_client_mode.
            Method::Cephx => (METHOD_CEPHX, vec![ConMode::Secure, ConMode::Crc], state.client.start_login()),
            Method::None => {
                (METHOD_NONE, vec![ConMode::Crc], none_login_request(&shared.name, state.none_id))
            }
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
    authorizer: Option<Authorizer>,
}

impl ClientAuth for ToService {
    fn request(&mut self, now: Now) -> Result<(u32, Vec<ConMode>, Bytes), String> {
        let state = self.shared.state();
        if self.shared.method == Method::None {
            let payload = none_authorizer(&self.shared.name, state.none_id);
            return Ok((METHOD_NONE, vec![ConMode::Crc], payload));
        }
        let authorizer =
            state.client.authorizer(self.service, now.wall, &mut fill).map_err(|e| e.to_string())?;
        let payload = authorizer.payload();
        self.authorizer = Some(authorizer);
        Ok((METHOD_CEPHX, vec![ConMode::Crc, ConMode::Secure], payload))
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
