//! A second core on a cluster's connections: the client of a file system, which has its own sessions with
//! metadata servers, hears of maps from the same monitor, and has its objects read and written here.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use messages::Message;
use msgr::{Peer, Policy};
use objecter::{OpReply, OpRequest, Outcome, Request};
use runtime::net::ConnectTo;
use types::{AddrVec, ConnId, EntityName, EntityType, Epoch, Errno, Now};

use crate::cluster::Cluster;
use crate::shell::{Shared, Waiter};

/// What a companion hears. Nothing here may wait.
pub trait Companion: Send + Sync {
    /// The session with a monitor stands, perhaps with another one than before.
    fn mon_ready(&self);
    /// A map of file systems or of metadata servers.
    fn mon_message(&self, msg: Message);
    /// The newest OSD map.
    fn osd_map(&self, epoch: Epoch);
    /// The peer has forgotten a connection that the companion opened. After a mere cut it is opened again,
    /// and what was sent is sent again.
    fn reset(&self, conn: ConnId);
    fn message(&self, conn: ConnId, tid: u64, msg: Message);
}

/// Who the companion is, and which connections are its own.
#[derive(Default)]
pub(crate) struct Beside {
    companion: RwLock<Option<Weak<dyn Companion>>>,
    conns: Mutex<HashSet<ConnId>>,
}

impl Beside {
    pub(crate) fn get(&self) -> Option<Arc<dyn Companion>> {
        self.companion.read().unwrap_or_else(PoisonError::into_inner).as_ref()?.upgrade()
    }

    /// The companion, if the connection is one of its own.
    pub(crate) fn owner_of(&self, conn: ConnId) -> Option<Arc<dyn Companion>> {
        let companion = self.get()?;
        crate::shell::lock(&self.conns).contains(&conn).then_some(companion)
    }

    fn add(&self, open: impl FnOnce() -> ConnId) -> ConnId {
        // Held meanwhile, so that nothing of the connection is heard before it is known.
        let mut conns = crate::shell::lock(&self.conns);
        let conn = open();
        conns.insert(conn);
        conn
    }

    pub(crate) fn remove(&self, conn: ConnId) {
        crate::shell::lock(&self.conns).remove(&conn);
    }
}

impl Shared {
    pub(crate) fn tell_osd_map(&self, epoch: Epoch) {
        if let Some(companion) = self.beside.get() {
            companion.osd_map(epoch);
        }
    }
}

impl Cluster {
    /// Makes this the companion, in place of any other; it is told at once what is there already.
    pub fn set_companion(&self, companion: &Arc<dyn Companion>) {
        let beside = &self.shared().beside;
        *beside.companion.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::downgrade(companion));
        companion.osd_map(self.map().epoch);
        if self.shared().session.is_ready() {
            companion.mon_ready();
        }
    }

    /// The clocks of the connections.
    pub fn now(&self) -> Now {
        self.shared().messenger.now()
    }

    /// Opens a connection of the companion, which is resumed after a cut.
    pub fn companion_connect(&self, kind: EntityType, num: i64, addrs: AddrVec) -> ConnId {
        let shared = self.shared();
        let addr = addrs.msgr2().unwrap_or_default();
        let auth = Arc::clone(&shared.auth);
        let factory = Arc::new(move || auth.to_service(kind));
        let peer = Peer { name: EntityName::new(kind, num), addrs };
        let policy = Policy::lossless_client();
        let to = ConnectTo { peer, addr, policy, auth: factory, from: None };
        shared.beside.add(|| shared.messenger.connect(to))
    }

    /// Sends on a connection of the companion.
    pub fn companion_send(&self, conn: ConnId, tid: u64, msg: Message) {
        self.shared().messenger.queue(conn, msg.into_wire(tid));
        self.shared().messenger.flush(conn);
    }

    /// Ends a connection of the companion, which does not hear of it.
    pub fn companion_close(&self, conn: ConnId) {
        self.shared().beside.remove(conn);
        self.shared().messenger.close(conn);
    }

    /// Sends to the monitor; dropped while there is none.
    pub fn companion_send_mon(&self, msg: Message) {
        self.shared().session.send(msg);
    }

    /// An operation on an object; `done` hears how it ended, and must not wait.
    pub fn companion_submit(
        &self,
        request: OpRequest,
        done: impl FnOnce(Result<OpReply, Errno>) + Send + 'static,
    ) {
        let told = move |outcome| {
            done(match outcome {
                Outcome::Op(reply) => Ok(reply),
                Outcome::Failed(errno) => Err(errno),
                _ => Err(Errno::EIO),
            });
        };
        let waiter = Waiter::Call(Box::new(told));
        self.shared().submit_for(Request::Op(Box::new(request)), waiter);
    }

    /// Has the cluster's client get an OSD map of this epoch at least.
    pub fn companion_need_map(&self, epoch: Epoch) {
        self.shared().submit_for(Request::WaitMap(epoch), Waiter::Nobody);
    }
}
