//! What happens when transactions are durable.

use store::TxnSeq;
use types::{Eversion, PgShard, SpgId};

use super::OsdCore;
use super::shared::{Done, PgDone};
use crate::io::Output;
use crate::peer::{PgBody, RepAck};
use crate::pg::room::tight_room;

impl OsdCore {
    /// Everything up to `seq` is on stable media. Writes and acks of one PG are told as one, the newest.
    pub(super) fn durable(&mut self, seq: TxnSeq) {
        let (mut written, mut acked) = (Newest::default(), Newest::default());
        while self.shared.on_durable.front().is_some_and(|(s, _)| *s <= seq) {
            let Some((_, done)) = self.shared.on_durable.pop_front() else { break };
            match done {
                Done::Nothing => {}
                Done::Removed => crate::pg::remove::removed(&mut self.shared),
                Done::Bench => self.bench_written(),
                Done::Stopped => self.shared.out.push(Output::Stopped),
                Done::Begun => self.begun(),
                Done::Pg { id, interval, what } => {
                    let cx = &mut self.shared;
                    let Some(pg) = self.pgs.get_mut(&id).filter(|pg| pg.interval() == interval) else {
                        continue;
                    };
                    match what {
                        PgDone::Write(v) => {
                            written.put(id, v);
                        }
                        PgDone::RepOp { version, came_ns } => {
                            cx.counters.rep_ops.add(cx.now_ns.saturating_sub(came_ns));
                            acked.put(id, version);
                        }
                        PgDone::Staged { id, upto } => pg.aside_durable(id, upto, cx),
                        PgDone::Tell { to, interval, body } => cx.send_pg(to, id, interval, *body),
                        PgDone::Activated(nth) if nth == pg.activations => {
                            let me = pg.me(cx);
                            pg.activated(me, 0, cx);
                        }
                        PgDone::Activated(_) => {}
                        PgDone::Pulled { from, objects } => pg.pulled(from, objects, cx),
                        PgDone::Pushed { objects } => pg.pushed(objects, cx),
                        PgDone::BackfillProgress { last_backfill } => pg.backfill_moved(last_backfill, cx),
                    }
                }
            }
        }
        self.acknowledge(acked);
        for (id, v) in written.0 {
            if let Some(pg) = self.pgs.get_mut(&id) {
                pg.write_durable(v, &mut self.shared);
            }
        }
    }
}

impl OsdCore {
    /// Tells primaries what is durable here: each in one message.
    fn acknowledge(&mut self, acked: Newest) {
        if acked.0.is_empty() {
            return;
        }
        let tight = tight_room(&self.shared);
        let mut acks: Vec<(PgShard, RepAck)> = Vec::with_capacity(acked.0.len());
        for (id, v) in acked.0 {
            if let Some(pg) = self.pgs.get_mut(&id) {
                acks.extend(pg.rep_op_durable(v, tight, &mut self.shared));
            }
        }
        // Of one primary, in the order of the PGs.
        acks.sort_by_key(|(primary, _)| primary.osd);
        for of_one in acks.chunk_by(|(a, _), (b, _)| a.osd == b.osd) {
            let Some(((primary, first), others)) = of_one.split_first() else { continue };
            let others = others.iter().map(|(_, ack)| *ack).collect();
            let body = PgBody::RepOpAck { version: first.version, others };
            let id = SpgId { shard: first.from, ..first.pgid };
            self.shared.send_pg(*primary, id, first.interval, body);
        }
    }
}

/// The newest version of each PG, in the order of the PGs: few of them have part in a batch.
#[derive(Default)]
struct Newest(Vec<(SpgId, Eversion)>);

impl Newest {
    fn put(&mut self, id: SpgId, v: Eversion) {
        match self.0.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(at) => self.0.iter_mut().skip(at).take(1).for_each(|entry| entry.1 = v),
            Err(at) => self.0.insert(at, (id, v)),
        }
    }
}
