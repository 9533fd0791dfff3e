//! `loligo bench block`: the table of an all-flash block cluster's tests over images of its own: copies, block size, share of
//! reads, depth.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use rados::{Cluster, IoCtx};
use rbd::{CreateOptions, OpenOptions};
use serde_json::{Value, json};

use super::args::{BlockBench, Mode};
use super::cpu::{self, Processes};
use super::load::{Load, Shape, Tally, Target, Work};

/// How long a new pool may take to be clean.
const CLEAN_LIMIT: Duration = Duration::from_secs(60);

/// One line of the table.
struct Row {
    copies: u8,
    work: Work,
    block: u64,
    tally: Tally,
    client: u64,
    daemons: u64,
    /// Joules that the processors took meanwhile, where a sensor tells.
    joules: Option<f64>,
}

/// What all lines have in common.
struct Bench<'a> {
    cluster: &'a Cluster,
    args: &'a BlockBench,
    daemons: &'a Processes,
    rows: Vec<Row>,
    /// Of each pool after filling: copies, KiB used, KiB in all.
    filled: Vec<(u8, u64, u64)>,
    compared: usize,
}

pub async fn run(cluster: &Cluster, args: &BlockBench, daemons: &Processes) -> Result<()> {
    super::healthy(cluster, &args.common.accept).await?;
    let osds = cluster.map().osds.iter().filter(|osd| osd.is_up()).count();
    if let Some(most) = args.copies.iter().max().filter(|most| usize::from(**most) > osds) {
        bail!("{most} copies need as many OSDs; {osds} are up (see --copies)");
    }
    let mut bench = Bench { cluster, args, daemons, rows: Vec::new(), filled: Vec::new(), compared: 0 };
    for copies in &args.copies {
        let name = format!("loligo-bench-block-{copies}-{}", std::process::id());
        let result = bench.with_pool(&name, *copies).await;
        // Whatever happened: the pool is ours, and large.
        let removed = remove_pool(cluster, &name).await;
        result?;
        removed.with_context(|| format!("pool {name} cannot be removed: do it by hand"))?;
    }
    match args.common.json {
        true => say!("{}", bench.json()),
        false => say!("{}", bench.table()),
    }
    Ok(())
}

