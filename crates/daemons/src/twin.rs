//! Whether another process lives at the address that the map has for this very OSD.
//!
//! A copy of an OSD's disk knows the same key and the same UUID, so the monitors cannot tell it from the OSD
//! that came back at another address: each would push the other out of the map again and again.

use std::sync::Arc;
use std::time::Duration;

use messages::wire::WireMessage;
use msgr::{Limits, Local, Peer, Policy};
use runtime::Clock;
use runtime::net::{AuthInput, AuthStep, ConnectTo, Gone, Handler, Messenger, PeerReady};
use runtime::session::SharedAuth;
use tokio::sync::watch;
use types::{AddrVec, ConnId, EntityAddr, EntityName, EntityType, Errno, OsdId};

/// Whether another process serves this OSD, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Twin {
    Unknown,
    /// This address was asked, and has not answered yet.
    Asked(AddrVec),
    /// Nobody answered there.
    Gone(AddrVec),
}

/// A process that is alive answers at once; a host that is gone must not hold up the one that takes its
/// place.
const LIMIT: Duration = Duration::from_secs(2);

/// Tries to open a session to `at`; true when a process with exactly that address, nonce included, takes it.
pub(crate) async fn lives(osd: OsdId, at: &AddrVec, auth: Arc<SharedAuth>) -> bool {
    let Some(addr) = at.msgr2() else { return false };
    let local = Local { name: EntityName::osd(osd.0), addrs: AddrVec::default() };
    let messenger = Messenger::new(local, Limits::default(), Clock::start());
    let (told, mut heard) = watch::channel(None);
    messenger.set_handler(Arc::new(Probe { told }));
    let peer = Peer { name: EntityName::osd(osd.0), addrs: at.clone() };
    let factory = Arc::new(move || auth.to_service(EntityType::Osd));
    messenger.connect(ConnectTo { peer, addr, policy: Policy::lossy_client(), auth: factory, from: None });
    let answer = tokio::time::timeout(LIMIT, heard.wait_for(Option::is_some)).await;
    let lives = matches!(answer, Ok(Ok(taken)) if *taken == Some(true));
    messenger.shut_down();
    lives
}

struct Probe {
    told: watch::Sender<Option<bool>>,
}

impl Handler for Probe {
    fn authenticate(&self, _: ConnId, _: u8, _: EntityAddr, _: AuthInput) -> AuthStep {
        AuthStep::Bad { errno: Errno::EOPNOTSUPP.0, methods: vec![], modes: vec![] }
    }

    fn accept_policy(&self, _: types::EntityType) -> Policy {
        Policy::stateless_server()
    }

    fn ready(&self, _: ConnId, _: PeerReady) {
        self.told.send_replace(Some(true));
    }

    fn messages(&self, _: ConnId, batch: &mut Vec<WireMessage>) {
        batch.clear();
    }

    fn gone(&self, _: ConnId, _: Gone) {
        self.told.send_if_modified(|known| known.is_none() && known.replace(false).is_none());
    }
}
