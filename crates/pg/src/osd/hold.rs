//! When clients have to wait: so many operations or bytes are under way, or the store cannot keep up.
//!
//! Source: osd_client_message_cap and osd_client_message_size_cap, as throttles in src/ceph_osd.cc.

use types::ConnId;

use super::OsdCore;
use crate::io::Output;

impl OsdCore {
    /// Says so when clients have to wait, and when they may go on. Once they wait, a quarter of the room has to be free
    /// again, so that they are not stopped and started for each operation.
    pub(super) fn hold_clients_if_full(&mut self) {
        let full = self.is_full_of_work();
        if full != self.holding {
            self.holding = full;
            self.shared.out.push(Output::HoldClients(full));
        }
    }

    fn is_full_of_work(&self) -> bool {
        let config = &self.shared.config;
        let room = |max: u64| if self.holding { max - max / 4 } else { max };
        let (ops, bytes) = (self.tracker.in_flight() as u64, self.tracker.bytes());
        let (max_ops, max_bytes) = (config.client_message_cap, config.client_message_size_cap);
        // Operations on a PG that does not serve hold up nobody else's, as long as there is memory for them: their bytes have
        // half as much room again of their own.
        if max_bytes > 0 && bytes > room(max_bytes) {
            let idle = self.idle_ops().filter_map(|(conn, tid)| self.tracker.arrival(conn, tid));
            let idle: u64 = idle.map(|a| a.bytes).sum();
            if bytes.saturating_sub(idle.min(max_bytes / 2)) > room(max_bytes) {
                return true;
            }
        }
        if max_ops > 0 && ops > room(max_ops) {
            let idle = self.idle_ops().count() as u64;
            if ops.saturating_sub(idle) > room(max_ops) {
                return true;
            }
        }
        self.shared.store.throttled()
    }
    /// Operations that wait for their PGs to serve.
    fn idle_ops(&self) -> impl Iterator<Item = (ConnId, u64)> {
        self.pgs.values().flat_map(|pg| &pg.waiting_for_active).map(|op| (op.conn, op.tid))
    }
}
