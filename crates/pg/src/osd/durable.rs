//! What happens when transactions are durable.

use std::collections::BTreeMap;

use store::TxnSeq;
use types::{Eversion, SpgId};

use super::OsdCore;
use super::shared::{Done, PgDone};
use crate::io::Output;

impl OsdCore {
    /// Everything up to `seq` is on stable media. Writes and acks of one PG are told as one, the newest.
    pub(super) fn durable(&mut self, seq: TxnSeq) {
        let mut written: BTreeMap<SpgId, Eversion> = BTreeMap::new();
        let mut acked: BTreeMap<SpgId, Eversion> = BTreeMap::new();
        while self.shared.on_durable.front().is_some_and(|(s, _)| *s <= seq) {
            let Some((_, done)) = self.shared.on_durable.pop_front() else { break };
            match done {
                Done::Nothing => {}
                Done::Removed => crate::pg::remove::removed(&mut self.shared),
                Done::Bench => self.bench_written(),
                Done::Stopped => self.shared.out.push(Output::Stopped),
                Done::Pg { id, interval, what } => {
                    let cx = &mut self.shared;
                    let Some(pg) = self.pgs.get_mut(&id).filter(|pg| pg.interval() == interval) else {
                        continue;
                    };
                    match what {
                        PgDone::Write(v) => {
                            written.insert(id, v);
                        }
                        PgDone::RepOp(v) => {
                            acked.insert(id, v);
                        }
                        PgDone::Activated => pg.activated(cx.whoami, cx),
                        PgDone::Pulled { object, version } => pg.pulled(&object, version, cx),
                        PgDone::Pushed { object, version } => pg.pushed(object, version, cx),
                        PgDone::BackfillProgress { last_backfill } => pg.backfill_moved(last_backfill, cx),
                    }
                }
            }
        }
        for (id, v) in acked {
            if let Some(pg) = self.pgs.get_mut(&id) {
                pg.rep_op_durable(v, &mut self.shared);
            }
        }
        for (id, v) in written {
            if let Some(pg) = self.pgs.get_mut(&id) {
                pg.write_durable(v, &mut self.shared);
            }
        }
    }
}
