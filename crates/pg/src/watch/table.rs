//! Who watches which object of a PG, and the notifies under way: a state machine of the PG's primary.
//!
//! That somebody watches is stored in the object's info; here is what only the present interval knows: through which
//! connection, until when, and which notifies wait for the watcher. Source: src/osd/Watch.cc.
//!
//! ```text
//!              connect                              deadline
//!   Unconnected ◄────► Connected       either one ───────────► expired: the PG writes an unwatch
//!              disconnect
//! ```
//!
//! Invariants:
//! 1. A notify waits for a watch exactly when that watch lists the notify.
//! 2. A notify that waits for nobody is over and not kept.
//! 3. A watch without a connection has a deadline; so has one whose client pings.
//! 4. An object without watches is not kept.
//! 5. `reply_bytes` is the sum of a notify's replies, at most `MAX_REPLY_BYTES`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use codec::Encode;
use messages::osd::{MWatchNotify, NotifyResult, WatcherId, watch_event};
use types::{ConnId, EntityAddr, EntityName, Epoch, Errno, HObject};

use crate::Output;
use crate::object::WatchInfo;
use crate::osd::account::Charge;

/// A watch of one object: the client's cookie, and the client.
pub type WatchKey = (u64, EntityName);

/// How long an expired watch waits for its removal to be written before it is tried again.
const REMOVAL_RETRY: Duration = Duration::from_secs(5);
/// Bytes of all watchers' replies to one notify. A reply beyond that counts as an empty one.
const MAX_REPLY_BYTES: usize = 16 << 20;
/// The longest timeout of a notify, whatever its client asks for: its payload and replies are kept in memory
/// meanwhile.
const MAX_NOTIFY_TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Debug)]
struct Watch {
    timeout: Duration,
    addr: EntityAddr,
    conn: Option<ConnId>,
    /// The client pings; one that does not is held by its connection alone.
    will_ping: bool,
    last_ping: Duration,
    deadline: Option<Duration>,
    /// Its removal was asked for.
    expired: bool,
    notifies: BTreeSet<u64>,
}

#[derive(Debug)]
struct Notify {
    object: HObject,
    /// The notifier: its connection, global id and cookie.
    conn: ConnId,
    notifier: u64,
    cookie: u64,
    payload: Bytes,
    user_version: u64,
    deadline: Duration,
    waiting: BTreeSet<WatchKey>,
    replies: BTreeMap<WatcherId, Bytes>,
    reply_bytes: usize,
    /// Its part of its client's account of notifies.
    _charge: Option<Charge>,
}

/// What somebody wants to tell an object's watchers.
#[derive(Debug, Clone, PartialEq)]
pub struct NewNotify {
    pub notify_id: u64,
    pub conn: ConnId,
    /// Global id.
    pub notifier: u64,
    pub cookie: u64,
    pub timeout: Duration,
    pub payload: Bytes,
    pub user_version: u64,
}

/// See the module's invariants. Times are monotonic.
#[derive(Debug, Default)]
pub struct Watches {
    objects: BTreeMap<HObject, BTreeMap<WatchKey, Watch>>,
    notifies: BTreeMap<u64, Notify>,
    last_notify: u32,
}

