//! Reads that the device of an OSD carries out while its core goes on; none unless devices are slow
//! (`SimDevice::set_slow`), which no scenario asks for yet.

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
    id: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    ToDo(Box<ReadPlan>),
    Done(Result<Bytes, StoreError>),
}

impl World {
    /// The device reads early or late: what it finds is what was there then.
    pub fn plan_device_read(&mut self, osd: i32, id: u64, plan: Box<ReadPlan>) {
        let host = &self.osds[osd as usize];
        // Of its own, so that what else happens does not depend on whether something was in memory.
        let mut rng = Rng::new(self.scenario.seed ^ (osd as u64) << 48 ^ u64::from(host.life) << 32 ^ id);
        let is_early = rng.one_in(2);
        let takes = if rng.one_in(10) { LONG } else { QUICK };
        let wait = rng.below(takes) * host.slow;
        let what = match is_early {
            true => What::Done(plan.execute(host.device.as_ref())),
            false => What::ToDo(plan),
        };
        let life = host.life;
        self.plan_in(wait, Event::DeviceRead { osd, life, read: Box::new(DeviceRead { id, what }) });
        self.happened("reads that waited for a device");
    }

    /// The OSD hears what was read, unless it has died meanwhile.
    pub fn device_has_read(&mut self, osd: i32, life: u32, read: DeviceRead) {
        let host = &self.osds[osd as usize];
        if host.life != life || host.core.is_none() {
            return;
        }
        let DeviceRead { id, what } = read;
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
