//! A PG of one copy around `exec::execute`: versions, the store, and what the PG does with an execution's outcome.

use std::sync::Arc;

use bytes::Bytes;
use maps::{OsdMap, Pool, PoolType};
use messages::osd::{Op, OpResult, OsdOp, flags, op_flags};
use pg::exec::{Begun, Effect, ExecEnv, ExecStop, Executed, RequestKind, Requester, Sources, classify};
use pg::object::ObjectState;
use pg::{Missing, OsdConfig, PgSums, Watches};
use store::{FormatOptions, ObjectKey, Options, Store};
use testkit::SimDevice;
use types::{
    EntityAddr, EntityName, Epoch, Errno, Eversion, Fsid, HObject, PgId, PoolId, ReqId, SnapContext, SnapId,
    Utime,
};

pub const POOL: PoolId = PoolId(7);
pub const MTIME: Utime = Utime { sec: 1_700_000_000, nsec: 0 };

/// A request to the PG.
#[derive(Debug, Clone)]
pub struct Request {
    pub object: HObject,
    pub ops: Vec<OsdOp>,
    pub flags: u32,
    pub snapc: SnapContext,
}

impl Request {
    pub fn new(name: &str, ops: Vec<OsdOp>) -> Self {
        Self { object: object(name), ops, flags: 0, snapc: SnapContext::default() }
    }
}

/// What the client hears. `ran` is false when the request was refused before its operations.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reply {
    pub result: i32,
    pub results: Vec<OpResult>,
    pub user_version: u64,
    pub ran: bool,
}

pub struct Bench {
    pub store: Store,
    device: Arc<SimDevice>,
    pub map: OsdMap,
    pub pool: Pool,
    pub config: OsdConfig,
    pub missing: Missing,
    /// What `copy-from` operations of the next request copy.
    pub sources: Sources,
    pub watches: Watches,
    pub who: Requester,
    pub last: u64,
    pub last_user: u64,
    pub sums: PgSums,
    pub effects: Vec<Effect>,
    tid: u64,
}

pub fn object(name: &str) -> HObject {
    let hash = name.bytes().fold(17u32, |h, b| h.wrapping_mul(0x0101_0193) ^ u32::from(b));
    HObject { pool: POOL, hash, name: name.into(), snap: SnapId::HEAD, ..HObject::min() }
}

impl Bench {
    pub fn new() -> Self {
        Self::with_options(Options::default())
    }

    pub fn with_options(options: Options) -> Self {
        let device = Arc::new(SimDevice::new(64 << 20));
        let ids = FormatOptions { fsid: Fsid([1; 16]), osd_uuid: Fsid([2; 16]), log_bytes: None };
        Store::format(&*device, ids).unwrap();
        Self {
            store: Store::open(device.clone(), options).unwrap(),
            device,
            map: OsdMap { epoch: Epoch(9), ..OsdMap::default() },
            pool: Pool::new(PoolType::Replicated, 1),
            config: OsdConfig::default(),
            missing: Missing::default(),
            watches: Watches::default(),
            who: Requester {
                conn: Default::default(),
                name: EntityName::client(4123),
                addr: EntityAddr::default(),
            },
            sources: Sources::new(),
            last: 0,
            last_user: 0,
            sums: PgSums::default(),
            effects: Vec::new(),
            tid: 0,
        }
    }

    /// Runs a request as the PG's primary does. Source: what `Pg::run`, `finish_write` and `finish_read` do.
    pub fn run(&mut self, r: &Request) -> Reply {
        let refuse = |e: Errno| Reply { result: e.neg(), ..Reply::default() };
        let kind = match classify(&r.ops, r.flags) {
            Ok(kind) => kind,
            Err(e) => return refuse(e),
        };
        let head = r.object.head();
        let key = ObjectKey::replicated(head.clone());
        let state = ObjectState::load(&mut self.store, &key).unwrap();
        self.tid += 1;
        let mut done = match self.execute(r, &kind, &state) {
            Ok(done) => done,
            Err(ExecStop::Refused(e)) => return refuse(e),
            Err(stop) => panic!("{stop:?}"),
        };
        let changed = !done.entries.is_empty();
        assert!(
            done.result >= 0 || (done.txn.is_empty() && !changed && done.new_state.is_none()),
            "1: {done:?}"
        );
        assert!(kind.writes || !changed, "a read that changes something: {:?}", r.ops);
        let reply_version =
            if done.result == Errno::ENOENT.neg() && !changed { self.last_user } else { done.user_version };
        for (i, e) in done.entries.iter().enumerate() {
            assert_eq!(e.version.version, self.last + 1 + i as u64, "2: versions");
            assert_eq!(e.object == head, i + 1 == done.entries.len(), "2: the head is last");
            self.last_user = self.last_user.max(e.user_version);
        }
        // A refused write has a version of its own too.
        self.last += (done.entries.len() as u64).max(u64::from(kind.writes && !done.unrecorded));
        self.sums.add(&done.delta);
        self.effects.append(&mut done.effects);
        if changed {
            self.store.submit(std::mem::take(&mut done.txn)).unwrap();
            self.settle();
            self.check_stored(&key, done.new_state.as_ref().unwrap());
            if r.flags & flags::RETURNVEC == 0 {
                done.result = 0;
                done.results.iter_mut().for_each(|r| r.outdata = Bytes::new());
            }
        }
        let known = kind.writes && !done.unrecorded || done.result >= 0 || done.result == Errno::ENOENT.neg();
        let user_version = if known { reply_version } else { 0 };
        Reply { result: done.result, results: done.results, user_version, ran: true }
    }

