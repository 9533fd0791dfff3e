//! Reads that the device of an OSD carries out while its core goes on.

use bytes::Bytes;
use pg::Input;
use store::{ReadPlan, StoreError};
use testkit::Rng;

use crate::queue::{MICROSECOND, MILLISECOND, Time};
use crate::world::{Event, World};

/// How long a read takes, mostly; and at times, when others may be given its blocks meanwhile.
const QUICK: Time = 300 * MICROSECOND;
const LONG: Time = 200 * MILLISECOND;

/// A read on its way.
#[derive(Debug)]
pub struct DeviceRead {
    what: What,
    due: Time,
}

#[derive(Debug)]
enum What {
    ToDo(Box<ReadPlan>),
    Done(Result<Bytes, StoreError>),
}

impl World {
    /// The device reads early or late: what it finds is what was there then.
    pub fn plan_device_read(&mut self, osd: i32, id: u64, plan: Box<ReadPlan>) {
        let (seed, now) = (self.scenario.seed, self.now);
        let host = &mut self.osds[osd as usize];
        // Of its own, so that what else happens does not depend on whether something was in memory.
        let mut rng = Rng::new(seed ^ (osd as u64) << 48 ^ u64::from(host.life) << 32 ^ id);
        let is_early = rng.one_in(2);
        let takes = if rng.one_in(10) { LONG } else { QUICK };
        let wait = rng.below(takes) * host.slow;
        let what = match is_early {
            true => What::Done(plan.execute(host.device.as_ref())),
            false => What::ToDo(plan),
        };
        let life = host.life;
        host.reads.insert(id, DeviceRead { what, due: now + wait });
        self.plan_in(wait, Event::DeviceRead { osd, life, id });
        self.happened("reads that waited for a device");
    }

    /// Reads of a device that was slower by this factor end as soon as those of any other.
    pub fn speed_up_reads(&mut self, osd: i32, slow: u64) {
        let now = self.now;
        let host = &mut self.osds[osd as usize];
        let life = host.life;
        let mut due = Vec::new();
        for (id, read) in &mut host.reads {
            let wait = read.due.saturating_sub(now) / slow;
            read.due = now + wait;
            due.push((wait, Event::DeviceRead { osd, life, id: *id }));
        }
        due.into_iter().for_each(|(wait, event)| self.plan_in(wait, event));
    }

    /// The OSD hears what was read, unless it has died or heard of it meanwhile.
    pub fn device_has_read(&mut self, osd: i32, life: u32, id: u64) {
        let now = self.now;
        let host = &mut self.osds[osd as usize];
        if host.life != life || host.core.is_none() {
            return;
        }
        // The event of a read that was sped up may come while the device reads for that request again.
        if host.reads.get(&id).is_none_or(|read| read.due > now) {
            return;
        }
        let Some(DeviceRead { what, .. }) = host.reads.remove(&id) else { return };
        let result = match what {
            What::Done(result) => result,
            What::ToDo(plan) => plan.execute(host.device.as_ref()),
        };
        if result.is_err() {
            self.happened("device reads that came too late or failed");
        }
        self.osd_input(osd, Input::Read { id, result });
    }
}
