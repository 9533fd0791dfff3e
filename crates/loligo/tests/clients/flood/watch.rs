//! What is seen while a flood runs: the memory of each daemon, and how another client's writes fare.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rados::IoCtx;

/// Resident bytes of a process.
pub fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).expect("VmRSS");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).expect("a number") * 1024
}

/// The most that processes had resident, looked at many times a second.
pub struct Memory {
    most: Arc<Mutex<Vec<u64>>>,
    over: Arc<AtomicBool>,
}

impl Memory {
    pub fn of(pids: Vec<u32>) -> Self {
        let most = Arc::new(Mutex::new(vec![0; pids.len()]));
        let over = Arc::new(AtomicBool::new(false));
        let (seen, ends) = (Arc::clone(&most), Arc::clone(&over));
        std::thread::spawn(move || {
            while !ends.load(Ordering::Acquire) {
                for (pid, most) in pids.iter().zip(seen.lock().expect("no panic").iter_mut()) {
                    *most = resident(*pid).max(*most);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        Self { most, over }
    }

    /// The most since this was asked last.
    pub fn take(&self) -> Vec<u64> {
        let mut most = self.most.lock().expect("the watcher lives: no process ended");
        let len = most.len();
        std::mem::replace(&mut *most, vec![0; len])
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
    }
}

/// Another client, which writes one small object after the other.
pub struct Bystander {
    took: Arc<Mutex<Vec<Duration>>>,
    failed: Arc<Mutex<Vec<String>>>,
    over: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Bystander {
    pub fn start(pool: IoCtx) -> Self {
        let (took, failed) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let over = Arc::new(AtomicBool::new(false));
        let (times, errors, ends) = (Arc::clone(&took), Arc::clone(&failed), Arc::clone(&over));
        let task = tokio::spawn(async move {
            for nr in 0u64.. {
                if ends.load(Ordering::Acquire) {
                    return;
                }
                let began = Instant::now();
                let written = pool.write_full(&format!("bystander {}", nr % 64), vec![nr as u8; 4096]).await;
                times.lock().expect("no panic").push(began.elapsed());
                if let Err(e) = written {
                    errors.lock().expect("no panic").push(e.to_string());
                }
            }
        });
        Self { took, failed, over, task }
    }

    /// Median, 99th percentile and longest of the writes since this was asked last, and how many there were.
    pub fn take(&self) -> Latency {
        let mut took = std::mem::take(&mut *self.took.lock().expect("no panic"));
        took.sort();
        let at = |part: f64| {
            let last = took.len().saturating_sub(1);
            took.get((last as f64 * part) as usize).copied().unwrap_or_default()
        };
        Latency { writes: took.len(), p50: at(0.5), p99: at(0.99), longest: at(1.0) }
    }

    /// Waits for a write that is answered from now on.
    pub async fn writes(&self, limit: Duration) -> bool {
        let count = || self.took.lock().expect("no panic").len();
        let before = count();
        let began = Instant::now();
        while count() == before && began.elapsed() < limit {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        count() > before
    }

    /// Waits for its last write; what failed.
    pub async fn end(self) -> Vec<String> {
        self.over.store(true, Ordering::Release);
        self.task.await.expect("no panic");
        std::mem::take(&mut *self.failed.lock().expect("no panic"))
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Latency {
    pub writes: usize,
    pub p50: Duration,
    pub p99: Duration,
    pub longest: Duration,
}
