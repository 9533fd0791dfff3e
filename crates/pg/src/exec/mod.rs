//! Runs the operations of one request against one object: in goes the object's state, out come a transaction, log
//! entries, each operation's result, and what watchers must hear.
//!
//! Nothing here knows of replicas, peering or connections. Reads see the store as it was before the request (as in
//! Ceph), and `ObjectState` as the earlier operations of the same request left it.
//!
//! Invariants of `Executed`:
//! 1. `result < 0` implies that `txn`, `entries` and `new_state` are empty: a failed request changes nothing.
//! 2. Entries' versions count up from `ExecEnv::first_version`; the head's entry is the last.
//! 3. `entries` is empty exactly when the request changes nothing.

mod answer;
mod attrs;
mod call;
mod compare;
mod copy;
mod dispatch;
mod list;
mod omap;
mod pause;
mod read;
mod scratch;
mod snaps;
mod tmap;
mod trim;
mod watch;
pub(crate) mod work;
mod write;
mod xxhash;

pub use copy::{Copied, Sources};
pub use dispatch::{RequestKind, classify};
pub use pause::Begun;
pub(crate) use pause::LEAST_SLICE;
pub(crate) use read::of_head;
pub use trim::trim;

use dispatch::Ran;
use scratch::Scratch;
use work::Work;

use std::borrow::Cow;

use bytes::Bytes;
use maps::{OsdMap, Pool, pool_flags};
use messages::osd::{OpResult, OsdOp};
use store::{ObjectKey, Store, StoreError, Txn};
use types::{
    ConnId, EntityAddr, EntityName, EntityType, Errno, Eversion, HObject, ReqId, SnapContext, SnapId, SpgId,
    Utime,
};

use crate::OsdConfig;
use crate::coded::{Gathered, Needed};
use crate::dirty::Dirty;
use crate::entry::EntryKind;
use crate::info::PgSums;
use crate::missing::Missing;
use crate::object::{LoadError, ObjectState};
use crate::range::pg_range;
use crate::watch::Watches;

/// The connection of requests that the OSD makes itself: nobody hears their replies.
pub(crate) const NOBODY: ConnId = ConnId(u64::MAX);

/// Who asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Requester {
    pub conn: ConnId,
    pub name: EntityName,
    pub addr: EntityAddr,
}

/// Everything an execution may look at besides the object itself.
pub struct ExecEnv<'a> {
    pub store: &'a mut Store,
    pub map: &'a OsdMap,
    pub pool: &'a Pool,
    pub config: &'a OsdConfig,
    pub pgid: SpgId,
    /// Objects that this copy lacks: a read of one of them (a clone, say) must wait.
    pub missing: &'a Missing,
    /// Whether any member lacks the object: a write that copies it must wait.
    pub is_degraded: &'a dyn Fn(&HObject) -> bool,
    /// Whether what is stored here of an object, with this version, is another than the log names: it waits
    /// too.
    pub is_stale: &'a dyn Fn(&HObject, Eversion) -> bool,
    /// Lists what the newest scrub has found; the question and the answer are the operation's data.
    pub list_scrub: &'a dyn Fn(Bytes) -> Result<Bytes, Errno>,
    pub requester: &'a Requester,
    pub reqid: ReqId,
    /// Bits of `messages::osd::flags`.
    pub flags: u32,
    /// Our wall clock, and the client's time of the change.
    pub now: Utime,
    pub mtime: Utime,
    /// The write's snapshot context: the client's or the pool's. Reads have none.
    pub snapc: SnapContext,
    /// Who is watching, as far as this PG's clients are connected.
    pub watches: &'a mut Watches,
    /// What a read looks at: HEAD, SNAPDIR or a snapshot.
    pub snapid: SnapId,
    /// Version of the first log entry made; the counter rises by one for each further one.
    pub first_version: Eversion,
    /// Newest user version in the PG.
    pub last_user_version: u64,
    /// What `copy-from` operations of the request copy.
    pub sources: &'a Sources,
    /// Of an erasure-coded PG, whose data is not all here: what was read of shards for the request.
    pub gathered: Option<&'a Gathered>,
    pub may_read: bool,
    pub may_write: bool,
    /// Set by the execution, however it ends: bytes that were read, written, checked and answered; see
    /// `work`.
    pub work: u64,
    /// Bytes of work after which a request that only reads may pause; `None`: it runs to its end.
    pub slice: Option<u64>,
    /// What the request came to when it paused.
    pub begun: Option<Box<Begun>>,
}

impl ExecEnv<'_> {
    /// Where this copy keeps an object.
    fn key(&self, object: HObject) -> ObjectKey {
        ObjectKey::new(self.pgid.shard, object)
    }

    /// The PG's objects: from, and up to without. Few requests need it, and it is long to make.
    fn range(&self) -> (HObject, HObject) {
        pg_range(self.pgid.pgid, self.pool.pg_num)
    }
}

