//! Messages that do not decode where they arrive: the sender has another opinion of their form, or memory is
//! bad. Whoever reads one ends the session, as the daemons' shells do, and what waited in it is lost.

use pg::Input;
use types::OsdId;

use crate::mutant::Mutant;
use crate::net::{Delivery, End, Node};
use crate::world::{Gone, World};

/// So much more of what comes back does not decode.
const ANSWERS: u64 = 40;

impl World {
    /// Whether a message between these does not decode.
    pub fn is_garbled(&mut self, d: Delivery, nodes: [Node; 2]) -> bool {
        let Some(of) = self.scenario.options.garbled.filter(|_| !self.healed) else { return false };
        // Openers hear little but answers to their pings.
        let of = if d.to == End::Opener { of / ANSWERS + 1 } else { of };
        matches!(nodes, [Node::Osd(_), Node::Osd(_)]) && self.garbler.one_in(of)
    }

    /// What an OSD's shell does with a message that does not decode.
    pub fn does_not_decode(&mut self, d: Delivery, nodes: [Node; 2]) {
        self.happened("messages that did not decode");
        self.say(|| format!("{} does not decode", d.conn));
        match (d.to, nodes) {
            (End::Opener, [Node::Osd(osd), Node::Osd(from)]) => {
                self.drop_osd(osd, from);
                // The bug: the core goes on as if the session had nothing to say.
                if self.scenario.mutant != Some(Mutant::EndsUnheard) {
                    self.osd_input(osd, Input::OsdReset { osd: OsdId(from) });
                }
            }
            _ => {
                self.net.forget_session(d.conn);
                self.gone(d.conn, d.to, Gone::Lost);
            }
        }
    }
}
