//! What is shown of images: lists, headers, usage.

use anyhow::{Context, Result};
use monitor::text::units::bytes;
use rbd::{Image, OpenOptions, SnapshotKind, feature, flag, pool};
use serde_json::{Value, json};
use types::Utime;

use super::Rbd;

impl Rbd<'_> {
    pub(super) async fn list(&self, pool_spec: Option<&str>) -> Result<()> {
        let (name, namespace) = match pool_spec {
            None => (self.args.pool.as_str(), ""),
            Some(text) => text.split_once('/').unwrap_or((text, "")),
        };
        let io = self.cluster.pool(name).await.with_context(|| format!("error opening pool '{name}'"))?;
        let names: Vec<String> = pool::list(&io.with_namespace(namespace)).await?.into_keys().collect();
        if self.args.json {
            say!("{}", json!(names));
        } else {
            names.iter().for_each(|name| say!("{name}"));
        }
        Ok(())
    }

    pub(super) async fn info(&self, text: &str) -> Result<()> {
        let image = self.open(text, OpenOptions::read_only()).await?;
        let info = self.describe(&image, text).await?;
        if self.args.json {
            say!("{info}");
        } else {
            print_info(&image, &info);
        }
        Ok(image.close().await?)
    }

    /// The header as `rbd info --format json` has it.
    async fn describe(&self, image: &Image, text: &str) -> Result<Value> {
        let header = image.header();
        let size = image.size();
        let time = |t: Utime| json!(ctime(t));
        let mut info = json!({
            "name": image.name(),
            "id": image.id(),
            "size": size,
            "objects": header.layout.objects(size),
            "order": header.order,
            "object_size": header.layout.object_size,
        });
        let more = [
            ("snapshot_count", json!(header.snaps.iter().filter(|s| s.kind == SnapshotKind::User).count())),
            ("block_name_prefix", json!(header.prefix)),
            ("format", json!(2)),
            ("features", json!(feature::names(header.features))),
            ("op_features", json!(op_features(header.op_features))),
            ("flags", json!(flag::names(header.flags))),
            ("create_timestamp", time(header.created)),
            ("access_timestamp", time(header.accessed)),
            ("modify_timestamp", time(header.modified)),
        ];
        let mut add = |key: &str, value: Value| {
            if let Some(map) = info.as_object_mut() {
                map.insert(key.to_owned(), value);
            }
        };
        for (key, value) in more {
            add(key, value);
            if let (Some(pool), "snapshot_count") = (header.data_pool, key) {
                add("data_pool", json!(self.pool_name(pool)));
            }
        }
        let snap = self.spec(text)?.snap;
        let snapshot = header.snapshot(&snap);
        if let Some(snapshot) = snapshot {
            add("protected", json!(snapshot.is_protected.to_string()));
        }
        let overlap = snapshot.map_or(header.parent_overlap, |s| s.parent_overlap);
        if let Some(parent) = header.parent.as_ref().filter(|_| overlap > 0) {
            let io = self.cluster.pool_by_id(rados::PoolId(parent.pool)).await?;
            let io = io.with_namespace(parent.namespace.clone());
            let image = Image::open_by_id(&io, &parent.image_id, OpenOptions::read_only()).await?;
            let snapshot = image.snapshots().into_iter().find(|s| s.id == parent.snap);
            add(
                "parent",
                json!({
                    "pool": io.pool_name()?,
                    "pool_namespace": parent.namespace,
                    "image": image.name(),
                    "id": parent.image_id,
                    "snapshot": snapshot.map(|s| s.name).unwrap_or_default(),
                    "trash": image.name().is_empty(),
                    "overlap": overlap,
                }),
            );
        }
        if header.has_stripes() {
            add("stripe_unit", json!(header.layout.stripe_unit));
            add("stripe_count", json!(header.layout.stripe_count));
        }
        Ok(info)
    }

    fn pool_name(&self, id: i64) -> String {
        let found = self.cluster.pools().into_iter().find(|(pool, _)| pool.0 == id);
        found.map_or_else(|| format!("<missing data pool {id}>"), |(_, name)| name)
    }

    pub(super) async fn list_snaps(&self, text: &str) -> Result<()> {
        let image = self.open(text, OpenOptions::read_only()).await?;
        let snaps: Vec<_> = image.snapshots().into_iter().filter(|s| s.kind == SnapshotKind::User).collect();
        if self.args.json {
            let rows: Vec<Value> = snaps
                .iter()
                .map(|s| {
                    json!({
                        "id": s.id,
                        "name": s.name,
                        "size": s.size,
                        "protected": s.is_protected.to_string(),
                        "timestamp": ctime(s.timestamp),
                    })
                })
                .collect();
            say!("{}", json!(rows));
        } else if !snaps.is_empty() {
            let head = ["SNAPID", "NAME", "SIZE", "PROTECTED", "TIMESTAMP"].map(str::to_owned).to_vec();
            let rows = snaps.iter().map(|s| {
                let protected = if s.is_protected { "yes" } else { "" };
                vec![s.id.to_string(), s.name.clone(), bytes(s.size), protected.into(), ctime(s.timestamp)]
            });
            print_table(head, rows.collect(), &[0, 2]);
        }
        Ok(image.close().await?)
    }

    pub(super) async fn usage(&self, text: Option<&str>) -> Result<()> {
        let names: Vec<String> = match text {
            Some(text) => vec![text.to_owned()],
            None => {
                let io = self.cluster.pool(&self.args.pool).await.context("error opening the pool")?;
                pool::list(&io).await?.into_keys().collect()
            }
        };
        let (mut rows, mut images) = (Vec::new(), Vec::new());
        let (mut all_size, mut all_used) = (0, 0);
        for name in &names {
            let image = self.open(name, OpenOptions::read_only()).await?;
            let mut from = 0;
            let snaps = image.snapshots();
            for snap in snaps.iter().filter(|s| s.kind == SnapshotKind::User) {
                let at = self.open(&format!("{name}@{}", snap.name), OpenOptions::read_only()).await?;
                let used = at.used_bytes(from).await?;
                at.close().await?;
                from = snap.id;
                all_used += used;
                rows.push(vec![format!("{}@{}", image.name(), snap.name), bytes(snap.size), bytes(used)]);
                images.push(json!({"name": image.name(), "id": image.id(), "snapshot": snap.name,
                    "snapshot_id": snap.id, "provisioned_size": snap.size, "used_size": used}));
            }
            let used = image.used_bytes(from).await?;
            all_used += used;
            all_size += image.size();
            rows.push(vec![image.name().to_owned(), bytes(image.size()), bytes(used)]);
            images.push(json!({"name": image.name(), "id": image.id(), "provisioned_size": image.size(),
                "used_size": used}));
            image.close().await?;
        }
        let is_one = rows.len() == 1;
        if self.args.json {
            let mut whole = json!({"images": images});
            if let (None, Some(map)) = (text, whole.as_object_mut()) {
                map.insert("total_provisioned_size".into(), json!(all_size));
                map.insert("total_used_size".into(), json!(all_used));
            }
            say!("{whole}");
            return Ok(());
        }
        if !is_one {
            rows.push(vec!["<TOTAL>".into(), bytes(all_size), bytes(all_used)]);
        }
        print_table(["NAME", "PROVISIONED", "USED"].map(str::to_owned).to_vec(), rows, &[1, 2]);
        Ok(())
    }
}

