//! A daemon's session with the monitors: kept up for ever, with tickets and service secrets renewed over it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use codec::Decode;
use maps::MonMap;
use messages::Message;
use messages::mon::{MMonSubscribe, SubscribeItem};
use msgr::{Peer, Policy};
use types::{AddrVec, ConnId, EntityAddr, EntityName, EntityType, Epoch, Errno, Fsid};

use super::auth::SharedAuth;
use crate::net::{ConnectTo, Messenger};

/// Between attempts to reach a monitor.
const RETRY: Duration = Duration::from_millis(200);

/// How long one monitor may take to let this process in. Source: mon_client_hunt_interval.
const HUNT: Duration = Duration::from_secs(3);

/// A monitor that says nothing is asked for a sign of life after so long, and left after the second time.
/// Shorter than mon_client_ping_interval and mon_client_ping_timeout, which are 10 s and 30 s: an OSD without
/// a monitor misses maps.
const ASK_AFTER: Duration = Duration::from_secs(2);
const SILENT_LIMIT: Duration = Duration::from_secs(6);

/// The monitors as they were last told.
struct Known {
    /// The cluster and the epoch of the map that names them; `None`: the configuration does.
    map: Option<(Fsid, Epoch)>,
    at: Vec<EntityAddr>,
}

/// Knows the monitors' addresses and the one connection that is tried or used now.
pub struct MonSession {
    auth: Arc<SharedAuth>,
    messenger: Messenger,
    monitors: Mutex<Known>,
    next: AtomicUsize,
    /// Attempts that failed since a session stood.
    failures: AtomicUsize,
    conn: Mutex<Option<ConnId>>,
    ready: AtomicBool,
    /// How many logins in a row were refused, while this process was never let in.
    refusals: AtomicUsize,
    refused_for_good: Mutex<Option<Errno>>,
    ever_ready: AtomicBool,
    /// Daemons also need the secrets that tickets for them are sealed with.
    daemon: bool,
    /// The core may call from a thread of the device, which is outside of the runtime.
    runtime: tokio::runtime::Handle,
}

