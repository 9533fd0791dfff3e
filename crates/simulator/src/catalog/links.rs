//! Scenarios for links that break, and for what comes over them damaged.

use super::{Kind, Node, each};
use crate::faults::{Fault, Trigger};
use crate::queue::MILLISECOND;
use crate::scenario::{Options, Scenario};

pub(super) fn cut_links(base: Scenario) -> Scenario {
    let plan = each(1.0, 0.25, 80, |i, at| {
        let kind = match i % 4 {
            0 => Kind::CutAll { node: Node::Osd((i / 4 % 3) as i32) },
            _ => Kind::Cut { nth: i as u64 * 7_919 },
        };
        vec![Fault::at(at, kind)]
    });
    base.with_seconds(22).with_plan(plan)
}

/// Where links carry bytes cuts come in the middle of frames, bits flip, sessions resume, and some expire;
/// half of it while a write is on its way to the members.
pub(super) fn cut_frames(base: Scenario) -> Scenario {
    let plan = each(1.0, 0.25, 80, |i, at| {
        let fault = match i % 2 {
            0 => Fault::at(at, Kind::CutAll { node: Node::Osd((i / 2 % 3) as i32) }).when(Trigger::Submit),
            _ => Fault::at(at, Kind::Cut { nth: i as u64 * 7_919 }),
        };
        vec![fault]
    });
    base.with_seconds(22).with_wire(true).with_plan(plan)
}

/// Sessions break just when a write is answered.
pub(super) fn lost_replies(base: Scenario) -> Scenario {
    let plan = each(1.0, 0.5, 40, |i, at| {
        vec![Fault::at(at, Kind::CutAll { node: Node::Client(i % 2) }).when(Trigger::Answer)]
    });
    base.with_seconds(22).with_plan(plan)
}

/// Of what OSDs tell each other some does not decode: whoever reads it ends the session, with what waits in
/// it.
pub(super) fn messages_that_do_not_decode(base: Scenario) -> Scenario {
    let busy = |o: &mut Options| {
        (o.clients, o.depth, o.think) = (3, 4, 20 * MILLISECOND);
        (o.latency, o.garbled) = (2 * MILLISECOND, Some(400));
    };
    // Links break besides, for a session that has just begun has to be as good as an old one.
    let plan = each(1.0, 1.0, 20, |i, at| vec![Fault::at(at, Kind::Cut { nth: i as u64 * 7_919 })]);
    base.with_seconds(22).with_options(busy).with_plan(plan)
}
