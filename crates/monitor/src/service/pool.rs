//! Pools: making, removing, renaming them, and their snapshots; shared by pool operations and commands.
//!
//! Source: OSDMonitor::prepare_new_pool, _check_remove_pool, _prepare_rename_pool, prepare_pool_op.

use std::collections::BTreeSet;

use codec::Encode;
use maps::{AutoscaleMode, FsMap, OptValue, OsdMap, Pool, PoolType, pool_flags};
use messages::PaxosVersion;
use messages::mon::{MPoolOp, MPoolOpReply, pool_op};
use types::{ConnId, Epoch, Errno, Now, PoolId, SnapId};

use crate::io::Output;
use crate::monitor::Monitor;
use crate::proposal::Batch;
use crate::service::erasure;
use crate::session::{Access, Session};
use crate::settings::Settings;
use crate::state::{State, maps_limit};

/// Why a pool cannot be changed: errno and text for the operator.
pub(crate) type Refusal = (Errno, String);

/// What a new pool shall be; zeros and `None` mean the cluster's defaults.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct NewPool<'a> {
    pub(crate) name: &'a str,
    pub(crate) pg_num: i64,
    pub(crate) pgp_num: i64,
    pub(crate) pg_num_min: i64,
    pub(crate) pg_num_max: i64,
    pub(crate) size: i64,
    /// By id; below 0 for the default or `rule_name`.
    pub(crate) rule: i32,
    pub(crate) rule_name: &'a str,
    pub(crate) expected_num_objects: u64,
    pub(crate) autoscale: Option<AutoscaleMode>,
    pub(crate) target_size_bytes: i64,
    pub(crate) target_size_ratio: f64,
    pub(crate) bulk: bool,
    /// For an erasure-coded pool, its profile's name.
    pub(crate) erasure: Option<&'a str>,
}

/// How many OSDs a new pool's PGs have, by which rule, and what its code needs.
struct Shape {
    kind: PoolType,
    rule: u32,
    size: u8,
    min_size: u8,
    stripe_width: u32,
}

/// A name that breaks lines or ends strings could be shown and typed nowhere.
pub(crate) fn check_name(name: &str) -> Result<(), Refusal> {
    if name.contains(char::is_control) {
        let text = format!("pool name '{}' holds control characters", name.escape_debug());
        return Err((Errno::EINVAL, text));
    }
    Ok(())
}

/// Makes a pool; gives its id.
pub(crate) fn create(
    batch: &mut Batch,
    settings: &Settings,
    now: Now,
    new: &NewPool<'_>,
) -> Result<PoolId, Refusal> {
    if new.name.is_empty() {
        return Err((Errno::EINVAL, Errno::EINVAL.to_string()));
    }
    check_name(new.name)?;
    let (pg_num, pgp_num) = pg_counts(batch, settings, new)?;
    let shape = match new.erasure {
        None => replicated_shape(batch, settings, new)?,
        Some(profile) => erasure_shape(batch, new, profile)?,
    };
    let state = batch.state();
    check_rule(state.osdmap(), shape.rule, shape.kind, shape.size)?;
    check_pg_num(state.osdmap(), settings, batch, None, pg_num, shape.size)?;
    let pg_num = u32::try_from(pg_num).unwrap_or(1);
    let mut pool = Pool::new(shape.kind, pg_num);
    pool.create_time = now.wall;
    pool.size = shape.size;
    pool.min_size = shape.min_size;
    pool.crush_rule = u8::try_from(shape.rule).unwrap_or(0);
    pool.stripe_width = shape.stripe_width;
    new.erasure.unwrap_or_default().clone_into(&mut pool.erasure_code_profile);
    pool.pgp_num = pg_num;
    pool.pgp_num_target = u32::try_from(pgp_num).unwrap_or(pg_num);
    pool.expected_num_objects = new.expected_num_objects;
    pool.autoscale_mode = new.autoscale.unwrap_or_else(|| {
        let mode = settings.text(state, "osd_pool_default_pg_autoscale_mode");
        AutoscaleMode::from_name(&mode).unwrap_or(AutoscaleMode::OFF)
    });
    for (flag, option) in [
        (pool_flags::NODELETE, "osd_pool_default_flag_nodelete"),
        (pool_flags::NOPGCHANGE, "osd_pool_default_flag_nopgchange"),
        (pool_flags::NOSIZECHANGE, "osd_pool_default_flag_nosizechange"),
    ] {
        if settings.switch(state, option) {
            pool.set_flag(flag);
        }
    }
    cache_defaults(&mut pool);
    for (name, value) in [
        ("pg_num_min", new.pg_num_min),
        ("pg_num_max", new.pg_num_max),
        ("target_size_bytes", new.target_size_bytes),
    ] {
        if value > 0 {
            pool.opts.set(name, OptValue::Int(value));
        }
    }
    if new.target_size_ratio > 0.0 {
        pool.opts.set("target_size_ratio", OptValue::Double(new.target_size_ratio));
    }
    let map = batch.osdmap_mut();
    map.pool_max += 1;
    let id = PoolId(map.pool_max.into());
    map.pools.insert(id, pool);
    map.pool_names.insert(id, new.name.to_owned());
    Ok(id)
}

