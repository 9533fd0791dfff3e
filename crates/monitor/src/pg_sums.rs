//! What `ceph status` says of PGs, objects, space and traffic, from the manager's digest.
//!
//! Source: PGMapDigest::print_summary, recovery_summary, recovery_rate_summary and client_io_rate_summary in
//! src/mon/PGMap.cc.

use messages::stats::{ObjectStatSum, StoreStatfs};
use serde_json::{Map, Value, json};

use crate::state::{PgDigest, Rates};
use crate::text::pg_state;
use crate::text::units::{bytes, bytes_signed, count, count_signed};

/// Sums over all pools and OSDs.
#[derive(Debug, Clone)]
pub(crate) struct PgSums {
    /// PGs by state, the most frequent first.
    states: Vec<(u64, u32)>,
    pgs: u32,
    unknown: u32,
    inactive: u32,
    pools: usize,
    objects: ObjectStatSum,
    statfs: StoreStatfs,
    rates: Rates,
}

/// A kind of objects that are not where or what they should be.
struct Lacking {
    name: &'static str,
    count: i64,
    of: i64,
}

impl Lacking {
    fn ratio(&self) -> f64 {
        self.count as f64 / self.of as f64
    }
}

impl PgSums {
    pub(crate) fn of(digest: &PgDigest) -> Self {
        let unserved = digest.unserved_pgs();
        let mut by_state = digest.pg_states.clone();
        *by_state.entry(0).or_default() += unserved;
        let mut states: Vec<(u64, u32)> = by_state.into_iter().filter(|(_, n)| *n > 0).collect();
        states.sort_by_key(|(state, n)| std::cmp::Reverse((*n, *state)));
        let sum =
            |wanted: &dyn Fn(u64) -> bool| states.iter().filter(|(s, _)| wanted(*s)).map(|(_, n)| n).sum();
        let pgs = digest.num_pgs().saturating_add(unserved);
        let unknown: u32 = sum(&|s| s == 0);
        let active: u32 = sum(&|s| s & pg_state::ACTIVE != 0);
        Self {
            pgs,
            unknown,
            inactive: pgs - unknown - active,
            states,
            pools: digest.pools.len(),
            objects: digest.totals(),
            statfs: digest.statfs(),
            rates: digest.rates,
        }
    }

    fn lacking(&self) -> Vec<Lacking> {
        let o = &self.objects;
        let all = [
            Lacking { name: "degraded", count: o.num_objects_degraded, of: o.num_object_copies },
            Lacking { name: "misplaced", count: o.num_objects_misplaced, of: o.num_object_copies },
            Lacking { name: "unfound", count: o.num_objects_unfound, of: o.num_objects },
        ];
        all.into_iter().filter(|l| l.count != 0 && l.of > 0).collect()
    }

    /// The `pgmap` object.
    pub(crate) fn summary_json(&self) -> Value {
        let state = |(s, n): &(u64, u32)| json!({ "state_name": pg_state::to_text(*s), "count": n });
        let states: Vec<Value> = self.states.iter().map(state).collect();
        let mut out: Vec<(&str, Value)> = vec![
            ("pgs_by_state", states.into()),
            ("num_pgs", self.pgs.into()),
            ("num_pools", self.pools.into()),
            ("num_objects", self.objects.num_objects.into()),
            ("data_bytes", self.objects.num_bytes.into()),
            ("bytes_used", self.statfs.used_raw().into()),
            ("bytes_avail", self.statfs.available.into()),
            ("bytes_total", self.statfs.total.into()),
        ];
        for (key, n) in [("unknown_pgs_ratio", self.unknown), ("inactive_pgs_ratio", self.inactive)] {
            if n > 0 {
                out.push((key, f64::from(n as f32 / self.pgs as f32).into()));
            }
        }
        let mut out: Map<String, Value> = out.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        for l in self.lacking() {
            out.insert(format!("{}_objects", l.name), l.count.into());
            out.insert(format!("{}_total", l.name), l.of.into());
            out.insert(format!("{}_ratio", l.name), l.ratio().into());
        }
        self.rates_json(&mut out);
        Value::Object(out)
    }

