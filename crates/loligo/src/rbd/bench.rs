//! `loligo rbd bench`: requests of one size against an image, straight or through the cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use block::BlockDevice;
use bytes::Bytes;
use rbd::{Doubt, OpenOptions};
use serde_json::json;
use tokio::task::JoinSet;
use types::{Entropy, SeededEntropy};

use super::Rbd;
use super::args::BenchArgs;
use super::serve::CachePlace;

/// The cache's file, in bytes, and how long writes gather.
const CACHE_SIZE: u64 = 256 << 20;
const LINGER: Duration = Duration::from_millis(200);

impl Rbd<'_> {
    pub(super) async fn bench(&self, args: &BenchArgs) -> Result<()> {
        let device: Arc<dyn BlockDevice> = match &args.cache {
            Some(folder) => {
                let place = CachePlace { folder, size: CACHE_SIZE, linger: LINGER, doubt: Doubt::Refuse };
                Arc::new(self.open_cached(&args.image, &place).await?)
            }
            None => Arc::new(self.open(&args.image, OpenOptions::default()).await?),
        };
        let blocks = device.size() / args.io_size.max(1);
        if args.io_size == 0 || blocks == 0 || args.io_threads == 0 {
            device.close().await?;
            bail!(rbd::Error::refused(types::Errno::EINVAL, "the image holds no request of this size"));
        }
        let result = measure(&device, args, blocks, self.shows_seconds()).await;
        device.close().await?;
        let (elapsed, mut latencies) = result?;
        latencies.sort_unstable();
        self.report(args, elapsed, &latencies);
        Ok(())
    }

    /// As Ceph's tool does; with JSON only the end is told.
    fn shows_seconds(&self) -> bool {
        !self.args.json && !self.args.no_progress
    }

    fn report(&self, args: &BenchArgs, elapsed: Duration, latencies: &[Duration]) {
        let count = latencies.len().max(1);
        let mean = latencies.iter().sum::<Duration>() / count as u32;
        let at = |part: usize| latencies.get(count * part / 1000).copied().unwrap_or_default();
        let ops = latencies.len() as f64 / elapsed.as_secs_f64();
        let rate = ops * args.io_size as f64;
        let us = |d: Duration| d.as_micros() as u64;
        if self.args.json {
            let report = json!({
                "ops": latencies.len(), "elapsed_s": elapsed.as_secs_f64(), "ops_per_s": ops, "bytes_per_s": rate,
                "mean_us": us(mean), "p50_us": us(at(500)), "p99_us": us(at(990)), "p999_us": us(at(999)),
            });
            say!("{report}");
            return;
        }
        say!(
            "elapsed: {:.1}   ops: {}   ops/sec: {ops:.2}   bytes/sec: {}/s",
            elapsed.as_secs_f64(),
            latencies.len(),
            monitor::text::units::bytes(rate as u64)
        );
        say!(
            "latency in microseconds: mean {}, median {}, 99% {}, 99.9% {}",
            us(mean),
            us(at(500)),
            us(at(990)),
            us(at(999))
        );
    }
}

/// The whole time, and that of each request.
async fn measure(
    device: &Arc<dyn BlockDevice>,
    args: &BenchArgs,
    blocks: u64,
    shows_seconds: bool,
) -> Result<(Duration, Vec<Duration>)> {
    let requests = args.io_total.div_ceil(args.io_size);
    let next = Arc::new(AtomicU64::new(0));
    let done = Arc::new(AtomicU64::new(0));
    let ticking = shows_seconds.then(|| tokio::spawn(show_seconds(Arc::clone(&done), args.io_size)));
    let mut running = JoinSet::new();
    let start = Instant::now();
    for thread in 0..args.io_threads {
        let (device, next, done) = (Arc::clone(device), Arc::clone(&next), Arc::clone(&done));
        let is_alone = args.io_threads == 1;
        let (size, is_write, is_random) = (args.io_size, args.io_type == "write", args.io_pattern == "rand");
        let mut random = SeededEntropy(thread as u64);
        let mut data = vec![0; size as usize];
        random.fill(&mut data);
        let data = Bytes::from(data);
        running.spawn(async move {
            let mut latencies = Vec::new();
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= requests {
                    return Ok::<_, block::BlockError>(latencies);
                }
                let block = if is_random { random.next_u64() % blocks } else { n % blocks };
                let begin = Instant::now();
                if is_write && is_alone {
                    device.write_alone(block * size, data.clone()).await?;
                } else if is_write {
                    device.write(block * size, data.clone()).await?;
                } else {
                    device.read(block * size, size).await?;
                }
                latencies.push(begin.elapsed());
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let mut all = Vec::new();
    let mut result = Ok(());
    while let Some(joined) = running.join_next().await {
        match joined.map_err(anyhow::Error::from).and_then(|r| Ok(r?)) {
            Ok(latencies) => all.extend(latencies),
            Err(e) => result = Err(e),
        }
    }
    if let Some(ticking) = ticking {
        ticking.abort();
    }
    result.map(|()| (start.elapsed(), all))
}

/// A line for each second, until it is stopped.
async fn show_seconds(done: Arc<AtomicU64>, size: u64) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    let mut before = 0;
    for second in 0u64.. {
        ticks.tick().await;
        if second == 0 {
            continue;
        }
        if second == 1 {
            say!("  SEC       OPS   OPS/SEC   BYTES/SEC");
        }
        let now = done.load(Ordering::Relaxed);
        let ops = now - before;
        before = now;
        say!("{second:5}  {now:8}  {ops:8}  {}/s", monitor::text::units::bytes(ops * size));
    }
}
