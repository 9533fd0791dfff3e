//! Messages on their way to the core of a monitor or a manager: how much of them is read, and whose turn it
//! is.
//!
//! While few messages come, each is handled at once. When the core has been at messages for [`TURN`], the
//! rest waits in `monitor::Turns`, and the core looks at its other inputs (messages of the quorum, ends of
//! connections) before the next turn. A peer that does not read its answers gets no turn until it does.

use std::sync::Arc;
use std::time::Duration;

use messages::wire::WireMessage;
use monitor::Turns;
use runtime::Clock;
use runtime::net::Messenger;
use types::{AuthName, ConnId};

/// How long the core is at messages before it looks at other inputs.
const TURN: Duration = Duration::from_millis(5);
/// How long messages wait when all their senders have answers to read first.
const LEISURE: Duration = Duration::from_millis(20);
/// Bytes that a message counts for beside its payload.
const MESSAGE_BYTES: u64 = 512;

/// Bytes that a message counts for in the messenger's gate and in its sender's share.
pub(crate) fn cost(wire: &WireMessage) -> u64 {
    wire.payload_len() as u64 + MESSAGE_BYTES
}

/// What became of a message that came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival<T> {
    /// Its turn is now: the caller handles it.
    Now(T),
    /// It waits for its turn.
    Waits,
    /// Too much of its sender waits, so it was dropped: the caller closes its connection.
    TooMuch,
}

/// See the module's documentation.
pub(crate) struct Inbox<T> {
    turns: Turns<T>,
    messenger: Messenger,
    clock: Clock,
    began: Duration,
    /// Lets the core look at this inbox again.
    wake: Arc<dyn Fn() + Send + Sync>,
    is_woken: bool,
}

impl<T> Inbox<T> {
    pub(crate) fn new(messenger: Messenger, clock: Clock, wake: impl Fn() + Send + Sync + 'static) -> Self {
        let (turns, began) = (Turns::default(), clock.now().mono);
        Self { turns, messenger, clock, began, wake: Arc::new(wake), is_woken: false }
    }

    /// A turn begins.
    pub(crate) fn begin(&mut self) {
        self.began = self.clock.now().mono;
    }

    /// The core looks at the inbox, as `wake` asked it to.
    pub(crate) fn woken(&mut self) {
        self.is_woken = false;
    }

    fn is_turn_over(&self) -> bool {
        self.clock.now().mono.saturating_sub(self.began) >= TURN
    }

    pub(crate) fn arrive(&mut self, name: &AuthName, conn: ConnId, bytes: u64, item: T) -> Arrival<T> {
        self.messenger.gate().taken(bytes);
        if self.turns.is_empty() && !self.is_turn_over() && !self.messenger.has_much_unread(conn) {
            return Arrival::Now(item);
        }
        if self.turns.push(name, conn, bytes, item) { Arrival::Waits } else { Arrival::TooMuch }
    }

    /// The next message of this turn.
    pub(crate) fn next(&mut self) -> Option<(ConnId, T)> {
        if self.turns.is_empty() || self.is_turn_over() {
            return None;
        }
        let messenger = &self.messenger;
        self.turns.next(|conn| messenger.has_much_unread(conn))
    }

    /// A connection is over.
    pub(crate) fn forget(&mut self, conn: ConnId) {
        self.turns.forget(conn);
    }

    /// A turn ends. What waits goes on after other tasks had theirs, which read the other connections.
    pub(crate) fn end(&mut self) {
        for told in self.turns.take_holds() {
            self.messenger.hold(told.conn, told.hold);
        }
        if self.turns.is_empty() || std::mem::replace(&mut self.is_woken, true) {
            return;
        }
        // The turn has time left, so whatever waits is from peers that have answers to read first.
        let at_leisure = !self.is_turn_over();
        let wake = Arc::clone(&self.wake);
        self.messenger.runtime().spawn(async move {
            match at_leisure {
                true => tokio::time::sleep(LEISURE).await,
                false => tokio::task::yield_now().await,
            }
            wake();
        });
    }
}

#[cfg(test)]
mod tests {
    use msgr::{Limits, Local};
    use types::{AddrVec, EntityName};

    use super::*;

    #[tokio::test]
    async fn a_flood_waits_and_the_end_of_a_connection_does_not() {
        let clock = Clock::start();
        let local = Local { name: EntityName::mon(0), addrs: AddrVec::default() };
        let messenger = Messenger::new(local, Limits::default(), clock);
        let woken = Arc::new(tokio::sync::Notify::new());
        let wake = Arc::clone(&woken);
        let mut inbox = Inbox::new(messenger.clone(), clock, move || wake.notify_one());
        let named = |text: &str| AuthName::parse(text).expect("a name");
        let (flood, osd) = (named("client.flood"), named("osd.0"));
        inbox.begin();
        messenger.gate().came(600);
        assert_eq!(inbox.arrive(&flood, ConnId(1), 600, 0), Arrival::Now(0), "while there is time");
        // The core is at it until its turn is over.
        let mut nr = 1;
        let mut arrive = |inbox: &mut Inbox<u64>, conn: u64| {
            nr += 1;
            messenger.gate().came(600);
            inbox.arrive(&flood, ConnId(conn), 600, nr)
        };
        while arrive(&mut inbox, 1) != Arrival::Waits {}
        assert_eq!(arrive(&mut inbox, 2), Arrival::Waits);
        messenger.gate().came(600);
        assert_eq!(inbox.arrive(&osd, ConnId(3), 600, 1_000_000_000), Arrival::Waits);
        assert_eq!(inbox.next(), None, "others' inputs first");
        inbox.end();
        woken.notified().await;
        inbox.woken();
        inbox.forget(ConnId(1));
        inbox.begin();
        assert_eq!(inbox.next().map(|(conn, _)| conn), Some(ConnId(3)), "daemons first");
        inbox.begin();
        assert_eq!(inbox.next().map(|(conn, _)| conn), Some(ConnId(2)));
        inbox.begin();
        assert_eq!(inbox.next(), None, "nothing of a connection that is over");
        // An entity that brings without end is cut off.
        while arrive(&mut inbox, 4) != Arrival::Waits {}
        while arrive(&mut inbox, 4) != Arrival::TooMuch {}
    }
}
