//! Clients that hold or ask for very much: their memory is bounded, and others do not stall.
//!
//! Figures are printed (`--nocapture`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rados::{Cluster, IoCtx, WatchEvent, WriteOp};

use crate::setup::{Bed, Server, with_pool};

const LIMIT: Duration = Duration::from_secs(400);
/// What another client's operation may take at most meanwhile, on a machine that is busy with tests.
const STALL: Duration = Duration::from_secs(5);

/// One test of this file at a time: each measures the memory of the process that all of them run in, and how
/// long clients wait because of it and nothing else.
static ALONE: Mutex<()> = Mutex::new(());

/// Resident bytes of a process.
fn resident(pid: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages: u64 = text.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    pages * 4096
}

/// Resident bytes of the daemons, when they are ours.
fn daemons_resident(server: &Server) -> Option<u64> {
    let data = server.loligo_data()?;
    let files = std::fs::read_dir(data).ok()?.flatten().map(|e| e.path());
    let pids = files.filter(|p| p.extension().is_some_and(|e| e == "pid"));
    Some(pids.filter_map(|p| std::fs::read_to_string(p).ok()).map(|pid| resident(pid.trim())).sum())
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Another client that writes and reads a little all the time.
struct Bystander {
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<(usize, Duration, Duration)>,
}

impl Bystander {
    async fn start(bed: &Bed) -> Self {
        let other = Cluster::connect(bed.server.config()).await.expect("another client");
        let pool = other.pool_by_id(bed.pool.pool_id()).await.expect("the pool");
        let stop = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(watch_for_stalls(pool, Arc::clone(&stop)));
        Self { stop, task }
    }

    /// Ends it; panics when an operation of it stalled.
    async fn end(self, what: &str) {
        self.stop.store(true, Ordering::Release);
        let (count, mean, worst) = self.task.await.expect("the bystander");
        eprintln!(
            "{what}: a bystander's {count} operations took {mean:.1?} in the mean, {worst:.1?} at most"
        );
        assert!(count > 0 && worst < STALL, "{what}: a bystander stalled for {worst:?}");
    }
}

async fn watch_for_stalls(pool: IoCtx, stop: Arc<AtomicBool>) -> (usize, Duration, Duration) {
    let (mut count, mut sum, mut worst) = (0, Duration::ZERO, Duration::ZERO);
    while !stop.load(Ordering::Acquire) || count == 0 {
        let object = format!("bystander-{}", count % 32);
        let begun = Instant::now();
        pool.write(&object, 0, vec![1u8; 4096]).await.expect("a bystander's write");
        assert_eq!(pool.read(&object, 0, 4096).await.expect("a bystander's read").len(), 4096);
        let taken = begun.elapsed();
        (count, sum, worst) = (count + 1, sum + taken, worst.max(taken));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (count, sum / count.max(1) as u32, worst)
}

#[test]
fn ten_thousand_watches() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    with_pool("watches", LIMIT, |bed| async move {
        const OBJECTS: usize = 500;
        const WATCHES: usize = 10_000;
        let pool = &bed.pool;
        for i in 0..OBJECTS {
            pool.create(&format!("w{i}"), true).await.expect("made");
        }
        let bystander = Bystander::start(&bed).await;
        let (before, daemons) = (resident("self"), daemons_resident(&bed.server));
        let begun = Instant::now();
        let mut watches = Vec::with_capacity(WATCHES);
        for round in 0..WATCHES / 1000 {
            let some = (0..1000).map(|i| {
                let (pool, name) = (pool.clone(), format!("w{}", (round * 1000 + i) % OBJECTS));
                tokio::spawn(async move { pool.watch(&name, None).await.expect("watched") })
            });
            for watch in some.collect::<Vec<_>>() {
                watches.push(watch.await.expect("the task"));
            }
        }
        let taken = begun.elapsed();
        // All of them are pinged at least once.
        tokio::time::sleep(Duration::from_secs(6)).await;
        let grown = resident("self").saturating_sub(before);
        eprintln!("10,000 watches: {taken:.1?}, {:.1} MiB here", mib(grown));
        if let (Some(before), Some(now)) = (daemons, daemons_resident(&bed.server)) {
            eprintln!("10,000 watches: the daemons grew from {:.1} to {:.1} MiB", mib(before), mib(now));
        }
        assert!(grown < 150 << 20, "{grown} bytes for 10,000 watches");
        let ages: Vec<Duration> = {
            let mut ages = Vec::new();
            for watch in watches.iter().step_by(500) {
                ages.push(watch.check().await.expect("the watch is good"));
            }
            ages
        };
        assert!(ages.iter().all(|age| *age < Duration::from_secs(15)), "{ages:?}");
        notify_some(pool, &watches, OBJECTS).await;
        let begun = Instant::now();
        let ends: Vec<_> = watches.into_iter().map(|watch| tokio::spawn(watch.unwatch())).collect();
        for end in ends {
            end.await.expect("the task").expect("ended");
        }
        eprintln!("10,000 watches: ended in {:.1?}", begun.elapsed());
        assert!(pool.list_watchers("w0").await.expect("watchers").is_empty());
        bystander.end("10,000 watches").await;
    });
}

/// Each of an object's watches hears a notify.
async fn notify_some(pool: &IoCtx, watches: &[rados::Watch], objects: usize) {
    for object in [0, 7] {
        let notify = tokio::spawn({
            let pool = pool.clone();
            async move { pool.notify(&format!("w{object}"), "hear", None).await }
        });
        let mine: Vec<_> = watches.iter().skip(object).step_by(objects).collect();
        for watch in &mine {
            let WatchEvent::Notify { notify_id, .. } = watch.next().await else { panic!("a lost watch") };
            watch.ack(notify_id, "").await.expect("acknowledged");
        }
        let reply = notify.await.expect("the task").expect("notified");
        assert_eq!((reply.replies.len(), reply.missed.len()), (mine.len(), 0));
    }
}

#[test]
fn a_burst_of_a_thousand_operations() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    with_pool("burst", LIMIT, |bed| async move {
        let bystander = Bystander::start(&bed).await;
        let data = Bytes::from(vec![5u8; 16 << 10]);
        for round in 0..5 {
            let begun = Instant::now();
            let pending: Vec<_> = (0..1000)
                .map(|i| bed.pool.submit_write(&format!("b{i}"), WriteOp::new().write_full(data.clone())))
                .collect();
            let submitted = begun.elapsed();
            for p in pending {
                p.await.expect("written");
            }
            eprintln!("burst {round}: submitted in {submitted:.1?}, done in {:.1?}", begun.elapsed());
        }
        let reads: Vec<_> = (0..1000)
            .map(|i| bed.pool.submit_read(&format!("b{i}"), rados::ReadOp::new().read(0, 16 << 10)))
            .collect();
        for read in reads {
            assert_eq!(read.await.expect("read").output(0), data);
        }
        bystander.end("bursts").await;
    });
}

