//! `ceph df`.
//!
//! Source: PGMapDigest::dump_cluster_stats, dump_pool_stats_full and dump_object_stat_sum in src/mon/PGMap.cc.

use std::collections::BTreeMap;

use maps::{OsdMap, Pool, PoolType};
use messages::stats::StoreStatfs;
use serde_json::{Map, Value, json};
use types::PoolId;

use crate::command::{Command, Ctx, Format, Handler, Reply, flags};
use crate::state::{PgDigest, PoolUsage, add_statfs};
use crate::text::full_lines;
use crate::text::table::TextTable;
use crate::text::units::{bytes, bytes_signed, count, count_signed, percent};

pub(super) const COMMANDS: &[Command] = &[Command {
    sig: "df name=detail,type=CephChoices,strings=detail,req=false",
    help: "show cluster free space stats",
    module: "mon",
    perm: "r",
    flags: flags::NONE,
    handler: Handler::Read(df),
}];

fn df(ctx: &Ctx<'_>) -> Reply {
    let (map, digest) = (ctx.osdmap(), &ctx.state.digest);
    let detail = ctx.args.text("detail") == Some("detail");
    let classes = by_class(map, digest);
    let pools: Vec<PoolLine<'_>> = pool_lines(map, digest);
    match ctx.format {
        Format::Plain => {
            let text = format!("{}\n \n{}", cluster_text(digest, &classes), pools_text(&pools, detail));
            Reply::text(full_lines(&text))
        }
        _ => {
            let pools: Vec<Value> = pools.iter().map(|p| p.json(detail)).collect();
            let value = json!({
                "stats": cluster_json(digest),
                "stats_by_class": classes.iter().map(|(c, s)| (c.clone(), statfs_json(s))).collect::<Map<_, _>>(),
                "pools": pools,
            });
            Reply::json_line(ctx.format, &value)
        }
    }
}

/// Stores' sums by device class; devices without a class are in none.
fn by_class(map: &OsdMap, digest: &PgDigest) -> BTreeMap<String, StoreStatfs> {
    if let Some(sums) = &digest.sums {
        return sums.by_class.clone();
    }
    let mut classes: BTreeMap<String, StoreStatfs> = BTreeMap::new();
    for (osd, usage) in &digest.osds {
        if let Some(class) = map.crush.item_class(*osd) {
            add_statfs(classes.entry(class.to_owned()).or_default(), &usage.statfs);
        }
    }
    classes
}

fn used_ratio(s: &StoreStatfs) -> f32 {
    if s.total == 0 { 0.0 } else { s.used_raw() as f32 / s.total as f32 }
}

fn statfs_json(s: &StoreStatfs) -> Value {
    json!({
        "total_bytes": s.total,
        "total_avail_bytes": s.available,
        "total_used_bytes": s.used(),
        "total_used_raw_bytes": s.used_raw(),
        "total_used_raw_ratio": f64::from(used_ratio(s)),
    })
}

fn cluster_json(digest: &PgDigest) -> Value {
    let mut value = statfs_json(&digest.statfs());
    if let Value::Object(fields) = &mut value {
        // Every store of ours accounts for each pool, data and omap.
        let ours = u32::try_from(digest.osds.len()).unwrap_or(u32::MAX);
        let sums = digest.sums.as_ref();
        let counts = [
            ("num_osds", sums.map(|s| s.num_osds)),
            ("num_per_pool_osds", sums.map(|s| s.num_per_pool_osds)),
            ("num_per_pool_omap_osds", sums.map(|s| s.num_per_pool_omap_osds)),
        ];
        for (key, told) in counts {
            fields.insert(key.to_owned(), told.unwrap_or(ours).into());
        }
    }
    value
}

fn cluster_text(digest: &PgDigest, classes: &BTreeMap<String, StoreStatfs>) -> String {
    let mut table = TextTable::new()
        .left("CLASS")
        .right("SIZE")
        .right("AVAIL")
        .right("USED")
        .right("RAW USED")
        .right("%RAW USED");
    let total = digest.statfs();
    let all = classes.iter().map(|(name, s)| (name.as_str(), s)).chain([("TOTAL", &total)]);
    for (name, s) in all {
        let [size, avail, used, raw] = [s.total, s.available, s.used(), s.used_raw()].map(bytes);
        table.row([name.to_owned(), size, avail, used, raw, percent(used_ratio(s) * 100.0)]);
    }
    format!("--- RAW STORAGE ---\n{}", table.render())
}

/// One pool's line.
struct PoolLine<'a> {
    id: PoolId,
    name: &'a str,
    pool: &'a Pool,
    usage: &'a PoolUsage,
    /// Raw bytes per byte of data, less what degraded objects lack.
    raw_rate: f32,
    stored_data: u64,
    stored_omap: u64,
    used_data: u64,
    used_omap: u64,
}