    /// What only reads runs once more, in as many parts as it has: they make no difference.
    fn execute(
        &mut self,
        r: &Request,
        kind: &RequestKind,
        state: &ObjectState,
    ) -> Result<Box<Executed>, ExecStop> {
        let done = self.execute_part(r, kind, state, None, None);
        if !kind.writes && !kind.notifies {
            let mut parts = self.execute_part(r, kind, state, Some(1), None);
            while let Err(ExecStop::Paused(begun)) = parts {
                parts = self.execute_part(r, kind, state, Some(1), Some(begun));
            }
            assert_eq!(parts, done, "in parts: {:?}", r.ops);
        }
        done
    }

    fn execute_part(
        &mut self,
        r: &Request,
        kind: &RequestKind,
        state: &ObjectState,
        slice: Option<u64>,
        begun: Option<Box<Begun>>,
    ) -> Result<Box<Executed>, ExecStop> {
        let head = r.object.head();
        let mut env = ExecEnv {
            list_scrub: &|_| Err(types::Errno::ENOENT),
            store: &mut self.store,
            map: &self.map,
            pool: &self.pool,
            config: &self.config,
            pgid: types::SpgId::replicated(PgId::new(POOL, 0)),
            missing: &self.missing,
            is_degraded: &|_| false,
            is_stale: &|_, _| false,
            requester: &self.who,
            reqid: ReqId { name: self.who.name, tid: self.tid, inc: 0 },
            flags: r.flags,
            now: Utime::new(1_750_000_000 + self.tid as u32, 0),
            mtime: MTIME,
            snapc: r.snapc.clone(),
            watches: &mut self.watches,
            snapid: r.object.snap,
            first_version: Eversion::new(Epoch(9), self.last + 1),
            last_user_version: self.last_user,
            sources: &self.sources,
            gathered: None,
            may_read: kind.reads,
            may_write: kind.writes,
            work: 0,
            slice,
            begun,
        };
        pg::exec::execute(&mut env, if kind.pg_op { &r.object } else { &head }, state, &r.ops)
    }

    /// Trims removed snapshots off one object; whether anything changed.
    pub fn trim(&mut self, name: &str, removed: &maps::SnapIntervals) -> bool {
        let head = object(name);
        let key = ObjectKey::replicated(head.clone());
        let state = ObjectState::load(&mut self.store, &key).unwrap();
        let first = Eversion::new(Epoch(9), self.last + 1);
        let Some(done) = pg::exec::trim(&mut self.store, &key, &state, removed, first).unwrap() else {
            return false;
        };
        for (i, e) in done.entries.iter().enumerate() {
            assert_eq!(e.version.version, self.last + 1 + i as u64, "2: versions");
            assert_eq!(e.object == head, i + 1 == done.entries.len(), "2: the head is last");
        }
        self.last += done.entries.len() as u64;
        self.sums.add(&done.delta);
        self.store.submit(done.txn).unwrap();
        self.settle();
        self.check_stored(&key, done.new_state.as_ref().unwrap());
        true
    }

    /// What an execution says of the head is what is stored.
    fn check_stored(&mut self, key: &ObjectKey, state: &ObjectState) {
        assert_eq!(&ObjectState::load(&mut self.store, key).unwrap(), state);
        let stat = self.store.stat(key).unwrap();
        assert_eq!(stat.map(|s| s.size), state.exists.then_some(state.info.size));
    }

    /// Has the store forget what it holds in memory.
    pub fn checkpoint(&mut self) {
        while let Some(checkpoint) = self.store.take_checkpoint() {
            let done = checkpoint.execute(&*self.device);
            self.store.checkpointed(done).unwrap();
        }
    }

    fn settle(&mut self) {
        if let Some(commit) = self.store.take_commit() {
            let done = commit.execute(&*self.device);
            self.store.committed(done).unwrap();
        }
        while self.store.checkpoint_due() {
            let Some(checkpoint) = self.store.take_checkpoint() else { break };
            let done = checkpoint.execute(&*self.device);
            self.store.checkpointed(done).unwrap();
        }
    }

    /// One operation per call, for short tests: its result and output.
    pub fn op(&mut self, name: &str, op: Op) -> (i32, Bytes) {
        let reply = self.run(&Request::new(name, vec![op.into()]));
        let out = reply.results.into_iter().next().map(|r| r.outdata).unwrap_or_default();
        (reply.result, out)
    }
}

/// The operation with FAILOK set.
pub fn failok(op: Op) -> OsdOp {
    let mut op = OsdOp::from(op);
    op.flags |= op_flags::FAILOK;
    op
}
