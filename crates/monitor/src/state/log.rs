//! The cluster log: the last entries of each channel, which `ceph log last` shows and `ceph -w` follows.

use std::collections::{BTreeMap, VecDeque};

use codec::{Decode, DecodeError, Encode, Reader, Writer};
pub use messages::log::LogEntry;

/// Entries kept of each channel. Source: mon_log_max_summary... 16.2 keeps 10,000; `log last` shows no more than that.
pub const LOG_KEPT: usize = 2_000;
/// Bytes of one entry's text.
pub(crate) const LINE_BYTES: usize = 4_096;

/// How important an entry is. Source: clog_type in src/common/LogEntry.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(u16)]
pub enum Priority {
    Debug = 0,
    #[default]
    Info = 1,
    Sec = 2,
    Warn = 3,
    Error = 4,
}

impl Priority {
    pub fn from_u16(v: u16) -> Self {
        match v {
            0 => Self::Debug,
            1 => Self::Info,
            2 => Self::Sec,
            3 => Self::Warn,
            _ => Self::Error,
        }
    }

    /// The tag in log lines.
    pub fn tag(self) -> &'static str {
        match self {
            Self::Debug => "[DBG]",
            Self::Info => "[INF]",
            Self::Sec => "[SEC]",
            Self::Warn => "[WRN]",
            Self::Error => "[ERR]",
        }
    }

    /// The level of a subscription `log-<level>`, or of `log last`.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "debug" => Self::Debug,
            "info" => Self::Info,
            "sec" => Self::Sec,
            "warn" => Self::Warn,
            "error" => Self::Error,
            _ => return None,
        })
    }
}

/// An entry as a line of the log file, and of `ceph log last`. Source: operator<< in src/common/LogEntry.h.
pub fn line(e: &LogEntry) -> String {
    let tag = Priority::from_u16(e.priority).tag();
    format!("{} {} ({}) {} : {} {tag} {}", e.stamp, e.name, e.rank, e.seq, e.channel, e.text)
}

/// Entries by channel, each with its number in the whole log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterLog {
    /// Grows with each batch of entries.
    pub version: u64,
    /// Of the newest entry.
    pub seq: u64,
    pub channels: BTreeMap<String, VecDeque<(u64, LogEntry)>>,
}

impl ClusterLog {
    /// Adds entries; one that is there already (same sender, time and number) is dropped, for senders repeat what was not
    /// acknowledged.
    pub(crate) fn append(&mut self, entries: &[LogEntry]) {
        self.version += 1;
        for e in entries {
            let channel = self.channels.entry(e.channel.clone()).or_default();
            // A repetition is recent: looking at the last few hundred is enough.
            let same = |o: &LogEntry| o.rank == e.rank && o.stamp == e.stamp && o.seq == e.seq;
            if channel.iter().rev().take(500).any(|(_, o)| same(o)) {
                continue;
            }
            self.seq += 1;
            channel.push_back((self.seq, e.clone()));
            while channel.len() > LOG_KEPT {
                channel.pop_front();
            }
        }
    }

    /// Entries of a channel (`*` for all) from a level up, the oldest first; at most `n`, the newest ones.
    pub fn last(&self, n: usize, level: Priority, channel: &str) -> Vec<&LogEntry> {
        let mut hits = self.since(0, level, channel);
        hits.drain(..hits.len().saturating_sub(n));
        hits
    }

    /// Entries with a number above `seq`.
    pub fn since(&self, seq: u64, level: Priority, channel: &str) -> Vec<&LogEntry> {
        let chosen = self.channels.iter().filter(|(name, _)| channel == "*" || channel == name.as_str());
        let newer = |q: &'_ VecDeque<(u64, LogEntry)>| q.partition_point(|(s, _)| *s <= seq);
        let mut hits: Vec<(u64, &LogEntry)> = Vec::new();
        for (_, queue) in chosen {
            let tail = queue.range(newer(queue)..);
            hits.extend(tail.filter(|(_, e)| Priority::from_u16(e.priority) >= level).map(|(s, e)| (*s, e)));
        }
        hits.sort_by_key(|(s, _)| *s);
        hits.into_iter().map(|(_, e)| e).collect()
    }
}

impl Encode for ClusterLog {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.version);
        w.u64(self.seq);
        self.channels.encode(w);
    }
}
impl Decode for ClusterLog {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self { version: r.u64()?, seq: r.u64()?, channels: Decode::decode(r)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(seq: u64, prio: Priority, channel: &str) -> LogEntry {
        LogEntry { seq, priority: prio as u16, channel: channel.to_owned(), ..LogEntry::default() }
    }

    #[test]
    fn the_newest_are_shown_in_order_and_repetitions_dropped() {
        let mut log = ClusterLog::default();
        log.append(&[entry(1, Priority::Info, "cluster"), entry(1, Priority::Info, "audit")]);
        log.append(&[entry(1, Priority::Info, "cluster"), entry(2, Priority::Debug, "cluster")]);
        log.append(&[entry(3, Priority::Warn, "cluster")]);
        let seqs = |v: Vec<&LogEntry>| v.iter().map(|e| e.seq).collect::<Vec<_>>();
        assert_eq!(seqs(log.last(2, Priority::Info, "cluster")), [1, 3]);
        assert_eq!(seqs(log.last(9, Priority::Debug, "*")), [1, 1, 2, 3]);
        assert_eq!(ClusterLog::from_bytes(log.to_bytes()), Ok(log));
    }

    #[test]
    fn channels_are_bounded() {
        let mut log = ClusterLog::default();
        for i in 0..LOG_KEPT as u64 + 10 {
            log.append(&[entry(i, Priority::Info, "cluster")]);
        }
        assert_eq!(log.last(usize::MAX, Priority::Debug, "*").len(), LOG_KEPT);
    }
}