impl MonSession {
    pub fn new(
        auth: Arc<SharedAuth>,
        messenger: Messenger,
        monitors: Vec<EntityAddr>,
        daemon: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            auth,
            messenger,
            monitors: Mutex::new(Known { map: None, at: monitors }),
            next: AtomicUsize::new(0),
            failures: AtomicUsize::new(0),
            conn: Mutex::new(None),
            ready: AtomicBool::new(false),
            refusals: AtomicUsize::new(0),
            refused_for_good: Mutex::new(None),
            ever_ready: AtomicBool::new(false),
            daemon,
            runtime: tokio::runtime::Handle::current(),
        })
    }

    /// Connects to the next monitor.
    pub fn connect(self: &Arc<Self>) {
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        let addr = {
            let known = self.monitors.lock().unwrap_or_else(PoisonError::into_inner);
            let monitors = &known.at;
            let Some(addr) = monitors.get(at % monitors.len().max(1)).copied() else { return };
            addr
        };
        let peer = Peer { name: EntityName::new(EntityType::Mon, at as i64), addrs: AddrVec::single(addr) };
        let auth = Arc::clone(&self.auth);
        let factory = Arc::new(move || auth.login());
        let mut conn = self.conn();
        let policy = Policy::lossy_client();
        let id = self.messenger.connect(ConnectTo { peer, addr, policy, auth: factory, from: None });
        *conn = Some(id);
        drop(conn);
        let this = Arc::clone(self);
        self.runtime.spawn(async move {
            tokio::time::sleep(HUNT).await;
            this.hunt_on(id);
        });
    }

    /// How many monitors are known.
    fn count(&self) -> usize {
        self.monitors.lock().unwrap_or_else(PoisonError::into_inner).at.len()
    }

    /// Leaves a monitor that has not answered in time. Without a quorum a monitor lets no peer in and does
    /// not say so; another one may be in a quorum.
    fn hunt_on(self: &Arc<Self>, tried: ConnId) {
        if self.is(tried) && !self.is_ready() && self.count() > 1 && !self.messenger.is_down() {
            self.messenger.give_up(tried, "the monitor has not let this process in");
        }
    }

    /// The monitors that there are now; later attempts go to these. A map that is older than the last one
    /// comes from a monitor that lags, and says nothing. One of another cluster, which may listen at an
    /// address of this one's, is not followed.
    pub fn follow(&self, map: &MonMap) {
        let monitors: Vec<EntityAddr> = map.ranked().filter_map(|m| m.addrs.msgr2()).collect();
        let mut known = self.monitors.lock().unwrap_or_else(PoisonError::into_inner);
        let follows = known.map.is_none_or(|(fsid, epoch)| map.fsid == fsid && map.epoch >= epoch);
        if !monitors.is_empty() && follows {
            *known = Known { map: Some((map.fsid, map.epoch)), at: monitors };
        }
    }

    /// The monitors that are known now, for a session that follows this one.
    pub fn monitors(&self) -> Vec<EntityAddr> {
        self.monitors.lock().unwrap_or_else(PoisonError::into_inner).at.clone()
    }

    fn conn(&self) -> std::sync::MutexGuard<'_, Option<ConnId>> {
        self.conn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is(&self, conn: ConnId) -> bool {
        *self.conn() == Some(conn)
    }

    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Every monitor refused a process that was never let in: its key is wrong, or gone.
    pub fn refused(&self) -> Option<Errno> {
        *self.refused_for_good.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count_refusal(&self) {
        if !self.daemon || self.ever_ready.load(Ordering::Relaxed) {
            return;
        }
        match self.auth.take_refusal().filter(|e| matches!(*e, Errno::EACCES | Errno::EPERM)) {
            None => self.refusals.store(0, Ordering::Relaxed),
            Some(errno) => {
                if self.refusals.fetch_add(1, Ordering::Relaxed) + 1 >= self.count() {
                    *self.refused_for_good.lock().unwrap_or_else(PoisonError::into_inner) = Some(errno);
                }
            }
        }
    }

    /// The session stands: asks for what is missing.
    pub fn on_ready(self: &Arc<Self>) {
        self.ready.store(true, Ordering::Release);
        self.ever_ready.store(true, Ordering::Relaxed);
        if self.daemon {
            // Without it a daemon finds none of the monitors that came after its configuration was written.
            let what = [("monmap".to_owned(), SubscribeItem { start: 0, flags: 0 })];
            self.send(MMonSubscribe { what: what.into(), ..MMonSubscribe::default() }.into());
        }
        self.tick();
    }

    /// The connection ended: another one follows.
    pub fn on_gone(self: &Arc<Self>) {
        if self.ready.swap(false, Ordering::AcqRel) {
            self.failures.store(0, Ordering::Relaxed);
        } else {
            self.count_refusal();
            if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= self.count() {
                // As many attempts failed as there are monitors, so it is not that one or two are down.
                // Perhaps none accepts the global id that these tickets are for.
                self.auth.login_failed();
            }
        }
        *self.conn() = None;
        let this = Arc::clone(self);
        self.runtime.spawn(async move {
            tokio::time::sleep(RETRY).await;
            this.connect();
        });
    }

    /// Takes what concerns the session itself; gives back what is for the daemon.
    pub fn on_message(&self, msg: Message) -> Option<Message> {
        match msg {
            Message::AuthReply(reply) => {
                self.auth.reply(&reply, self.messenger.now());
                None
            }
            Message::Config(config) => {
                self.auth.options_from_mon(&config.options);
                Some(Message::Config(config))
            }
            Message::MonMap(told) if self.daemon => {
                match MonMap::from_bytes(told.map) {
                    Ok(map) => self.follow(&map),
                    Err(error) => tracing::warn!("the monitor map does not decode: {error}"),
                }
                None
            }
            other => Some(other),
        }
    }

    /// Renews what runs out, and leaves a monitor that has fallen silent. Call about once a second.
    pub fn tick(self: &Arc<Self>) {
        if self.is_ready() {
            self.watch();
            for request in self.auth.requests(self.messenger.now(), self.daemon) {
                self.send(request.into());
            }
        }
    }

    /// A host that is cut off says nothing, and TCP would wait for it for a quarter of an hour.
    fn watch(self: &Arc<Self>) {
        let Some(conn) = *self.conn() else { return };
        let silent = self.messenger.silent(conn).unwrap_or_default();
        if silent >= SILENT_LIMIT {
            tracing::info!("the monitor has been silent for {} s: trying another one", silent.as_secs());
            self.messenger.give_up(conn, "the monitor is silent");
        } else if silent >= ASK_AFTER {
            self.messenger.ask_for_life(conn);
        }
    }

    /// Dropped while there is no session.
    pub fn send(&self, msg: Message) {
        self.send_as(msg, 0);
    }

    pub fn send_as(&self, msg: Message, tid: u64) {
        let conn = *self.conn();
        if let Some(conn) = conn {
            if self.is_ready() {
                self.messenger.send(conn, msg.into_wire(tid));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cephx::CryptoKey;
    use codec::Encode;
    use messages::mon::MMonMap;
    use msgr::{Limits, Local};
    use types::{AuthName, Utime};

    use super::*;
    use crate::Clock;
    use crate::session::Method;

    fn at(port: u16) -> EntityAddr {
        EntityAddr::v2(([127, 0, 0, 1], port).into(), 0)
    }

    fn told(epoch: u32, ports: &[u16]) -> Message {
        told_by(Fsid::default(), epoch, ports)
    }

    fn told_by(fsid: Fsid, epoch: u32, ports: &[u16]) -> Message {
        let mons = ports.iter().map(|port| (format!("m{port}"), AddrVec::single(at(*port))));
        let mut map = MonMap::new(fsid, Utime::ZERO, mons);
        map.epoch = Epoch(epoch);
        Message::MonMap(MMonMap { map: map.to_bytes() })
    }

    #[tokio::test]
    async fn a_daemon_follows_the_newest_map_of_monitors() {
        let name = AuthName::new(EntityType::Osd, "0");
        let key = CryptoKey::new([1; 16], Utime::ZERO);
        let auth = SharedAuth::new(Method::Cephx, name, key, EntityType::Osd);
        let local = Local { name: EntityName::osd(0), addrs: AddrVec::default() };
        let messenger = Messenger::new(local, Limits::default(), Clock::start());
        let session = MonSession::new(Arc::clone(&auth), messenger.clone(), vec![at(1)], true);
        assert!(session.on_message(told(7, &[2, 3])).is_none());
        assert_eq!(session.monitors(), [at(2), at(3)]);
        session.on_message(told(6, &[1]));
        session.on_message(told(8, &[]));
        session.on_message(told_by(Fsid([7; 16]), 9, &[1]));
        session.on_message(Message::MonMap(MMonMap { map: bytes::Bytes::from_static(b"no map") }));
        assert_eq!(session.monitors(), [at(2), at(3)]);
        session.on_message(told(8, &[4]));
        assert_eq!(session.monitors(), [at(4)]);
        let client = MonSession::new(auth, messenger, vec![at(1)], false);
        assert!(client.on_message(told(7, &[2])).is_some(), "a client's core takes it");
    }
}
