//! Client operations under way and of late, and how long things take: for `dump_ops_in_flight` and its kin, for the
//! warning of slow operations, and for `ceph osd perf`.
//!
//! Only the time of arrival is noted when an operation comes; what it is about is told by the queues that hold it, and by
//! its reply when it ends. An operation that was dropped, because its client sends it again by itself, leaves its note
//! behind: `forget_dropped` takes such notes out. What operations hold is counted in `account`.
//!
//! Invariants:
//! 1. There is a note for each client operation that has not been answered; one for all of the same connection and number.
//! 2. Commits wait in the order of their sequence numbers.
//!
//! Source: src/common/TrackedOp.cc, OSD::get_health_metrics in src/osd/OSD.cc.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use admin::options::Values;
use messages::osd::{MOsdOpReply, OpCode};
use serde_json::{Value, json};
use store::TxnSeq;
use types::{ConnId, EntityName, Epoch, Name, Now, PgId, Utime};

use super::counters::Latency;

/// More finished operations than this are never kept, whatever the options say.
const HISTORY_LIMIT: usize = 10_000;

/// When an operation came.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Arrival {
    pub at: Duration,
    pub stamp: Utime,
}

/// An operation that was answered.
#[derive(Debug, Clone, PartialEq)]
struct Finished {
    client: EntityName,
    tid: u64,
    pgid: PgId,
    object: Name,
    ops: Vec<OpCode>,
    epoch: Epoch,
    result: i32,
    arrival: Arrival,
    took: Duration,
}

/// See the module's invariants.
#[derive(Debug, Default)]
pub(super) struct Tracker {
    notes: BTreeMap<(ConnId, u64), Arrival>,
    recent: VecDeque<Finished>,
    slow: VecDeque<Finished>,
    submitted: VecDeque<(TxnSeq, Duration)>,
    /// Commits since the last report.
    lately: Latency,
    /// Commits since the daemon started.
    pub commits: Latency,
    size: usize,
    slow_size: usize,
    slow_from: Duration,
}

impl Tracker {
    /// Takes up the options that say how much is remembered.
    pub fn configure(&mut self, values: &Values) {
        let count = |name| usize::try_from(values.int(name)).unwrap_or(0).min(HISTORY_LIMIT);
        let on = values.get("osd_enable_op_tracker").as_deref() == Some("true");
        self.size = if on { count("osd_op_history_size") } else { 0 };
        self.slow_size = if on { count("osd_op_history_slow_op_size") } else { 0 };
        self.slow_from = seconds(values, "osd_op_history_slow_op_threshold");
        self.recent.truncate(self.size);
        self.slow.truncate(self.slow_size);
    }

    pub fn arrived(&mut self, conn: ConnId, tid: u64, now: Now) {
        self.notes.entry((conn, tid)).or_insert(Arrival { at: now.mono, stamp: now.wall });
    }

    fn take(&mut self, conn: ConnId, tid: u64) -> Option<Arrival> {
        self.notes.remove(&(conn, tid))
    }

    /// The client will send it again.
    pub fn dropped(&mut self, conn: ConnId, tid: u64) {
        self.take(conn, tid);
    }

    pub fn disconnected(&mut self, conn: ConnId) {
        let gone: Vec<_> = self.notes.range((conn, 0)..=(conn, u64::MAX)).map(|(key, _)| *key).collect();
        for (conn, tid) in gone {
            self.take(conn, tid);
        }
    }

    pub fn answered(
        &mut self,
        conn: ConnId,
        tid: u64,
        client: Option<EntityName>,
        r: &MOsdOpReply,
        now: Now,
    ) {
        let Some(arrival) = self.take(conn, tid) else { return };
        let took = now.mono.saturating_sub(arrival.at);
        let slow = took >= self.slow_from && self.slow_size > 0;
        if self.size == 0 && !slow {
            return;
        }
        // The oldest one's list becomes this one's.
        let full = self.recent.len() >= self.size;
        let mut ops = if full { self.recent.pop_front().map(|f| f.ops) } else { None }.unwrap_or_default();
        ops.clear();
        ops.extend(r.ops.iter().map(|o| o.code));
        let finished = Finished {
            client: client.unwrap_or_default(),
            tid,
            pgid: r.pgid,
            object: r.object.clone(),
            ops,
            epoch: r.epoch,
            result: r.result,
            arrival,
            took,
        };
        if slow {
            push(&mut self.slow, finished.clone(), self.slow_size);
        }
        push(&mut self.recent, finished, self.size);
    }

    pub fn in_flight(&self) -> usize {
        self.notes.len()
    }

