//! Lines of the audit channel: which command came from whom. They are kept until the monitors have them.
//!
//! Invariants:
//! 1. At most [`KEPT`] lines of [`CHARS`] characters each are kept; the oldest go.
//! 2. A line goes to the monitors again when they have not acknowledged it for [`PATIENCE`], and on each new
//!    session with one.
//!
//! Source: DaemonServer::_handle_command and log_access_denied in src/mgr/DaemonServer.cc,
//! src/common/LogClient.cc.

use std::collections::VecDeque;
use std::time::Duration;

use messages::log::{LogEntry, MLog, MLogAck, log_priority};
use messages::{Message, PaxosVersion};
use types::{AuthName, EntityName, EntityType, Now, printable};

use crate::command::Giver;
use crate::core::Manager;
use crate::io::Output;

const KEPT: usize = 1_000;
const CHARS: usize = 2_000;
/// Lines in one message.
const AT_ONCE: usize = 100;
const PATIENCE: Duration = Duration::from_secs(10);

/// What the monitors have not acknowledged yet.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Audit {
    entries: VecDeque<LogEntry>,
    last_seq: u64,
    /// The newest line that was sent, and when (monotonic).
    sent: u64,
    sent_at: Duration,
}

impl Manager {
    /// Notes a command, except where this process gave it.
    pub(crate) fn audit(&mut self, now: Now, giver: Giver<'_>, cmd: &[String], is_denied: bool) {
        let (priority, what) = match is_denied {
            false => (log_priority::DEBUG, ": dispatch"),
            true => (log_priority::INFO, ":  access denied"),
        };
        let from = match giver {
            Giver::Client(p) | Giver::Monitor(Some(p)) => {
                format!("from='{} {}' entity='{}'", p.name, p.addr, p.auth_name)
            }
            Giver::Monitor(None) => "from='mon' entity='mon.'".to_owned(),
            Giver::Own => return,
        };
        let cmd: String = cmd.join(",").chars().take(CHARS).collect();
        let audit = &mut self.audit;
        audit.last_seq += 1;
        audit.entries.push_back(LogEntry {
            name: AuthName::new(EntityType::Mgr, &self.settings.name),
            rank: EntityName::new(EntityType::Mgr, i64::try_from(self.gid).unwrap_or(0)),
            addrs: self.settings.addrs.clone(),
            stamp: now.wall,
            seq: audit.last_seq,
            priority,
            text: printable(&format!("{from} cmd=[{cmd}]{what}")).into_owned(),
            channel: "audit".to_owned(),
        });
        while audit.entries.len() > KEPT {
            audit.entries.pop_front();
        }
    }

    /// Sends what is new, and after a while again what was not acknowledged.
    pub(crate) fn send_audit(&mut self, now: Now, out: &mut Vec<Output>) {
        let fsid = self.fsid();
        let Some(first) = self.audit.entries.front().map(|e| e.seq) else { return };
        if !self.mon || fsid.is_zero() || self.standing.whose.is_none() {
            return;
        }
        let audit = &mut self.audit;
        if first <= audit.sent && now.mono.saturating_sub(audit.sent_at) >= PATIENCE {
            audit.sent = 0;
        }
        let from = audit.entries.partition_point(|e| e.seq <= audit.sent);
        let entries: Vec<LogEntry> = audit.entries.iter().skip(from).take(AT_ONCE).cloned().collect();
        let Some(last) = entries.last() else { return };
        (audit.sent, audit.sent_at) = (last.seq, now.mono);
        out.push(Output::send_mon(Message::from(MLog { version: PaxosVersion(0), fsid, entries })));
    }

    /// The monitors have everything up to there.
    pub(crate) fn audit_kept(&mut self, ack: &MLogAck) {
        self.audit.entries.retain(|e| e.seq > ack.last);
    }

    /// A session with another monitor: what was sent on the last may be lost.
    pub(crate) fn audit_again(&mut self) {
        self.audit.sent = 0;
    }
}
