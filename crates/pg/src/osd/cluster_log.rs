//! Lines for the cluster log, kept until the monitors have them. Source: LogClient in src/common/LogClient.cc.

use std::collections::VecDeque;
use std::time::Duration;

use messages::log::{LogEntry, MLog, MLogAck, log_priority};
use messages::{Message, PaxosVersion};
use types::{AuthName, EntityName, EntityType, OsdId};

use super::OsdCore;
use crate::io::{LogLevel, Output};

/// Lines kept for monitors that cannot be reached; the oldest go.
const KEPT: usize = 1_000;
/// Lines in one message.
const AT_ONCE: usize = 100;
/// How long an acknowledgement may take before lines are sent again.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the monitors have not acknowledged yet.
#[derive(Debug, Default)]
pub(crate) struct Unsaid {
    entries: VecDeque<LogEntry>,
    last_seq: u64,
    /// The newest line that was sent, and when.
    sent: u64,
    sent_at: Duration,
}

impl Unsaid {
    pub fn add(&mut self, osd: OsdId, level: LogLevel, text: String, stamp: types::Utime) {
        self.last_seq += 1;
        let priority = match level {
            LogLevel::Debug => log_priority::DEBUG,
            LogLevel::Info => log_priority::INFO,
            LogLevel::Warn => log_priority::WARN,
            LogLevel::Error => log_priority::ERROR,
        };
        self.entries.push_back(LogEntry {
            name: AuthName::new(EntityType::Osd, osd.to_string()),
            rank: EntityName::osd(osd.0),
            stamp,
            seq: self.last_seq,
            priority,
            text,
            channel: "cluster".to_owned(),
            ..LogEntry::default()
        });
        while self.entries.len() > KEPT {
            self.entries.pop_front();
        }
    }
}

impl OsdCore {
    /// Sends what is new, and after a while again what was not acknowledged.
    pub(super) fn send_cluster_log(&mut self) {
        let now = self.shared.now.mono;
        let fsid = self.shared.map.fsid;
        let unsaid = &mut self.shared.unsaid;
        let Some(first) = unsaid.entries.front().map(|e| e.seq) else { return };
        if !self.boot.has_mon() {
            return;
        }
        if first <= unsaid.sent && now.saturating_sub(unsaid.sent_at) >= PATIENCE {
            unsaid.sent = 0;
        }
        if unsaid.sent >= unsaid.last_seq {
            return;
        }
        let from = unsaid.entries.partition_point(|e| e.seq <= unsaid.sent);
        let mut entries: Vec<LogEntry> = unsaid.entries.iter().skip(from).take(AT_ONCE).cloned().collect();
        entries.iter_mut().for_each(|e| e.addrs = self.addrs.public.clone());
        unsaid.sent = entries.last().map_or(unsaid.sent, |e| e.seq);
        unsaid.sent_at = now;
        let msg = MLog { version: PaxosVersion(0), fsid, entries };
        self.shared.out.push(Output::SendMon(Message::from(msg)));
    }

    /// The monitors have everything up to there.
    pub(super) fn cluster_log_kept(&mut self, ack: &MLogAck) {
        self.shared.unsaid.entries.retain(|e| e.seq > ack.last);
    }

    /// A session with another monitor: what was sent on the last may be lost.
    pub(super) fn cluster_log_again(&mut self) {
        self.shared.unsaid.sent = 0;
    }
}
