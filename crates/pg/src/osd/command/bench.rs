//! `ceph tell osd.N bench`: writes objects of its own to the store and says how fast that went.
//!
//! Invariants:
//! 1. One benchmark runs at a time, with at most `WINDOW` of its writes in flight.
//! 2. Its objects are in a pool that no map has, so that they are in no PG; none is left when it ends, and those that a
//!    crash left behind go when the next one begins.
//!
//! Source: "bench" in OSD::do_command of src/osd/OSD.cc.

use std::time::Duration;

use admin::options::Values;
use bytes::Bytes;
use messages::common::MCommandReply;
use serde_json::{Map, Value, json};
use store::{ObjectKey, StoreError, Txn};
use types::{ConnId, Errno, HObject, PoolId, SpgId};

use crate::io::Output;
use crate::osd::OsdCore;
use crate::osd::shared::Done;

/// Writes in flight.
const WINDOW: u64 = 16;
/// Objects listed for removal in one step.
const PAGE: usize = 500;
/// Writes that end together with one step of the clock still took some time: nothing is divided by zero.
const LEAST_TIME: Duration = Duration::from_micros(1);

/// What is asked for. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Plan {
    count: u64,
    block: u64,
    /// With `objects`: writes go to random places of so many objects of this size, not to an object each.
    object_size: u64,
    objects: u64,
}

/// A running benchmark.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bench {
    conn: ConnId,
    tid: u64,
    plan: Plan,
    data: Bytes,
    started: Duration,
    issued: u64,
    done: u64,
    /// State of the generator of places.
    random: u64,
}

impl OsdCore {
    /// Begins a benchmark; the reply comes when it ends.
    pub(super) fn bench(
        &mut self,
        conn: ConnId,
        tid: u64,
        args: &Map<String, Value>,
    ) -> Result<(), (Errno, String)> {
        if self.bench.is_some() {
            return Err((Errno::EBUSY, "another benchmark is running".into()));
        }
        let plan = plan(args, &self.values)?;
        remove_objects(self).map_err(failed)?;
        let data = Bytes::from(vec![0; plan.block as usize]);
        let (started, random) = (self.shared.now.mono, 1);
        self.bench = Some(Bench { conn, tid, plan, data, started, issued: 0, done: 0, random });
        self.bench_step();
        Ok(())
    }

    /// One of its writes is durable.
    pub(in crate::osd) fn bench_written(&mut self) {
        if let Some(bench) = &mut self.bench {
            bench.done += 1;
        }
        self.bench_step();
    }

    fn bench_step(&mut self) {
        let Some(bench) = &mut self.bench else { return };
        let total = bench.plan.count.div_ceil(bench.plan.block);
        while bench.issued < total && bench.issued - bench.done < WINDOW {
            let (object, offset) = bench.next_place();
            let mut txn = Txn::new();
            txn.write(&object, offset, bench.data.clone());
            if let Err(e) = self.shared.try_submit(txn, store::Priority::Client, Done::Bench) {
                return self.bench_end(Err(failed(e)));
            }
            bench.issued += 1;
        }
        if bench.done >= total {
            let took = self.shared.now.mono.saturating_sub(bench.started).max(LEAST_TIME).as_secs_f64();
            let rate = bench.plan.count as f64 / took;
            let result = json!({
                "bytes_written": bench.plan.count,
                "blocksize": bench.plan.block,
                "elapsed_sec": took,
                "bytes_per_sec": rate,
                "iops": rate / bench.plan.block as f64,
            });
            self.bench_end(super::out(&result));
        }
    }

    fn bench_end(&mut self, outcome: super::Outcome) {
        let Some(bench) = self.bench.take() else { return };
        let removed = remove_objects(self).map_err(failed);
        let msg: MCommandReply = super::reply(removed.and(outcome));
        let (conn, tid) = (bench.conn, bench.tid);
        self.shared.out.push(match conn == super::ADMIN_SOCKET {
            true => {
                let reply = admin::Reply { code: msg.result, outs: msg.status, data: msg.output };
                Output::AdminReply { tid, reply }
            }
            false => Output::Reply { conn, tid, msg: msg.into() },
        });
    }
}

