//! Messages of recovery carry several objects: what an input has begun goes out together when the input is through. A member
//! stores all that came in one message in one transaction, and answers once.
//!
//! Invariant: an object in here is in `Pg::recovering`, so no write of it is under way, and it is in here once for each member.
//!
//! Source: ReplicatedBackend::send_pushes in src/osd/ReplicatedBackend.cc.

use std::collections::BTreeMap;

use types::{Epoch, PgShard};

use super::Pg;
use crate::OsdConfig;
use crate::osd::shared::Shared;
use crate::peer::PgBody;
use crate::push::{ObjectPush, Want};

/// Objects that one message asks for; more are not answered.
pub(super) const MAX_WANTS: usize = 256;

/// What has not been sent yet, by member.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pulls: BTreeMap<PgShard, Vec<Want>>,
    pushes: BTreeMap<PgShard, Pushes>,
}

/// Objects for one message.
#[derive(Debug, Default)]
pub(super) struct Pushes {
    objects: Vec<ObjectPush>,
    bytes: u64,
}

impl Pushes {
    /// Whether another object of so many bytes goes into the same message.
    fn takes(&self, bytes: u64, config: &OsdConfig) -> bool {
        self.objects.is_empty()
            || self.objects.len() < config.max_push_objects.max(1)
                && self.bytes.saturating_add(bytes) <= config.max_push_cost
    }

    fn add(&mut self, push: ObjectPush, bytes: u64) {
        self.objects.push(push);
        self.bytes += bytes;
    }
}

impl Pg {
    /// Asks a copy for an object.
    pub(super) fn ask_for(&mut self, from: PgShard, want: Want, cx: &mut Shared) {
        cx.counters.pulls += 1;
        cx.batched.insert(self.id);
        let wants = self.batch.pulls.entry(from).or_default();
        wants.push(want);
        if wants.len() >= cx.config.max_push_objects.clamp(1, MAX_WANTS) {
            let wants = std::mem::take(wants);
            cx.send_pg(from, self.id, self.interval(), PgBody::Pull { wants });
        }
    }

    /// Sends an object to a member.
    pub(super) fn send_object(&mut self, to: PgShard, push: ObjectPush, cx: &mut Shared) {
        cx.batched.insert(self.id);
        let bytes = push.bytes();
        let batch = self.batch.pushes.entry(to).or_default();
        if batch.takes(bytes, &cx.config) {
            return batch.add(push, bytes);
        }
        let full = std::mem::take(batch);
        batch.add(push, bytes);
        self.send_pushes(to, self.interval(), full, cx);
    }

    /// Sends what was collected.
    pub fn send_batches(&mut self, cx: &mut Shared) {
        let Batch { pulls, pushes } = std::mem::take(&mut self.batch);
        for (osd, wants) in pulls.into_iter().filter(|(_, w)| !w.is_empty()) {
            cx.send_pg(osd, self.id, self.interval(), PgBody::Pull { wants });
        }
        for (osd, batch) in pushes {
            self.send_pushes(osd, self.interval(), batch, cx);
        }
    }

    pub(super) fn send_pushes(&self, osd: PgShard, interval: Epoch, batch: Pushes, cx: &mut Shared) {
        if batch.objects.is_empty() {
            return;
        }
        cx.counters.pushes += batch.objects.len() as u64;
        cx.counters.push_bytes += batch.bytes;
        cx.counters.recovery_bytes += batch.bytes;
        cx.counters.push_messages += 1;
        cx.send_pg(osd, self.id, interval, PgBody::Push(batch.objects));
    }

    /// Adds an object to the answer for a copy that asked in the interval `reply`; a full message goes.
    pub(super) fn answer_with(
        &self,
        to: PgShard,
        reply: Epoch,
        push: ObjectPush,
        answer: &mut Pushes,
        cx: &mut Shared,
    ) {
        let bytes = push.bytes();
        if !answer.takes(bytes, &cx.config) {
            self.send_pushes(to, reply, std::mem::take(answer), cx);
        }
        answer.add(push, bytes);
    }
}