/// A log entry without what the PG adds (request id, time, results).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryDraft {
    pub kind: EntryKind,
    pub object: HObject,
    pub version: Eversion,
    pub prior_version: Eversion,
    pub user_version: u64,
    pub dirty: Dirty,
}

/// What an execution wants to happen besides changing objects: once durable for a write, at once for a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Registered (or registered again after a reconnect): the requester's connection hears notifies from now on.
    Watch { cookie: u64, timeout_s: u32, will_ping: bool },
    /// The requester's watch lives on.
    Ping { cookie: u64 },
    /// A watch ends: by its owner (who hears nothing of it), or with the object.
    Unwatch { cookie: u64, watcher: EntityName, tell: bool },
    /// Tell all watchers; a message follows the reply when all have acked or the time is over.
    Notify { notify_id: u64, cookie: u64, timeout_s: u32, payload: Bytes, user_version: u64 },
    /// `cookie` is `None` in an old form that acks for all watches of the requester.
    NotifyAck { notify_id: u64, cookie: Option<u64>, reply: Bytes },
}

/// The outcome; see the module's invariants. It is handed on in a box, for it is long.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Executed {
    /// 0, a positive result, or a negated errno.
    pub result: i32,
    /// One per operation, in order; operations behind a failed one hold nothing.
    pub results: Vec<OpResult>,
    pub txn: Txn,
    pub entries: Vec<EntryDraft>,
    /// The head as it will be.
    pub new_state: Option<ObjectState>,
    /// What the reply states.
    pub user_version: u64,
    pub delta: PgSums,
    pub effects: Vec<Effect>,
    /// A write is answered with its error, but the log does not remember it: a resend runs again.
    pub unrecorded: bool,
}

/// The request did not run (yet).
#[derive(Debug, Clone, PartialEq)]
pub enum ExecStop {
    /// Wait until this object (a clone) has been recovered, then run again.
    Missing(HObject),
    /// Its slice is over, or the device has to read something: run it again with this.
    Paused(Box<Begun>),
    /// Run it again with these bytes in [`ExecEnv::gathered`].
    Needs(Vec<Needed>),
    /// Drop the request without an answer: the client will resend it.
    Drop,
    /// Answer with this errno alone; nothing is recorded for resends.
    Refused(Errno),
    /// The store failed or its content is damaged.
    Store(StoreError),
    Load(LoadError),
}

impl From<LoadError> for ExecStop {
    fn from(e: LoadError) -> Self {
        Self::Load(e)
    }
}
impl From<StoreError> for ExecStop {
    fn from(e: StoreError) -> Self {
        Self::Store(e)
    }
}

/// Runs `ops` on `head`, whose current state is `state`. Source: PrimaryLogPG::prepare_transaction.
pub fn execute(
    env: &mut ExecEnv<'_>,
    head: &HObject,
    state: &ObjectState,
    ops: &[OsdOp],
) -> Result<Box<Executed>, ExecStop> {
    let mut work = Work::new(env.config);
    env.work = 0;
    let ran = execute_within(env, head, state, ops, &mut work);
    env.work = match &ran {
        // The operation that waits for the device has done nothing yet.
        Err(ExecStop::Paused(begun)) if begun.is_on_device() => {
            begun.work_done(env.config).saturating_sub(env.work)
        }
        Err(ExecStop::Paused(_)) => env.slice.unwrap_or_default(),
        _ => work.done(env.config).saturating_sub(env.work),
    };
    ran
}

