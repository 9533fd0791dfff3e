//! Faults between and beside processes: a box in the middle of the network that refuses connections in others' names, processes
//! that stand still, and flags of the OSD map that an administrator sets for a while.

use types::ConnId;

use crate::net::{End, Node};
use crate::queue::{SECOND, Time};
use crate::world::{Event, Gone, World};

impl World {
    /// A firewall answers for the targets: connections are reset, new ones refused, though both ends live.
    pub fn refuse_between(&mut self, pairs: Vec<(Node, Node)>, until: Time) {
        let over = self.now >= until || self.healed;
        for (opener, target) in &pairs {
            self.net.set_refused(*opener, *target, !over);
            for conn in self.net.between(*opener, *target) {
                if !over {
                    self.reset_between(conn, [*opener, *target], until);
                }
            }
        }
        if !over {
            self.plan_in(SECOND, Event::Refusing { pairs, until });
        }
    }

    fn reset_between(&mut self, conn: ConnId, nodes: [Node; 2], until: Time) {
        if self.net.conn(conn).is_some_and(|c| c.lossy) {
            self.net.lose_tail(conn, End::Opener);
            self.net.lose_tail(conn, End::Target);
            return self.gone(conn, End::Opener, Gone::Lost);
        }
        if self.net.is_wired() {
            return self.net.wire_break(self.now, conn);
        }
        // A lossless session keeps what it has, and its opener hears each time that it is refused.
        self.net.hold(conn, until);
        self.tell_refused(nodes);
    }

    /// Somebody asks for a session, and the box answers.
    pub fn refused_between(&mut self, conn: ConnId, nodes: [Node; 2]) {
        if self.net.conn(conn).is_some_and(|c| c.lossy) {
            return self.net.refuse(self.now, conn);
        }
        self.plan_in(SECOND, Event::Retry { conn, wait: SECOND });
        self.tell_refused(nodes);
    }

    fn tell_refused(&mut self, nodes: [Node; 2]) {
        self.happened("connections refused by a box between");
        if let [Node::Osd(osd), Node::Osd(to)] = nodes {
            self.osd_input(osd, pg::Input::OsdRefused { osd: types::OsdId(to) });
        }
    }

    /// Until when the process that an event is for stands still, if it does.
    pub fn stands_still(&self, event: &Event) -> Option<Time> {
        if self.frozen.is_empty() {
            return None;
        }
        let node = match event {
            Event::Deliver(d) => self.net.conn(d.conn)?.nodes[d.to as usize],
            Event::Tick { node, .. } | Event::SeekMon { node, .. } => *node,
            Event::JobStep { osd, .. } | Event::NextSlice { osd, .. } => Node::Osd(*osd),
            Event::MonAppended { mon, .. } => Node::Mon(*mon),
            Event::Retry { conn, .. } | Event::ConnectTimeout { conn } => self.net.conn(*conn)?.nodes[0],
            _ => return None,
        };
        self.frozen.get(&node).copied().filter(|until| *until > self.now)
    }

    pub fn freeze(&mut self, node: Node, lasts: Time) -> bool {
        if !self.is_alive(node) {
            return false;
        }
        let until = self.now + lasts;
        let known = self.frozen.entry(node).or_default();
        *known = until.max(*known);
        self.happened("processes stood still");
        true
    }

    pub fn set_flag(&mut self, flag: &'static str, lasts: Time) {
        self.flags.insert(flag);
        self.admin_command(format!(r#"{{"prefix":"osd set","key":"{flag}"}}"#));
        self.plan_in(lasts, Event::Unset { flag });
        self.happened("flags set");
    }

    pub fn unset_flag(&mut self, flag: &'static str) {
        if self.flags.remove(flag) {
            self.admin_command(format!(r#"{{"prefix":"osd unset","key":"{flag}"}}"#));
        }
    }
}
