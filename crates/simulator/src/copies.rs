//! Looking into the stores of OSDs: whether all copies are equal (O4), and what a mutant reads past its PG.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bytes::Bytes;
use codec::{Decode, Encode};
use maps::{OsdMap, Pool};
use messages::osd::OmapValsResponse;
use pg::coded::Geometry;
use store::{ObjectKey, Store, StoreError};
use types::{HObject, PgId, PoolId, SnapId, SpgId};

use crate::history::brief;
use crate::world::World;

/// Everything that a store holds of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Copy {
    data: Bytes,
    attrs: Vec<(Bytes, Bytes)>,
    omap_header: Bytes,
    omap: Vec<(Bytes, Bytes)>,
}

fn read(store: &mut Store, key: &ObjectKey) -> Result<Option<Copy>, StoreError> {
    let Some(stat) = store.stat(key)? else { return Ok(None) };
    let (omap, _) = store.omap_list(key, Bound::Unbounded, usize::MAX, usize::MAX)?;
    Ok(Some(Copy {
        data: store.read(key, 0, stat.size)?,
        attrs: store.attrs(key)?,
        omap_header: store.omap_header(key)?,
        omap,
    }))
}

/// Clients' attributes as `getxattrs` answers with them.
pub fn user_attrs(store: &mut Store, key: &ObjectKey) -> Option<Bytes> {
    let attrs = store.attrs(key).ok()?;
    let named = |(k, v): (Bytes, Bytes)| {
        let name = pg::object::user_attr_name(&k).map(Bytes::copy_from_slice)?;
        Some((name, v))
    };
    Some(attrs.into_iter().filter_map(named).collect::<BTreeMap<_, _>>().to_bytes())
}

/// The omap as `omap-get-vals` answers with it.
pub fn omap(store: &mut Store, key: &ObjectKey) -> Option<Bytes> {
    let (omap, more) = store.omap_list(key, Bound::Unbounded, 1_000, usize::MAX).ok()?;
    Some(OmapValsResponse { vals: omap.into_iter().collect(), more }.to_bytes())
}

impl World {
    /// Every object of the pools that any store holds, heads and clones.
    fn stored_objects(&mut self, pools: &BTreeSet<i64>) -> Result<BTreeSet<HObject>, String> {
        let mut all = BTreeSet::new();
        for (osd, host) in self.osds.iter_mut().enumerate() {
            let Some(core) = &mut host.core else { continue };
            let keys = core.store_mut().list_all(None, usize::MAX).map_err(|e| format!("osd.{osd}: {e}"))?;
            all.extend(keys.into_iter().map(|k| k.object).filter(|o| pools.contains(&o.pool.0)));
        }
        Ok(all)
    }

    /// Clones that any store holds.
    pub fn clones_left(&mut self) -> Vec<HObject> {
        let Some(map) = self.monitor().map(|m| m.state().osdmap().clone()) else { return Vec::new() };
        let pools = map.pools.keys().map(|id| id.0).collect();
        match self.stored_objects(&pools) {
            Ok(all) => all.into_iter().filter(|o| !o.is_head() && o.snap != SnapId::SNAPDIR).collect(),
            Err(text) => {
                self.violation(format!("O4: no list of objects: {text}"));
                Vec::new()
            }
        }
    }

    /// What large writes and recovery had aside is gone when nothing is under way any more.
    fn check_aside(&mut self) {
        let shards = self.scenario.options.code.map_or(0, |(k, m)| (k + m) as i8);
        for (osd, shard) in
            (0..self.osds.len()).flat_map(|osd| (SpgId::NO_SHARD..shards).map(move |s| (osd, s)))
        {
            let Some(core) = &mut self.osds[osd].core else { continue };
            let until = HObject { pool: PoolId(-1), ..HObject::min() };
            match core.store_mut().list(shard, &HObject::min(), &until, usize::MAX) {
                Ok(left) => {
                    for object in left {
                        self.violation(format!("O4: osd.{osd} has {object} left aside"));
                    }
                }
                Err(e) => self.violation(format!("O4: osd.{osd}: {e}")),
            }
        }
    }

    /// How many records of what takes writes back any copy still has. They go some seconds after the last
    /// write, when all members have it.
    pub fn records_kept(&mut self) -> Result<usize, String> {
        let mut kept = 0;
        for (osd, host) in self.osds.iter_mut().enumerate() {
            let Some(core) = &mut host.core else { continue };
            let ids = core.pg_states().into_iter().map(|(id, _)| id).filter(|id| id.shard != SpgId::NO_SHARD);
            for id in ids.collect::<Vec<_>>() {
                let records =
                    pg::coded::kept_in(core.store_mut(), id).map_err(|e| format!("osd.{osd}: {e}"))?;
                kept += records.len();
            }
        }
        Ok(kept)
    }

    /// What each member has of an erasure-coded object, by its place.
    fn shards_of(&mut self, members: &[i32], object: &HObject) -> Result<Vec<Option<Copy>>, String> {
        let mut shards = Vec::with_capacity(members.len());
        for (place, osd) in members.iter().enumerate() {
            let host = usize::try_from(*osd).ok().and_then(|osd| self.osds.get_mut(osd));
            let core = host.and_then(|host| host.core.as_mut());
            let core = core.ok_or_else(|| format!("osd.{osd} at place {place} is not there"))?;
            let key = ObjectKey::new(place as i8, object.clone());
            shards.push(read(core.store_mut(), &key).map_err(|e| format!("osd.{osd} cannot read it: {e}"))?);
        }
        Ok(shards)
    }

