//! Batches of inputs and slices of work: an OSD's shell takes one time for all that has come, and lets its
//! core go on with what a slice has left when others had their turn.

use pg::Input;
use types::Now;

use crate::net::Node;
use crate::queue::{MICROSECOND, MILLISECOND, Time};
use crate::world::{Event, World};

/// The longest that inputs go on to come in one batch.
const BATCH: Time = MILLISECOND / 2;
/// Until the next slice, mostly and at times; and where clients have to read before.
const SOON: Time = 200 * MICROSECOND;
const BUSY: Time = 10 * MILLISECOND;
const LEISURE: Time = 100 * MILLISECOND;

/// Inputs that an OSD's core is given with one time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Batch {
    now: Now,
    /// Nothing after this is part of it.
    until: Time,
}

impl World {
    /// The time that an OSD's core is told now: that of the batch. Where slices are as large as by default
    /// every input is a batch of its own.
    pub fn time_of_batch(&mut self, osd: i32) -> Now {
        let batch = self.osds[osd as usize].batch;
        if self.now <= batch.until {
            return batch.now;
        }
        let now = self.clock_of(Node::Osd(osd));
        if self.has_small_slices() {
            let lasts = if self.rng.one_in(2) { self.rng.below(BATCH) } else { 0 };
            self.osds[osd as usize].batch = Batch { now, until: self.now + lasts };
        }
        now
    }

    fn has_small_slices(&self) -> bool {
        self.scenario.options.slice_bytes < pg::Portions::default().slice
    }

    /// The core wants to go on.
    pub fn plan_slice(&mut self, osd: i32, at_leisure: bool) {
        let life = self.osds[osd as usize].life;
        let wait = match at_leisure {
            true => LEISURE,
            false if self.rng.one_in(10) => self.rng.below(BUSY),
            false => self.rng.below(SOON),
        };
        self.plan_in(wait, Event::NextSlice { osd, life });
        self.happened("slices that left something");
    }

    /// Other tasks had their turn. Some clients that wait may have much to read.
    pub fn next_slice(&mut self, osd: i32, life: u32) {
        let host = &self.osds[osd as usize];
        let Some(core) = host.core.as_ref().filter(|_| host.life == life) else { return };
        let waiting: Vec<_> = core.clients_in_turn().collect();
        let unread = waiting.into_iter().filter(|_| self.rng.one_in(8)).collect();
        let free_bytes = if self.rng.one_in(4) { 0 } else { u64::MAX };
        self.osd_input(osd, Input::Again { unread, free_bytes });
    }
}
