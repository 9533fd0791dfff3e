//! Passes a messenger's calls on to its daemon while that exists, and keeps the daemon's panics from the
//! messenger.

use std::sync::{Arc, Weak};

use messages::wire::WireMessage;
use msgr::Policy;
use runtime::contained;
use runtime::net::{AuthInput, AuthStep, Gone, Handler, PeerReady};
use types::{ConnId, EntityAddr, EntityType};

/// A daemon's shell, which hears of panics in the daemon's code.
pub(crate) trait Domain: Handler {
    /// The daemon's code has panicked; `how` says where and why. The daemon has to end.
    fn panicked(&self, how: String);
}

/// Calls into a daemon. `None` when the daemon is gone, or when the call has panicked, so that the daemon
/// ends.
pub(crate) fn within<D: Domain, T>(daemon: &Weak<D>, call: impl FnOnce(&D) -> T) -> Option<T> {
    let daemon = daemon.upgrade()?;
    contained(|| call(&daemon)).map_err(|how| daemon.panicked(how)).ok()
}

/// What an `Owner` of a daemon's machine calls when the machine panics.
pub(crate) fn panics_of<D: Domain>(daemon: &Arc<D>) -> impl Fn(String) + Send + Sync + 'static {
    let daemon = Arc::downgrade(daemon);
    move |how| {
        if let Some(daemon) = daemon.upgrade() {
            daemon.panicked(how);
        }
    }
}

/// The messenger's handler. It holds its daemon weakly, because the daemon holds the messenger: in a circle
/// neither would be dropped, and the daemon's device would stay open.
pub(crate) struct Ear<D>(pub Weak<D>);

impl<D: Domain> Handler for Ear<D> {
    fn authenticate(&self, conn: ConnId, peer: u8, addr: EntityAddr, input: AuthInput) -> AuthStep {
        // No answer is needed when the daemon is gone: its connections are being closed.
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
