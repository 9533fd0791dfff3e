//! Monitors that are added and removed while the cluster runs.
//!
//! An administrator makes one such change at a time, and only while all monitors vote: with one dead or
//! without its disk, a removal may leave no majority for ever.

use monitor::Dismissal;

use crate::faults::{Death, Mons};
use crate::mon::{MonHost, mon_name};
use crate::net::Node;
use crate::queue::{SECOND, Time};
use crate::world::{Event, World, addr_of};

/// How many monitors there are at least and at most.
const FEWEST: usize = 3;
const MOST: usize = 5;
/// How often a change waits until all monitors vote, and between.
const TRIES: u32 = 40;
const AGAIN: Time = SECOND / 2;
/// From the command that adds a monitor to the start of its process, or the other way round.
const APART: Time = 2 * SECOND;

impl World {
    /// The monitors that the administrator wants, whether they are alive or not.
    pub fn listed_mons(&self) -> Vec<usize> {
        (0..self.mons.len()).filter(|mon| self.mons[*mon].listed).collect()
    }

    /// Another monitor, with an empty disk. Its process begins before the command that adds it, or after.
    pub fn add_mon(&mut self, index: usize, early: bool) {
        if !self.may_change_mons(index) {
            return;
        }
        if self.listed_mons().len() == MOST {
            return self.say(|| "there are enough monitors".to_owned());
        }
        self.begin_change(index);
        let free = self.mons.iter().position(|host| !host.listed);
        let mon = free.unwrap_or(self.mons.len());
        if free.is_none() {
            self.mons.push(MonHost::new(&self.scenario, mon, &self.genesis));
        }
        self.blank_mon_disk(mon);
        self.mons[mon].listed = true;
        self.mons[mon].joins = true;
        let addr = addr_of(Node::Mon(mon), 0).0[0];
        let add = format!(r#"{{"prefix":"mon add","name":"{}","addr":"{addr}"}}"#, mon_name(mon));
        let (to_start, to_add) = if early { (0, APART) } else { (APART, 0) };
        self.plan_in(to_start, Event::Start(Node::Mon(mon)));
        self.plan_in(to_add, Event::Ask { command: add });
    }

    /// A monitor that goes for good. Its process ends by itself when it finds out.
    pub fn remove_mon(&mut self, index: usize, which: Mons) {
        if !self.may_change_mons(index) {
            return;
        }
        if self.listed_mons().len() == FEWEST {
            return self.say(|| "there are no monitors to spare".to_owned());
        }
        let Some(mon) = self.which_mons(which).first().copied() else { return };
        self.begin_change(index);
        self.mons[mon].listed = false;
        self.admin_command(format!(r#"{{"prefix":"mon rm","name":"{}"}}"#, mon_name(mon)));
    }

    /// Whether all monitors vote; else it is tried again.
    fn may_change_mons(&mut self, index: usize) -> bool {
        let whole = self.mons_whole();
        let tries = self.tries.entry(index).or_default();
        *tries += 1;
        if !whole && *tries <= TRIES {
            self.plan_in(AGAIN, Event::Inject(index));
        }
        whole
    }

    fn begin_change(&mut self, index: usize) {
        self.came.insert(index);
        self.count_fault();
        self.wake_clients();
    }

    /// What a monitor's process finds out about its place among the others.
    pub fn look_at_membership(&mut self, at: usize) {
        let now = self.clock_of(Node::Mon(at));
        let host = &mut self.mons[at];
        let Some(core) = &host.core else { return };
        let (votes, dismissed) = (core.raft().members().is_voter(core.raft().id()), core.dismissed(now));
        if votes && std::mem::take(&mut host.joins) {
            self.happened("monitors added");
        }
        match dismissed {
            None => {}
            Some(Dismissal::Removed) if !self.mons[at].listed => {
                self.happened("monitors removed");
                self.crash_mon(at, Death::Killed);
            }
            Some(Dismissal::Former) if !self.mons[at].listed => {
                self.happened("former monitors turned away");
                self.crash_mon(at, Death::Killed);
            }
            Some(why) => self.violation(format!("O7: mon.{at} takes itself for dismissed: {why:?}")),
        }
    }
}
