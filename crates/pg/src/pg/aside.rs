//! Objects aside that hold the pieces of large writes: here for requests of this primary, and on members.
//!
//! They are objects of the pool -2 - pool, as those that recovery builds (`pg::pieces`), with a snapshot
//! that no other object has. So nothing that looks at a PG's objects sees them, and a start of the OSD
//! removes them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use store::{ObjectKey, Priority, StoreError, Txn};
use types::{Epoch, HObject, PgShard, SnapId};

use super::pieces::aside_pool;
use super::replicate::WRITE_MAX;
use super::staging::Staged;
use super::{Pg, Phase};
use crate::osd::shared::{Done, PgDone, Shared};
use crate::peer::PgBody;

/// Objects that a primary may have aside in one PG of a member.
const MEMBER_MAX: usize = 64;
/// What was staged and is not used for so long, because its request has to wait, is staged anew when it is.
const KEPT: Duration = Duration::from_secs(60);

/// One object aside.
#[derive(Debug)]
pub(crate) struct Aside {
    key: ObjectKey,
    /// Written so far.
    pub bytes: u64,
    /// Primary only: members that have it, the request that will use it, and since when it waits for that.
    members: Option<Vec<PgShard>>,
    wanted: Weak<Staged>,
    since: Duration,
}

impl Aside {
    /// A primary's own, of which nothing is written yet.
    pub fn begun(key: &ObjectKey, members: &[PgShard], now: Duration) -> Self {
        let (key, members) = (key.clone(), members.to_vec());
        Self { key, bytes: 0, members: Some(members), wanted: Weak::new(), since: now }
    }

    fn on_member(key: ObjectKey) -> Self {
        Self { key, bytes: 0, members: None, wanted: Weak::new(), since: Duration::ZERO }
    }

    /// Whether it is for a request of this primary.
    pub fn is_ours(&self) -> bool {
        self.members.is_some()
    }

    /// All of it is there; it is kept until nobody has `staged` any more.
    pub fn keep_for(&mut self, staged: &Arc<Staged>, now: Duration) {
        (self.wanted, self.since) = (Arc::downgrade(staged), now);
    }
}

impl Pg {
    /// The key under which a request's pieces lie. The interval is the one in which the primary counts.
    pub(super) fn aside_stage_key(&self, hash: u32, interval: Epoch, id: u64) -> ObjectKey {
        let object = HObject {
            pool: aside_pool(self.id.pgid.pool),
            hash,
            name: format!("{interval}.{id}").into(),
            snap: SnapId::SNAPDIR,
            ..HObject::min()
        };
        ObjectKey::new(self.id.shard, object)
    }

    /// Member: takes a piece of a large write to come.
    pub fn handle_stage(
        &mut self,
        (from, interval): (PgShard, Epoch),
        (id, hash): (u64, u32),
        at: u64,
        data: Bytes,
        cx: &mut Shared,
    ) {
        if from != self.primary() || interval != self.primary_interval {
            return;
        }
        if self.phase != Phase::Replica {
            return self.tell_out_of_step(cx);
        }
        let known = self.aside.get(&id).map_or(0, |a| a.bytes);
        let end = at.saturating_add(data.len() as u64);
        let fits = at == known
            && !data.is_empty()
            && end <= WRITE_MAX as u64
            && (known > 0 || self.aside.len() < MEMBER_MAX);
        if !fits || !self.store_aside((id, hash), at, data, cx) {
            self.remove_aside(&[id], cx);
            cx.send_pg(from, self.id, interval, PgBody::StageRefused { id });
        }
    }

    /// Member: whether there is room for the piece, which then is submitted.
    fn store_aside(&mut self, (id, hash): (u64, u32), at: u64, data: Bytes, cx: &mut Shared) -> bool {
        let key = self.aside_stage_key(hash, self.primary_interval, id);
        let bytes = data.len() as u64;
        let mut txn = Txn::new();
        if at == 0 {
            txn.remove(&key);
        }
        txn.write(&key, at, data);
        txn.note_unread();
        let what = PgDone::Staged { id, upto: at + bytes };
        let done = Done::Pg { id: self.id, interval: self.interval(), what };
        match cx.try_submit(txn, Priority::Client, done) {
            Ok(_) => {}
            Err(StoreError::Full { .. } | StoreError::Misuse(_)) => return false,
            Err(e) => {
                self.store_failed(&e, cx);
                return true;
            }
        }
        cx.counters.rep_op_bytes += bytes;
        self.aside.entry(id).or_insert_with(|| Aside::on_member(key)).bytes += bytes;
        true
    }

    /// Pieces are durable here up to so many bytes.
    pub fn aside_durable(&mut self, id: u64, upto: u64, cx: &mut Shared) {
        if self.phase == Phase::Replica {
            return cx.send_pg(self.primary(), self.id, self.primary_interval, PgBody::Staged { id, upto });
        }
        self.piece_staged(self.me(cx), id, upto, cx);
    }

    /// Member: what lies aside is not needed any more, or was used.
    pub fn handle_unstage(&mut self, from: PgShard, interval: Epoch, id: u64, cx: &mut Shared) {
        if from == self.primary() && interval == self.primary_interval {
            self.remove_aside(&[id], cx);
        }
    }

    /// Primary: forgets what lies aside, here and on members.
    pub(super) fn unstage(&mut self, id: u64, cx: &mut Shared) {
        let Some(aside) = self.aside.get_mut(&id) else { return };
        for to in aside.members.take().into_iter().flatten() {
            cx.send_pg(to, self.id, self.interval(), PgBody::Unstage { id });
        }
        self.remove_aside(&[id], cx);
        cx.pieces_wait = true;
    }

    /// Primary: forgets what no request will use, or not soon.
    pub(super) fn reap_aside(&mut self, cx: &mut Shared) {
        if self.aside.is_empty() || self.phase != Phase::Active {
            return;
        }
        let now = cx.now.mono;
        let is_left = |a: &Aside| a.wanted.strong_count() == 0 || now.saturating_sub(a.since) >= KEPT;
        let left = self.aside.iter().filter(|(id, a)| !self.staging.contains_key(id) && is_left(a));
        for id in left.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.unstage(id, cx);
        }
    }

    /// The interval ends: all of it goes.
    pub(super) fn drop_aside(&mut self, cx: &mut Shared) {
        let all: Vec<u64> = self.aside.keys().copied().collect();
        if types::is_planted!(cx.config.planted, StagedLeftBehind) {
            return self.aside.retain(|_, aside| aside.is_ours());
        }
        self.remove_aside(&all, cx);
    }

    /// Removes these from the store, as far as writes have not used them up.
    fn remove_aside(&mut self, ids: &[u64], cx: &mut Shared) {
        let mut txn = Txn::new();
        for aside in ids.iter().filter_map(|id| self.aside.remove(id)) {
            if !matches!(cx.store.stat(&aside.key), Ok(None)) {
                txn.remove(&aside.key);
            }
        }
        if !txn.is_empty() {
            cx.submit(txn, Done::Nothing);
        }
    }
}