#[test]
fn a_million_omap_keys_in_pages() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    with_pool("million", LIMIT, |bed| async move {
        const KEYS: usize = 1_000_000;
        const BATCH: usize = 5_000;
        let pool = &bed.pool;
        let entry = |i: usize| (Bytes::from(format!("key-{i:09}")), Bytes::from(format!("value of {i}")));
        let bystander = Bystander::start(&bed).await;
        let daemons = daemons_resident(&bed.server);
        let begun = Instant::now();
        let mut pending = std::collections::VecDeque::new();
        for start in (0..KEYS).step_by(BATCH) {
            let vals: BTreeMap<Bytes, Bytes> = (start..start + BATCH).map(entry).collect();
            pending.push_back(pool.submit_write("omap", WriteOp::new().omap_set(vals)));
            if pending.len() > 4 {
                pending.pop_front().expect("one").await.expect("set");
            }
        }
        for p in pending {
            p.await.expect("set");
        }
        eprintln!("1,000,000 omap keys: written in {:.1?}", begun.elapsed());
        let here = resident("self");
        let begun = Instant::now();
        let (mut after, mut seen, mut pages) = (Bytes::new(), 0, 0);
        loop {
            let page = pool.omap_vals("omap", after, "", 10_000).await.expect("a page");
            for (key, value) in &page.entries {
                assert_eq!((key.clone(), value.clone()), entry(seen));
                seen += 1;
            }
            pages += 1;
            match page.entries.into_keys().next_back() {
                Some(last) if page.more => after = last,
                _ => break,
            }
        }
        assert_eq!(seen, KEYS);
        let grown = resident("self").saturating_sub(here);
        eprintln!(
            "1,000,000 omap keys: read in {pages} pages in {:.1?}, {:.1} MiB here",
            begun.elapsed(),
            mib(grown)
        );
        if let (Some(before), Some(now)) = (daemons, daemons_resident(&bed.server)) {
            eprintln!("1,000,000 omap keys: the daemons grew from {:.1} to {:.1} MiB", mib(before), mib(now));
        }
        assert!(grown < 100 << 20, "{grown} bytes to read pages");
        bystander.end("1,000,000 omap keys").await;
        pool.remove("omap").await.expect("removed");
    });
}