fn execute_within(
    env: &mut ExecEnv<'_>,
    head: &HObject,
    state: &ObjectState,
    ops: &[OsdOp],
    work: &mut Work,
) -> Result<Box<Executed>, ExecStop> {
    // Before anything runs.
    work.spend((ops.len() as u64).saturating_mul(work::OPERATION))?;
    let mut results: Vec<OpResult> = ops.iter().map(OpResult::from).collect();
    if ops.iter().any(|op| op.code.is_pg_op()) {
        let result = list::run(env, work, &head.nspace, ops, &mut results)?;
        return Ok(Box::new(Executed { result, results, ..Executed::default() }));
    }
    if env.may_write && !env.snapc.is_valid() {
        return Err(ExecStop::Refused(Errno::EINVAL));
    }
    let (object, state) =
        if env.may_write { (head.clone(), Cow::Borrowed(state)) } else { snaps::resolve(env, head, state)? };
    let state = state.as_ref();
    let mut s = Scratch::new(env.key(object), state, work);
    s.metadata_read = env.store.metadata_bytes_read();
    let (begun, slice) = (env.begun.take(), env.slice.filter(|_| !env.may_write));
    let mut at = s.begin(begun, slice, &mut results);
    // What earlier slices have done was counted in them.
    env.work = s.work.done(env.config);
    if !env.may_write && at.is_first() {
        read::refuse_too_much(&s, ops)?;
    }
    let result = match dispatch::run_ops(env, &mut s, ops, &mut results, &mut at)? {
        Ran::Through(result) => result,
        Ran::Paused(work) => return Err(s.pause(&at, work, results)),
    };
    let user_version = state.info.user_version;
    if result < 0 {
        return Ok(Box::new(Executed { result, results, user_version, ..Executed::default() }));
    }
    if !s.changed() {
        let (delta, effects) = (s.delta, s.effects);
        let done = Executed { result, results, user_version, delta, effects, ..Executed::default() };
        return Ok(Box::new(done));
    }
    match check_full(env, &s) {
        Ok(()) => {}
        Err(Some(e)) => return Err(ExecStop::Refused(e)),
        Err(None) => return Err(ExecStop::Drop),
    }
    if refuse_long_outputs(env, &mut results) {
        let result = Errno::EOVERFLOW.neg();
        let done = Executed { result, results, user_version, unrecorded: true, ..Executed::default() };
        return Ok(Box::new(done));
    }
    Ok(Box::new(finish(env, head, s, result, results)))
}

/// Whether a change would return more than is kept for resends; such outputs are replaced by errors.
fn refuse_long_outputs(env: &ExecEnv<'_>, results: &mut [OpResult]) -> bool {
    let mut refused = false;
    if env.flags & messages::osd::flags::RETURNVEC != 0 {
        for r in results.iter_mut().filter(|r| r.output_len() > env.config.max_write_op_reply_len) {
            r.rval = Errno::EOVERFLOW.neg();
            (r.outdata, r.more) = (Bytes::new(), Vec::new());
            refused = true;
        }
    }
    refused
}

/// Whether a full pool refuses this growth: with an errno, or (`None`) by dropping the request.
fn check_full(env: &ExecEnv<'_>, s: &Scratch<'_>) -> Result<(), Option<Errno>> {
    use messages::osd::flags;
    let grows = s.delta.bytes > 0 || s.delta.objects > 0;
    let exempt =
        env.flags & flags::FULL_FORCE != 0 || env.requester.name.entity_type() == Some(EntityType::Mds);
    if !grows || !env.pool.has_flag(pool_flags::FULL) || exempt {
        return Ok(());
    }
    if env.flags & flags::FULL_TRY == 0 {
        return Err(None);
    }
    let quota = env.pool.has_flag(pool_flags::FULL_QUOTA);
    Err(Some(if quota { Errno::EDQUOT } else { Errno::ENOSPC }))
}

/// Stamps the new state, stores it, and drafts the log entry. Source: PrimaryLogPG::finish_ctx.
fn finish(
    env: &ExecEnv<'_>,
    head: &HObject,
    mut s: Scratch<'_>,
    result: i32,
    results: Vec<OpResult>,
) -> Executed {
    let mut version = env.first_version;
    let before = s.before;
    s.count_omap_objects();
    let clone = snaps::make_writeable(env, head, &mut s);
    if clone.is_some() {
        version.version += 1;
    }
    let mut user_version = if s.copied { s.state.info.user_version } else { before.info.user_version };
    if s.user_modify {
        let next = env.last_user_version.max(s.state.info.user_version) + 1;
        user_version = next.max(version.version);
    }
    let kind = if s.state.exists { EntryKind::Modify } else { EntryKind::Delete };
    let new_state = if s.state.exists {
        let mut state = s.state.into_owned();
        let info = &mut state.info;
        info.user_version = user_version;
        info.version = version;
        info.prior_version = before.info.version;
        info.last_reqid = env.reqid;
        // A copy keeps the time of what it is copied from.
        if !env.mtime.is_zero() && !s.copied {
            info.mtime = env.mtime;
            info.local_mtime = env.now;
        }
        state.save(&s.key, head.is_head(), &mut s.txn);
        state
    } else {
        ObjectState::default()
    };
    let prior_version = before.info.version;
    let dirty = if before.exists { Dirty::of(&s.txn, &s.key) } else { Dirty::ALL };
    let entry = EntryDraft { kind, object: head.clone(), version, prior_version, user_version, dirty };
    Executed {
        result,
        results,
        txn: s.txn,
        entries: clone.into_iter().chain([entry]).collect(),
        new_state: Some(new_state),
        user_version,
        delta: s.delta,
        effects: s.effects,
        unrecorded: false,
    }
}