fn pool_lines<'a>(map: &'a OsdMap, digest: &'a PgDigest) -> Vec<PoolLine<'a>> {
    let known = map.pools.iter().filter_map(|(id, pool)| Some((*id, pool, digest.pools.get(id)?)));
    known.map(|(id, pool, usage)| PoolLine::new(map, id, pool, usage)).collect()
}

/// Bytes that a pool uses, and bytes of data that it still takes.
pub fn pool_space(map: &OsdMap, id: PoolId, usage: &PoolUsage) -> Option<(u64, u64)> {
    let line = PoolLine::new(map, id, map.pool(id)?, usage);
    Some((line.used(), line.max_avail()))
}

/// All that `df detail` shows of a pool, by its names there.
pub fn pool_stats(map: &OsdMap, id: PoolId, usage: &PoolUsage) -> Option<Map<String, Value>> {
    Some(PoolLine::new(map, id, map.pool(id)?, usage).stats(true))
}

/// Raw bytes that a byte of data takes. Source: OSDMap::pool_raw_used_rate, which takes k and m for all
/// chunks there are, and so forgets the local parity of lrc.
pub(crate) fn raw_used_rate(map: &OsdMap, pool: &Pool) -> f32 {
    if pool.kind == PoolType::Replicated {
        return f32::from(pool.size);
    }
    let Some(values) = map.erasure_code_profiles.get(&pool.erasure_code_profile) else {
        return 0.0;
    };
    let number = |key: &str| -> Option<i32> { values.get(key)?.parse().ok() };
    match (erasure::Profile::new(values), number("k"), number("m")) {
        (Ok(profile), ..) => profile.chunks() as f32 / profile.data_chunks() as f32,
        // A code that is not built here has its size all the same.
        (Err(_), Some(k), Some(m)) if k > 0 && m >= 0 => (k + m) as f32 / k as f32,
        _ => 0.0,
    }
}

impl<'a> PoolLine<'a> {
    fn new(map: &'a OsdMap, id: PoolId, pool: &'a Pool, usage: &'a PoolUsage) -> Self {
        let (sum, store) = (&usage.stat.stats.sum, &usage.stat.store_stats);
        let mut raw_rate = raw_used_rate(map, pool);
        if sum.num_object_copies > 0 {
            let whole = sum.num_object_copies.saturating_sub(sum.num_objects_degraded);
            raw_rate *= whole as f32 / sum.num_object_copies as f32;
        }
        // In single precision, as Ceph computes them.
        let stored = |raw: i64| if raw_rate == 0.0 { 0 } else { (raw as f32 / raw_rate) as u64 };
        let not_negative = |v: i64| u64::try_from(v).unwrap_or(0);
        Self {
            id,
            name: map.pool_name(id).unwrap_or_default(),
            pool,
            usage,
            raw_rate,
            stored_data: stored(store.data_stored),
            stored_omap: stored(store.omap_allocated),
            used_data: not_negative(store.allocated),
            used_omap: not_negative(store.omap_allocated),
        }
    }

    fn stored(&self) -> u64 {
        self.stored_data.saturating_add(self.stored_omap)
    }

    fn used(&self) -> u64 {
        self.used_data + self.used_omap
    }

    /// 0 to 1, of what the pool uses and could use.
    fn used_share(&self) -> f32 {
        match (self.usage.avail_raw, self.used()) {
            (0, 0) => 0.0,
            (0, _) => 1.0,
            (avail, used) => used as f32 / (used as f32 + avail as f32),
        }
    }

    fn max_avail(&self) -> u64 {
        if self.raw_rate == 0.0 { 0 } else { (self.usage.avail_raw as f32 / self.raw_rate) as u64 }
    }

    fn json(&self, detail: bool) -> Value {
        json!({ "name": self.name, "id": self.id.0, "stats": self.stats(detail) })
    }

