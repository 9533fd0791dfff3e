//! Requests on their way into a batch: first the capability check, then the service that prepares the change.

use cephx::caps::{AppMetadata, OsdCap, OsdRequest};
use codec::Encode;
use messages::Message;
use messages::log::{LogEntry, MLog, MLogAck};
use messages::mon::{MPoolOp, pool_op};
use types::{ConnId, EntityType, Errno, Now, PoolId};

use crate::io::Output;
use crate::monitor::{Monitor, Prepared};
use crate::proposal::{Batch, Waiting};
use crate::service::mgr::is_manager;
use crate::session::{Access, Session};
use crate::state::{LINE_BYTES, Priority, State};
use crate::text::cut;

impl Monitor {
    /// Queues a message that may change the state, when its sender may send it. Others are dropped without an answer, as in
    /// Ceph.
    pub(crate) fn enqueue_if_allowed(&mut self, conn: ConnId, tid: u64, msg: Message, out: &mut Vec<Output>) {
        let Some(session) = self.sessions.get(&conn) else { return };
        if allowed(&self.state, session, &msg) {
            return self.enqueue(conn, tid, msg, out);
        }
        match &msg {
            Message::PoolOp(m) => self.refuse_pool_op(conn, tid, m, Errno::EPERM, out),
            _ => self.counters.not_allowed += 1,
        }
        if matches!(msg, Message::MgrBeacon(_)) && self.is_denied_first(conn) {
            self.enqueue(conn, tid, msg, out);
        }
    }

    /// Works one request into the batch.
    pub(crate) fn prepare(
        &mut self,
        now: Now,
        batch: &mut Batch,
        w: &Waiting,
        out: &mut Vec<Output>,
    ) -> Prepared {
        // The requester may be gone; a command's or daemon's wish then is nobody's any more.
        if !self.sessions.contains_key(&w.conn) {
            return Prepared::Done;
        }
        let (conn, tid) = (w.conn, w.tid);
        match &w.msg {
            Message::MonCommand(m) => self.prepare_command(now, batch, conn, tid, m, out),
            Message::PoolOp(m) => self.prepare_pool_op(now, batch, conn, tid, m),
            Message::Log(m) => self.prepare_log(batch, conn, tid, m),
            Message::OsdBoot(m) => return self.prepare_boot(now, batch, conn, m),
            Message::OsdAlive(m) => self.prepare_alive(batch, conn, m),
            Message::OsdFailure(m) => self.prepare_failure(now, batch, conn, m),
            Message::OsdMarkMeDown(m) => self.prepare_mark_me_down(now, batch, conn, tid, m),
            Message::OsdMarkMeDead(m) => self.prepare_mark_me_dead(batch, conn, m),
            Message::OsdPgReadyToMerge(m) => self.prepare_ready_to_merge(batch, conn, m),
            Message::OsdPgTemp(m) => self.prepare_pg_temp(batch, conn, m),
            Message::OsdBeacon(m) => self.prepare_beacon(now, batch, conn, m),
            Message::OsdFull(m) => self.prepare_full(batch, conn, m),
            Message::OsdPgCreated(m) => self.prepare_pg_created(batch, m),
            Message::RemoveSnaps(m) => self.prepare_remove_snaps(batch, conn, tid, m),
            Message::MgrBeacon(m) => self.prepare_mgr_beacon(now, batch, conn, m),
            Message::MdsBeacon(m) => self.prepare_mds_beacon(now, batch, conn, tid, m),
            Message::MdsLoadTargets(m) => self.prepare_mds_targets(now, batch, conn, m),
            Message::MonMgrReport(m) => self.prepare_mgr_report(now, batch, m),
            Message::PgDigest(m) => self.prepare_pg_digest(now, batch, m),
            _ => {}
        }
        Prepared::Done
    }
}