impl Bench<'_> {
    async fn with_pool(&mut self, name: &str, copies: u8) -> Result<()> {
        let before = self.cluster.stat(None).await.context("cannot ask for the cluster's usage")?.kib_used;
        let pool = make_pool(self.cluster, name, copies, self.args.pg_num).await?;
        for n in 0..self.args.images {
            rbd::pool::create(&pool, &image(n), self.args.size, &CreateOptions::default()).await?;
        }
        for block in &self.args.blocks {
            let load = self.fill(&pool, *block).await?;
            if self.filled.iter().all(|(c, ..)| *c != copies) {
                let data = (u64::from(copies) * self.args.images * self.args.size) >> 10;
                let (used, total) = usage_after(self.cluster, before + data).await?;
                self.filled.push((copies, used, total));
            }
            let result = self.rows(&load, copies, *block).await;
            load.close().await?;
            result?;
        }
        Ok(())
    }

    /// Every block of every image holds data before the clock starts: a thin image would make reads free.
    async fn fill(&self, pool: &IoCtx, block: u64) -> Result<Arc<Load>> {
        let mut images = Vec::new();
        for n in 0..self.args.images {
            images.push(rbd::Image::open(pool, &image(n), OpenOptions::default()).await?);
        }
        let shape = Shape::new(self.args.images, self.args.size, block)?;
        let load = Load::new(Target::Images(images), shape);
        eprintln!("filling {} x {} MiB", self.args.images, self.args.size >> 20);
        load.fill().await.context("cannot fill the images")?;
        Ok(load)
    }

    async fn rows(&mut self, load: &Arc<Load>, copies: u8, block: u64) -> Result<()> {
        for reads in &self.args.reads {
            for depth in &self.args.depths {
                let work = Work { mode: Mode::Mixed, depth: *depth, reads: *reads };
                load.run(work, Duration::from_secs(self.args.ramp)).await?;
                let before = (cpu::own(), self.daemons.cpu(), energy_uj());
                let tally = super::with_progress(load, work, Duration::from_secs(self.args.seconds)).await?;
                let joules =
                    before.2.zip(energy_uj()).and_then(|(a, b)| Some(b.checked_sub(a)? as f64 / 1e6));
                let (client, daemons) = (cpu::own() - before.0, self.daemons.cpu() - before.1);
                if tally.ops() == 0 {
                    bail!("no figures: not one operation was completed");
                }
                self.rows.push(Row { copies, work, block, tally, client, daemons, joules });
                eprintln!("{}", self.line(self.rows.last().context("just pushed")?));
            }
        }
        self.compared += load.check(self.args.common.verify).await?;
        super::healthy(self.cluster, &self.args.common.accept)
            .await
            .context("no figures: the cluster is not healthy after the run")
    }

    fn gigabytes(&self) -> f64 {
        (self.args.images * self.args.size) as f64 / 1e9
    }

    fn line(&self, row: &Row) -> String {
        let all = row.tally.both();
        let iops = row.iops();
        let daemons =
            self.daemons.names().map_or("-".into(), |_| format!("{:.1}", row.per_op_us(row.daemons)));
        let per_watt = row.iops_per_watt().map_or("-".into(), |n| format!("{n:.0}"));
        format!(
            "{:>6}{:>6}K{:>7}%{:>7}{iops:>10.0}{:>9.1}{:>10.0}{:>10.0}{:>10.0}{:>10.1}{daemons:>10}{:>10.0}{per_watt:>9}",
            row.copies,
            row.block >> 10,
            row.work.reads,
            row.work.depth,
            iops * row.block as f64 / 1e6,
            all.mean_us(),
            all.quantile_us(0.99),
            all.quantile_us(0.999),
            row.per_op_us(row.client),
            iops / self.gigabytes(),
        )
    }

    fn table(&self) -> String {
        let mut lines = vec![format!(
            "{} image(s) of {} MiB, filled; {} s a line; client threads: {}",
            self.args.images,
            self.args.size >> 20,
            self.args.seconds,
            self.args.common.threads
        )];
        for (copies, used, total) in &self.filled {
            lines.push(format!(
                "{copies} copies: {} of {} MiB raw used after filling",
                used >> 10,
                total >> 10
            ));
        }
        lines.push(format!(
            "{:>6}{:>7}{:>8}{:>7}{:>10}{:>9}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>9}",
            "copies",
            "block",
            "reads",
            "depth",
            "IOPS",
            "MB/s",
            "mean us",
            "p99 us",
            "p99.9 us",
            "client us",
            "daemon us",
            "IOPS/GB",
            "IOPS/W"
        ));
        lines.extend(self.rows.iter().map(|row| self.line(row)));
        let which = self.daemons.names().unwrap_or("no daemon on this host");
        lines.push(format!("client us, daemon us: CPU per operation, the latter of {which}"));
        lines.push(format!(
            "data: every read compared with what was written, and {} blocks after the runs",
            self.compared
        ));
        lines.join("\n")
    }

    fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let (all, iops) = (row.tally.both(), row.iops());
            json!({
                "copies": row.copies, "block_size": row.block, "read_percent": row.work.reads, "depth": row.work.depth,
                "ops": row.tally.ops(), "seconds": row.tally.elapsed.as_secs_f64(), "iops": iops,
                "mb_per_s": iops * row.block as f64 / 1e6, "mean_us": all.mean_us(), "p50_us": all.quantile_us(0.5),
                "p99_us": all.quantile_us(0.99), "p999_us": all.quantile_us(0.999),
                "client_cpu_us_per_op": row.per_op_us(row.client),
                "daemon_cpu_us_per_op": self.daemons.names().map(|_| row.per_op_us(row.daemons)),
                "iops_per_gb": iops / self.gigabytes(), "iops_per_watt": row.iops_per_watt(),
            })
        });
        let filled = self
            .filled
            .iter()
            .map(|(copies, used, total)| json!({"copies": copies, "raw_used_kib": used, "raw_kib": total}));
        json!({
            "images": self.args.images, "image_bytes": self.args.size, "client_threads": self.args.common.threads,
            "cores": std::thread::available_parallelism().map_or(1, usize::from), "arch": std::env::consts::ARCH,
            "daemon_cpu_of": self.daemons.names(), "filled": filled.collect::<Vec<_>>(),
            "blocks_compared_after_runs": self.compared, "rows": rows.collect::<Vec<_>>(),
        })
    }
}