fn replicated_shape(batch: &Batch, settings: &Settings, new: &NewPool<'_>) -> Result<Shape, Refusal> {
    let number = |name: &str| settings.number(batch.state(), name);
    let rule = choose_rule(batch.osdmap(), settings, batch, new)?;
    let size = if new.size == 0 { number("osd_pool_default_size") as i64 } else { new.size };
    let size = match size {
        n @ 1..=255 => n as u8,
        n => return Err((Errno::EINVAL, format!("pool size must be between 1 and 10, not {n}"))),
    };
    let min_size = match number("osd_pool_default_min_size") as i64 {
        0 => size - size / 2,
        n => u8::try_from(n.clamp(1, size.into())).unwrap_or(1),
    };
    Ok(Shape { kind: PoolType::Replicated, rule, size, min_size, stripe_width: 0 })
}

/// Makes the pool's rule too, when it has none yet.
fn erasure_shape(batch: &mut Batch, new: &NewPool<'_>, profile: &str) -> Result<Shape, Refusal> {
    let code = erasure::read(batch.osdmap(), profile)?;
    let default = if profile == "default" { "erasure-code" } else { new.name };
    let name = if new.rule_name.is_empty() { default } else { new.rule_name };
    let stripe_width = erasure::stripe_width(&code)?;
    let rule = erasure::rule(batch, name, &code)?;
    let (size, min_size) = erasure::sizes(&code);
    Ok(Shape { kind: PoolType::Erasure, rule, size, min_size, stripe_width })
}

/// The most PGs that a pool may have: what the option says, within what a map can carry.
pub(crate) fn max_pg_num(settings: &Settings, state: &crate::state::State) -> i64 {
    let most = f64::from(maps::MAX_PG_NUM);
    settings.number(state, "mon_max_pool_pg_num").clamp(1.0, most) as i64
}

/// How many PGs a new pool has, and how many of them are placed apart.
fn pg_counts(batch: &Batch, settings: &Settings, new: &NewPool<'_>) -> Result<(i64, i64), Refusal> {
    let number = |name: &str| settings.number(batch.state(), name);
    let max = max_pg_num(settings, batch.state());
    let or_default = |v: i64, name: &str| if v == 0 { number(name) as i64 } else { v };
    let pg_num = or_default(new.pg_num, "osd_pool_default_pg_num");
    let pgp_num = match or_default(new.pgp_num, "osd_pool_default_pgp_num") {
        0 => pg_num,
        n => n,
    };
    if !(1..=max).contains(&pg_num) {
        let text = format!(
            "'pg_num' must be greater than 0 and less than or equal to {max} (you may adjust 'mon max pool pg num' \
             for higher values)"
        );
        return Err((Errno::ERANGE, text));
    }
    if !(1..=pg_num).contains(&pgp_num) {
        let text = format!(
            "'pgp_num' must be greater than 0 and lower or equal than 'pg_num', which in this case is {pg_num}"
        );
        return Err((Errno::ERANGE, text));
    }
    Ok((pg_num, pgp_num))
}

/// What `osd pool create` writes into the fields of cache tiers. Source: osd_pool_default_cache_*.
fn cache_defaults(pool: &mut Pool) {
    pool.cache_target_dirty_ratio_micro = 400_000;
    pool.cache_target_dirty_high_ratio_micro = 600_000;
    pool.cache_target_full_ratio_micro = 800_000;
}

