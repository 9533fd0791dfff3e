//! Scenarios for requests that are sent again late, when the PG that did them is another one, or elsewhere.

use super::{Kind, Node, block, command, each, kill, pool_set, prefer, s, start};
use crate::faults::Fault;
use crate::queue::MILLISECOND;
use crate::scenario::{Options, Scenario};

/// A client hears nothing for a while, in which PGs split that remember what it asked and have its entry in
/// no log any more.
pub(super) fn late_resends_after_splits(base: Scenario) -> Scenario {
    let plan = each(1.0, 4.0, 5, |i, at| {
        let client = Node::Client(i % 3);
        let links = (0..3).map(|osd| (Node::Osd(osd), client)).collect();
        let cut = |after: f64| Fault::at(at + after, Kind::CutAll { node: client });
        vec![block(at, links, s(3)), command(at + 1.5, pool_set("pg_num", 2 << i)), cut(2.9), cut(2.95)]
    });
    base.with_seconds(22).with_options(forgetful).with_plan(plan)
}

/// Logs that are short, and requests that are remembered for long.
fn forgetful(o: &mut Options) {
    (o.clients, o.objects, o.pg_num, o.think) = (3, 6, 1, 20 * MILLISECOND);
    (o.log_entries, o.dups_tracked) = (2, 3_000);
}

/// A client hears nothing for a while, in which a member that was away is filled again, and leads.
pub(super) fn late_resends_after_backfill(base: Scenario) -> Scenario {
    let leader = Node::Osd(2);
    let mut plan = prefer(2, 3);
    plan.extend(each(2.0, 7.0, 3, |i, at| {
        let client = Node::Client(i % 3);
        let links = (0..3).map(|osd| (Node::Osd(osd), client)).collect();
        vec![kill(at, leader), block(at + 1.0, links, s(4)), start(at + 2.5, leader)]
    }));
    base.with_seconds(24).with_options(forgetful).with_plan(plan)
}