impl Watches {
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.notifies.is_empty()
    }

    /// Every watch: object, who, how long it may be silent, from where.
    pub fn iter(&self) -> impl Iterator<Item = (&HObject, WatchKey, Duration, EntityAddr)> {
        self.objects
            .iter()
            .flat_map(|(o, watches)| watches.iter().map(move |(key, w)| (o, *key, w.timeout, w.addr)))
    }

    /// A number that no notify of this object's had or will have: a restart or another primary has a later epoch.
    pub fn next_notify_id(&mut self, epoch: Epoch) -> u64 {
        self.last_notify = self.last_notify.wrapping_add(1);
        u64::from(epoch.0) << 32 | u64::from(self.last_notify)
    }

    /// Whether a watch's client can be reached.
    pub fn is_connected(&self, object: &HObject, key: &WatchKey) -> bool {
        self.objects.get(object).and_then(|w| w.get(key)).is_some_and(|w| w.conn.is_some())
    }

    /// Takes up watches that are stored but not known here: their clients have this long to come back.
    pub fn populate(&mut self, now: Duration, object: &HObject, stored: &BTreeMap<WatchKey, WatchInfo>) {
        if stored.is_empty() {
            return;
        }
        let known = self.objects.entry(object.clone()).or_default();
        for (key, info) in stored {
            let timeout = Duration::from_secs(info.timeout_seconds.into());
            known.entry(*key).or_insert_with(|| Watch {
                timeout,
                addr: info.addr,
                conn: None,
                will_ping: false,
                last_ping: Duration::ZERO,
                deadline: Some(now + timeout),
                expired: false,
                notifies: BTreeSet::new(),
            });
        }
    }

    /// A client watches through this connection from now on; it hears notifies under way (again).
    pub fn connect(
        &mut self,
        now: Duration,
        object: &HObject,
        key: WatchKey,
        (conn, addr): (ConnId, EntityAddr),
        timeout: Duration,
        will_ping: bool,
        out: &mut Vec<Output>,
    ) {
        let watches = self.objects.entry(object.clone()).or_default();
        let watch = watches.entry(key).or_insert_with(|| Watch {
            timeout,
            addr,
            conn: None,
            will_ping,
            last_ping: now,
            deadline: None,
            expired: false,
            notifies: BTreeSet::new(),
        });
        if watch.conn == Some(conn) {
            return;
        }
        watch.conn = Some(conn);
        watch.expired = false;
        watch.will_ping = will_ping;
        watch.last_ping = now;
        watch.deadline = will_ping.then(|| now + watch.timeout);
        for id in &watch.notifies {
            if let Some(n) = self.notifies.get(id) {
                out.push(n.message(*id, key.0, conn));
            }
        }
    }

    pub fn ping(&mut self, now: Duration, object: &HObject, key: &WatchKey) {
        if let Some(w) = self.objects.get_mut(object).and_then(|w| w.get_mut(key)) {
            w.last_ping = now;
            if w.conn.is_some() {
                w.deadline = Some(now + w.timeout);
            }
        }
    }

    /// Watches of an object whose removal was asked for.
    pub fn expired(&self, object: &HObject) -> Vec<WatchKey> {
        let all = self.objects.get(object).into_iter().flatten();
        all.filter(|(_, w)| w.expired).map(|(key, _)| *key).collect()
    }

    /// The number of watches of an object.
    pub fn count(&self, object: &HObject) -> usize {
        self.objects.get(object).map_or(0, BTreeMap::len)
    }

    /// A connection has ended. Its watches stay until their deadlines, so that the client can come back for
    /// them. Its notifies end, for nobody would hear of their outcome.
    pub fn disconnected(&mut self, now: Duration, conn: ConnId) {
        self.end_notifies_of(conn);
        let watches = self.objects.values_mut().flat_map(BTreeMap::values_mut);
        for w in watches.filter(|w| w.conn == Some(conn)) {
            w.disconnect(now);
        }
    }

    fn end_notifies_of(&mut self, conn: ConnId) {
        let theirs = |(id, n): (&u64, &Notify)| (n.conn == conn).then(|| (*id, n.object.clone()));
        let ended: Vec<(u64, HObject)> = self.notifies.iter().filter_map(theirs).collect();
        for (id, object) in ended {
            self.notifies.remove(&id);
            for w in self.objects.get_mut(&object).into_iter().flat_map(BTreeMap::values_mut) {
                w.notifies.remove(&id);
            }
        }
    }

    /// Ends a watch; notifies no longer wait for it. `tell` says whether its client hears of it.
    pub fn remove(&mut self, object: &HObject, key: &WatchKey, tell: bool, out: &mut Vec<Output>) {
        let Some(watches) = self.objects.get_mut(object) else { return };
        let Some(w) = watches.remove(key) else { return };
        if watches.is_empty() {
            self.objects.remove(object);
        }
        if let (true, Some(conn)) = (tell, w.conn) {
            out.push(disconnect_message(key.0, conn));
        }
        for id in w.notifies {
            if let Some(n) = self.notifies.get_mut(&id) {
                n.waiting.remove(key);
                self.finish_if_over(id, out);
            }
        }
    }

    /// Tells an object's watchers of a notify. Without watchers the notifier is answered at once. `charge` is
    /// `None` when the notifier's connection has ended: the watchers are told, and no answers are waited for.
    pub(crate) fn notify(
        &mut self,
        now: Duration,
        object: &HObject,
        n: NewNotify,
        charge: Option<Charge>,
        out: &mut Vec<Output>,
    ) {
        let is_waited_for = charge.is_some();
        let id = n.notify_id;
        let mut notify = Notify {
            object: object.clone(),
            conn: n.conn,
            notifier: n.notifier,
            cookie: n.cookie,
            payload: n.payload,
            user_version: n.user_version,
            deadline: now + n.timeout.min(MAX_NOTIFY_TIMEOUT),
            waiting: BTreeSet::new(),
            replies: BTreeMap::new(),
            reply_bytes: 0,
            _charge: charge,
        };
        for (key, w) in self.objects.get_mut(object).into_iter().flatten() {
            if w.will_ping && w.last_ping + w.timeout < now {
                // It should have pinged long ago: nobody waits for it.
                w.disconnect(now);
                continue;
            }
            w.notifies.insert(id);
            notify.waiting.insert(*key);
            if let Some(conn) = w.conn {
                out.push(notify.message(id, key.0, conn));
            }
        }
        self.notifies.insert(id, notify);
        match is_waited_for {
            true => self.finish_if_over(id, out),
            false => self.end_notifies_of(n.conn),
        }
    }

    /// A watcher has taken note. Without a cookie this counts for all its watches of the object.
    pub fn ack(
        &mut self,
        object: &HObject,
        watcher: EntityName,
        cookie: Option<u64>,
        notify_id: u64,
        reply: &Bytes,
        out: &mut Vec<Output>,
    ) {
        let mut acked = Vec::new();
        for (key, w) in self.objects.get_mut(object).into_iter().flatten() {
            let meant = key.1 == watcher && cookie.is_none_or(|c| c == key.0);
            if meant && w.notifies.remove(&notify_id) {
                acked.push(*key);
            }
        }
        let Some(n) = self.notifies.get_mut(&notify_id) else { return };
        for key in acked {
            n.waiting.remove(&key);
            let fits = n.reply_bytes.saturating_add(reply.len()) <= MAX_REPLY_BYTES;
            // Copied, because a slice would keep the watcher's whole message in memory.
            let reply = if fits { Bytes::copy_from_slice(reply) } else { Bytes::new() };
            n.reply_bytes += reply.len();
            let before = n.replies.insert((key.1.num as u64, key.0), reply);
            n.reply_bytes -= before.map_or(0, |b| b.len());
        }
        self.finish_if_over(notify_id, out);
    }

    /// Ends notifies whose time is over; returns watches whose time is, which the PG must remove from their objects.
    /// `is_barred` says whether a client is on the blocklist, by its address and its connection.
    pub fn tick(
        &mut self,
        now: Duration,
        is_barred: impl Fn(&EntityAddr, Option<ConnId>) -> bool,
        out: &mut Vec<Output>,
    ) -> Vec<(HObject, WatchKey)> {
        let late: Vec<u64> =
            self.notifies.iter().filter(|(_, n)| n.deadline <= now).map(|(id, _)| *id).collect();
        for id in late {
            self.finish(id, Errno::ETIMEDOUT.neg(), out);
        }
        let mut expired = Vec::new();
        for (object, watches) in &mut self.objects {
            for (key, w) in watches {
                let over = w.deadline.is_some_and(|d| d <= now);
                let barred = !w.expired && is_barred(&w.addr, w.conn);
                if !over && !barred {
                    continue;
                }
                w.expired = true;
                if let Some(conn) = w.conn.take() {
                    out.push(disconnect_message(key.0, conn));
                }
                w.deadline = Some(now + REMOVAL_RETRY);
                expired.push((object.clone(), *key));
            }
        }
        expired
    }

    /// Forgets everything, as a new interval does: clients come again.
    pub fn clear(&mut self) {
        self.objects.clear();
        self.notifies.clear();
    }

    fn finish_if_over(&mut self, id: u64, out: &mut Vec<Output>) {
        if self.notifies.get(&id).is_some_and(|n| n.waiting.is_empty()) {
            self.finish(id, 0, out);
        }
    }

    fn finish(&mut self, id: u64, return_code: i32, out: &mut Vec<Output>) {
        let Some(n) = self.notifies.remove(&id) else { return };
        for (key, w) in self.objects.get_mut(&n.object).into_iter().flatten() {
            if n.waiting.contains(key) {
                w.notifies.remove(&id);
            }
        }
        let missed = n.waiting.iter().map(|(cookie, who)| (who.num as u64, *cookie)).collect();
        let result = NotifyResult { replies: n.replies.into_iter().collect(), missed };
        let msg = MWatchNotify {
            cookie: n.cookie,
            version: n.user_version,
            notify_id: id,
            event: watch_event::NOTIFY_COMPLETE,
            payload: Bytes::new(),
            result: result.to_bytes(),
            return_code,
            notifier: n.notifier,
        };
        out.push(Output::Reply { conn: n.conn, tid: 0, msg: msg.into() });
    }

    /// Checks the invariants that the module states.
    pub fn assert_invariants(&self) {
        for (id, n) in &self.notifies {
            assert!(!n.waiting.is_empty(), "2: notify {id} waits for nobody");
            let bytes: usize = n.replies.values().map(Bytes::len).sum();
            assert!(bytes == n.reply_bytes && bytes <= MAX_REPLY_BYTES, "5: notify {id} has {bytes}");
            for key in &n.waiting {
                let w = self.objects.get(&n.object).and_then(|w| w.get(key));
                assert!(w.is_some_and(|w| w.notifies.contains(id)), "1: notify {id} waits for {key:?}");
            }
        }
        for (object, watches) in &self.objects {
            assert!(!watches.is_empty(), "4: {object} is kept without a watch");
            for (key, w) in watches {
                for id in &w.notifies {
                    let waits = self.notifies.get(id).is_some_and(|n| n.waiting.contains(key));
                    assert!(waits, "1: {key:?} lists notify {id}");
                }
                assert!(w.deadline.is_some() || (w.conn.is_some() && !w.will_ping), "3: {key:?} never ends");
            }
        }
    }
}

