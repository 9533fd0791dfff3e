//! Latencies and the report.

use std::time::Duration;

use serde_json::{Value, json};

use super::args::{Mode, RadosBench};
use super::load::Tally;

/// Latencies in buckets of at most 1/32 of their value.
#[derive(Debug, Clone)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum_ns: u128,
    max_ns: u64,
}

/// Buckets to each power of two.
const STEPS: u64 = 32;

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![0; 64 * STEPS as usize], count: 0, sum_ns: 0, max_ns: 0 }
    }
}

/// Values below `STEPS` have a bucket each; above, `STEPS` buckets divide each power of two.
fn bucket_of(ns: u64) -> usize {
    if ns < STEPS {
        return ns as usize;
    }
    let power = u64::from(63 - ns.leading_zeros());
    let step = (ns >> (power - 5)) - STEPS;
    ((power - 4) * STEPS + step) as usize
}

/// The largest value of a bucket.
fn bucket_end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let (power, step) = (bucket / STEPS + 4, bucket % STEPS);
    // Behind the last bucket lies 2^64, which wraps to 0.
    ((STEPS + step + 1) << (power - 5)).wrapping_sub(1)
}

impl Histogram {
    pub fn record(&mut self, taken: Duration) {
        let ns = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
        if let Some(bucket) = self.buckets.get_mut(bucket_of(ns)) {
            *bucket += 1;
        }
        self.count += 1;
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    pub fn add(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(a, b)| *a += b);
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn mean_us(&self) -> f64 {
        self.sum_ns as f64 / self.count.max(1) as f64 / 1e3
    }

    /// The latency that this share of operations does not exceed, in microseconds.
    pub fn quantile_us(&self, share: f64) -> f64 {
        let wanted = (self.count as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, n) in self.buckets.iter().enumerate() {
            seen += n;
            if seen >= wanted.max(1) {
                return bucket_end(bucket).min(self.max_ns) as f64 / 1e3;
            }
        }
        self.max_ns as f64 / 1e3
    }
}

/// Everything that is told.
pub struct Report {
    pub args: RadosBench,
    pub tally: Tally,
    /// Blocks that were read back and compared after the run.
    pub checked: usize,
    /// Nanoseconds of CPU of this client.
    pub client: u64,
    /// Which daemons `daemon_cpu` (nanoseconds) is of.
    pub daemons: Option<&'static str>,
    pub daemon_cpu: u64,
}

impl Report {
    fn kinds(&self) -> impl Iterator<Item = (&'static str, &Histogram)> {
        let t = &self.tally;
        [("write", &t.writes), ("read", &t.reads)].into_iter().filter(|(_, h)| h.count() > 0)
    }

    fn per_op_us(&self, ns: u64) -> f64 {
        ns as f64 / 1e3 / self.tally.ops() as f64
    }

    pub fn json(&self) -> Value {
        let seconds = self.tally.elapsed.as_secs_f64();
        let mut out = json!({
            "mode": mode(self.args.mode), "block_size": self.args.block_size, "object_size": self.args.object_size,
            "objects": self.args.objects, "depth": self.args.depth, "seconds": seconds,
            "ops": self.tally.ops(), "iops": self.tally.ops() as f64 / seconds,
            "mb_per_s": self.tally.ops() as f64 * self.args.block_size as f64 / seconds / 1e6,
            "client_cpu_us_per_op": self.per_op_us(self.client),
            "daemon_cpu_of": self.daemons,
            "daemon_cpu_us_per_op": self.daemons.map(|_| self.per_op_us(self.daemon_cpu)),
            "blocks_read_back": self.checked,
        });
        let kinds = self.kinds().map(|(name, h)| {
            let latencies = json!({
                "ops": h.count(), "iops": h.count() as f64 / seconds, "mean_us": h.mean_us(),
                "p50_us": h.quantile_us(0.5), "p99_us": h.quantile_us(0.99), "p999_us": h.quantile_us(0.999),
                "max_us": h.max_ns as f64 / 1e3,
            });
            (name.to_owned(), latencies)
        });
        if let Some(out) = out.as_object_mut() {
            out.extend(kinds);
        }
        out
    }

    pub fn table(&self) -> String {
        let seconds = self.tally.elapsed.as_secs_f64();
        let a = &self.args;
        let mut lines = vec![format!(
            "{} of {} bytes, depth {}, {} objects of {} bytes, {seconds:.1} s",
            mode(a.mode),
            a.block_size,
            a.depth,
            a.objects,
            a.object_size
        )];
        lines.push(format!(
            "{:6}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}",
            "", "op/s", "MB/s", "mean us", "p50 us", "p99 us", "p99.9 us", "max us"
        ));
        for (name, h) in self.kinds() {
            let rate = h.count() as f64 / seconds;
            lines.push(format!(
                "{name:6}{rate:>11.0}{:>11.2}{:>11.0}{:>11.0}{:>11.0}{:>11.0}{:>11.0}",
                rate * a.block_size as f64 / 1e6,
                h.mean_us(),
                h.quantile_us(0.5),
                h.quantile_us(0.99),
                h.quantile_us(0.999),
                h.max_ns as f64 / 1e3
            ));
        }
        lines.push(format!(
            "CPU per operation: client {:.1} us{}",
            self.per_op_us(self.client),
            self.daemon_text()
        ));
        let read_back = format!("{} blocks read back and compared", self.checked);
        lines.push(format!(
            "data: {read_back}{}",
            if self.tally.reads.count() > 0 { ", every read too" } else { "" }
        ));
        lines.join("\n")
    }

    fn daemon_text(&self) -> String {
        match self.daemons {
            Some(which) => format!(", {which} {:.1} us", self.per_op_us(self.daemon_cpu)),
            None => "; the daemons are not on this host".to_owned(),
        }
    }
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Write => "writes",
        Mode::Seq => "sequential reads",
        Mode::Rand => "random reads",
        Mode::Mixed => "reads and writes",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_narrow_and_in_order() {
        let mut last = 0;
        for ns in (0..200_000u64).chain([1 << 40, (1 << 63) + 5, u64::MAX - 1]) {
            let b = bucket_of(ns);
            assert!(b >= last && bucket_end(b) >= ns && bucket_end(b) - ns <= ns / 32, "{ns}");
            last = b;
        }
    }

    #[test]
    fn quantiles() {
        let mut h = Histogram::default();
        (1..=1000u64).for_each(|us| h.record(Duration::from_micros(us)));
        let near = |got: f64, want: f64| assert!((got - want).abs() <= want / 30.0, "{got} {want}");
        near(h.quantile_us(0.5), 500.0);
        near(h.quantile_us(0.99), 990.0);
        near(h.mean_us(), 500.5);
        assert!(h.quantile_us(1.0) <= 1000.0);
    }
}