    /// O4 of shards: the same attributes on each, the length that the object's size makes, and every choice
    /// of as many as make up the data makes the same of it, with zeros behind the object's end.
    fn check_shards(&mut self, map: &OsdMap, pgid: PgId, object: &HObject) -> Result<(), String> {
        let pool = map.pool(pgid.pool).ok_or("there is no such pool")?;
        let geometry = Geometry::of_pool(map, pool).map_err(|e| e.to_string())?;
        let members = map.pg_to_up_acting(pgid).acting;
        let shards = self.shards_of(&members, object)?;
        let Some(first) = shards.iter().flatten().next() else { return Ok(()) };
        for (place, shard) in shards.iter().enumerate() {
            let alike = |s: &Copy| s.attrs == first.attrs && s.data.len() == first.data.len();
            if !shard.as_ref().is_some_and(alike) {
                let (a, b) = (show(&Some(first.clone())), show(shard));
                return Err(format!("osd.{} at place {place} has {b}, another one {a}", members[place]));
            }
        }
        let info = first.attrs.iter().find(|(name, _)| name == pg::object::INFO_ATTR);
        let (_, info) = info.ok_or("it has no info")?;
        let size = pg::object::ObjectInfo::from_bytes(info.clone()).map_err(|e| e.to_string())?.size;
        let len = first.data.len() as u64;
        if len != geometry.stripes.shard_len(size) {
            return Err(format!("its shards have {len} bytes, it has {size}"));
        }
        let whole = size.next_multiple_of(geometry.stripes.stripe_width());
        let mut content: Option<(u32, Vec<u8>)> = None;
        for bits in 0..1u32 << members.len() {
            if bits.count_ones() as usize != geometry.codec.data_chunk_count() {
                continue;
            }
            let there = (0..members.len()).filter(|at| bits >> at & 1 == 1).collect();
            let Ok(plan) = geometry.stripes.read(&geometry.codec, 0..whole, there) else { continue };
            let parts = plan.ranges().iter().map(|r| {
                let all = shards.get(r.shard)?.as_ref()?;
                all.data.get(r.offset as usize..(r.offset + r.len) as usize)
            });
            let parts: Option<Vec<&[u8]>> = parts.collect();
            let found =
                plan.assemble(&parts.ok_or("its shards are too short")?).map_err(|e| e.to_string())?;
            if found.get(size as usize..).is_none_or(|behind| behind.iter().any(|b| *b != 0)) {
                return Err(format!("shards {bits:b} of {members:?} have data behind its end, at {size}"));
            }
            match &content {
                None => content = Some((bits, found)),
                Some((others, theirs)) if *theirs != found => {
                    return Err(format!("shards {others:b} of {members:?} make other bytes than {bits:b}"));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// O4: each member of each object's acting set holds the same.
    pub fn check_copies(&mut self) {
        self.check_aside();
        let Some(map) = self.monitor().map(|m| m.state().osdmap().clone()) else { return };
        let pools = map.pools.keys().map(|id| id.0).collect();
        let all = match self.stored_objects(&pools) {
            Ok(all) => all,
            Err(text) => return self.violation(format!("O4: no list of objects: {text}")),
        };
        for object in all {
            let raw = types::PgId::new(object.pool, object.hash);
            let Some(pgid) = map.raw_pg_to_pg(raw) else { continue };
            if map.pool(object.pool).is_some_and(Pool::is_erasure) {
                if let Err(text) = self.check_shards(&map, pgid, &object) {
                    return self.violation(format!("O4: {object} of pg {pgid}: {text}"));
                }
                continue;
            }
            let key = ObjectKey::replicated(object.clone());
            let mut first: Option<(i32, Option<Copy>)> = None;
            for osd in map.pg_to_up_acting(pgid).acting {
                let Some(core) = &mut self.osds[osd as usize].core else { continue };
                let copy = match read(core.store_mut(), &key) {
                    Ok(copy) => copy,
                    Err(e) => {
                        return self.violation(format!("O4: osd.{osd} cannot read {object}: {e}"));
                    }
                };
                match &first {
                    None => first = Some((osd, copy)),
                    Some((other, theirs)) if *theirs != copy => {
                        let (a, b) = (show(theirs), show(&copy));
                        let text =
                            format!("O4: {object} of pg {pgid} is {a} on osd.{other} and {b} on osd.{osd}");
                        return self.violation(text);
                    }
                    Some(_) => {}
                }
            }
        }
    }
}

fn show(copy: &Option<Copy>) -> String {
    let Some(c) = copy else { return "missing".to_owned() };
    let pairs = |all: &[(Bytes, Bytes)]| -> String {
        all.iter().map(|(k, v)| format!(" {}={}", String::from_utf8_lossy(k), brief(v))).collect()
    };
    format!("data {}, attributes{}, omap{}", brief(&c.data), pairs(&c.attrs), pairs(&c.omap))
}