    pub fn arrival(&self, conn: ConnId, tid: u64) -> Option<Arrival> {
        self.notes.get(&(conn, tid)).copied()
    }

    /// When the oldest operation came.
    pub fn oldest(&self) -> Option<Duration> {
        self.notes.values().map(|a| a.at).min()
    }

    /// Operations that came before then.
    pub fn older_than(&self, at: Duration) -> usize {
        self.notes.values().filter(|a| a.at < at).count()
    }

    /// Takes out notes of operations that nothing holds any more.
    pub fn forget_dropped(&mut self, held: impl Fn(ConnId, u64) -> bool) {
        self.notes.retain(|(conn, tid), _| held(*conn, *tid));
    }

    /// Transactions up to this one were submitted.
    pub fn submitted(&mut self, seq: TxnSeq, now: Duration) {
        if self.submitted.back().is_none_or(|(last, _)| *last < seq) {
            self.submitted.push_back((seq, now));
        }
    }

    /// Transactions up to this one are durable.
    pub fn durable(&mut self, seq: TxnSeq, now: Duration) {
        while let Some((_, at)) = self.submitted.front().copied().filter(|(s, _)| *s <= seq) {
            self.submitted.pop_front();
            let took_ns = now.saturating_sub(at).as_nanos() as u64;
            self.lately.add(took_ns);
            self.commits.add(took_ns);
        }
    }

    /// The average of commits since the last call, in nanoseconds; 0 without any.
    pub fn take_commit_latency_ns(&mut self) -> u64 {
        std::mem::take(&mut self.lately).average_ns()
    }

    /// `dump_historic_ops`.
    pub fn historic(&self, values: &Values, now: Now) -> Value {
        self.shown(values, now, self.recent.iter().collect())
    }

    /// `dump_historic_ops_by_duration`.
    pub fn by_duration(&self, values: &Values, now: Now) -> Value {
        let mut ops: Vec<&Finished> = self.recent.iter().collect();
        ops.sort_by_key(|op| std::cmp::Reverse(op.took));
        self.shown(values, now, ops)
    }

    fn shown(&self, values: &Values, now: Now, ops: Vec<&Finished>) -> Value {
        let kept = seconds(values, "osd_op_history_duration");
        let young = |op: &&&Finished| now.mono.saturating_sub(op.arrival.at) <= kept;
        let ops: Vec<Value> = ops.iter().filter(young).map(|op| op.value(now)).collect();
        json!({ "size": self.size, "duration": kept.as_secs(), "ops": ops })
    }

    /// `dump_historic_slow_ops`.
    pub fn slow(&self, values: &Values, now: Now) -> Value {
        let kept = seconds(values, "osd_op_history_duration");
        let young = |op: &&Finished| now.mono.saturating_sub(op.arrival.at) <= kept;
        let ops: Vec<Value> = self.slow.iter().filter(young).map(|op| op.value(now)).collect();
        json!({ "num to keep": self.slow_size, "threshold to keep": self.slow_from.as_secs(), "Ops": ops })
    }
}

fn push(to: &mut VecDeque<Finished>, op: Finished, size: usize) {
    to.push_back(op);
    while to.len() > size {
        to.pop_front();
    }
}

impl Tracker {
    /// Checks the invariants that the module states.
    pub fn assert_invariants(&self) {
        let seqs = self.submitted.iter().map(|(seq, _)| *seq);
        assert!(seqs.clone().zip(seqs.skip(1)).all(|(a, b)| a < b), "2");
    }
}

/// An option that is a number of seconds.
pub(super) fn seconds(values: &Values, name: &str) -> Duration {
    Duration::try_from_secs_f64(values.float(name)).unwrap_or_default()
}

impl Finished {
    fn value(&self, now: Now) -> Value {
        let names: Vec<&str> = self.ops.iter().map(|o| o.name()).collect();
        let description = format!(
            "osd_op({}.0:{} {} {} [{}] e{})",
            self.client,
            self.tid,
            self.pgid,
            self.object,
            names.join(","),
            self.epoch.0
        );
        let took = self.took.as_secs_f64();
        json!({
            "description": description,
            "initiated_at": self.arrival.stamp.to_string(),
            "age": now.mono.saturating_sub(self.arrival.at).as_secs_f64(),
            "duration": took,
            "type_data": {
                "flag_point": "done",
                "result": self.result,
                "client_info": { "client": self.client.to_string(), "tid": self.tid },
                "events": [
                    { "event": "initiated", "time": self.arrival.stamp.to_string(), "duration": 0.0 },
                    { "event": "done", "time": self.arrival.stamp.plus(self.took).to_string(), "duration": took },
                ],
            },
        })
    }
}
