//! CPU time of processes on this host, from /proc.

use std::path::Path;

/// Nanoseconds on a CPU of all threads of a process, as far as they still run.
fn of_process(pid: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of_thread = |dir: std::fs::DirEntry| {
        let text = std::fs::read_to_string(dir.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    threads.filter_map(of_thread).sum()
}

/// Of this process, in nanoseconds.
pub fn own() -> u64 {
    of_process(std::process::id())
}

/// Daemons whose CPU counts.
#[derive(Debug, Clone, Default)]
pub struct Processes {
    pids: Vec<u32>,
    /// Each process is one OSD and nothing else.
    only_osds: bool,
}

impl Processes {
    /// The OSDs that were started with files of this folder; or the processes that hold OSDs and other daemons together.
    pub fn of_cluster(folder: &Path) -> Self {
        let folder = folder.display().to_string();
        let (mut osds, mut mixed) = (Vec::new(), Vec::new());
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
            let Ok(raw) = std::fs::read(entry.path().join("cmdline")) else { continue };
            let words: Vec<String> =
                raw.split(|b| *b == 0).map(|w| String::from_utf8_lossy(w).into_owned()).collect();
            if !words.iter().skip(1).any(|w| w.contains(&folder)) {
                continue;
            }
            let program = words.first().and_then(|w| Path::new(w).file_name()?.to_str()).unwrap_or_default();
            match words.get(1).map(String::as_str) {
                _ if program == "ceph-osd" => osds.push(pid),
                Some("osd") => osds.push(pid),
                Some("serve" | "up") if pid != std::process::id() => mixed.push(pid),
                _ => {}
            }
        }
        match osds.is_empty() {
            true => Self { pids: mixed, only_osds: false },
            false => Self { pids: osds, only_osds: true },
        }
    }

    pub fn these(pids: &[u32]) -> Self {
        Self { pids: pids.to_vec(), only_osds: false }
    }

    pub fn cpu(&self) -> u64 {
        self.pids.iter().map(|pid| of_process(*pid)).sum()
    }

    /// What they are, for the report; `None` when there are none here.
    pub fn names(&self) -> Option<&'static str> {
        match (self.pids.is_empty(), self.only_osds) {
            (true, _) => None,
            (false, true) => Some("OSDs"),
            (false, false) => Some("all daemons"),
        }
    }
}
