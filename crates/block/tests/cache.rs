//! The cache over an image in memory: what it acknowledged is there after a crash, and in the image after a close.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use block::{BlockDevice, Cache, CacheConfig, CacheError, MediaError, Range};
use bytes::Bytes;
use common::{Ram, flat};
use tokio::task::JoinSet;

const SIZE: usize = 4 << 20;

fn config(folder: &Path, size: u64, linger_ms: u64) -> CacheConfig {
    CacheConfig { path: folder.join("cache"), size, linger: Duration::from_millis(linger_ms) }
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
                cache.write(offset, Bytes::from(vec![fill; len as usize])).await.expect("writes");
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
        let cache = Cache::open(ram.clone(), &config(folder.path(), 1 << 20, linger)).expect("opens");
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
    let cache = Cache::open(ram.clone(), &config(folder.path(), 32 << 20, 0)).expect("opens");
    let mut model = vec![0; SIZE];
    random_work(&cache, &mut model, 4, 50).await;
    // From here on the image takes nothing, as when the network is gone.
    ram.broken.store(true, Ordering::SeqCst);
    random_work(&cache, &mut model, 5, 100).await;

    // The crash: another process finds the file as it is.
    let elsewhere = tempfile::tempdir().expect("folder");
    std::fs::copy(folder.path().join("cache"), elsewhere.path().join("cache")).expect("copies");
    let revived = Arc::new(Ram::new("a", SIZE));
    *revived.bytes.lock().expect("not poisoned") = ram.content();
    let again = Cache::open(revived.clone(), &config(elsewhere.path(), 0, 0)).expect("opens");
    let seen = flat(again.read(0, SIZE as u64).await.expect("reads"));
    assert!(seen == model, "what was acknowledged is seen at once");
    again.close().await.expect("closes");
    assert!(revived.content() == model, "and is in the image after a close");
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_side_by_side_share_flushes() {
    let folder = tempfile::tempdir().expect("folder");
    let ram = Arc::new(Ram::new("a", SIZE));
    let cache = Arc::new(Cache::open(ram.clone(), &config(folder.path(), 8 << 20, 60_000)).expect("opens"));
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
async fn an_image_that_fails_gets_everything_once_it_works_again() {
    let folder = tempfile::tempdir().expect("folder");
    let ram = Arc::new(Ram::new("a", SIZE));
    ram.broken.store(true, Ordering::SeqCst);
    let cache = Cache::open(ram.clone(), &config(folder.path(), 8 << 20, 0)).expect("opens");
    cache.write(10, Bytes::from_static(b"hello")).await.expect("writes");
    ram.broken.store(false, Ordering::SeqCst);
    cache.close().await.expect("closes");
    assert_eq!(&ram.content()[10..15], b"hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn block_status_shows_what_only_the_cache_has() {
    let folder = tempfile::tempdir().expect("folder");
    let ram = Arc::new(Ram::new("a", SIZE));
    let cache = Cache::open(ram, &config(folder.path(), 8 << 20, 60_000)).expect("opens");
    cache.write(4096, Bytes::from(vec![1; 4096])).await.expect("writes");
    cache.zero(6144, 1024, false).await.expect("zeroes");
    let hole = |len| Range { len, hole: true, zero: true };
    let data = |len| Range { len, hole: false, zero: false };
    let kept = Range { len: 1024, hole: false, zero: true };
    let status = cache.status(0, 16384).await.expect("status");
    assert_eq!(status, [hole(4096), data(2048), kept, data(1024), hole(8192)]);
    assert!(cache.write(SIZE as u64, Bytes::from_static(b"x")).await.is_err_and(|e| e.errno == 22));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_has_one_image_and_one_user() {
    let folder = tempfile::tempdir().expect("folder");
    let config = config(folder.path(), 1 << 20, 0);
    let cache = Cache::open(Arc::new(Ram::new("a", SIZE)), &config).expect("opens");
    let second = Cache::open(Arc::new(Ram::new("a", SIZE)), &config);
    assert!(matches!(second, Err(CacheError::Media(MediaError::InUse { .. }))));
    cache.close().await.expect("closes");
    drop(cache);
    // The thread and the task let go of the file a moment later.
    let other = loop {
        match Cache::open(Arc::new(Ram::new("b", SIZE)), &config) {
            Err(CacheError::Media(MediaError::InUse { .. })) => tokio::task::yield_now().await,
            other => break other,
        }
    };
    assert!(matches!(other, Err(CacheError::Media(MediaError::Log { .. }))), "another image is refused");
}
