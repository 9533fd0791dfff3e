//! What PGs and monitors go through step by step: a fault may wait for the k-th message or commit since a PG
//! began to peer, to recover or to be backfilled, or monitors to elect a leader.

use std::collections::BTreeMap;

use bytes::Bytes;
use messages::Message;
use pg::{OsdCore, Purpose};
use types::ConnId;

use crate::faults::Trigger;
use crate::net::Node;
use crate::world::World;

/// What somebody goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Peering,
    Recovery,
    Backfill,
    Election,
}

/// One step of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// A message has arrived.
    Message,
    /// Somebody who has part in it begins to write to its device.
    Commit,
}

/// Which step of which phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    pub phase: Phase,
    pub step: Step,
}

impl Moment {
    fn name(self) -> &'static str {
        match (self.phase, self.step) {
            (Phase::Peering, Step::Message) => "faults at a message of peering",
            (Phase::Peering, Step::Commit) => "faults at a commit of peering",
            (Phase::Recovery, Step::Message) => "faults at a message of recovery",
            (Phase::Recovery, Step::Commit) => "faults at a commit of recovery",
            (Phase::Backfill, Step::Message) => "faults at a message of a backfill",
            (Phase::Backfill, Step::Commit) => "faults at a commit of a backfill",
            (Phase::Election, Step::Message) => "faults at a message of an election",
            (Phase::Election, Step::Commit) => "faults at a commit of an election",
        }
    }
}

/// Of which PG, in which interval; or of the monitors, in which term.
type Of = (String, u64);

/// The steps so far, where any fault waits for them.
#[derive(Debug, Default)]
pub struct Phases {
    steps: BTreeMap<(Moment, Of), u32>,
    /// What each process has had part in last.
    parts: BTreeMap<(Node, Phase), Of>,
}

impl World {
    /// Whether any fault waits for a step.
    fn counts_steps(&self) -> bool {
        self.armed.iter().any(|i| matches!(self.plan[*i].when, Trigger::Nth { .. }))
    }

    /// A message between OSDs arrives.
    pub fn step_of_osds(&mut self, [from, to]: [Node; 2], msg: &Message) {
        if !matches!(msg, Message::Unknown(_)) || !self.counts_steps() {
            return;
        }
        let Some((purpose, id, interval)) = OsdCore::purpose_of(msg) else { return };
        let phase = match purpose {
            Purpose::Peering => Phase::Peering,
            Purpose::Recovery => Phase::Recovery,
            Purpose::Backfill => Phase::Backfill,
        };
        self.message_of(phase, [from, to], (id.pgid.to_string(), interval.0.into()));
    }

    /// What one monitor says to another arrives. While that one follows nobody it is about who leads.
    pub fn peer_message(&mut self, mon: usize, conn: ConnId, from: Node, data: Bytes) {
        if self.counts_steps() {
            let core = self.mons[mon].core.as_ref();
            let term = core.filter(|m| m.core().quorum().leader.is_none()).map(|m| m.raft().term());
            if let Some(term) = term {
                self.message_of(Phase::Election, [from, Node::Mon(mon)], ("monitors".to_owned(), term));
            }
        }
        self.mon_input(mon, monitor::Input::Peer { conn, data });
    }

    fn message_of(&mut self, phase: Phase, nodes: [Node; 2], of: Of) {
        for node in nodes {
            self.phases.parts.insert((node, phase), of.clone());
        }
        self.step(Moment { phase, step: Step::Message }, of, nodes[1]);
    }

    /// A process begins to write to its device: a step of all that it has part in.
    pub fn step_of_device(&mut self, node: Node) {
        if !self.counts_steps() {
            return;
        }
        for phase in [Phase::Peering, Phase::Recovery, Phase::Backfill, Phase::Election] {
            if let Some(of) = self.phases.parts.get(&(node, phase)).cloned() {
                self.step(Moment { phase, step: Step::Commit }, of, node);
            }
        }
    }

    fn step(&mut self, what: Moment, of: Of, by: Node) {
        let steps = self.phases.steps.entry((what, of)).or_default();
        *steps += 1;
        let trigger = Trigger::Nth { what, k: *steps };
        if self.armed.iter().any(|i| self.plan[*i].when == trigger) {
            self.happened(what.name());
            self.pull(trigger, by);
        }
    }
}
