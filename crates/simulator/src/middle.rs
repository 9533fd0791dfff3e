//! Faults between and beside processes: a box in the middle of the network that refuses connections in
//! others' names, three networks apart, processes and hosts that stand still, and flags of the OSD map that
//! an administrator sets for a while.

use testkit::Rng;
use types::ConnId;

use crate::net::{End, Node};
use crate::queue::{SECOND, Time};
use crate::world::{Event, Gone, World};

/// A host that was suspended, and may be.
#[derive(Debug, Clone, Copy, Default)]
pub struct Standstill {
    from: Time,
    until: Time,
    /// What the times before this one took.
    before: Time,
}

impl Standstill {
    /// What the host's monotonic clock has missed.
    fn missed(&self, now: Time) -> Time {
        self.before + now.min(self.until).saturating_sub(self.from)
    }

    /// It is suspended until then, or longer if it is already.
    fn suspend(&mut self, now: Time, until: Time) {
        if now < self.until {
            self.until = until.max(self.until);
        } else {
            *self = Self { before: self.missed(now), from: now, until };
        }
    }
}

impl World {
    /// Which host a process is on, where hosts matter.
    pub fn host_of(&self, node: Node) -> Option<usize> {
        match node {
            Node::Mon(mon) => Some(mon),
            Node::Osd(osd) => usize::try_from(osd).ok().map(|osd| osd / self.scenario.options.osds_per_host),
            Node::Mgr => Some(0),
            Node::Admin | Node::Client(_) | Node::Guest(_) => None,
        }
    }

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
        if self.frozen.is_empty() && self.suspended.is_empty() {
            return None;
        }
        let node = match event {
            Event::Deliver(d) => self.net.conn(d.conn)?.nodes[d.to as usize],
            Event::Tick { node, .. } | Event::SeekMon { node, .. } => *node,
            Event::JobStep { osd, .. }
            | Event::NextSlice { osd, .. }
            | Event::LetGo { osd, .. }
            | Event::DeviceRead { osd, .. } => Node::Osd(*osd),
            Event::MonAppended { mon, .. } => Node::Mon(*mon),
            Event::Retry { conn, .. } | Event::ConnectTimeout { conn } => self.net.conn(*conn)?.nodes[0],
            // Nothing is started there, either.
            Event::Start(node) => return self.is_suspended_until(*node),
            _ => return None,
        };
        self.stands_still_until(node)
    }

    /// Until when a process stands still, if it does.
    pub fn stands_still_until(&self, node: Node) -> Option<Time> {
        let frozen = self.frozen.get(&node).copied().filter(|until| *until > self.now);
        frozen.max(self.is_suspended_until(node))
    }

    fn is_suspended_until(&self, node: Node) -> Option<Time> {
        let host = self.suspended.get(&self.host_of(node)?)?;
        (host.until > self.now).then_some(host.until)
    }

    /// What the monotonic clock of a process's host has missed.
    pub fn missed_by(&self, node: Node) -> Time {
        let host = self.host_of(node).and_then(|host| self.suspended.get(&host));
        host.map_or(0, |host| host.missed(self.now))
    }

    pub fn suspend(&mut self, host: usize, lasts: Time) {
        let (now, until) = (self.now, self.until_after(lasts));
        self.suspended.entry(host).or_default().suspend(now, until);
        self.happened("hosts suspended");
    }

    /// The links that are cut when everybody is in one of three networks.
    pub fn three_networks(&mut self, nth: u64, one_way: bool) -> Vec<(Node, Node)> {
        let r = &mut Rng::new(nth);
        // Dealt out, three monitors are apart, and the copies of most objects.
        let (is_dealt, first) = (r.one_in(2), r.below(3) as usize);
        let mut part = |i: usize| if is_dealt { (i + first) % 3 } else { r.below(3) as usize };
        let osds = (0..self.scenario.options.osds).map(Node::Osd).enumerate();
        let mons = (0..self.mons.len()).map(Node::Mon).enumerate();
        let clients = (0..self.clients.len()).map(Node::Client).enumerate();
        let guests = (0..self.guests.len()).map(Node::Guest).enumerate();
        let all = osds.chain(mons).chain(clients).chain(guests).chain([(0, Node::Mgr)]);
        let all: Vec<(usize, Node)> = all.map(|(i, node)| (part(i), node)).collect();
        // Of each two networks, whether the first one is heard.
        let heard = [(); 3].map(|()| r.one_in(2));
        let is_cut = |from: usize, to: usize| from != to && !(one_way && heard[from + to - 1] == (from < to));
        self.happened("networks in three parts");
        let pairs = all.iter().flat_map(|from| all.iter().map(move |to| (from, to)));
        pairs.filter(|(from, to)| is_cut(from.0, to.0)).map(|(from, to)| (from.1, to.1)).collect()
    }

    pub fn freeze(&mut self, node: Node, lasts: Time) -> bool {
        if !self.is_alive(node) {
            return false;
        }
        let until = self.until_after(lasts);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Level, Scenario};

    #[test]
    fn a_clock_misses_what_its_host_was_suspended_for() {
        let mut host = Standstill::default();
        assert_eq!(host.missed(50), 0);
        host.suspend(100, 130);
        assert_eq!([100, 110, 130, 150].map(|now| host.missed(now)), [0, 10, 30, 30]);
        host.suspend(120, 140);
        host.suspend(130, 135);
        assert_eq!([120, 140, 150].map(|now| host.missed(now)), [20, 40, 40]);
        host.suspend(200, 205);
        assert_eq!([200, 203, 300].map(|now| host.missed(now)), [40, 43, 45]);
    }

    #[test]
    fn a_suspended_host_stands_still_with_its_clock() {
        let mut world = World::new(Scenario::from_seed(1).with_level(Level::Calm)).expect("a cluster");
        world.bring_up();
        let (osd, other, mon) = (Node::Osd(0), Node::Osd(1), Node::Mon(0));
        let before = [osd, other].map(|node| world.clock_of(node));
        world.suspend(0, 2 * SECOND);
        let end = world.now + 3 * SECOND;
        world.run_until(end, |_| false);
        let after = [osd, other].map(|node| world.clock_of(node));
        let (stood, went) = (after[0].mono - before[0].mono, after[1].mono - before[1].mono);
        assert!((0.9..1.1).contains(&stood.as_secs_f64()), "{stood:?}");
        assert!((2.9..3.1).contains(&went.as_secs_f64()), "{went:?}");
        let wall = after[0].wall.since(before[0].wall).as_secs_f64();
        assert!((2.9..3.1).contains(&wall), "{wall}");
        assert_eq!(world.missed_by(mon), 2 * SECOND);
        assert_eq!(world.missed_by(Node::Client(0)), 0);
    }

    #[test]
    fn three_networks_hear_nothing_of_each_other_or_one_side() {
        let mut world = World::new(Scenario::from_seed(1).with_mons(3)).expect("a cluster");
        for nth in 0..20 {
            let both = world.three_networks(nth, false);
            assert!(both.iter().all(|(from, to)| both.contains(&(*to, *from))));
            let one = world.three_networks(nth, true);
            assert_eq!(one.len() * 2, both.len());
            assert!(one.iter().all(|link| both.contains(link) && !one.contains(&(link.1, link.0))));
        }
        let apart = (0..20).filter(|nth| {
            let links = world.three_networks(*nth, false);
            [(0, 1), (0, 2), (1, 2)].iter().all(|(a, b)| links.contains(&(Node::Mon(*a), Node::Mon(*b))))
        });
        assert!(apart.count() >= 5, "three monitors are seldom apart");
    }
}
