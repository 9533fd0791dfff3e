//! Following OSD maps: increments, whole maps, gaps; and what each new map means for what is under way.

use std::sync::Arc;

use bytes::Bytes;
use codec::Decode;
use maps::flags::map_flags;
use maps::{Incremental, OsdMap};
use messages::mon::{MOsdMap, SubscribeItem};
use types::{Epoch, Errno, SnapId};

use crate::core::Objecter;
use crate::io::{Effect, Outcome};
use crate::target::Change;

/// What a message holds for the epoch after ours.
enum Next {
    Map(OsdMap),
    /// A map behind maps that nobody has any more.
    Jump(OsdMap),
    /// The message does not lead on from here.
    Gap,
    /// What it holds cannot be used.
    Bad,
}

impl Objecter {
    /// Asks for the next map, unless that is asked already. Source: Objecter::_maybe_request_map.
    pub(crate) fn want_map(&mut self, out: &mut Vec<Effect>) {
        let start =
            if self.map.epoch == Epoch(0) || self.distrusts_map { 0 } else { self.map.epoch.next().0 };
        // What holds us back ends with some later map.
        let held = map_flags::FULL | map_flags::PAUSERD | map_flags::PAUSEWR;
        let flags = if self.map.flags & held != 0 { 0 } else { SubscribeItem::ONETIME };
        if self.subs.want("osdmap", start.into(), flags) {
            self.renew_subs(out);
        }
    }

    pub(crate) fn renew_subs(&mut self, out: &mut Vec<Effect>) {
        if self.mon_ready {
            out.extend(self.subs.renew().map(|m| Effect::SendMon { tid: 0, msg: m.into() }));
        }
    }

    /// Maps from a monitor, or from an OSD that saw that ours is old.
    pub(crate) fn take_maps(&mut self, m: &MOsdMap, out: &mut Vec<Effect>) {
        if self.fsid.is_some_and(|fsid| fsid != m.fsid) {
            return;
        }
        let Some(last) = m.last() else { return };
        let mut jumped = false;
        while self.map.epoch < last {
            match self.next_map(m) {
                Next::Map(map) => self.new_map(map, std::mem::take(&mut jumped), out),
                Next::Jump(map) => {
                    self.new_map(map, true, out);
                    jumped = false;
                }
                Next::Gap => {
                    self.want_map(out);
                    break;
                }
                Next::Bad => {
                    self.distrusts_map = true;
                    self.want_map(out);
                    break;
                }
            }
        }
        if self.map.epoch >= last {
            self.subs.got("osdmap", self.map.epoch.0.into());
        }
        self.know_fsid(m.fsid, out);
        self.check_map_waits(out);
        let held = map_flags::FULL | map_flags::PAUSERD | map_flags::PAUSEWR;
        if self.map.flags & held != 0 {
            self.want_map(out);
        }
    }

    fn next_map(&self, m: &MOsdMap) -> Next {
        let whole = |raw: &Bytes, epoch: Epoch| {
            OsdMap::from_bytes(raw.clone()).ok().filter(|map| map.epoch == epoch && map.fsid == m.fsid)
        };
        if self.map.epoch == Epoch(0) || self.distrusts_map {
            let Some((epoch, raw)) = m.full.last_key_value() else { return Next::Gap };
            return whole(raw, *epoch).map_or(Next::Gap, |map| {
                if self.map.epoch == Epoch(0) { Next::Map(map) } else { Next::Jump(map) }
            });
        }
        let next = self.map.epoch.next();
        if let Some(raw) = m.incremental.get(&next) {
            let mut map = (*self.map).clone();
            let applied = Incremental::from_bytes(raw.clone()).is_ok_and(|inc| map.apply(&inc).is_ok());
            if applied && map.epoch == next {
                return Next::Map(map);
            }
            return m.full.get(&next).and_then(|raw| whole(raw, next)).map_or(Next::Bad, Next::Map);
        }
        let at = next.max(m.oldest);
        let Some(raw) = m.full.get(&at) else { return Next::Gap };
        match whole(raw, at) {
            Some(map) if at > next => Next::Jump(map),
            Some(map) => Next::Map(map),
            None => Next::Bad,
        }
    }