    fn stats(&self, detail: bool) -> Map<String, Value> {
        let (sum, store) = (&self.usage.stat.stats.sum, &self.usage.stat.store_stats);
        let always = |v: Value| (true, v);
        let detailed = |v: Value| (detail, v);
        let fields: Vec<(&str, (bool, Value))> = vec![
            ("stored", always(self.stored().into())),
            ("stored_data", detailed(self.stored_data.into())),
            ("stored_omap", detailed(self.stored_omap.into())),
            ("objects", always(sum.num_objects.into())),
            ("kb_used", always(self.used().div_ceil(1024).into())),
            ("bytes_used", always(self.used().into())),
            ("data_bytes_used", detailed(self.used_data.into())),
            ("omap_bytes_used", detailed(self.used_omap.into())),
            ("percent_used", always(f64::from(self.used_share()).into())),
            ("max_avail", always(self.max_avail().into())),
            ("quota_objects", detailed(self.pool.quota_max_objects.into())),
            ("quota_bytes", detailed(self.pool.quota_max_bytes.into())),
            ("dirty", detailed(sum.num_objects_dirty.into())),
            ("rd", detailed(sum.num_rd.into())),
            ("rd_bytes", detailed(sum.num_rd_kb.saturating_mul(1024).into())),
            ("wr", detailed(sum.num_wr.into())),
            ("wr_bytes", detailed(sum.num_wr_kb.saturating_mul(1024).into())),
            ("compress_bytes_used", detailed(store.data_compressed_allocated.into())),
            ("compress_under_bytes", detailed(store.data_compressed_original.into())),
            ("stored_raw", detailed(((self.stored() as f32 * self.raw_rate) as u64).into())),
            ("avail_raw", detailed(self.usage.avail_raw.into())),
        ];
        let shown = fields.into_iter().filter(|(_, (shown, _))| *shown);
        shown.map(|(key, (_, v))| (key.to_owned(), v)).collect()
    }

    fn cells(&self, detail: bool) -> Vec<String> {
        let (sum, store) = (&self.usage.stat.stats.sum, &self.usage.stat.store_stats);
        let quota = |v: u64, text: fn(u64) -> String| if v == 0 { "N/A".to_owned() } else { text(v) };
        let mut cells = vec![self.name.to_owned(), self.id.to_string(), self.pool.pg_num.to_string()];
        cells.push(bytes(self.stored()));
        if detail {
            cells.extend([self.stored_data, self.stored_omap].map(bytes));
        }
        cells.extend([count_signed(sum.num_objects), bytes(self.used())]);
        if detail {
            cells.extend([self.used_data, self.used_omap].map(bytes));
        }
        cells.extend([percent(self.used_share() * 100.0), bytes(self.max_avail())]);
        if detail {
            cells.push(quota(self.pool.quota_max_objects, count));
            cells.push(quota(self.pool.quota_max_bytes, bytes));
            // Dirty objects matter to cache tiers alone.
            let dirty =
                if self.pool.is_tier() { count_signed(sum.num_objects_dirty) } else { "N/A".to_owned() };
            cells.push(dirty);
            cells.extend([store.data_compressed_allocated, store.data_compressed_original].map(bytes_signed));
        }
        cells
    }
}

fn pools_text(pools: &[PoolLine<'_>], detail: bool) -> String {
    let mut headings = vec!["ID", "PGS", "STORED"];
    headings.extend(if detail { &["(DATA)", "(OMAP)"][..] } else { &[] });
    headings.extend(["OBJECTS", "USED"]);
    headings.extend(if detail { &["(DATA)", "(OMAP)"][..] } else { &[] });
    headings.extend(["%USED", "MAX AVAIL"]);
    headings.extend(if detail {
        &["QUOTA OBJECTS", "QUOTA BYTES", "DIRTY", "USED COMPR", "UNDER COMPR"][..]
    } else {
        &[]
    });
    let mut table = headings.into_iter().fold(TextTable::new().left("POOL"), TextTable::right);
    for pool in pools {
        table.row(pool.cells(detail));
    }
    format!("--- POOLS ---\n{}", table.render())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Layers whose `k` is -1 in the map, as Ceph stores it.
    const LAYERS: [(&str, &str); 4] = [
        ("plugin", "lrc"),
        ("k", "-1"),
        ("mapping", "DD__DD__"),
        ("layers", r#"[["DDc_DDc_"],["DDDc____"],["____DDDc"]]"#),
    ];

    fn check(words: &[(&str, &str)], size: u8, want: f32) {
        let mut map =
            OsdMap::new_cluster(Default::default(), Default::default(), crush::CrushMap::new_default());
        let values = words.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        map.erasure_code_profiles.insert("p".to_owned(), values);
        let mut pool = Pool::new(maps::PoolType::Erasure, 8);
        pool.size = size;
        pool.erasure_code_profile = "p".to_owned();
        assert_eq!(raw_used_rate(&map, &pool), want, "{words:?}");
    }

    #[test]
    fn a_code_takes_all_its_chunks_by_those_with_data() {
        check(&[("plugin", "jerasure"), ("technique", "reed_sol_van"), ("k", "4"), ("m", "2")], 6, 1.5);
        check(&[("plugin", "lrc"), ("k", "4"), ("m", "2"), ("l", "3")], 8, 2.0);
        check(&LAYERS, 8, 2.0);
        // A code that is not built here.
        check(&[("plugin", "shec"), ("k", "4"), ("m", "3"), ("c", "2")], 7, 1.75);
    }
}