fn op_features(bits: u64) -> Vec<&'static str> {
    let all = [(1, "clone-parent"), (2, "clone-child"), (4, "group"), (8, "snap-trash")];
    all.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect()
}

fn print_info(image: &Image, info: &Value) {
    let text = |key: &str| info[key].as_str().unwrap_or_default().to_owned();
    let number = |key: &str| info[key].as_u64().unwrap_or(0);
    let list = |key: &str| {
        let names = info[key].as_array().into_iter().flatten().filter_map(Value::as_str);
        names.collect::<Vec<_>>().join(", ")
    };
    say!("rbd image '{}':", image.name());
    say!("\tsize {} in {} objects", bytes(number("size")), number("objects"));
    say!("\torder {} ({} objects)", number("order"), bytes(number("object_size")));
    say!("\tsnapshot_count: {}", number("snapshot_count"));
    say!("\tid: {}", image.id());
    if info.get("data_pool").is_some() {
        say!("\tdata_pool: {}", text("data_pool"));
    }
    say!("\tblock_name_prefix: {}", text("block_name_prefix"));
    say!("\tformat: 2");
    for key in ["features", "op_features", "flags"] {
        say!("\t{key}: {}", list(key));
    }
    for key in ["create_timestamp", "access_timestamp", "modify_timestamp"] {
        say!("\t{key}: {}", text(key));
    }
    if info.get("protected").is_some() {
        say!("\tprotected: {}", if text("protected") == "true" { "True" } else { "False" });
    }
    if let Some(parent) = info.get("parent") {
        let part = |key: &str| parent[key].as_str().unwrap_or_default();
        let namespace = match part("pool_namespace") {
            "" => String::new(),
            namespace => format!("{namespace}/"),
        };
        let trash =
            if parent["trash"] == json!(true) { format!(" (trash {})", part("id")) } else { String::new() };
        say!("\tparent: {}/{namespace}{}@{}{trash}", part("pool"), part("image"), part("snapshot"));
        say!("\toverlap: {}", bytes(parent["overlap"].as_u64().unwrap_or(0)));
    }
    if info.get("stripe_unit").is_some() {
        say!("\tstripe unit: {}", bytes(number("stripe_unit")));
        say!("\tstripe count: {}", number("stripe_count"));
    }
}

/// Columns as wide as their widest cell, two blanks between; those in `right` end on one line.
pub(super) fn print_table(head: Vec<String>, rows: Vec<Vec<String>>, right: &[usize]) {
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        rows.iter().map(|r| r.get(column).map_or(0, |c| c.chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for (line, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, width))| {
            if line > 0 && right.contains(&at) {
                format!("{cell:>width$}")
            } else {
                format!("{cell:<width$}")
            }
        });
        say!("{}", cells.collect::<Vec<_>>().join("  "));
    }
}

/// As C's ctime has it, in the local time zone.
fn ctime(t: Utime) -> String {
    let Ok(stamp) = jiff::Timestamp::new(i64::from(t.sec), 0) else { return String::new() };
    stamp.to_zoned(jiff::tz::TimeZone::system()).strftime("%a %b %e %H:%M:%S %Y").to_string()
}