    /// Takes a map over and sends again what it moves. After a jump nobody knows what moved meanwhile.
    fn new_map(&mut self, map: OsdMap, jumped: bool, out: &mut Vec<Effect>) {
        self.distrusts_map = false;
        self.map = Arc::new(map);
        self.placements.prune(&self.map);
        out.push(Effect::NewMap(Arc::clone(&self.map)));
        self.prune_snap_contexts(jumped);
        self.close_moved(out);
        self.scan_ops(jumped, out);
        let cookies: Vec<u64> = self.lingers.keys().copied().collect();
        for cookie in cookies {
            self.scan_linger(cookie, jumped, out);
        }
        self.scan_commands(out);
    }

    /// Writes that are sent again make no clone for a snapshot that was removed meanwhile: after it was purged, nobody would
    /// trim that. Source: Objecter::_prune_snapc.
    fn prune_snap_contexts(&mut self, jumped: bool) {
        let map = Arc::clone(&self.map);
        let removed = if jumped { &map.removed_snaps_queue } else { &map.new_removed_snaps };
        if removed.is_empty() {
            return;
        }
        for op in self.ops.values_mut().filter(|op| !op.msg.snapc.snaps.is_empty()) {
            let Some(gone) = removed.get(&op.msg.object.pool) else { continue };
            op.msg.snapc.snaps.retain(|snap| !gone.contains(SnapId(*snap)));
        }
    }

    /// Source: Objecter::_scan_requests.
    fn scan_ops(&mut self, jumped: bool, out: &mut Vec<Effect>) {
        let tids: Vec<u64> = self.ops.iter().filter(|(_, op)| !op.waiting).map(|(tid, _)| *tid).collect();
        for tid in tids {
            match self.aim_op(tid) {
                Change::NoPool => self.op_without_pool(tid, out),
                change => {
                    let Some(op) = self.ops.get(&tid) else { continue };
                    let resend = change == Change::Resend || jumped;
                    if op.is_sent && resend && op.purpose.cookie().is_some() {
                        // Its watch sees the same change, and registers again.
                        continue;
                    }
                    if resend || op.session.is_none() {
                        self.assign_op(tid, out);
                        self.send_op(tid, out);
                    }
                }
            }
        }
    }

    pub(crate) fn check_map_waits(&mut self, out: &mut Vec<Effect>) {
        let epoch = self.map.epoch;
        self.map_waits.retain(|(wanted, ticket)| {
            let due = *wanted <= epoch && epoch > Epoch(0);
            if due {
                out.push(Effect::Done(*ticket, Outcome::Map(epoch)));
            }
            !due
        });
        if !self.map_waits.is_empty() {
            self.want_map(out);
        }
    }

    /// The monitor's newest map, asked for because of pools or OSDs that we do not know.
    pub(crate) fn newest_known(&mut self, newest: Epoch, out: &mut Vec<Effect>) {
        let unknown = |op: &crate::op::Op| {
            !op.waiting && op.no_pool_since.is_none() && self.map.pool(op.msg.object.pool).is_none()
        };
        let tids: Vec<u64> = self.ops.iter().filter(|(_, op)| unknown(op)).map(|(tid, _)| *tid).collect();
        for tid in tids {
            if let Some(op) = self.ops.get_mut(&tid) {
                op.no_pool_since = Some(newest);
            }
            self.op_without_pool(tid, out);
        }
        self.commands_after_newest(newest, out);
    }

    pub(crate) fn osd_state_error(&self, osd: i32) -> Option<Errno> {
        if !self.map.exists(osd) {
            return Some(Errno::ENOENT);
        }
        (!self.map.is_up(osd)).then_some(Errno::ENXIO)
    }
}