/// Source: the preprocess_* functions of src/mon/OSDMonitor.cc, MgrMonitor.cc and LogMonitor.cc.
fn allowed(state: &State, session: &Session, msg: &Message) -> bool {
    let is = |kind: EntityType| session.name.kind == kind;
    match msg {
        Message::Log(_) => session.may("log", Access::W),
        Message::OsdBoot(_)
        | Message::OsdAlive(_)
        | Message::OsdFailure(_)
        | Message::OsdMarkMeDown(_)
        | Message::OsdMarkMeDead(_)
        | Message::OsdPgReadyToMerge(_)
        | Message::OsdPgTemp(_)
        | Message::OsdBeacon(_)
        | Message::OsdFull(_)
        | Message::OsdPgCreated(_) => is(EntityType::Osd) && session.may("osd", Access::X),
        Message::RemoveSnaps(_) => {
            let none = std::collections::BTreeMap::new();
            session.may_command("osd", "osd pool rmsnap", &none, Access { read: true, ..Access::W })
        }
        Message::MgrBeacon(_) => is_manager(session),
        // As of managers, the form of their tickets depends on who they are.
        Message::MdsBeacon(_) | Message::MdsLoadTargets(_) => {
            is(EntityType::Mds) && session.may("mds", Access::X)
        }
        Message::MonMgrReport(_) | Message::PgDigest(_) => session.may("mgr", Access::X),
        Message::PoolOp(m) => pool_op_allowed(state, session, m),
        _ => false,
    }
}

/// Source: OSDMonitor::enforce_pool_op_caps, is_unmanaged_snap_op_permitted. Clients without `osd w` at the monitor may
/// still make and remove snapshots of their own in pools that they may write to at the OSDs.
fn pool_op_allowed(state: &State, session: &Session, m: &MPoolOp) -> bool {
    if session.may("osd", Access::W) {
        return true;
    }
    if !matches!(m.op, pool_op::CREATE_UNMANAGED_SNAP | pool_op::DELETE_UNMANAGED_SNAP) {
        return false;
    }
    let pool = state.osdmap().pool_name(PoolId(m.pool.into())).unwrap_or_default();
    let args = [("poolname".to_owned(), pool.to_owned())].into();
    if session.may_command("osd", "osd pool op unmanaged-snap", &args, Access::W) {
        return true;
    }
    let Ok(caps) = OsdCap::from_info(&state.auth.caps(&session.name, EntityType::Osd)) else { return false };
    caps.is_capable(&OsdRequest {
        pool,
        namespace: "",
        app_metadata: &AppMetadata::default(),
        object: "",
        read: false,
        write: true,
        classes: &[],
        addr: &session.addr,
    })
}

/// Lines that one entity may add to the cluster log between two ticks, and the bytes of them.
const LINES_SHARE: usize = 1_000;
const LINE_BYTES_SHARE: usize = 1 << 20;
/// Lines of the log for whoever looks for faults, which nobody waits for.
pub(crate) fn is_chatter(msg: &Message) -> bool {
    let is_debug = |e: &LogEntry| Priority::from_u16(e.priority) == Priority::Debug;
    matches!(msg, Message::Log(m) if m.entries.iter().all(is_debug))
}

/// Channels of the cluster log, and bytes of a channel's name.
const CHANNELS: usize = 16;
const CHANNEL_BYTES: usize = 64;

impl Monitor {
    /// Adds log lines of other daemons and clients. They are acknowledged when they are committed. Lines
    /// beyond the sender's share are not, so that the sender sends them again.
    fn prepare_log(&mut self, batch: &mut Batch, conn: ConnId, tid: u64, m: &MLog) {
        let Some(session) = self.sessions.get(&conn).filter(|_| m.fsid == batch.state().fsid) else { return };
        let (lines, bytes) = self.logged.entry(session.name.clone()).or_default();
        let mut last = None;
        for entry in &m.entries {
            let mut kept = entry.clone();
            cut(&mut kept.text, LINE_BYTES);
            let size = kept.to_bytes().len();
            if *lines >= LINES_SHARE || *bytes + size > LINE_BYTES_SHARE {
                break;
            }
            last = Some(entry);
            if size > 2 * LINE_BYTES {
                // The rest of the entry is names and addresses, which no daemon has in such a length.
                continue;
            }
            *lines += 1;
            *bytes += size;
            if kept.channel.len() > CHANNEL_BYTES || !batch.has_log_channel(&kept.channel, CHANNELS) {
                kept.channel = "cluster".to_owned();
            }
            batch.log(kept);
        }
        if let Some(last) = last {
            batch.answer(conn, tid, MLogAck { fsid: m.fsid, last: last.seq, channel: last.channel.clone() });
        }
    }
}
