//! A client that misuses tickets: recorded proofs sent again, altered tickets, tickets for another service.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cephx::{AuthClient, Authorizer, Keyring, METHOD_CEPHX};
use messages::wire::WireMessage;
use msgr::{ConMode, Limits, Local, Peer, Policy};
use runtime::net::{
    AuthInput, AuthStep, ClientAuth, ConnectTo, Established, Gone, Handler, Messenger, PeerReady,
};
use runtime::{Clock, OsEntropy};
use types::{
    AddrKind, AddrVec, AuthName, ConnId, EntityAddr, EntityName, EntityType, Entropy, Errno, GlobalId, Now,
};

use crate::cluster::Cluster;

/// How a connection attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Ready,
    Gone(Gone),
}

struct Ends(Mutex<Sender<(ConnId, End)>>);

impl Ends {
    fn tell(&self, conn: ConnId, end: End) {
        let _ = self.0.lock().expect("not poisoned").send((conn, end));
    }
}

impl Handler for Ends {
    fn authenticate(&self, _: ConnId, _: u8, _: EntityAddr, _: AuthInput) -> AuthStep {
        AuthStep::Bad { errno: Errno::EOPNOTSUPP.0, methods: vec![], modes: vec![] }
    }
    fn accept_policy(&self, _: types::EntityType) -> Policy {
        Policy::stateless_server()
    }
    fn ready(&self, conn: ConnId, _: PeerReady) {
        self.tell(conn, End::Ready);
    }
    fn messages(&self, _: ConnId, batch: &mut Vec<WireMessage>) {
        batch.clear();
    }
    fn gone(&self, conn: ConnId, why: Gone) {
        self.tell(conn, End::Gone(why));
    }
}

fn fill(out: &mut [u8]) {
    OsEntropy.fill(out);
}

/// An honest login, whose tickets stay in `client`.
struct Login(Arc<Mutex<AuthClient>>);

impl ClientAuth for Login {
    fn request(&mut self, _: Now) -> Result<(u32, Vec<ConMode>, Bytes), String> {
        Ok((METHOD_CEPHX, vec![ConMode::Crc], self.0.lock().expect("lock").start_login()))
    }
    fn more(&mut self, now: Now, payload: Bytes) -> Result<Bytes, String> {
        let mut client = self.0.lock().expect("lock");
        client.handle_challenge(&payload, now.wall, &mut fill).map_err(|e| e.to_string())
    }
    fn done(&mut self, now: Now, id: u64, _: ConMode, payload: Bytes) -> Result<Established, String> {
        let mut client = self.0.lock().expect("lock");
        let shared = client.handle_done(GlobalId(id), &payload, now.wall).map_err(|e| e.to_string())?;
        Ok(Established { session_key: shared.session_key.secret().to_vec(), ..Established::default() })
    }
}

/// What is presented to a service: an authorizer, with a byte of both its messages flipped, or a recording.
#[derive(Clone)]
enum Proof {
    Honest { authorizer: Authorizer, flip: Option<usize> },
    Recorded { request: Bytes, answer: Bytes },
}

/// The request and the answer to the challenge, as they went out.
type Recording = Arc<Mutex<(Bytes, Bytes)>>;

struct Present {
    proof: Proof,
    sent: Recording,
}

fn flipped(bytes: Bytes, at: Option<usize>) -> Bytes {
    let mut bytes = bytes.to_vec();
    if let Some(at) = at {
        bytes[at] ^= 0x10;
    }
    bytes.into()
}