impl Row {
    fn iops(&self) -> f64 {
        self.tally.ops() as f64 / self.tally.elapsed.as_secs_f64()
    }

    fn per_op_us(&self, ns: u64) -> f64 {
        ns as f64 / 1e3 / self.tally.ops() as f64
    }

    fn iops_per_watt(&self) -> Option<f64> {
        self.joules.filter(|j| *j > 0.0).map(|j| self.tally.ops() as f64 / j)
    }
}

fn image(n: u64) -> String {
    format!("image{n}")
}

/// Energy that all processor packages have taken, in microjoules; `None` without a sensor that may be read.
fn energy_uj() -> Option<u64> {
    let zones = std::fs::read_dir("/sys/class/powercap").ok()?.flatten();
    let packages = zones.filter(|zone| {
        // `intel-rapl:0` is a package, `intel-rapl:0:1` a part of it.
        let name = zone.file_name().to_string_lossy().into_owned();
        name.starts_with("intel-rapl:") && name.matches(':').count() == 1
    });
    let read = |path: PathBuf| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let values: Option<Vec<u64>> = packages.map(|zone| read(zone.path().join("energy_uj"))).collect();
    values.filter(|v| !v.is_empty()).map(|v| v.iter().sum())
}

async fn command(cluster: &Cluster, words: Value) -> Result<Value> {
    let out = cluster.mon_command(&words.to_string(), Bytes::new()).await;
    let prefix = words.get("prefix").unwrap_or(&Value::Null);
    let out = out.with_context(|| format!("'{}' failed", prefix.as_str().unwrap_or_default()))?;
    Ok(serde_json::from_slice(&out.output).unwrap_or(Value::Null))
}

/// KiB used and KiB in all, once the OSDs' reports speak of `expected` KiB, or the usual time for them is over.
async fn usage_after(cluster: &Cluster, expected: u64) -> Result<(u64, u64)> {
    let mut patience = 20;
    loop {
        let stat = cluster.stat(None).await.context("cannot ask for the cluster's usage")?;
        if stat.kib_used >= expected || patience == 0 {
            return Ok((stat.kib_used, stat.kib));
        }
        patience -= 1;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn make_pool(cluster: &Cluster, name: &str, copies: u8, pg_num: u32) -> Result<IoCtx> {
    command(cluster, json!({"prefix": "osd pool create", "pool": name, "pg_num": pg_num, "pgp_num": pg_num}))
        .await?;
    command(
        cluster,
        json!({"prefix": "osd pool set", "pool": name, "var": "size", "val": copies.to_string()}),
    )
    .await?;
    cluster.wait_for_latest_map().await?;
    let pool = cluster.pool(name).await?;
    pool.enable_application("rbd", false).await?;
    let wait = async {
        loop {
            let status = command(cluster, json!({"prefix": "status", "format": "json"})).await?;
            let states = status.pointer("/pgmap/pgs_by_state").and_then(Value::as_array);
            let states = states.cloned().unwrap_or_default();
            let all = status.pointer("/pgmap/num_pgs").and_then(Value::as_u64).unwrap_or_default();
            let clean = states.iter().find(|s| s["state_name"] == "active+clean");
            if all >= u64::from(pg_num) && clean.and_then(|s| s["count"].as_u64()) == Some(all) {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(CLEAN_LIMIT, wait)
        .await
        .with_context(|| format!("pool {name} is not clean after {} s", CLEAN_LIMIT.as_secs()))??;
    Ok(pool)
}

async fn remove_pool(cluster: &Cluster, name: &str) -> Result<()> {
    if cluster.map().pool_by_name(name).is_some() {
        cluster.delete_pool(name).await?;
    }
    Ok(())
}
