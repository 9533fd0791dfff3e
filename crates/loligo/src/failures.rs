//! Records of daemons that have failed, for `loligo status`: one file `DIR/<daemon>.failure` for each.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::layout::{ClusterDir, write_atomically};

/// The last failure of a daemon in the process that runs it, or ran it last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The reason, for the operator.
    pub why: String,
    /// When it failed: an ISO 8601 time in UTC.
    pub at: String,
    /// How often the daemon has failed in this process; the next life has this number.
    pub times: u32,
    /// What the daemon does now.
    pub now: Now,
}

/// What a daemon does since its failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Now {
    /// It is not started again by itself: an operator has to do something.
    Stopped,
    /// It is started again so many seconds after the failure.
    Waits(u64),
    Runs,
}

impl Record {
    pub fn new(why: &str, times: u32, pause: Option<Duration>) -> Self {
        let now = pause.map_or(Now::Stopped, |pause| Now::Waits(pause.as_secs()));
        Self { why: why.to_owned(), at: jiff::Timestamp::now().to_string(), times, now }
    }

    pub fn is_down(&self) -> bool {
        self.now != Now::Runs
    }
}

/// Completes a line such as "osd.1 stopped: no such key; ".
impl std::fmt::Display for Now {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stopped => write!(f, "it is not started again by itself"),
            Self::Waits(seconds) => write!(f, "it starts again after {seconds} s"),
            Self::Runs => write!(f, "it runs again"),
        }
    }
}

/// Writes a daemon's record. A folder that cannot be written to gives a warning only: the daemons go on.
pub fn note(dir: &ClusterDir, name: &str, record: &Record) {
    let path = dir.failure_file(name);
    let text = serde_json::to_vec_pretty(record).map_err(anyhow::Error::from);
    if let Err(error) = text.and_then(|text| write_atomically(&path, &text, 0o644)) {
        tracing::warn!("{error:#}");
    }
}

/// A daemon's record; `None` when there is none that can be read.
pub fn of(dir: &ClusterDir, name: &str) -> Option<Record> {
    serde_json::from_slice(&std::fs::read(dir.failure_file(name)).ok()?).ok()
}

/// Those of the named daemons that are not started again by themselves, with their records.
pub fn given_up(dir: &ClusterDir, names: &[String]) -> Vec<(String, Record)> {
    let records = names.iter().filter_map(|name| Some((name.clone(), of(dir, name)?)));
    records.filter(|(_, record)| record.now == Now::Stopped).collect()
}

/// Removes a daemon's record, because a new process starts it.
pub fn forget(dir: &ClusterDir, name: &str) {
    let _ = std::fs::remove_file(dir.failure_file(name));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_until_they_are_forgotten() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = ClusterDir::new(folder.path()).expect("a cluster's");
        assert_eq!(of(&dir, "osd.1"), None);
        for (pause, now, down) in
            [(None, Now::Stopped, true), (Some(Duration::from_secs(4)), Now::Waits(4), true)]
        {
            let record = Record::new("the device failed", 3, pause);
            assert_eq!((record.now, record.is_down()), (now, down));
            note(&dir, "osd.1", &record);
            let names = ["osd.0".to_owned(), "osd.1".to_owned()];
            assert_eq!(given_up(&dir, &names).len(), usize::from(now == Now::Stopped));
            assert_eq!(of(&dir, "osd.1"), Some(record));
        }
        forget(&dir, "osd.1");
        assert_eq!(of(&dir, "osd.1"), None);
    }
}