impl Watch {
    fn disconnect(&mut self, now: Duration) {
        self.conn = None;
        // A client that pings has its deadline from the last ping.
        if !self.will_ping || self.deadline.is_none() {
            self.deadline = Some(now + self.timeout);
        }
    }
}

impl Notify {
    fn message(&self, id: u64, cookie: u64, conn: ConnId) -> Output {
        let msg = MWatchNotify {
            cookie,
            version: self.user_version,
            notify_id: id,
            event: watch_event::NOTIFY,
            payload: self.payload.clone(),
            notifier: self.notifier,
            ..MWatchNotify::default()
        };
        Output::Reply { conn, tid: 0, msg: msg.into() }
    }
}

fn disconnect_message(cookie: u64, conn: ConnId) -> Output {
    let msg = MWatchNotify { cookie, event: watch_event::DISCONNECT, ..MWatchNotify::default() };
    Output::Reply { conn, tid: 0, msg: msg.into() }
}

#[cfg(test)]
mod tests {
    use codec::Decode;
    use messages::Message;
    use types::{PoolId, SnapId};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn at(s: u64) -> Duration {
        Duration::from_secs(s)
    }
    fn object() -> HObject {
        HObject { pool: PoolId(1), name: "o".into(), snap: SnapId::HEAD, ..HObject::min() }
    }
    fn key(cookie: u64, client: i64) -> WatchKey {
        (cookie, EntityName::client(client))
    }

