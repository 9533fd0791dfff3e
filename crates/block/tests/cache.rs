//! The cache over an image in memory: what it acknowledged is there after a crash, and in the image after a close.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use block::{BlockDevice, Cache, CacheFile, MediaError, Range, SHUT_OUT, Timing};
use bytes::Bytes;
use common::{Ram, flat};
use tokio::task::JoinSet;

const SIZE: usize = 4 << 20;

const LONG: Duration = Duration::from_secs(60);

fn file(folder: &Path, size: u64) -> CacheFile {
    CacheFile::open(&folder.join("cache"), "a", size).expect("opens")
}

fn start(file: CacheFile, ram: &Arc<Ram>, linger_ms: u64, idle: Duration) -> Cache {
    Cache::start(file, ram.clone(), Timing { linger: Duration::from_millis(linger_ms), idle })
}

fn small(folder: &Path, ram: &Arc<Ram>, size: u64, linger_ms: u64) -> Cache {
    start(file(folder, size), ram, linger_ms, LONG)
}

/// What another process finds in the file after a crash.
fn copy(folder: &Path) -> tempfile::TempDir {
    let elsewhere = tempfile::tempdir().expect("folder");
    std::fs::copy(folder.join("cache"), elsewhere.path().join("cache")).expect("copies");
    elsewhere
}

/// Until the cache's task has done its work.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(std::time::Instant::now() < end, "{what}");
        tokio::task::yield_now().await;
    }
}

