//! When an OSD's store works on its device, how long that takes, and what becomes of it.

use pg::Input;

use crate::device::{Done, Job};
use crate::faults::Trigger;
use crate::mutant::Mutant;
use crate::net::Node;
use crate::queue::Time;
use crate::world::{Event, World};

impl World {
    /// Begins what the store wants done.
    pub fn osd_commit(&mut self, osd: i32) {
        let mutant = self.scenario.mutant;
        let host = &mut self.osds[osd as usize];
        let Some(core) = &mut host.core else { return };
        // Every other OSD puts off what nobody waits for.
        let puts_off = osd % 2 == 1 && !core.is_commit_urgent();
        let (mut commit, mut checkpoint) = (None, None);
        if host.commit_wanted && host.committing.is_none() && !puts_off {
            host.commit_wanted = false;
            commit = core.store_mut().take_commit();
        }
        if host.checkpointing.is_none() && core.store_mut().checkpoint_due() {
            checkpoint = core.store_mut().take_checkpoint();
        }
        let slow = host.slow;
        if let Some(commit) = commit {
            let (log, direct) = commit.bytes();
            let time = self.device_time(slow, log + direct);
            let host = &mut self.osds[osd as usize];
            host.jobs += 1;
            let job = Job::commit(host.jobs, commit, &host.device, mutant).lasting(time);
            self.go_on(osd, &job);
            self.osds[osd as usize].committing = Some(job);
            self.pull(Trigger::Submit, Node::Osd(osd));
            self.step_of_device(Node::Osd(osd));
        }
        if let Some(checkpoint) = checkpoint {
            let time = self.device_time(slow, 4 << 20) * 4;
            self.begin_checkpoint(osd, checkpoint, time);
        }
    }

    /// The device is told of what has been free for a while.
    pub fn osd_discard(&mut self, osd: i32) {
        let now = self.clock_of(Node::Osd(osd)).mono;
        let host = &mut self.osds[osd as usize];
        let Some(core) = host.core.as_mut().filter(|_| host.checkpointing.is_none()) else { return };
        if let Some(discard) = core.store_mut().take_discard(now) {
            let slow = host.slow;
            self.happened("free space discarded");
            let time = self.device_time(slow, 0);
            self.begin_checkpoint(osd, discard, time);
        }
    }

    fn begin_checkpoint(&mut self, osd: i32, checkpoint: store::Checkpoint, time: Time) {
        let mutant = self.scenario.mutant;
        let host = &mut self.osds[osd as usize];
        host.jobs += 1;
        let job = Job::checkpoint(host.jobs, checkpoint, &host.device, mutant).lasting(time);
        self.go_on(osd, &job);
        self.osds[osd as usize].checkpointing = Some(job);
    }

    fn go_on(&mut self, osd: i32, job: &Job) {
        let life = self.osds[osd as usize].life;
        self.plan_in(job.pace, Event::JobStep { osd, life, job: job.number });
    }

    /// A slow device is as fast as ever: what it has under way ends soon, too.
    pub fn speed_up(&mut self, osd: i32) {
        let host = &mut self.osds[osd as usize];
        let slow = std::mem::replace(&mut host.slow, 1);
        if slow == 1 {
            return;
        }
        let life = host.life;
        let mut due = Vec::new();
        for job in [&mut host.committing, &mut host.checkpointing].into_iter().flatten() {
            host.jobs += 1;
            job.number = host.jobs;
            job.pace = (job.pace / slow).max(1);
            due.push((job.pace, Event::JobStep { osd, life, job: job.number }));
        }
        due.into_iter().for_each(|(wait, event)| self.plan_in(wait, event));
        self.speed_up_reads(osd, slow);
    }

    /// One flush, and two nanoseconds for each byte.
    fn device_time(&mut self, slow: u64, bytes: u64) -> Time {
        let flush = self.scenario.options.flush;
        let spread = if self.rng.one_in(50) { flush * 20 } else { flush };
        // Early acknowledgements matter on slow devices.
        let slow = match self.scenario.mutant {
            Some(Mutant::AckEarly | Mutant::ReplicaAckEarly) => slow * 200,
            _ => slow,
        };
        (flush + self.rng.below(spread) + bytes * 2) * slow
    }

    pub fn job_step(&mut self, osd: i32, life: u32, number: u64) {
        let host = &mut self.osds[osd as usize];
        if host.life != life {
            return;
        }
        let slots = [&mut host.committing, &mut host.checkpointing];
        let meant = |slot: &&mut Option<Job>| slot.as_ref().is_some_and(|job| job.number == number);
        let Some(slot) = slots.into_iter().find(meant) else { return };
        let Some(mut job) = slot.take() else { return };
        match job.step(&host.device) {
            None => {
                let pace = job.pace;
                *slot = Some(job);
                self.plan_in(pace, Event::JobStep { osd, life, job: number });
            }
            Some(reached) => self.job_done(osd, job.finish(reached)),
        }
    }

    fn job_done(&mut self, osd: i32, done: Done) {
        // A log that was full may have room now.
        self.osds[osd as usize].commit_wanted = true;
        if let Done::Commit(_) = done {
            self.pull(Trigger::Durable, Node::Osd(osd));
        }
        let Some(core) = &mut self.osds[osd as usize].core else { return };
        let told = match done {
            Done::Commit(done) => core.store_mut().committed(done),
            Done::Checkpoint(done) => core.store_mut().checkpointed(done),
        };
        self.osd_input(osd, told.map_or(Input::DeviceFailed, Input::Durable));
    }
}