impl ClientAuth for Present {
    fn request(&mut self, _: Now) -> Result<(u32, Vec<ConMode>, Bytes), String> {
        let payload = match &self.proof {
            Proof::Honest { authorizer, flip } => flipped(authorizer.payload(), *flip),
            Proof::Recorded { request, .. } => request.clone(),
        };
        self.sent.lock().expect("lock").0 = payload.clone();
        Ok((METHOD_CEPHX, vec![ConMode::Crc], payload))
    }
    fn more(&mut self, _: Now, payload: Bytes) -> Result<Bytes, String> {
        let answer = match &mut self.proof {
            Proof::Honest { authorizer, flip } => {
                flipped(authorizer.add_challenge(&payload).map_err(|e| e.to_string())?, *flip)
            }
            Proof::Recorded { answer, .. } => answer.clone(),
        };
        self.sent.lock().expect("lock").1 = answer.clone();
        Ok(answer)
    }
    fn done(&mut self, _: Now, _: u64, _: ConMode, payload: Bytes) -> Result<Established, String> {
        // A thief has no session key: whoever gets here at all was let in.
        let Proof::Honest { authorizer, .. } = &self.proof else { return Ok(Established::default()) };
        let shared = authorizer.verify_reply(&payload).map_err(|e| e.to_string())?;
        Ok(Established { session_key: shared.session_key.secret().to_vec(), ..Established::default() })
    }
}

struct Attacker {
    messenger: Messenger,
    clock: Clock,
    ends: Receiver<(ConnId, End)>,
    client: Arc<Mutex<AuthClient>>,
}

impl Attacker {
    /// Logs in as client.admin.
    fn new(c: &Cluster) -> Self {
        let text = std::fs::read_to_string(c.data().join("keyring")).expect("keyring");
        let name = AuthName::parse("client.admin").expect("a name");
        let keyring = Keyring::parse(&text).expect("a keyring");
        let key = keyring.get(&name).expect("its key").key.clone();
        let want = [EntityType::Mon, EntityType::Osd, EntityType::Mgr];
        let client = Arc::new(Mutex::new(AuthClient::new(name, key, &want)));
        let (tx, ends) = channel();
        let local = Local { name: EntityName::client(-1), addrs: AddrVec::default() };
        let clock = Clock::start();
        let messenger = Messenger::new(local, Limits::default(), clock);
        messenger.set_handler(Arc::new(Ends(Mutex::new(tx))));
        let this = Self { messenger, clock, ends, client };
        let auth = Arc::clone(&this.client);
        let mon = EntityAddr::v2(c.mon_addr(), 0);
        let end = this.attempt(EntityType::Mon, mon, Arc::new(move || Box::new(Login(Arc::clone(&auth)))));
        assert_eq!(end, End::Ready, "the honest login");
        this
    }

    fn attempt(
        &self,
        kind: EntityType,
        addr: EntityAddr,
        auth: Arc<dyn Fn() -> Box<dyn ClientAuth> + Send + Sync>,
    ) -> End {
        let peer = Peer { name: EntityName::new(kind, 0), addrs: AddrVec::single(addr) };
        let policy = Policy::lossy_client();
        let conn = self.messenger.connect(ConnectTo { peer, addr, policy, auth, from: None });
        loop {
            let (of, end) = self.ends.recv_timeout(Duration::from_secs(20)).expect("the attempt ends");
            if of == conn {
                self.messenger.close(conn);
                return end;
            }
        }
    }

    fn authorizer(&self, service: EntityType) -> Authorizer {
        let client = self.client.lock().expect("lock");
        client.authorizer(service, self.clock.now().wall, &mut fill).expect("a ticket")
    }

    fn present(&self, to: (EntityType, EntityAddr), proof: Proof) -> (End, Recording) {
        let sent = Recording::default();
        let record = Arc::clone(&sent);
        let factory = move || -> Box<dyn ClientAuth> {
            Box::new(Present { proof: proof.clone(), sent: Arc::clone(&record) })
        };
        (self.attempt(to.0, to.1, Arc::new(factory)), sent)
    }
}

