//! How many operations took how long and moved how many bytes.
//!
//! Source: src/common/perf_histogram.h; the axes: build_osd_logger in src/osd/osd_perf_counters.cc.

use serde_json::{Map, Value, json};

/// Buckets of each axis. The first is for what is below the axis, which nothing is; the last has no end.
const BUCKETS: usize = 32;

/// An axis whose buckets are twice as wide as the one before.
struct Axis {
    name: &'static str,
    /// The width of the first bucket.
    unit: u64,
}

const LATENCY: Axis = Axis { name: "Latency (usec)", unit: 100_000 };
const SIZE: Axis = Axis { name: "Request size (bytes)", unit: 512 };

/// Operations by latency (in nanoseconds, whatever the axis is called) and size.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    cells: [[u64; BUCKETS]; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { cells: [[0; BUCKETS]; BUCKETS] }
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Histogram({} values)", self.cells.iter().flatten().sum::<u64>())
    }
}

impl Histogram {
    #[inline]
    pub fn add(&mut self, latency_ns: u64, bytes: u64) {
        let row = self.cells.get_mut(bucket(latency_ns / LATENCY.unit));
        if let Some(cell) = row.and_then(|row| row.get_mut(bucket(bytes / SIZE.unit))) {
            *cell += 1;
        }
    }

    pub(super) fn since(&self, base: &Self) -> Self {
        let mut out = self.clone();
        for (cell, before) in out.cells.iter_mut().flatten().zip(base.cells.iter().flatten()) {
            *cell = cell.saturating_sub(*before);
        }
        out
    }

    pub(super) fn value(&self) -> Value {
        json!({ "axes": [LATENCY.value(), SIZE.value()], "values": self.cells })
    }
}

/// The bucket of so many units: the first above zero is for less than one, the next for less than two, then
/// four.
#[inline]
fn bucket(units: u64) -> usize {
    let bits = u64::BITS - units.leading_zeros();
    (bits as usize + 1).min(BUCKETS - 1)
}

impl Axis {
    fn value(&self) -> Value {
        json!({
            "name": self.name,
            "min": 0,
            "quant_size": self.unit,
            "buckets": BUCKETS,
            "scale_type": "log2",
            "ranges": (0..BUCKETS).map(|i| self.range(i)).collect::<Vec<Value>>(),
        })
    }

    /// The values of a bucket, both ends included. Source: PerfHistogramCommon::get_axis_bucket_ranges.
    fn range(&self, i: usize) -> Value {
        let first_beyond = |i: usize| (1_i64 << (i - 1)) * self.unit as i64;
        let mut range = Map::new();
        if i > 0 {
            range.insert("min".to_owned(), json!(if i == 1 { 0 } else { first_beyond(i - 1) }));
        }
        if i < BUCKETS - 1 {
            range.insert("max".to_owned(), json!(if i == 0 { -1 } else { first_beyond(i) - 1 }));
        }
        Value::Object(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where Ceph puts them: the first bucket i above 0 with `units < 1 << (i - 1)`.
    #[test]
    fn buckets_are_cephs() {
        let ceph = |units: u64| (1..BUCKETS).find(|i| units < 1 << (i - 1)).unwrap_or(BUCKETS - 1);
        for units in (0..70).chain([1 << 29, (1 << 30) - 1, 1 << 30, 1 << 31, u64::MAX]) {
            assert_eq!(bucket(units), ceph(units), "{units}");
        }
    }

    #[test]
    fn ranges_join_and_hold_what_is_counted() {
        let axis = SIZE.value();
        let end = |i: usize, which: &str| axis["ranges"][i][which].as_i64();
        assert_eq!(
            (end(0, "min"), end(0, "max"), end(1, "min"), end(31, "max")),
            (None, Some(-1), Some(0), None)
        );
        for i in 1..BUCKETS {
            assert_eq!(end(i, "min"), end(i - 1, "max").map(|max| max + 1), "{i}");
            let min = end(i, "min").and_then(|min| u64::try_from(min).ok()).expect("a number");
            assert_eq!(bucket(min / SIZE.unit), i);
        }
        let mut h = Histogram::default();
        h.add(1_500_000, 0);
        assert_eq!(h.value()["values"][5][1], 1, "15 units of latency");
    }
}
