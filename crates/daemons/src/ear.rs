//! What a messenger tells a daemon, as long as there is one, without letting a panic of the daemon get any further.

use std::sync::{Arc, Weak};

use messages::wire::WireMessage;
use msgr::Policy;
use runtime::contained;
use runtime::net::{AuthInput, AuthStep, Gone, Handler, PeerReady};
use types::{ConnId, EntityAddr, EntityType};

/// A daemon's shell, for what may panic on its behalf.
pub(crate) trait Domain: Handler {
    /// The daemon ends, for it panicked in this way.
    fn panicked(&self, how: String);
}

/// Calls into a daemon; `None` when it is gone, or ends because of this call.
pub(crate) fn within<D: Domain, T>(daemon: &Weak<D>, call: impl FnOnce(&D) -> T) -> Option<T> {
    let daemon = daemon.upgrade()?;
    contained(|| call(&daemon)).map_err(|how| daemon.panicked(how)).ok()
}

/// What the owner of a daemon's machine does when that panics.
pub(crate) fn panics_of<D: Domain>(daemon: &Arc<D>) -> impl Fn(String) + Send + Sync + 'static {
    let daemon = Arc::downgrade(daemon);
    move |how| {
        if let Some(daemon) = daemon.upgrade() {
            daemon.panicked(how);
        }
    }
}

/// A messenger that kept its daemon would keep itself, and the daemon's device.
pub(crate) struct Ear<D>(pub Weak<D>);

impl<D: Domain> Handler for Ear<D> {
    fn authenticate(&self, conn: ConnId, peer: u8, addr: EntityAddr, input: AuthInput) -> AuthStep {
        // Connections of a daemon that is gone are being closed.
        within(&self.0, |d| d.authenticate(conn, peer, addr, input)).unwrap_or(AuthStep::Pending)
    }

    fn accept_policy(&self, kind: EntityType) -> Policy {
        within(&self.0, |d| d.accept_policy(kind)).unwrap_or_else(Policy::stateless_server)
    }

    fn ready(&self, conn: ConnId, peer: PeerReady) {
        within(&self.0, |d| d.ready(conn, peer));
    }

    fn is_gated(&self, kind: EntityType) -> bool {
        within(&self.0, |d| d.is_gated(kind)).unwrap_or_default()
    }

    fn messages(&self, conn: ConnId, batch: &mut Vec<WireMessage>) {
        within(&self.0, |d| d.messages(conn, batch));
        batch.clear();
    }

    fn reset(&self, conn: ConnId) {
        within(&self.0, |d| d.reset(conn));
    }

    fn gone(&self, conn: ConnId, why: Gone) {
        within(&self.0, |d| d.gone(conn, why));
    }
}