    #[derive(Default)]
    struct T {
        w: Watches,
        out: Vec<Output>,
    }

    impl T {
        fn connect(&mut self, s: u64, k: WatchKey, conn: u64) {
            let who = (ConnId(conn), EntityAddr::default());
            self.w.connect(at(s), &object(), k, who, TIMEOUT, true, &mut self.out);
            self.w.assert_invariants();
        }
        fn notify(&mut self, s: u64, id: u64, timeout: u64) {
            let n = NewNotify {
                notify_id: id,
                conn: ConnId(99),
                notifier: 4999,
                cookie: 55,
                timeout: at(timeout),
                payload: "hey".into(),
                user_version: 3,
            };
            self.w.notify(at(s), &object(), n, Some(Charge::default()), &mut self.out);
            self.w.assert_invariants();
        }
        fn ack(&mut self, k: WatchKey, id: u64, reply: impl Into<Bytes>) {
            self.w.ack(&object(), k.1, Some(k.0), id, &reply.into(), &mut self.out);
            self.w.assert_invariants();
        }
        fn tick(&mut self, s: u64) -> Vec<WatchKey> {
            let expired = self.w.tick(at(s), |_, _| false, &mut self.out);
            self.w.assert_invariants();
            expired.into_iter().map(|(_, k)| k).collect()
        }
        /// Messages since the last call: connection, event, cookie and notify.
        fn said(&mut self) -> Vec<(u64, u8, u64, u64)> {
            let said = |o: &Output| match o {
                Output::Reply { conn, msg: Message::WatchNotify(m), .. } => {
                    (conn.0, m.event, m.cookie, m.notify_id)
                }
                other => panic!("{other:?}"),
            };
            std::mem::take(&mut self.out).iter().map(said).collect()
        }
        /// The one message since the last call: a notify's end.
        fn end(&mut self) -> (i32, NotifyResult) {
            match std::mem::take(&mut self.out).as_slice() {
                [Output::Reply { conn: ConnId(99), msg: Message::WatchNotify(m), .. }] => {
                    assert_eq!((m.event, m.cookie, m.notifier), (watch_event::NOTIFY_COMPLETE, 55, 4999));
                    (m.return_code, NotifyResult::from_bytes(m.result.clone()).unwrap())
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_notify_reaches_all_and_ends_with_the_last_ack() {
        let mut t = T::default();
        t.connect(0, key(1, 10), 1);
        t.connect(0, key(2, 20), 2);
        t.notify(1, 7, 10);
        assert_eq!(t.said(), [(1, watch_event::NOTIFY, 1, 7), (2, watch_event::NOTIFY, 2, 7)]);
        t.ack(key(2, 20), 7, "two");
        t.ack(key(2, 20), 7, "again");
        t.ack(key(1, 20), 7, "somebody else's");
        t.ack(key(1, 10), 8, "another notify");
        assert!(t.out.is_empty());
        t.ack(key(1, 10), 7, "one");
        let replies = vec![((10, 1), "one".into()), ((20, 2), "two".into())];
        assert_eq!(t.end(), (0, NotifyResult { replies, missed: Vec::new() }));
    }

    #[test]
    fn without_watchers_a_notify_ends_at_once() {
        let mut t = T::default();
        t.notify(1, 7, 10);
        assert_eq!(t.end(), (0, NotifyResult::default()));
    }

    #[test]
    fn who_does_not_answer_is_named() {
        let mut t = T::default();
        t.connect(0, key(1, 10), 1);
        t.connect(0, key(2, 20), 2);
        t.notify(1, 7, 10);
        t.said();
        t.ack(key(1, 10), 7, "");
        assert_eq!(t.tick(10), []);
        assert!(t.out.is_empty());
        t.tick(11);
        let result = NotifyResult { replies: vec![((10, 1), Bytes::new())], missed: vec![(20, 2)] };
        assert_eq!(t.end(), (Errno::ETIMEDOUT.neg(), result));
        t.ack(key(2, 20), 7, "late");
        assert!(t.out.is_empty());
    }

    #[test]
    fn replies_have_a_bound_and_no_notify_lives_for_ever() {
        let mut t = T::default();
        (1..=3).for_each(|cookie| t.connect(0, key(cookie, 10), cookie));
        t.notify(1, 7, 1_000_000);
        t.said();
        t.ack(key(1, 10), 7, vec![1; MAX_REPLY_BYTES - 1]);
        t.ack(key(2, 10), 7, "xy");
        (0..=10).for_each(|i| t.w.ping(at(30 * i), &object(), &key(3, 10)));
        t.tick(300);
        assert!(t.out.iter().all(|o| !format!("{o:?}").contains("return_code: -110")));
        t.out.clear();
        t.tick(301);
        let (code, result) = t.end();
        let lengths: Vec<_> = result.replies.iter().map(|(who, reply)| (who.1, reply.len())).collect();
        assert_eq!(code, Errno::ETIMEDOUT.neg());
        assert_eq!((lengths, result.missed), (vec![(1, MAX_REPLY_BYTES - 1), (2, 0)], vec![(10, 3)]));
    }

    #[test]
    fn a_notify_ends_with_its_notifier() {
        let mut t = T::default();
        t.connect(0, key(1, 10), 1);
        t.notify(1, 7, 1000);
        t.said();
        t.w.disconnected(at(2), ConnId(99));
        t.w.assert_invariants();
        t.ack(key(1, 10), 7, "late");
        assert!(t.out.is_empty());
        // It left before its notify began: the watchers hear of it, and nobody waits.
        let n = NewNotify {
            notify_id: 8,
            conn: ConnId(99),
            notifier: 4999,
            cookie: 55,
            timeout: at(30),
            payload: Bytes::new(),
            user_version: 3,
        };
        t.w.notify(at(3), &object(), n, None, &mut t.out);
        assert_eq!(t.said(), [(1, watch_event::NOTIFY, 1, 8)]);
        t.w.assert_invariants();
        t.w.remove(&object(), &key(1, 10), false, &mut t.out);
        assert!(t.w.is_empty() && t.out.is_empty());
    }

    #[test]
    fn a_watch_that_comes_back_hears_what_it_missed() {
        let mut t = T::default();
        t.connect(0, key(1, 10), 1);
        t.w.disconnected(at(1), ConnId(1));
        t.notify(2, 7, 60);
        assert_eq!(t.said(), []);
        t.connect(3, key(1, 10), 5);
        assert_eq!(t.said(), [(5, watch_event::NOTIFY, 1, 7)]);
        // The same connection again repeats nothing.
        t.connect(4, key(1, 10), 5);
        assert_eq!(t.said(), []);
    }

    #[test]
    fn a_watch_ends_without_pings_and_takes_its_notifies_along() {
        let mut t = T::default();
        t.connect(0, key(1, 10), 1);
        t.w.ping(at(20), &object(), &key(1, 10));
        t.notify(49, 7, 1000);
        t.said();
        assert_eq!(t.tick(49), []);
        assert_eq!(t.tick(50), [key(1, 10)]);
        assert_eq!(t.said(), [(1, watch_event::DISCONNECT, 1, 0)]);
        assert!(!t.w.is_connected(&object(), &key(1, 10)));
        // Until its removal is written it stays, and the removal is asked for again.
        assert_eq!(t.tick(51), []);
        assert_eq!(t.tick(55), [key(1, 10)]);
        t.w.remove(&object(), &key(1, 10), false, &mut t.out);
        assert_eq!(t.end(), (0, NotifyResult::default()));
        assert!(t.w.is_empty());
    }

    #[test]
    fn a_client_that_stopped_pinging_is_not_waited_for() {
        let mut t = T::default();
        t.connect(0, key(1, 10), 1);
        t.notify(31, 7, 10);
        assert_eq!(t.end(), (0, NotifyResult::default()));
    }

    #[test]
    fn a_deleted_object_disconnects_its_watchers() {
        let mut t = T::default();
        t.connect(0, key(1, 10), 1);
        t.w.remove(&object(), &key(1, 10), true, &mut t.out);
        assert_eq!(t.said(), [(1, watch_event::DISCONNECT, 1, 0)]);
    }

    #[test]
    fn stored_watches_wait_for_their_clients() {
        let mut t = T::default();
        let info = WatchInfo { cookie: 1, timeout_seconds: 30, addr: EntityAddr::default() };
        t.w.populate(at(5), &object(), &[(key(1, 10), info)].into());
        assert!(!t.w.is_connected(&object(), &key(1, 10)));
        assert_eq!(t.tick(34), []);
        assert_eq!(t.tick(35), [key(1, 10)]);
    }

    #[test]
    fn barred_clients_lose_their_watches() {
        let mut t = T::default();
        t.connect(0, key(1, 10), 1);
        let expired = t.w.tick(at(1), |_, _| true, &mut t.out);
        assert_eq!(expired, [(object(), key(1, 10))]);
        assert_eq!(t.said(), [(1, watch_event::DISCONNECT, 1, 0)]);
        assert_eq!(t.w.tick(at(2), |_, _| true, &mut t.out), []);
    }

    #[test]
    fn notify_ids_do_not_repeat_over_epochs() {
        let mut w = Watches::default();
        let (a, b) = (w.next_notify_id(Epoch(3)), w.next_notify_id(Epoch(3)));
        let c = Watches::default().next_notify_id(Epoch(4));
        assert!(a < b && b < c);
    }
}