    fn rates_json(&self, out: &mut Map<String, Value>) {
        let r = &self.rates;
        let mut put = |key: &str, v: u64| out.insert(key.to_owned(), v.into());
        if recovers(r) {
            put("recovering_objects_per_sec", r.recovered_objects);
            put("recovering_bytes_per_sec", r.recovered_bytes);
            put("recovering_keys_per_sec", r.recovered_keys);
            // The digest has no counts but per second.
            put("num_objects_recovered", r.recovered_objects);
            put("num_bytes_recovered", r.recovered_bytes);
            put("num_keys_recovered", r.recovered_keys);
        }
        if r.reads == 0 && r.writes == 0 {
            return;
        }
        if r.reads > 0 {
            put("read_bytes_sec", r.read_bytes);
        }
        if r.writes > 0 {
            put("write_bytes_sec", r.write_bytes);
        }
        put("read_op_per_sec", r.reads);
        put("write_op_per_sec", r.writes);
    }

    /// The lines below `data:`.
    pub(crate) fn summary_text(&self) -> String {
        let (o, s) = (&self.objects, &self.statfs);
        let mut out = format!("    pools:   {} pools, {} pgs\n", self.pools, self.pgs);
        out +=
            &format!("    objects: {} objects, {}\n", count_signed(o.num_objects), bytes_signed(o.num_bytes));
        let (used, free, total) = (bytes(s.used_raw()), bytes(s.available), bytes(s.total));
        out += &format!("    usage:   {used} used, {free} / {total} avail\n    pgs:     ");
        out += &self.pg_lines().join("\n             ");
        out.push('\n');
        let io: Vec<String> =
            [("client:  ", client_text(&self.rates)), ("recovery:", recovery_text(&self.rates))]
                .into_iter()
                .filter(|(_, text)| !text.is_empty())
                .map(|(name, text)| format!("    {name} {text}\n"))
                .collect();
        if !io.is_empty() {
            out += " \n  io:\n";
            out += &io.concat();
        }
        out
    }

    fn pg_lines(&self) -> Vec<String> {
        let percent = |n: u32| f64::from(n as f32 / self.pgs as f32) * 100.0;
        let mut lines = Vec::new();
        if self.unknown > 0 {
            lines.push(format!("{:.3}% pgs unknown", percent(self.unknown)));
        }
        if self.inactive > 0 {
            lines.push(format!("{:.3}% pgs not active", percent(self.inactive)));
        }
        for l in self.lacking() {
            lines.push(format!("{}/{} objects {} ({:.3}%)", l.count, l.of, l.name, l.ratio() * 100.0));
        }
        let width = self.states.iter().map(|(_, n)| n.to_string().len()).max().unwrap_or(1);
        lines.extend(self.states.iter().map(|(s, n)| format!("{n:<width$} {}", pg_state::to_text(*s))));
        lines
    }
}

fn recovers(r: &Rates) -> bool {
    r.recovered_objects > 0 || r.recovered_bytes > 0 || r.recovered_keys > 0
}

fn recovery_text(r: &Rates) -> String {
    if !recovers(r) {
        return String::new();
    }
    let keys =
        if r.recovered_keys > 0 { format!(", {} keys/s", count(r.recovered_keys)) } else { String::new() };
    format!("{}/s{keys}, {} objects/s", bytes(r.recovered_bytes), count(r.recovered_objects))
}

/// `1.2 MiB/s rd, 3 MiB/s wr, 10 op/s rd, 20 op/s wr`; empty without traffic.
pub(crate) fn client_text(r: &Rates) -> String {
    if r.reads == 0 && r.writes == 0 {
        return String::new();
    }
    let mut out = String::new();
    if r.reads > 0 {
        out += &format!("{}/s rd, ", bytes(r.read_bytes));
    }
    if r.writes > 0 {
        out += &format!("{}/s wr, ", bytes(r.write_bytes));
    }
    out + &format!("{} op/s rd, {} op/s wr", count(r.reads), count(r.writes))
}
