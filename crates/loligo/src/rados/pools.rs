//! Pools: their list, use and snapshots.

use anyhow::{Result, bail};
use monitor::text::table::TextTable;
use monitor::text::units::bytes;
use rados::{Cluster, SnapId};
use serde_json::{Value, json};

use super::{Failed, Target, failed, print_json};

pub fn lspools(cluster: &Cluster, json: bool) -> Result<()> {
    let names: Vec<String> = cluster.pools().into_iter().map(|(_, name)| name).collect();
    match json {
        true => print_json(&json!(names)),
        false => names.iter().for_each(|name| say!("{name}")),
    }
    Ok(())
}

const COUNTS: [&str; 13] = [
    "USED",
    "OBJECTS",
    "CLONES",
    "COPIES",
    "MISSING_ON_PRIMARY",
    "UNFOUND",
    "DEGRADED",
    "RD_OPS",
    "RD",
    "WR_OPS",
    "WR",
    "USED COMPR",
    "UNDER COMPR",
];

pub async fn df(cluster: &Cluster, pool: Option<&str>, json: bool) -> Result<()> {
    let names: Vec<&str> = pool.into_iter().collect();
    let stats = cluster.pool_stats(&names).await.map_err(|e| failed("error fetching pool stats", &e))?;
    let total = cluster.stat(None).await.map_err(|e| failed("error getting total cluster usage", &e))?;
    if json {
        let map = cluster.map();
        let pools: Vec<Value> = stats
            .iter()
            .map(|(name, s)| {
                json!({
                    "name": name, "id": map.pool_by_name(name).map_or(-1, |id| id.0),
                    "size_bytes": s.bytes_used, "size_kb": s.bytes_used.div_ceil(1024), "num_objects": s.objects,
                    "num_object_clones": s.clones, "num_object_copies": s.copies,
                    "num_objects_missing_on_primary": s.missing_on_primary, "num_objects_unfound": s.unfound,
                    "num_objects_degraded": s.degraded, "read_ops": s.reads, "read_bytes": s.read_kib << 10,
                    "write_ops": s.writes, "write_bytes": s.write_kib << 10,
                    "compress_bytes_used": s.compressed_bytes, "compress_under_bytes": s.compressed_bytes_orig,
                })
            })
            .collect();
        print_json(&json!({
            "pools": pools, "total_objects": total.objects, "total_used": total.kib_used,
            "total_avail": total.kib_available, "total_space": total.kib,
        }));
        return Ok(());
    }
    let mut table = COUNTS.iter().fold(TextTable::new().left("POOL_NAME"), |t, heading| t.right(heading));
    for (name, s) in &stats {
        let n = |v: u64| v.to_string();
        table.row([
            name.clone(),
            bytes(s.bytes_used),
            n(s.objects),
            n(s.clones),
            n(s.copies),
            n(s.missing_on_primary),
            n(s.unfound),
            n(s.degraded),
            n(s.reads),
            bytes(s.read_kib << 10),
            n(s.writes),
            bytes(s.write_kib << 10),
            bytes(s.compressed_bytes),
            bytes(s.compressed_bytes_orig),
        ]);
    }
    say!("{}", table.render());
    say!("total_objects    {}", total.objects);
    say!("total_used       {}", bytes(total.kib_used << 10));
    say!("total_avail      {}", bytes(total.kib_available << 10));
    say!("total_space      {}", bytes(total.kib << 10));
    Ok(())
}

pub fn lssnap(t: &Target) -> Result<()> {
    let snaps = t.io.snaps();
    if t.json {
        let all: Vec<Value> = snaps
            .iter()
            .map(|s| json!({"id": s.snapid.0, "name": s.name, "stamp": s.stamp.to_string()}))
            .collect();
        print_json(&json!(all));
        return Ok(());
    }
    for s in &snaps {
        // 2026-11-22T04:05:06.123456+0000
        let iso = s.stamp.to_string();
        let stamp = iso.get(..19).unwrap_or_default().replace('-', ".").replace('T', " ");
        say!("{}\t{}\t{stamp}", s.snapid.0, s.name);
    }
    say!("{} snaps", snaps.len());
    Ok(())
}

pub async fn mksnap(t: &Target, name: &str) -> Result<()> {
    let pool = &t.pool;
    let map = t.io.cluster().map();
    if map.pool(t.io.pool_id()).is_some_and(maps::Pool::is_unmanaged_snaps_mode) {
        bail!(Failed(format!("can't create snapshot: pool {pool} is in selfmanaged snaps mode")));
    }
    let what = format!("error creating pool {pool} snapshot {name}");
    t.io.create_snap(name).await.map_err(|e| failed(&what, &e))?;
    say!("created pool {pool} snap {name}");
    Ok(())
}

pub async fn rmsnap(t: &Target, name: &str) -> Result<()> {
    let pool = &t.pool;
    let what = format!("error removing pool {pool} snapshot {name}");
    t.io.remove_snap(name).await.map_err(|e| failed(&what, &e))?;
    say!("removed pool {pool} snap {name}");
    Ok(())
}

pub async fn rollback(t: &Target, object: &str, name: &str) -> Result<()> {
    let pool = &t.pool;
    let what = format!("error rolling back pool {pool} to snapshot {object}");
    let snap = t.io.snap_by_name(name).ok_or(rados::Error::Os(types::Errno::ENOENT));
    let snap = snap.map_err(|e| failed(&what, &e))?;
    t.io.rollback(object, snap).await.map_err(|e| failed(&what, &e))?;
    say!("rolled back pool {pool} to snapshot {name}");
    Ok(())
}

pub async fn listsnaps(t: &Target, object: &str) -> Result<()> {
    let what = format!("error listing snap shots {}/{object}", t.pool);
    let snaps = t.io.list_snaps(object).await.map_err(|e| failed(&what, &e))?;
    if t.json {
        let clones: Vec<Value> = snaps
            .clones
            .iter()
            .map(|c| {
                let id = if c.clone == SnapId::HEAD { json!("head") } else { json!(c.clone.0) };
                let of: Vec<u64> = c.snaps.iter().map(|s| s.0).collect();
                let overlaps: Vec<Value> = c
                    .overlap
                    .iter()
                    .map(|(start, length)| json!({"start": start, "length": length}))
                    .collect();
                json!({"id": id, "snapshots": of, "size": c.size, "overlaps": overlaps})
            })
            .collect();
        print_json(&json!({"name": object, "clones": clones}));
        return Ok(());
    }
    say!("{object}:\ncloneid\tsnaps\tsize\toverlap");
    for c in &snaps.clones {
        let ids: Vec<String> = c.snaps.iter().map(|s| s.0.to_string()).collect();
        let (id, of) = match c.clone {
            SnapId::HEAD => ("head".to_owned(), "-".to_owned()),
            SnapId(id) => (id.to_string(), ids.join(",")),
        };
        let overlap: Vec<String> =
            c.overlap.iter().map(|(start, length)| format!("{start}~{length}")).collect();
        let overlap =
            if c.clone == SnapId::HEAD { String::new() } else { format!("\t[{}]", overlap.join(",")) };
        say!("{id}\t{of}\t{}{overlap}", c.size);
    }
    Ok(())
}