fn choose_rule(map: &OsdMap, settings: &Settings, batch: &Batch, new: &NewPool<'_>) -> Result<u32, Refusal> {
    if !new.rule_name.is_empty() {
        return rule_by_name(map, new.rule_name)
            .ok_or_else(|| (Errno::ENOENT, format!("specified rule {} doesn't exist", new.rule_name)));
    }
    if let Ok(rule) = u32::try_from(new.rule) {
        let known = map.crush.rule(rule).is_some();
        return if known { Ok(rule) } else { Err((Errno::ENOENT, format!("CRUSH rule {rule} not found"))) };
    }
    let preferred = settings.number(batch.state(), "osd_pool_default_crush_rule");
    if preferred >= 0.0 && map.crush.rule(preferred as u32).is_some() {
        return Ok(preferred as u32);
    }
    let replicated =
        |id: &u32| map.crush.rule(*id).is_some_and(|r| r.rule_type == PoolType::Replicated as u8);
    (0..u32::try_from(map.crush.rules.len()).unwrap_or(0)).find(replicated).ok_or_else(|| {
        let text = "No suitable CRUSH rule exists, check 'osd pool default crush *' config options";
        (Errno::ENOENT, text.to_owned())
    })
}

/// Whether a rule serves pools of this kind and size. Source: CrushWrapper::check_crush_rule.
pub(crate) fn check_rule(map: &OsdMap, rule: u32, kind: PoolType, size: u8) -> Result<(), Refusal> {
    let refused = |text: String| Err((Errno::EINVAL, text));
    let Some(r) = map.crush.rule(rule) else {
        return Err((Errno::ENOENT, format!("crush rule {rule} does not exist")));
    };
    if r.rule_type != kind as u8 {
        return refused(format!("crush rule {rule} type does not match pool"));
    }
    if size < r.min_size {
        return refused("pool size is smaller than the crush rule min size".to_owned());
    }
    if size > r.max_size {
        return refused("pool size is bigger than the crush rule max size".to_owned());
    }
    Ok(())
}

/// The number of the rule with this name.
pub(crate) fn rule_by_name(map: &OsdMap, name: &str) -> Option<u32> {
    let (id, _) = map.crush.rule_names.iter().find(|(_, n)| *n == name)?;
    u32::try_from(*id).ok()
}

