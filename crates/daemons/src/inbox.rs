//! The inbox of a monitor or a manager: `monitor::Turns` between its connections and its core. What `Turns`
//! decides of connections is done here.

use std::sync::Arc;

use messages::wire::WireMessage;
use monitor::{Arrival, Rest, Turns};
use runtime::Clock;
use runtime::net::Messenger;
use types::{AuthName, ConnId};

/// Bytes that a message counts for beside its payload.
const MESSAGE_BYTES: u64 = 512;

/// Bytes that a message counts for in the messenger's gate and in its sender's share.
pub(crate) fn cost(wire: &WireMessage) -> u64 {
    wire.payload_len() as u64 + MESSAGE_BYTES
}

/// See the module's documentation.
pub(crate) struct Inbox<T> {
    turns: Turns<T>,
    messenger: Messenger,
    clock: Clock,
    /// Lets the core look at this inbox again.
    wake: Arc<dyn Fn() + Send + Sync>,
    is_woken: bool,
}

impl<T> Inbox<T> {
    pub(crate) fn new(messenger: Messenger, clock: Clock, wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { turns: Turns::default(), messenger, clock, wake: Arc::new(wake), is_woken: false }
    }

    /// A turn begins.
    pub(crate) fn begin(&mut self) {
        self.turns.begin(self.clock.now().mono);
    }

    /// The core looks at the inbox, as `wake` asked it to.
    pub(crate) fn woken(&mut self) {
        self.is_woken = false;
    }

    pub(crate) fn arrive(&mut self, name: &AuthName, conn: ConnId, bytes: u64, item: T) -> Arrival<T> {
        self.messenger.gate().taken(bytes);
        let blocked = self.messenger.has_much_unread(conn);
        self.turns.arrive(self.clock.now().mono, (name, conn), blocked, bytes, item)
    }

    /// The next message of this turn.
    pub(crate) fn next(&mut self) -> Option<(ConnId, T)> {
        let messenger = &self.messenger;
        self.turns.next(self.clock.now().mono, |conn| messenger.has_much_unread(conn))
    }

    /// A connection is over.
    pub(crate) fn forget(&mut self, conn: ConnId) {
        self.turns.forget(conn);
    }

    /// A turn ends. What waits goes on when the next one is due.
    pub(crate) fn end(&mut self) {
        for told in self.turns.take_holds() {
            self.messenger.hold(told.conn, told.hold);
        }
        let rest = self.turns.end(self.clock.now().mono);
        if rest == Rest::Idle || std::mem::replace(&mut self.is_woken, true) {
            return;
        }
        let wake = Arc::clone(&self.wake);
        self.messenger.runtime().spawn(async move {
            match rest {
                Rest::Pause(time) => tokio::time::sleep(time).await,
                Rest::Idle | Rest::Yield => tokio::task::yield_now().await,
            }
            wake();
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use msgr::{Limits, Local};
    use types::{AddrVec, EntityName};

    use super::*;

    #[tokio::test]
    async fn what_waits_goes_on_in_another_turn() {
        let clock = Clock::start();
        let local = Local { name: EntityName::mon(0), addrs: AddrVec::default() };
        let messenger = Messenger::new(local, Limits::default(), clock);
        let woken = Arc::new(tokio::sync::Notify::new());
        let wake = Arc::clone(&woken);
        let mut inbox = Inbox::new(messenger.clone(), clock, move || wake.notify_one());
        let flood = AuthName::parse("client.flood").expect("a name");
        inbox.begin();
        let limit = Instant::now() + Duration::from_secs(60);
        let mut nr = 0;
        let came = loop {
            messenger.gate().came(600);
            nr += 1;
            if inbox.arrive(&flood, ConnId(1), 600, nr) == Arrival::Waits {
                break nr;
            }
            assert!(Instant::now() < limit, "the core would be at it for ever");
        };
        assert_eq!(inbox.next(), None);
        inbox.end();
        inbox.end();
        woken.notified().await;
        inbox.woken();
        let found = loop {
            // A thread that lost the processor finds its turn over.
            inbox.begin();
            if let Some(found) = inbox.next() {
                break found;
            }
            assert!(Instant::now() < limit, "it has no turn");
        };
        assert_eq!(found, (ConnId(1), came));
        inbox.end();
        assert!(!inbox.is_woken, "nothing waits");
    }
}
