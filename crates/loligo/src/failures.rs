//! What a folder remembers of daemons that ended by themselves, for `loligo status`: a file `DIR/<daemon>.failure` each.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::layout::{ClusterDir, write_atomically};

/// The last failure of a daemon in the process that runs now, or that ended last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub why: String,
    /// UTC.
    pub at: String,
    /// Failures in this process so far, which is also the number of the life that follows.
    pub times: u32,
    pub now: Now,
}

/// What the daemon does since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Now {
    /// An operator has to do something.
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

/// Behind "osd.1 stopped: no such key; ".
impl std::fmt::Display for Now {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stopped => write!(f, "it is not started again by itself"),
            Self::Waits(seconds) => write!(f, "it starts again after {seconds} s"),
            Self::Runs => write!(f, "it runs again"),
        }
    }
}

/// Keeps a record; the daemons go on without it when the folder takes none.
pub fn note(dir: &ClusterDir, name: &str, record: &Record) {
    let path = dir.failure_file(name);
    let text = serde_json::to_vec_pretty(record).map_err(anyhow::Error::from);
    if let Err(error) = text.and_then(|text| write_atomically(&path, &text, 0o644)) {
        tracing::warn!("{error:#}");
    }
}

pub fn of(dir: &ClusterDir, name: &str) -> Option<Record> {
    serde_json::from_slice(&std::fs::read(dir.failure_file(name)).ok()?).ok()
}

/// Daemons that an operator has to do something about, and why they ended.
pub fn given_up(dir: &ClusterDir, names: &[String]) -> Vec<(String, Record)> {
    let records = names.iter().filter_map(|name| Some((name.clone(), of(dir, name)?)));
    records.filter(|(_, record)| record.now == Now::Stopped).collect()
}

/// A process begins, with a clean record.
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