/// Refuses PG counts that would put too many PGs on each OSD. `pool` is the pool that changes, if it exists already.
pub(crate) fn check_pg_num(
    map: &OsdMap,
    settings: &Settings,
    batch: &Batch,
    pool: Option<PoolId>,
    pg_num: i64,
    size: u8,
) -> Result<(), Refusal> {
    let per_osd = settings.number(batch.state(), "mon_max_pg_per_osd") as i64;
    // A small cluster is taken for one that is still being built.
    let osds = (map.counts().r#in as i64).max(3);
    let others = map.pools.iter().filter(|(id, _)| Some(**id) != pool);
    let others: i64 = others.map(|(_, p)| i64::from(p.pg_num_target) * i64::from(p.size)).sum();
    let projected = others + pg_num * i64::from(size);
    let max = per_osd * osds;
    if projected <= max {
        return Ok(());
    }
    let id = pool.map(|id| format!("pool id {id}")).unwrap_or_default();
    let text = format!(
        "{id} pg_num {pg_num} size {size} would mean {projected} total pgs, which exceeds max {max} \
         (mon_max_pg_per_osd {per_osd} * num_in_osds {osds})"
    );
    Err((Errno::ERANGE, text))
}

/// Removes a pool; gives the text for the operator.
pub(crate) fn remove(batch: &mut Batch, settings: &Settings, id: PoolId) -> Result<String, Refusal> {
    let map = batch.osdmap();
    let name = map.pool_name(id).unwrap_or_default().to_owned();
    let Some(pool) = map.pool(id) else { return Err((Errno::ENOENT, Errno::ENOENT.to_string())) };
    if batch.state().fs.map.uses_pool(id.0) {
        return Err((Errno::EBUSY, format!("pool '{name}' is in use by CephFS")));
    }
    if pool.is_tier() {
        let base = map.pool_name(pool.tier_of).unwrap_or_default();
        return Err((Errno::EBUSY, format!("pool '{name}' is a tier of '{base}'")));
    }
    if !pool.tiers.is_empty() {
        return Err((Errno::EBUSY, format!("pool '{name}' has tiers")));
    }
    if !settings.switch(batch.state(), "mon_allow_pool_delete") {
        let text = "pool deletion is disabled; you must first set the mon_allow_pool_delete config option to true \
                    before you can destroy a pool";
        return Err((Errno::EPERM, text.to_owned()));
    }
    if pool.has_flag(pool_flags::NODELETE) {
        let text = "pool deletion is disabled; you must unset nodelete flag for the pool first";
        return Err((Errno::EPERM, text.to_owned()));
    }
    let map = batch.osdmap_mut();
    map.pools.remove(&id);
    map.pool_names.remove(&id);
    map.pg_temp.retain(|pg, _| pg.pool != id);
    map.primary_temp.retain(|pg, _| pg.pool != id);
    map.pg_upmap.retain(|pg, _| pg.pool != id);
    map.pg_upmap_items.retain(|pg, _| pg.pool != id);
    let weight_set_gone = map.crush.choose_args.contains_key(&id.0);
    if weight_set_gone {
        let mut crush = map.crush.as_ref().clone();
        crush.choose_args.remove(&id.0);
        crate::edit::set_crush(map, &crush);
    }
    Ok(format!("pool '{name}' removed"))
}

/// Applies an edit to a pool that exists; false when it does not.
pub(crate) fn edit_pool(batch: &mut Batch, id: PoolId, edit: impl FnOnce(&mut Pool)) -> bool {
    if batch.osdmap().pool(id).is_none() {
        return false;
    }
    let epoch = batch.next_osdmap_epoch();
    match batch.osdmap_mut().pools.get_mut(&id) {
        Some(pool) => {
            edit(pool);
            // Also when nothing else changes: clients wait for the epoch that a setting is acknowledged with.
            pool.last_change = epoch;
            true
        }
        None => false,
    }
}

/// Marks a snapshot for removal by the OSDs.
pub(crate) fn queue_removed_snap(batch: &mut Batch, id: PoolId, snap: types::SnapId) {
    let map = batch.osdmap_mut();
    map.new_removed_snaps.entry(id).or_default().insert(snap);
    map.removed_snaps_queue.entry(id).or_default().insert(snap);
}

/// Runs of snapshots that wait in one pool until the OSDs have removed them; beyond that none come from
/// metadata servers.
const QUEUED_RUNS_LIMIT: usize = 16_384;

/// How far ahead of the ids that a pool has counted a metadata server's may be. They count all file systems'
/// together: a pool that was added late is behind.
const NUMBERED_AHEAD: u64 = 1 << 32;
/// From here on a pool gives out no ids: the last numbers stand for the head and the like.
const SNAPS_END: u64 = SnapId::MAX.0 - NUMBERED_AHEAD;

/// Whether a pool is, or was, of a file system: in others metadata servers have no snapshots.
pub(crate) fn is_of_file_system(map: &FsMap, id: PoolId, pool: &Pool) -> bool {
    map.uses_pool(id.0) || pool.application_metadata.contains_key("cephfs")
}

/// Marks snapshots for removal that the pool has not counted; those that are marked now.
pub(crate) fn queue_numbered_snaps(batch: &mut Batch, id: PoolId, snaps: &[SnapId]) -> Vec<SnapId> {
    let known = batch.osdmap().removed_snaps_queue.get(&id).cloned().unwrap_or_default();
    let room = QUEUED_RUNS_LIMIT.saturating_sub(known.iter().count());
    let counted = batch.osdmap().pool(id).map_or(0, |pool| pool.snap_seq);
    let end = counted.saturating_add(NUMBERED_AHEAD).min(SNAPS_END);
    let valid = |snap: &&SnapId| (1..end).contains(&snap.0) && !known.contains(**snap);
    let fresh: BTreeSet<SnapId> = snaps.iter().filter(valid).take(room).copied().collect();
    if let Some(last) = fresh.last() {
        let epoch = batch.next_osdmap_epoch();
        edit_pool(batch, id, |p| {
            p.flags |= pool_flags::SELFMANAGED_SNAPS;
            p.snap_seq = p.snap_seq.max(last.0);
            p.snap_epoch = epoch;
        });
        fresh.iter().for_each(|snap| queue_removed_snap(batch, id, *snap));
    }
    snaps.iter().filter(|snap| known.contains(**snap) || fresh.contains(*snap)).copied().collect()
}

/// Whether the map's history is so large that whoever has no rights over the map makes it no larger. While
/// PGs are unclean it is not cut short, and any client that may write to a pool may make snapshots in it, or
/// shut out others.
pub(crate) fn has_no_room_for_steps_of(session: &Session, state: &State, settings: &Settings) -> bool {
    let limit = maps_limit(settings.number(state, "mon_data_size_warn"));
    state.osds.refuses_clients(limit) && !session.may("osd", Access::W)
}

impl Monitor {
    pub(crate) fn refuse_pool_op(
        &self,
        conn: ConnId,
        tid: u64,
        m: &MPoolOp,
        errno: Errno,
        out: &mut Vec<Output>,
    ) {
        let reply = reply(m, Err(errno), self.state.osds.newest());
        out.push(Output::Send { conn, tid, msg: reply.into() });
    }

    pub(crate) fn prepare_pool_op(
        &mut self,
        now: Now,
        batch: &mut Batch,
        conn: ConnId,
        tid: u64,
        m: &MPoolOp,
    ) {
        let done = match m.fsid == batch.state().fsid {
            true if self.has_no_room(conn, batch) => Err(Errno::ENOSPC),
            true => self.do_pool_op(now, batch, m),
            false => Err(Errno::EINVAL),
        };
        let epoch = batch.osdmap_epoch();
        batch.answer(conn, tid, reply(m, done, epoch));
    }

    fn has_no_room(&self, conn: ConnId, batch: &Batch) -> bool {
        let session = self.sessions.get(&conn);
        session.is_none_or(|session| has_no_room_for_steps_of(session, batch.state(), &self.settings))
    }

    /// Gives the new snapshot's id, when the operation makes one.
    fn do_pool_op(&mut self, now: Now, batch: &mut Batch, m: &MPoolOp) -> Result<Option<u64>, Errno> {
        let id = PoolId(m.pool.into());
        match m.op {
            pool_op::CREATE => {
                if batch.osdmap().pool_by_name(&m.name).is_some() {
                    return Ok(None);
                }
                let new = NewPool { name: &m.name, rule: m.crush_rule.into(), ..NewPool::default() };
                create(batch, &self.settings, now, &new).map(|_| None).map_err(|(errno, _)| errno)
            }
            pool_op::DELETE => {
                if batch.osdmap().pool(id).is_none() {
                    return Ok(None);
                }
                remove(batch, &self.settings, id).map(|_| None).map_err(|(errno, _)| errno)
            }
            _ => snapshot_op(now, batch, id, m),
        }
    }
}

fn snapshot_op(now: Now, batch: &mut Batch, id: PoolId, m: &MPoolOp) -> Result<Option<u64>, Errno> {
    let Some(pool) = batch.osdmap().pool(id).cloned() else { return Err(Errno::ENOENT) };
    let epoch = batch.next_osdmap_epoch();
    match m.op {
        pool_op::CREATE_SNAP => {
            if pool.is_unmanaged_snaps_mode() || pool.is_tier() {
                return Err(Errno::EINVAL);
            }
            if pool.snap_by_name(&m.name).is_none() {
                edit_pool(batch, id, |p| {
                    p.add_snap(&m.name, now.wall);
                    p.snap_epoch = epoch;
                });
            }
            Ok(None)
        }
        pool_op::DELETE_SNAP => {
            if pool.is_unmanaged_snaps_mode() {
                return Err(Errno::EINVAL);
            }
            if let Some(snap) = pool.snap_by_name(&m.name) {
                edit_pool(batch, id, |p| {
                    p.remove_snap(snap);
                    p.snap_epoch = epoch;
                });
                queue_removed_snap(batch, id, snap);
            }
            Ok(None)
        }
        pool_op::CREATE_UNMANAGED_SNAP => {
            if pool.is_pool_snaps_mode() {
                return Err(Errno::EINVAL);
            }
            if pool.snap_seq >= SNAPS_END {
                return Err(Errno::EOVERFLOW);
            }
            let mut made = 0;
            edit_pool(batch, id, |p| {
                made = p.add_unmanaged_snap().0;
                p.snap_epoch = epoch;
            });
            Ok(Some(made))
        }
        pool_op::DELETE_UNMANAGED_SNAP => {
            if pool.is_pool_snaps_mode() {
                return Err(Errno::EINVAL);
            }
            if batch.osdmap().in_removed_snaps_queue(id, m.snap) {
                return Ok(None);
            }
            if !pool.is_unmanaged_snaps_mode() {
                return Err(Errno::EOPNOTSUPP);
            }
            if m.snap.0 > pool.snap_seq {
                return Err(Errno::ENOENT);
            }
            edit_pool(batch, id, |p| {
                p.remove_unmanaged_snap();
                p.snap_epoch = epoch;
            });
            queue_removed_snap(batch, id, m.snap);
            Ok(None)
        }
        pool_op::AUID_CHANGE => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::EINVAL),
    }
}

fn reply(m: &MPoolOp, done: Result<Option<u64>, Errno>, epoch: Epoch) -> MPoolOpReply {
    MPoolOpReply {
        version: PaxosVersion(epoch.0.into()),
        fsid: m.fsid,
        result: done.map_or_else(Errno::neg, |_| 0),
        epoch,
        response: done.ok().flatten().map(|snap| snap.to_bytes()),
    }
}