/// Address with nonce of the first daemon that a dump names after `marker`.
fn addr_after(dump: &str, marker: &str) -> EntityAddr {
    let rest = dump.split(marker).nth(1).expect("the marker");
    let start = rest.find("127.0.0.1:").expect("an address");
    let text = rest[start..].split([',', ']', '"', ' ', '\n']).next().expect("its end");
    EntityAddr::parse(&format!("v2:{text}"), AddrKind::Msgr2).expect("an address with its nonce")
}

#[test]
fn an_expired_ticket_is_refused() {
    let c = Cluster::start(&[]);
    c.ceph("config set mon auth_service_ticket_ttl 3");
    let osd = (EntityType::Osd, addr_after(&c.ceph("osd dump"), "osd.0 "));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(1).build();
    let runtime = runtime.expect("a runtime");
    let _inside = runtime.enter();
    let a = Attacker::new(&c);
    let authorizer = a.authorizer(EntityType::Osd);
    let proof = || Proof::Honest { authorizer: authorizer.clone(), flip: None };
    assert_eq!(a.present(osd, proof()).0, End::Ready, "while it is valid");
    let start = Instant::now();
    while a.present(osd, proof()).0 == End::Ready {
        assert!(start.elapsed() < Duration::from_secs(10), "a ticket of 3 s is still good");
        std::thread::sleep(Duration::from_millis(100));
    }
    // An honest client renews its ticket, or logs in anew.
    c.pool("p", 8);
    c.ok("rados", &["-p", "p", "put", "x", "/etc/hostname"]);
    c.ok("rados", &["-p", "p", "bench", "8", "write", "-b", "4096", "-t", "4"]);
    a.messenger.shut_down();
}

#[test]
fn misused_tickets_are_refused() {
    let c = Cluster::start(&[]);
    c.managed();
    let osd = (EntityType::Osd, addr_after(&c.ceph("osd dump"), "osd.0 "));
    let mgr = (EntityType::Mgr, addr_after(&c.ceph("mgr dump"), "\"active_addr\""));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(1).build();
    let runtime = runtime.expect("a runtime");
    let _inside = runtime.enter();
    let a = Attacker::new(&c);
    let honest = |service| Proof::Honest { authorizer: a.authorizer(service), flip: None };

    for to in [osd, mgr] {
        let (end, sent) = a.present(to, honest(to.0));
        assert_eq!(end, End::Ready, "an honest authorizer opens the session");
        let (request, answer) = sent.lock().expect("lock").clone();
        assert!(!request.is_empty() && !answer.is_empty(), "the service asked for an answer to a challenge");

        // CVE-2018-1128, CVE-2020-25660: what was recorded on one connection opens no other.
        let replay = Proof::Recorded { request: request.clone(), answer: answer.clone() };
        assert!(matches!(a.present(to, replay).0, End::Gone(_)), "a replayed authorizer");
        // The answer without the question.
        let early = Proof::Recorded { request: answer.clone(), answer: answer.clone() };
        assert!(matches!(a.present(to, early).0, End::Gone(_)), "an answer before the challenge");

        // CVE-2025-30156: no bit of what names the holder, the service and the ticket may change.
        let fixed = request.iter().zip(answer.iter()).take_while(|(x, y)| x == y).count();
        assert!(fixed > 100, "{fixed} bytes of ticket");
        for at in (0..fixed).step_by(3) {
            let altered = Proof::Honest { authorizer: a.authorizer(to.0), flip: Some(at) };
            assert!(matches!(a.present(to, altered).0, End::Gone(_)), "byte {at} of {fixed} altered");
        }
    }
    assert!(
        matches!(a.present(osd, honest(EntityType::Mgr)).0, End::Gone(_)),
        "a manager's ticket at an OSD"
    );
    assert!(
        matches!(a.present(mgr, honest(EntityType::Osd)).0, End::Gone(_)),
        "an OSD's ticket at the manager"
    );
    assert_eq!(a.present(osd, honest(EntityType::Osd)).0, End::Ready, "and the honest one works still");
    a.messenger.shut_down();
    c.still_healthy();
}
