//! What the OSD is at: operations that wait or are written, and watchers.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use types::{ConnId, EntityAddr, SpgId};

use crate::osd::OsdCore;
use crate::osd::track::{Arrival, seconds};
use crate::pg::{ClientOp, Pg};

/// Operations older than this are looked for in the queues at each tick: one that is in none was dropped.
const SUSPECT: Duration = Duration::from_secs(1);

/// An operation that some queue holds, and why.
struct Held<'a> {
    op: &'a ClientOp,
    state: &'static str,
}

/// Every operation that a PG holds.
fn held(pg: &Pg) -> impl Iterator<Item = Held<'_>> {
    let as_state = |state: &'static str| move |op| Held { op, state };
    let writes = pg.writes.iter().flat_map(|w| {
        let resends = w.resends.iter().map(|(op, _)| op);
        std::iter::once(&w.op).chain(resends)
    });
    writes
        .map(as_state("waiting for sub ops"))
        .chain(pg.writes.waiters().map(as_state("waiting for rw locks")))
        .chain(pg.waiting_for_active.iter().map(as_state("waiting for peered")))
        .chain(pg.waiting_for_object.values().flatten().map(as_state("waiting for missing object")))
        .chain(pg.reading.values().flat_map(|r| &r.waiters).map(as_state("waiting for rw locks")))
        .chain(pg.waiting_for_lease.iter().map(as_state("waiting for readable")))
        .chain(pg.waiting_for_space.iter().map(as_state("waiting for space")))
        .chain(pg.ready.iter().map(as_state("queued for pg")))
}

impl OsdCore {
    /// Forgets operations that were dropped: their clients send them again by themselves.
    pub(in crate::osd) fn track_tick(&mut self) {
        let now = self.shared.now.mono;
        if self.tracker.oldest().is_none_or(|at| now.saturating_sub(at) < SUSPECT) {
            return;
        }
        let mut all: BTreeSet<(ConnId, u64)> = self.waiting_for_map_ops().chain(self.turns.iter()).collect();
        all.extend(self.shared.reads.requests());
        for pg in self.pgs.values() {
            all.extend(held(pg).map(|h| (h.op.conn, h.op.tid)));
        }
        self.tracker.forget_dropped(|conn, tid| all.contains(&(conn, tid)));
    }

    /// Slow operations, and the age of the oldest in seconds. Source: OSD::get_health_metrics.
    pub(in crate::osd) fn slow_ops(&self) -> (u32, u32) {
        let now = self.shared.now.mono;
        let Some(limit) = now.checked_sub(seconds(&self.values, "osd_op_complaint_time")) else {
            return (0, 0);
        };
        let slow = u32::try_from(self.tracker.older_than(limit)).unwrap_or(u32::MAX);
        match self.tracker.oldest() {
            Some(oldest) if slow > 0 => {
                (slow, now.saturating_sub(oldest).as_secs().try_into().unwrap_or(u32::MAX))
            }
            _ => (0, 0),
        }
    }

    pub(super) fn ops_in_flight(&self) -> Value {
        let ops = self.ops_since(Duration::ZERO);
        json!({ "num_ops": ops.len(), "ops": ops })
    }

    pub(super) fn blocked_ops(&self) -> Value {
        let complaint = seconds(&self.values, "osd_op_complaint_time");
        let ops = self.ops_since(complaint);
        json!({ "ops": ops, "complaint_time": complaint.as_secs_f64(), "num_blocked_ops": ops.len() })
    }

    /// Operations that came at least so long ago, the oldest first.
    fn ops_since(&self, age: Duration) -> Vec<Value> {
        let now = self.shared.now.mono;
        let all = self.pgs.iter().flat_map(|(id, pg)| held(pg).map(move |h| (*id, h)));
        let known = all.filter_map(|(id, h)| Some((self.tracker.arrival(h.op.conn, h.op.tid)?, id, h)));
        let mut found: Vec<(Arrival, SpgId, Held<'_>)> =
            known.filter(|(a, _, _)| now.saturating_sub(a.at) >= age).collect();
        found.sort_by_key(|(a, _, h)| (a.at, h.op.conn, h.op.tid));
        found.iter().map(|(a, id, h)| h.value(*id, *a, now)).collect()
    }

    /// Source: OSD::asok_command ("dump_watchers").
    pub(super) fn watchers(&self) -> Value {
        let one = |(object, (cookie, who), timeout, addr): (
            &types::HObject,
            (u64, types::EntityName),
            Duration,
            EntityAddr,
        )| {
            json!({
                "namespace": object.nspace.as_str(),
                "object": object.name.as_str(),
                "entity_name": {
                    "type": who.entity_type().map_or("unknown", types::EntityType::as_str),
                    "num": who.num,
                },
                "cookie": cookie,
                "timeout": timeout.as_secs(),
                "entity_addr_t": maps::addr_json(&addr),
            })
        };
        self.pgs.values().flat_map(|pg| pg.watches.iter()).map(one).collect()
    }
}

impl Held<'_> {
    fn value(&self, pgid: SpgId, arrival: Arrival, now: Duration) -> Value {
        let (op, m) = (self.op, &self.op.msg);
        let names: Vec<&str> = m.ops.iter().map(|o| o.code.name()).collect();
        let description = format!(
            "osd_op({}.{}:{} {} {} [{}] snapc {} e{})",
            op.name,
            m.client_inc,
            op.tid,
            pgid,
            m.object,
            names.join(","),
            snapc(&m.snapc),
            m.epoch.0
        );
        let age = now.saturating_sub(arrival.at).as_secs_f64();
        json!({
            "description": description,
            "initiated_at": arrival.stamp.to_string(),
            "age": age,
            "duration": age,
            "type_data": {
                "flag_point": self.state,
                "client_info": {
                    "client": op.name.to_string(),
                    "client_addr": op.addr.to_string(),
                    "tid": op.tid,
                },
                "events": [{ "event": "initiated", "time": arrival.stamp.to_string(), "duration": 0.0 }],
            },
        })
    }
}

fn snapc(s: &types::SnapContext) -> String {
    let snaps: Vec<String> = s.snaps.iter().map(|s| format!("{s:x}")).collect();
    format!("{:x}=[{}]", s.seq, snaps.join(","))
}
