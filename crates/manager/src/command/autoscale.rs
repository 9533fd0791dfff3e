//! `osd pool autoscale-status`: how many PGs each pool should have; the switch of the autoscaler for all
//! pools.
//!
//! Source: src/pybind/mgr/pg_autoscaler/module.py (16.2).

use maps::AutoscaleMode;
use monitor::command::{Format, Reply};
use serde_json::{Value, json};

use crate::autoscaler::{Row, rows};
use crate::command::{Command, Ctx, Module};
use crate::mon_commands::MonRequest;
use crate::outcome::Then;
use crate::pretty_table::{PrettyTable, of_bytes};

const MODULE: Module = Module("pg_autoscaler");

pub(super) const COMMANDS: &[Command] = &[
    MODULE.command(
        "osd pool autoscale-status name=format,type=CephString,req=false",
        "report on pool pg_num sizing recommendation and intent",
        "r",
        status,
    ),
    MODULE.command(
        "osd pool get noautoscale",
        "Get the noautoscale flag to see if all pools are setting the autoscaler on or off as well as newly created \
         pools in the future.",
        "w",
        |ctx| Reply::done(if ctx.autoscaler.off { "noautoscale is on" } else { "noautoscale is off" }),
    ),
    MODULE.command(
        "osd pool unset noautoscale",
        "Unset the noautoscale flag so all pools will have autoscale enabled (including newly created pools in the \
         future).",
        "w",
        |ctx| switch(ctx, false),
    ),
    MODULE.command(
        "osd pool set noautoscale",
        "set the noautoscale for all pools (including newly created pools in the future) and complete all on-going \
         progress events regarding PG-autoscaling.",
        "w",
        |ctx| switch(ctx, true),
    ),
];

/// Has the monitors keep the flag, and what follows from it: the mode of new pools, and of each that there
/// is.
fn switch(ctx: &mut Ctx<'_>, off: bool) -> Reply {
    let how = if off { "set" } else { "unset" };
    if ctx.autoscaler.off == off {
        return Reply::done(format!("noautoscale is already {how}!"));
    }
    let mode = if off { AutoscaleMode::OFF } else { AutoscaleMode::ON }.name();
    let flag = if off { "true" } else { "false" };
    let mut requests = vec![
        MonRequest::set_option("mgr", "mgr/pg_autoscaler/noautoscale", flag),
        MonRequest::set_option("global", "osd_pool_default_pg_autoscale_mode", mode),
    ];
    requests.extend(ctx.map.pools.keys().filter_map(|id| ctx.map.pool_name(*id)).map(|pool| {
        let json = json!({ "prefix": "osd pool set", "pool": pool, "var": "pg_autoscale_mode", "val": mode });
        MonRequest { json: json.to_string(), ..MonRequest::default() }
    }));
    let done = Reply::done(format!("noautoscale is {how}, all pools now have autoscale {mode}"));
    ctx.ask_monitors_for_all(requests, done, Then::NoAutoscale(off))
}

fn status(ctx: &mut Ctx<'_>) -> Reply {
    let rows = rows(ctx.map, ctx.pgs, ctx.options);
    match ctx.format {
        Format::Plain => {
            let mut table = PrettyTable::new(&COLUMNS);
            rows.iter().for_each(|r| table.row(cells(r)));
            Reply::text(table.render())
        }
        // Other formats get it indented, all of them.
        _ => Reply::json(Format::JsonPretty, &rows.iter().map(value).collect()),
    }
}

const COLUMNS: [(&str, bool); 13] = [
    ("POOL", false),
    ("SIZE", true),
    ("TARGET SIZE", true),
    ("RATE", true),
    ("RAW CAPACITY", true),
    ("RATIO", true),
    ("TARGET RATIO", true),
    ("EFFECTIVE RATIO", true),
    ("BIAS", true),
    ("PG_NUM", true),
    ("NEW PG_NUM", true),
    ("AUTOSCALE", false),
    ("BULK", false),
];

fn value(row: &Row) -> Value {
    let raw_used = row.logical_used * row.rate;
    let share = |raw: f64| if row.capacity > 0 { raw / row.capacity as f64 } else { 0.0 };
    json!({
        "actual_capacity_ratio": share(raw_used),
        "actual_raw_used": raw_used,
        "bias": row.bias,
        "bulk": row.bulk,
        "capacity_ratio": row.capacity_ratio,
        "crush_root_id": row.root,
        "effective_target_ratio": row.effective_ratio,
        "logical_used": row.logical_used as u64,
        "pg_autoscale_mode": row.mode.name(),
        "pg_num_final": row.pg_num_final,
        "pg_num_ideal": row.ideal as u32,
        "pg_num_target": row.pg_num_target,
        "pool_id": row.pool.0,
        "pool_name": row.name,
        "raw_used": row.logical_used.max(row.target_bytes as f64) * row.rate,
        "raw_used_rate": row.rate,
        "subtree_capacity": row.capacity,
        "target_bytes": row.target_bytes,
        "target_ratio": row.target_ratio,
        "would_adjust": row.would_adjust(),
    })
}

fn cells(row: &Row) -> [String; 13] {
    let when = |shown: bool, text: String| if shown { text } else { String::new() };
    [
        row.name.clone(),
        of_bytes(row.logical_used, 6),
        when(row.target_bytes > 0, of_bytes(row.target_bytes as f64, 6)),
        format!("{:.1}", row.rate),
        of_bytes(row.capacity as f64, 6),
        format!("{:.4}", row.capacity_ratio),
        when(row.target_ratio > 0.0, format!("{:.4}", row.target_ratio)),
        when(row.effective_ratio > 0.0, format!("{:.4}", row.effective_ratio)),
        format!("{:?}", row.bias),
        row.pg_num_target.to_string(),
        when(row.would_adjust(), row.pg_num_final.to_string()),
        row.mode.name().to_owned(),
        if row.bulk { "True" } else { "False" }.to_owned(),
    ]
}
