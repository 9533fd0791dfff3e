//! What processes do with what links that carry bytes tell them, as the daemons' shells do.

use messages::Message;
use messages::type_numbers::LOLIGO_MON_PEER;
use messages::wire::WireMessage;
use types::{ConnId, GlobalId};

use crate::net::{Delivery, End, Node, Packet};
use crate::queue::{MILLISECOND, SECOND};
use crate::wire::Told;
use crate::world::{Event, Gone, World, describe};

impl World {
    /// Whether an end stays although its peer has hung up: whoever comes back takes the session up again.
    pub fn keeps_session(&self, d: &Delivery) -> bool {
        d.to == End::Target && self.net.conn(d.conn).is_some_and(|c| c.wired.is_some() && !c.lossy)
    }

    /// An end's connection had this to say, in order.
    pub fn told(&mut self, d: Delivery, told: Vec<Told>) {
        for one in told {
            if let Told::Forgot(conn) = one {
                self.forgot(d.conn, conn);
                continue;
            }
            let Some(c) = self.net.conn(d.conn) else { return };
            let (nodes, lives, lossy) = (c.nodes, c.lives, c.lossy);
            let me = nodes[d.to as usize];
            if !c.held[d.to as usize] || !self.is_alive(me) || self.life(me) != lives[d.to as usize] {
                return;
            }
            match one {
                Told::Forgot(_) => {}
                Told::Ready { resumed, global_id } => match (d.to, nodes[1]) {
                    (End::Opener, _) if resumed => self.net.now_ready(self.now, d.conn),
                    (End::Opener, _) => self.accepted(d.conn, nodes, global_id),
                    (End::Target, _) if resumed => {}
                    (End::Target, Node::Mon(mon)) => {
                        self.mon_connected(mon, d.conn, nodes[0], GlobalId(global_id));
                    }
                    (End::Target, _) => self.connected(d.conn, nodes, lives),
                },
                Told::Message(wire) => self.wire_message(d, nodes, &wire),
                Told::Heard => self.heard_of(d, nodes),
                Told::Reset => {
                    if let [Node::Osd(osd), Node::Osd(to)] = nodes {
                        self.osd_input(osd, pg::Input::OsdReset { osd: types::OsdId(to) });
                    }
                }
                Told::Over if lossy || d.to == End::Opener => self.gone(d.conn, d.to, Gone::Lost),
                // The session waits for its opener.
                Told::Over => {}
            }
        }
    }

    fn wire_message(&mut self, d: Delivery, nodes: [Node; 2], wire: &WireMessage) {
        self.heard_of(d, nodes);
        if wire.header.ty == LOLIGO_MON_PEER {
            if let Node::Mon(mon) = nodes[d.to as usize] {
                self.peer_message(mon, d.conn, nodes[d.to.other() as usize], wire.data.clone());
            }
            return;
        }
        let (from, to, tid) = (nodes[d.to.other() as usize], nodes[d.to as usize], wire.header.tid);
        match Message::decode(wire) {
            Ok(msg) => {
                if self.verbose {
                    let packet = Packet::Message { tid, msg: msg.clone() };
                    self.say(|| format!("{from:?} -> {to:?} {} {}", d.conn, describe(&packet)));
                }
                self.message(d, nodes, tid, msg);
            }
            Err(e) => {
                let ty = wire.header.ty;
                self.violation(format!(
                    "O6: {from:?} sent {to:?} a message of type {ty} that does not decode: {e}"
                ));
            }
        }
    }

    /// A session that was kept for its opener is given up: what it had to say is lost.
    fn forgot(&mut self, by: ConnId, conn: ConnId) {
        let target = self.net.conn(conn).map(|c| c.nodes[1]);
        match (target, by == conn) {
            // The peer began anew under the same id.
            (Some(Node::Osd(osd)), true) => self.osd_input(osd, pg::Input::Disconnected { conn }),
            _ => self.gone(conn, End::Target, Gone::Lost),
        }
    }

    /// One end finds its TCP connection broken.
    pub fn tcp_is_cut(&mut self, d: Delivery, tcp: u32) {
        let lossy = self.net.conn(d.conn).is_some_and(|c| c.lossy);
        if !self.net.wire_cut(self.now, d.conn, d.to, tcp) {
            return;
        }
        if lossy {
            self.gone(d.conn, d.to, Gone::Lost);
        } else if d.to == End::Opener {
            let wait = match self.rng.one_in(4) {
                true => self.rng.below(SECOND),
                false => 20 * MILLISECOND,
            };
            self.plan_in(wait, Event::Retry { conn: d.conn, wait: 20 * MILLISECOND });
        }
    }

    /// A fault between two who live. Whether it is all that happens to the connection.
    pub fn cut_wire(&mut self, conn: ConnId, lossy: bool) -> bool {
        if self.rng.one_in(4) && self.net.wire_flip(conn) {
            return true;
        }
        if lossy {
            return false;
        }
        self.net.wire_break(self.now, conn);
        if self.rng.one_in(6) {
            self.happened("sessions expired");
            self.gone(conn, End::Target, Gone::Lost);
        }
        true
    }

    /// Time passes for an OSD's connections, and for sessions that it keeps for those who do not come back.
    pub fn tick_wire(&mut self, osd: i32) {
        if !self.net.is_wired() {
            return;
        }
        let node = Node::Osd(osd);
        for (conn, to, told) in self.net.wire_tick(self.now, node) {
            self.told(Delivery { conn, to }, told);
        }
        let Some(core) = &self.osds[osd as usize].core else { return };
        let map = core.osdmap();
        let up = |at: &types::AddrVec| {
            (0..self.scenario.options.osds)
                .any(|o| map.is_up(o) && map.osd(o).is_some_and(|o| o.cluster_addrs == *at))
        };
        let stale = self.net.wire_stale(self.now, (node, self.life(node)), up);
        for conn in stale {
            self.happened("sessions expired");
            self.gone(conn, End::Target, Gone::Lost);
        }
    }
}