fn random(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

/// Writes and zeroes at random, beside a plain array; reads now and then.
async fn random_work(cache: &Cache, model: &mut [u8], seed: u64, steps: u64) {
    let mut rng = random(seed);
    for _ in 0..steps {
        let len = 1 + rng(60_000);
        let offset = rng(SIZE as u64 - len);
        let range = offset as usize..(offset + len) as usize;
        match rng(6) {
            0 => {
                cache.zero(offset, len, true).await.expect("zeroes");
                model[range].fill(0);
            }
            1 => cache.flush().await.expect("flushes"),
            2 => {
                let got = flat(cache.read(offset, len).await.expect("reads"));
                assert!(got == model[range], "a read of {len} at {offset}");
            }
            _ => {
                let fill = 1 + rng(255) as u8;
                let data = Bytes::from(vec![fill; len as usize]);
                let written = if rng(2) == 0 {
                    cache.write(offset, data).await
                } else {
                    cache.write_alone(offset, data).await
                };
                written.expect("writes");
                model[range].fill(fill);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_cache_under_pressure_loses_nothing() {
    for (seed, linger) in [(1, 0), (2, 5), (3, 60_000)] {
        let folder = tempfile::tempdir().expect("folder");
        let ram = Arc::new(Ram::new("a", SIZE));
        let cache = small(folder.path(), &ram, 1 << 20, linger);
        let mut model = vec![0; SIZE];
        random_work(&cache, &mut model, seed, 300).await;
        cache.close().await.expect("closes");
        assert!(ram.content() == model, "seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_a_crash() {
    let folder = tempfile::tempdir().expect("folder");
    let ram = Arc::new(Ram::new("a", SIZE));
    let cache = small(folder.path(), &ram, 32 << 20, 0);
    let mut model = vec![0; SIZE];
    random_work(&cache, &mut model, 4, 50).await;
    // From here on the image takes nothing, as when the network is gone.
    ram.broken.store(5, Ordering::SeqCst);
    random_work(&cache, &mut model, 5, 100).await;

    // The crash: another process finds the file as it is.
    let elsewhere = copy(folder.path());
    let revived = Arc::new(Ram::new("a", SIZE));
    *revived.bytes.lock().expect("not poisoned") = ram.content();
    let again = small(elsewhere.path(), &revived, 0, 0);
    let seen = flat(again.read(0, SIZE as u64).await.expect("reads"));
    assert!(seen == model, "what was acknowledged is seen at once");
    again.close().await.expect("closes");
    assert!(revived.content() == model, "and is in the image after a close");
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_side_by_side_share_flushes() {
    let folder = tempfile::tempdir().expect("folder");
    let ram = Arc::new(Ram::new("a", SIZE));
    let cache = Arc::new(small(folder.path(), &ram, 8 << 20, 60_000));
    let mut writers = JoinSet::new();
    for i in 0..64u64 {
        let cache = cache.clone();
        writers.spawn(async move {
            for round in 0..8 {
                let data = Bytes::from(vec![(i + round) as u8; 4096]);
                cache.write(i * 4096, data).await.expect("writes");
            }
        });
    }
    while let Some(joined) = writers.join_next().await {
        joined.expect("no panic");
    }
    let got = flat(cache.read(0, 64 * 4096).await.expect("reads"));
    assert!((0..64usize).all(|i| got[i * 4096] == (i + 7) as u8));
    cache.close().await.expect("closes");
    assert_eq!(got[..], ram.content()[..64 * 4096]);
    let writes = ram.writes.load(Ordering::SeqCst);
    assert!(writes < 128, "512 writes of 64 neighbours went to the image in {writes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_write_themselves_and_the_thread_take_turns() {
    let folder = tempfile::tempdir().expect("folder");
    let ram = Arc::new(Ram::new("a", SIZE));
    // Little space: the thread frees some in between.
    let cache = Arc::new(small(folder.path(), &ram, 1 << 20, 1));
    let mut writers = JoinSet::new();
    for i in 0..8u64 {
        let cache = cache.clone();
        writers.spawn(async move {
            for round in 1..=60u8 {
                let data = Bytes::from(vec![round; 8192]);
                let at = i * 8192;
                if i % 2 == 0 {
                    cache.write_alone(at, data.clone()).await.expect("writes");
                } else {
                    cache.write(at, data.clone()).await.expect("writes");
                }
                assert!(
                    flat(cache.read(at, 8192).await.expect("reads")) == data,
                    "what was answered is seen"
                );
            }
        });
    }
    while let Some(joined) = writers.join_next().await {
        joined.expect("no panic");
    }
    let crashed = copy(folder.path());
    let revived = Arc::new(Ram::new("a", SIZE));
    *revived.bytes.lock().expect("not poisoned") = ram.content();
    let again = small(crashed.path(), &revived, 0, 0);
    assert!(flat(again.read(0, 8 * 8192).await.expect("reads")).iter().all(|b| *b == 60));
    cache.close().await.expect("closes");
    assert!(ram.content()[..8 * 8192].iter().all(|b| *b == 60));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_holds_a_record_of_every_way_to_write() {
    let folder = tempfile::tempdir().expect("folder");
    let ram = Arc::new(Ram::new("a", SIZE));
    let cache = small(folder.path(), &ram, 1 << 20, 60_000);
    cache.write_alone(0, Bytes::from_static(b"x")).await.expect("the first, which claims the file");
    cache.write_alone(0, Bytes::from_static(b"y")).await.expect("one by its caller");
    cache.write(0, Bytes::from_static(b"z")).await.expect("one by the thread");
    assert_eq!(file(copy(folder.path()).path(), 0).dirty_records(), 3);
    assert_eq!(cache.stats().dirty_records, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_fails_gets_everything_once_it_works_again() {
    let folder = tempfile::tempdir().expect("folder");
    let ram = Arc::new(Ram::new("a", SIZE));
    let cache = small(folder.path(), &ram, 8 << 20, 0);
    cache.write(0, Bytes::from_static(b"first")).await.expect("writes");
    ram.broken.store(5, Ordering::SeqCst);
    cache.write(10, Bytes::from_static(b"hello")).await.expect("writes");
    ram.broken.store(0, Ordering::SeqCst);
    cache.close().await.expect("closes");
    assert_eq!(&ram.content()[10..15], b"hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn block_status_shows_what_only_the_cache_has() {
    let folder = tempfile::tempdir().expect("folder");
    let ram = Arc::new(Ram::new("a", SIZE));
    let cache = small(folder.path(), &ram, 8 << 20, 60_000);
    cache.write(4096, Bytes::from(vec![1; 4096])).await.expect("writes");
    cache.zero(6144, 1024, false).await.expect("zeroes");
    let hole = |len| Range { len, hole: true, zero: true };
    let data = |len| Range { len, hole: false, zero: false };
    let kept = Range { len: 1024, hole: false, zero: true };
    let status = cache.status(0, 16384, usize::MAX).await.expect("status");
    assert_eq!(status, [hole(4096), data(2048), kept, data(1024), hole(8192)]);
    assert!(cache.write(SIZE as u64, Bytes::from_static(b"x")).await.is_err_and(|e| e.errno == 22));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_walk_through_the_status_looks_at_each_part_once() {
    let folder = tempfile::tempdir().expect("folder");
    let ram = Arc::new(Ram::new("a", SIZE));
    let cache = small(folder.path(), &ram, 8 << 20, 60_000);
    let (parts, part) = (200u64, 1024u64);
    for at in 0..parts {
        cache.write(2 * at * part, Bytes::from(vec![1; part as usize])).await.expect("writes");
    }
    let end = 2 * parts * part;
    let whole = cache.status(0, end, usize::MAX).await.expect("status");
    assert_eq!(whole.len() as u64, 2 * parts);
    for most in [1, 7, 1000] {
        let before = ram.statuses.load(Ordering::SeqCst);
        let (mut walked, mut at) = (Vec::new(), 0);
        while at < end {
            let mut answer = cache.status(at, end - at, most).await.expect("status");
            assert!((1..=most + 1).contains(&answer.len()), "{} ranges for {most}", answer.len());
            answer.truncate(most);
            at += answer.iter().map(|range| range.len).sum::<u64>();
            walked.extend(answer);
        }
        assert_eq!(walked, whole);
        let asked = ram.statuses.load(Ordering::SeqCst) - before;
        assert!(asked <= 2 * parts, "the image was asked {asked} times about {parts} gaps");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_status_looks_at_a_bounded_number_of_parts() {
    let folder = tempfile::tempdir().expect("folder");
    let ram = Arc::new(Ram::new("a", SIZE));
    let cache = Arc::new(small(folder.path(), &ram, 8 << 20, 60_000));
    // Zeros over an image of holes: all parts are alike, so the answer is one range however many are looked at.
    let zeroes: Vec<_> = (0..3000u64)
        .map(|at| {
            tokio::spawn({
                let cache = Arc::clone(&cache);
                async move { cache.zero(at * 32, 16, true).await }
            })
        })
        .collect();
    for zero in zeroes {
        zero.await.expect("ran").expect("zeroes");
    }
    let answer = cache.status(0, SIZE as u64, 4096).await.expect("status");
    let [range] = answer[..] else { panic!("{} ranges", answer.len()) };
    assert!((2000 * 32..3000 * 32).contains(&range.len), "{} bytes", range.len);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_image_bears_the_mark_exactly_while_it_lacks_something() {
    let folder = tempfile::tempdir().expect("folder");
    let ram = Arc::new(Ram::new("a", SIZE));
    let cache = start(file(folder.path(), 1 << 20), &ram, 0, Duration::from_millis(1));
    assert_eq!(ram.mark(), None, "nothing is dirty yet");
    let mut tokens = Vec::new();
    for round in 0..3u8 {
        let before = ram.writes.load(Ordering::SeqCst);
        cache.write(0, Bytes::from(vec![round; 4096])).await.expect("writes");
        until("the image has it", || ram.writes.load(Ordering::SeqCst) > before).await;
        until("the mark goes when nothing is written", || ram.mark().is_none()).await;
        let found = file(copy(folder.path()).path(), 0);
        assert_eq!(found.dirty_records(), 0, "the file was settled first");
        tokens.push(found.token());
    }
    tokens.dedup();
    assert_eq!(tokens.len(), 3, "each time dirty has a token of its own");

    ram.broken.store(5, Ordering::SeqCst);
    {
        let write = cache.write(0, Bytes::from_static(b"x"));
        tokio::pin!(write);
        let waits = tokio::time::timeout(Duration::from_millis(50), &mut write).await.is_err();
        assert!(waits, "no write is acknowledged before the image is marked");
        ram.broken.store(0, Ordering::SeqCst);
        write.await.expect("writes");
    }
    cache.close().await.expect("closes");
    assert_eq!((ram.mark(), ram.content()[0]), (None, b'x'));
    assert_eq!(file(copy(folder.path()).path(), 0).dirty_records(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dirty_file_names_the_mark() {
    let folder = tempfile::tempdir().expect("folder");
    let ram = Arc::new(Ram::new("a", SIZE));
    let cache = small(folder.path(), &ram, 1 << 20, 60_000);
    cache.write(0, Bytes::from_static(b"x")).await.expect("writes");
    let crashed = copy(folder.path());
    let mut found = file(crashed.path(), 0);
    assert_eq!((found.dirty_records(), Some(found.token())), (1, ram.mark()));
    found.discard().expect("writes");
    drop(found);
    let again = file(crashed.path(), 0);
    assert_eq!(
        (again.dirty_records(), Some(again.token())),
        (0, ram.mark()),
        "given up, and still recognised"
    );
    let other = Arc::new(Ram::new("a", SIZE));
    let emptied = start(again, &other, 0, LONG);
    assert_eq!(flat(emptied.read(0, 1).await.expect("reads")), [0]);
    emptied.write(1, Bytes::from_static(b"y")).await.expect("writes");
    assert!(other.mark().is_some_and(|mark| Some(mark) != ram.mark()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_whose_image_was_taken_away_acknowledges_nothing_more() {
    let folder = tempfile::tempdir().expect("folder");
    let ram = Arc::new(Ram::new("a", SIZE));
    let cache = small(folder.path(), &ram, 1 << 20, 0);
    cache.write(0, Bytes::from_static(b"x")).await.expect("writes");
    until("the image has it", || ram.content()[0] == b'x').await;
    ram.broken.store(SHUT_OUT, Ordering::SeqCst);
    let end = std::time::Instant::now() + Duration::from_secs(20);
    let error = loop {
        if let Err(e) = cache.write(0, Bytes::from_static(b"y")).await {
            break e;
        }
        assert!(std::time::Instant::now() < end, "it goes on");
    };
    assert_eq!(error.errno, SHUT_OUT);
    assert!(cache.flush().await.is_err_and(|e| e.errno == SHUT_OUT));
    assert!(cache.close().await.is_err_and(|e| e.errno == SHUT_OUT));
    assert!(file(copy(folder.path()).path(), 0).dirty_records() > 0, "the file keeps what the image lacks");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_has_one_image_and_one_user() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("cache");
    let ram = Arc::new(Ram::new("a", SIZE));
    let cache = small(folder.path(), &ram, 1 << 20, 0);
    assert!(matches!(CacheFile::open(&path, "a", 0), Err(MediaError::InUse { .. })));
    cache.close().await.expect("closes");
    drop(cache);
    // The thread and the task let go of the file a moment later.
    let other = loop {
        match CacheFile::open(&path, "b", 0) {
            Err(MediaError::InUse { .. }) => tokio::task::yield_now().await,
            other => break other,
        }
    };
    assert!(matches!(other, Err(MediaError::Log { .. })), "another image is refused");
}