impl Bench {
    fn next_place(&mut self) -> (ObjectKey, u64) {
        let Plan { block, object_size, objects, .. } = self.plan;
        if objects == 0 || object_size == 0 {
            return (object(self.issued * block), 0);
        }
        let blocks = (object_size / block).max(1);
        (object(self.below(objects)), self.below(blocks) * block)
    }

    /// A number below `n`, from an xorshift generator.
    fn below(&mut self, n: u64) -> u64 {
        let x = &mut self.random;
        *x ^= *x << 13;
        *x ^= *x >> 7;
        *x ^= *x << 17;
        *x % n
    }
}

/// Checks the arguments against what an OSD is to do in `osd_bench_duration`.
fn plan(args: &Map<String, Value>, values: &Values) -> Result<Plan, (Errno, String)> {
    let option = |name: &str| values.int(name).unsigned_abs();
    let (seconds, max_block) = (option("osd_bench_duration"), option("osd_bench_max_block_size"));
    let number = |name: &str, default: u64| match args.get(name) {
        None => Ok(default),
        Some(v) => v.as_u64().ok_or_else(|| (Errno::EINVAL, format!("'{name}' must be a number, not {v}"))),
    };
    let (count, block) = (number("count", 1 << 30)?, number("size", 4 << 20)?);
    let (object_size, objects) = (number("object_size", 0)?, number("object_num", 0)?);
    let refuse = |text: String| Err((Errno::EINVAL, text));
    if block == 0 {
        return refuse("block 'size' must be above 0".into());
    }
    if block > max_block {
        return refuse(format!(
            "block 'size' values are capped at {} MiB. If you wish to use a higher value, please adjust \
             'osd_bench_max_block_size'",
            max_block >> 20
        ));
    }
    let (a_second, name) = match block < 1 << 20 {
        true => {
            let name = "osd_bench_small_size_max_iops";
            (block.saturating_mul(option(name)), name)
        }
        false => {
            let name = "osd_bench_large_size_max_throughput";
            (option(name), name)
        }
    };
    let max = a_second.saturating_mul(seconds);
    if count > max {
        return refuse(format!(
            "'count' values greater than {max} for a block size of {block}, for {seconds} seconds, can cause ill effects \
             on osd.  Please adjust '{name}' with a higher value if you wish to use a higher 'count'."
        ));
    }
    let block = if object_size > 0 { block.min(object_size) } else { block };
    Ok(Plan { count, block, object_size, objects })
}

/// The pool of a benchmark's objects: maps begin at 1.
const POOL: PoolId = PoolId(0);

fn object(number: u64) -> ObjectKey {
    // The number is the hash too, so that objects stand in the order in which they are made.
    let hash = (number as u32).reverse_bits();
    let name = format!("disk_bw_test_{number}").into();
    ObjectKey::replicated(HObject { pool: POOL, hash, name, ..HObject::min() })
}

/// Removes all objects of benchmarks.
fn remove_objects(core: &mut OsdCore) -> Result<(), StoreError> {
    let from = HObject { pool: POOL, hash: 0, ..HObject::min() };
    let end = HObject { pool: PoolId(POOL.0 + 1), hash: 0, ..HObject::min() };
    loop {
        let found = core.shared.store.list(SpgId::NO_SHARD, &from, &end, PAGE)?;
        if found.is_empty() {
            return Ok(());
        }
        let mut txn = Txn::new();
        for o in found {
            txn.remove(&ObjectKey::replicated(o));
        }
        core.shared.try_submit(txn, store::Priority::Client, Done::Nothing)?;
    }
}

fn failed(e: StoreError) -> (Errno, String) {
    (e.errno(), e.to_string())
}
