//! `osd crush weight-set ...`: weights for placement apart from the CRUSH weights, for all pools or for one.
//!
//! Source: OSDMonitor::prepare_command_impl.

use crush::{Alg, DEFAULT_CHOOSE_ARGS, EditError};
use maps::Release;
use types::Errno;

use crate::command::crush_edit::{edit, write};
use crate::command::{ArgValue, Command, Reply, WriteCtx};

pub(super) const COMMANDS: &[Command] = &[
    write(
        "osd crush weight-set create-compat",
        "make weights for placement apart from the CRUSH weights",
        |ctx| create(ctx, DEFAULT_CHOOSE_ARGS, 1),
    ),
    write(
        "osd crush weight-set create name=pool,type=CephPoolname name=mode,type=CephChoices,strings=flat|positional",
        "make weights for placing one pool, the same for all positions or one for each",
        create_for_pool,
    ),
    write("osd crush weight-set rm-compat", "place by the CRUSH weights again", |ctx| {
        remove(ctx, DEFAULT_CHOOSE_ARGS)
    }),
    write(
        "osd crush weight-set rm name=pool,type=CephPoolname",
        "place a pool by the common weights again",
        |ctx| match pool(ctx) {
            Ok((id, _)) => remove(ctx, id),
            Err(reply) => reply,
        },
    ),
    write(
        "osd crush weight-set reweight-compat name=item,type=CephString \
         name=weight,type=CephFloat,range=0.0,n=N",
        "weight of an item for placement",
        reweight_compat,
    ),
    write(
        "osd crush weight-set reweight name=pool,type=CephPoolname name=item,type=CephString \
         name=weight,type=CephFloat,range=0.0,n=N",
        "weight of an item for placing one pool: one, or one for each position",
        reweight_pool,
    ),
];

/// The number of the pool that `pool` names, which is that of its weight set, and its size.
fn pool(ctx: &WriteCtx<'_>) -> Result<(i64, usize), Reply> {
    let name = ctx.args.text_or_empty("pool");
    let map = ctx.osdmap();
    let found = map.pool_by_name(name).and_then(|id| Some((id.0, usize::from(map.pool(id)?.size))));
    found.ok_or_else(|| Reply::error(Errno::ENOENT, format!("pool '{name}' not found")))
}

/// Other buckets than straw2 never look at weight sets.
fn only_straw2(ctx: &WriteCtx<'_>) -> Result<(), Reply> {
    match ctx.osdmap().crush.buckets.iter().flatten().all(|b| b.alg() == Alg::Straw2) {
        true => Ok(()),
        false => {
            Err(Reply::error(Errno::EPERM, "crush map contains one or more bucket(s) that are not straw2"))
        }
    }
}

fn create(ctx: &mut WriteCtx<'_>, id: i64, positions: usize) -> Reply {
    if let Err(reply) = only_straw2(ctx) {
        return reply;
    }
    if ctx.osdmap().crush.choose_args.contains_key(&id) {
        return Reply::done(match id {
            DEFAULT_CHOOSE_ARGS => "compat weight-set already created".to_owned(),
            _ => format!("weight-set for pool '{}' already created", ctx.args.text_or_empty("pool")),
        });
    }
    edit(ctx, |crush| {
        crush.create_choose_args(id, positions);
        Ok(String::new())
    })
}

fn create_for_pool(ctx: &mut WriteCtx<'_>) -> Reply {
    if let Err(reply) = only_straw2(ctx) {
        return reply;
    }
    let promised = ctx.osdmap().require_min_compat_client;
    if promised != Release::UNKNOWN && promised < Release::LUMINOUS {
        let text = format!(
            "require_min_compat_client {promised} < luminous, which is required for per-pool weight-sets. Try 'ceph osd \
             set-require-min-compat-client luminous' before using the new interface"
        );
        return Reply::error(Errno::EPERM, text);
    }
    match pool(ctx) {
        Ok((id, size)) => {
            let positions = if ctx.args.text("mode") == Some("positional") { size } else { 1 };
            create(ctx, id, positions)
        }
        Err(reply) => reply,
    }
}

fn remove(ctx: &mut WriteCtx<'_>, id: i64) -> Reply {
    edit(ctx, |crush| {
        crush.choose_args.remove(&id);
        Ok(String::new())
    })
}

fn weights(ctx: &WriteCtx<'_>) -> Vec<f64> {
    match ctx.args.get("weight") {
        Some(ArgValue::FloatList(w)) => w.clone(),
        _ => Vec::new(),
    }
}

fn reweight_compat(ctx: &mut WriteCtx<'_>) -> Reply {
    if !ctx.osdmap().crush.choose_args.contains_key(&DEFAULT_CHOOSE_ARGS) {
        return Reply::error(Errno::ENOENT, "no backward-compatible weight-set");
    }
    reweight(ctx, DEFAULT_CHOOSE_ARGS)
}

fn reweight_pool(ctx: &mut WriteCtx<'_>) -> Reply {
    let id = match pool(ctx) {
        Ok((id, _)) => id,
        Err(reply) => return reply,
    };
    if !ctx.osdmap().crush.choose_args.contains_key(&id) {
        let text = format!("no weight-set for pool '{}'", ctx.args.text_or_empty("pool"));
        return Reply::error(Errno::ENOENT, text);
    }
    reweight(ctx, id)
}

fn reweight(ctx: &mut WriteCtx<'_>, set: i64) -> Reply {
    let item = ctx.args.text_or_empty("item").to_owned();
    let weights = weights(ctx);
    let positions = ctx.osdmap().crush.choose_args.get(&set).map_or(0, crush::ChooseArgMap::positions);
    if weights.len() != positions {
        return Reply::error(Errno::EINVAL, format!("must specify exact {positions} weight values"));
    }
    let Some(id) = ctx.osdmap().crush.item_id(&item) else {
        return Reply::error(Errno::ENOENT, format!("item '{item}' does not exist"));
    };
    edit(ctx, |crush| {
        let fixed: Result<Vec<u32>, EditError> =
            weights.iter().map(|w| crush::weight_from_f32(*w as f32)).collect();
        crush.adjust_choose_args(set, id, &fixed?)?;
        Ok(String::new())
    })
}
