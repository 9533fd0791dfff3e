//! Watch and notify: carries out what requests asked for, and ends what is over.

mod table;

pub use table::{NewNotify, WatchKey, Watches};

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use messages::osd::{Op, OpCode, watch_op};
use types::{ConnId, Errno, HObject};

use crate::OsdCore;
use crate::exec::Effect;
use crate::object::WatchInfo;
use crate::osd::account::{Charge, Held};
use crate::osd::shared::Shared;
use crate::pg::{ClientOp, Pg};

/// Notifies of one connection that may wait for watchers, and the bytes of their payloads.
const NOTIFIES: Held = Held { ops: 1024, bytes: 16 << 20 };
/// The same of all connections of one entity.
const NOTIFIES_OF_ENTITY: Held = Held { ops: 16 << 10, bytes: 64 << 20 };
/// Bytes that one request may have sent to watchers.
const MAX_FAN_OUT_BYTES: u64 = 64 << 20;

/// Carries out one effect of a request that has run (a write: is durable).
pub(crate) fn apply(pg: &mut Pg, op: &ClientOp, effect: &Effect, cx: &mut Shared) {
    let now = cx.now.mono;
    let object = op.msg.object.head();
    let seconds = |s: u32| Duration::from_secs(s.into());
    match effect {
        Effect::Watch { cookie, timeout_s, will_ping } => {
            let (key, who) = ((*cookie, op.name), (op.conn, op.addr));
            if !cx.sessions.contains_key(&op.conn) {
                // It left while its watch was written.
                let info = WatchInfo { cookie: *cookie, timeout_seconds: *timeout_s, addr: op.addr };
                pg.watches.populate(now, &object, &[(key, info)].into());
            } else {
                pg.watches.connect(now, &object, key, who, seconds(*timeout_s), *will_ping, &mut cx.out);
            }
        }
        Effect::Ping { cookie } => pg.watches.ping(now, &object, &(*cookie, op.name)),
        Effect::Unwatch { cookie, watcher, tell } => {
            pg.watches.remove(&object, &(*cookie, *watcher), *tell, &mut cx.out);
        }
        Effect::Notify { notify_id, cookie, timeout_s, payload, user_version } => {
            let n = NewNotify {
                notify_id: *notify_id,
                conn: op.conn,
                notifier: op.name.num as u64,
                cookie: *cookie,
                timeout: seconds(*timeout_s),
                // A copy: what came would keep the whole message in memory.
                payload: Bytes::copy_from_slice(payload),
                user_version: *user_version,
            };
            let account = cx.sessions.get(&op.conn).map(|s| &s.account);
            let charge =
                account.map(|a| Charge::new(&a.notifies, &a.notifies_of_entity, payload.len() as u64));
            pg.watches.notify(now, &object, n, charge, &mut cx.out);
        }
        Effect::NotifyAck { notify_id, cookie, reply } => {
            pg.watches.ack(&object, op.name, *cookie, *notify_id, reply, &mut cx.out);
        }
    }
}

/// Whether the client may have so many notifies wait for watchers, and send so much to them: payloads stay until all watchers
/// have answered, and go to each of them.
pub(crate) fn may_notify(pg: &Pg, op: &ClientOp, cx: &Shared) -> Result<(), Errno> {
    let mut more = Held::default();
    for o in op.msg.ops.iter().filter(|o| o.code == OpCode::NOTIFY) {
        more = more.plus(Held { ops: 1, bytes: o.indata.len() as u64 });
    }
    let Some(session) = cx.sessions.get(&op.conn).filter(|_| more.ops > 0) else { return Ok(()) };
    let exceeds = |held: Held, most: Held| held.ops > most.ops || held.bytes > most.bytes;
    let watchers = pg.watches.count(&op.msg.object.head()) as u64;
    if exceeds(more, NOTIFIES) || more.bytes.saturating_mul(watchers) > MAX_FAN_OUT_BYTES {
        return Err(Errno::E2BIG);
    }
    let account = &session.account;
    let full = exceeds(account.notifies.held().plus(more), NOTIFIES)
        || exceeds(account.notifies_of_entity.held().plus(more), NOTIFIES_OF_ENTITY);
    if full { Err(Errno::EBUSY) } else { Ok(()) }
}

/// A connection is gone: its watches begin to time out.
pub(crate) fn disconnected(core: &mut OsdCore, conn: ConnId) {
    let now = core.shared.now.mono;
    for pg in core.pgs.values_mut() {
        pg.watches.disconnected(now, conn);
    }
}

/// Ends watches and notifies whose time is over.
pub(crate) fn tick(core: &mut OsdCore) {
    let cx = &mut core.shared;
    for pg in core.pgs.values_mut().filter(|pg| !pg.watches.is_empty()) {
        let mut out = Vec::new();
        let is_barred =
            |addr: &_, conn: Option<ConnId>| cx.is_blocklisted(addr, conn.and_then(|c| cx.ip_of(c)));
        let expired = pg.watches.tick(cx.now.mono, is_barred, &mut out);
        cx.out.append(&mut out);
        // Those of an object go together.
        let each: BTreeMap<HObject, WatchKey> = expired.into_iter().collect();
        for (object, key) in each {
            let op = removal(pg, &object, key, cx);
            pg.internal_op(op, cx);
        }
    }
}

/// The request that takes all expired watches out of an object's info: an unwatch in the name of one.
fn removal(pg: &Pg, object: &HObject, (cookie, watcher): WatchKey, cx: &Shared) -> ClientOp {
    let unwatch = Op::Watch { cookie, op: watch_op::UNWATCH, generation: 0, timeout_s: 0 };
    ClientOp::internal(pg.id, object, watcher, vec![unwatch.into()], cx)
}
