//! `loligo bench`: loads a cluster and says what that cost, after checking the data.

mod args;
mod block;
mod cpu;
mod floor;
mod load;
mod report;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use indicatif::{ProgressBar, ProgressStyle};
use rados::Cluster;
use serde_json::Value;

use crate::connect::ConnectArgs;
pub use args::BenchArgs;
use args::{Mode, RadosBench};
use cpu::Processes;
use load::{Load, Shape, Tally, Target, Work};

pub fn run(args: &BenchArgs) -> Result<()> {
    match args {
        BenchArgs::Rados(args) => {
            on_cluster(&args.common.connect, args.depth, args.common.threads, async |cluster, daemons| {
                bench(&cluster, args, &daemons).await
            })
        }
        BenchArgs::Floor(args) => floor::run(args),
        BenchArgs::Block(args) => {
            let depth = args.depths.iter().copied().max().unwrap_or(1);
            on_cluster(&args.common.connect, depth, args.common.threads, async |cluster, daemons| {
                block::run(&cluster, args, &daemons).await
            })
        }
    }
}

/// Connects, with the daemons of the cluster that run on this host.
fn on_cluster(
    connect: &ConnectArgs,
    depth: usize,
    threads: usize,
    body: impl AsyncFnOnce(Cluster, Processes) -> Result<()>,
) -> Result<()> {
    let mut config = connect.config()?;
    config.objecter.max_ops = config.objecter.max_ops.max(depth);
    let folder =
        config.conf.as_ref().and_then(|c| std::path::absolute(c).ok()?.parent().map(ToOwned::to_owned));
    let runtime = match threads {
        1 => tokio::runtime::Builder::new_current_thread().enable_all().build()?,
        n => tokio::runtime::Builder::new_multi_thread().worker_threads(n).enable_all().build()?,
    };
    crate::connect::on(&runtime, config, async |cluster| {
        let daemons = folder.map_or_else(Processes::default, |f| Processes::of_cluster(&f));
        body(cluster, daemons).await
    })
}

async fn bench(cluster: &Cluster, args: &RadosBench, daemons: &Processes) -> Result<()> {
    healthy(cluster, &args.common.accept).await?;
    let pool = cluster.pool(&args.pool).await.with_context(|| format!("there is no pool '{}'", args.pool))?;
    let shape = Shape::new(args.objects, args.object_size, args.block_size)?;
    let load = Load::new(Target::Objects(pool), shape);
    let result = measure(cluster, args, daemons, &load).await;
    if !args.keep {
        load.clean_up().await.context("cannot remove the benchmark's objects")?;
    }
    let report = result?;
    match args.common.json {
        true => say!("{}", report.json()),
        false => say!("{}", report.table()),
    }
    Ok(())
}

async fn measure(
    cluster: &Cluster,
    args: &RadosBench,
    daemons: &Processes,
    load: &Arc<Load>,
) -> Result<report::Report> {
    if args.mode != Mode::Write {
        load.fill().await.context("cannot write what is to be read")?;
    }
    let (client_before, daemons_before) = (cpu::own(), daemons.cpu());
    let work = Work { mode: args.mode, depth: args.depth, reads: args.reads };
    let tally = with_progress(load, work, Duration::from_secs(args.seconds)).await?;
    let (client, daemon_cpu) = (cpu::own() - client_before, daemons.cpu() - daemons_before);
    let checked = load.check(args.common.verify).await?;
    healthy(cluster, &args.common.accept)
        .await
        .context("no figures: the cluster is not healthy after the run")?;
    if tally.ops() == 0 {
        bail!("no figures: not one operation was completed");
    }
    Ok(report::Report { args: args.clone(), tally, checked, client, daemons: daemons.names(), daemon_cpu })
}

/// Figures of a cluster that recovers or misses OSDs would say nothing.
async fn healthy(cluster: &Cluster, accept: &[String]) -> Result<()> {
    let command = r#"{"prefix": "health", "format": "json"}"#;
    let out =
        cluster.mon_command(command, Bytes::new()).await.context("cannot ask for the cluster's health")?;
    let health: Value = serde_json::from_slice(&out.output).context("the cluster's health is not JSON")?;
    let status = health.get("status").and_then(Value::as_str).unwrap_or("unknown");
    let checks = health.get("checks").and_then(Value::as_object);
    let names: Vec<&str> = checks.into_iter().flat_map(|c| c.keys()).map(String::as_str).collect();
    match status {
        "HEALTH_OK" => Ok(()),
        "HEALTH_WARN" if names.iter().all(|n| accept.iter().any(|a| a == n)) => Ok(()),
        _ => bail!("no figures: the cluster is {status} ({}); see --accept", names.join(", ")),
    }
}

/// Runs the load with a line a second on standard error.
async fn with_progress(load: &Arc<Load>, work: Work, limit: Duration) -> Result<Tally> {
    let bar = ProgressBar::new(limit.as_secs());
    if let Ok(style) = ProgressStyle::with_template("{elapsed:>4} {bar:30} {msg}") {
        bar.set_style(style);
    }
    let progress = load.progress();
    let watching = async {
        let mut last = 0;
        let mut second = tokio::time::interval(Duration::from_secs(1));
        second.tick().await;
        loop {
            second.tick().await;
            let (ops, bytes) = progress.so_far();
            bar.inc(1);
            bar.set_message(format!("{:>8} op/s  {:>9.1} MB in all", ops - last, bytes as f64 / 1e6));
            last = ops;
        }
    };
    let result = tokio::select! {
        result = load.run(work, limit) => result,
        () = watching => bail!("the clock stopped"),
    };
    bar.finish_and_clear();
    result
}
