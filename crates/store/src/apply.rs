//! Applying a transaction's operations to a stage, live or from the log.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use crate::alloc::Allocator;
use crate::data::DataBlocks;
use crate::index::Index;
use crate::key::{omap_key, onode_key, prefix_end, space_key, space_prefix};
use crate::memtable::omap_range;
use crate::onode::Onode;
use crate::stage::{Placement, Stage, StagedOnode};
use crate::txn::{ObjectIndex, Op, Txn};
use crate::{Misuse, Space, StoreError};

/// Whether payloads are placed now, or were placed when the log record was written.
pub(crate) enum Mode {
    /// `lose_damaged`: a damaged block that is to be changed in part is lost; else the transaction fails.
    Live {
        direct_min_bytes: usize,
        lose_damaged: bool,
    },
    Replay {
        placements: BTreeMap<u32, Placement>,
    },
}

/// One transaction at work. It changes nothing but its stage and the allocator.
pub(crate) struct Apply<'a> {
    pub(crate) txn: &'a Txn,
    pub(crate) index: &'a mut Index,
    pub(crate) data: &'a mut DataBlocks,
    pub(crate) alloc: &'a mut Allocator,
    pub(crate) next_omap_id: u64,
    pub(crate) mode: Mode,
    /// Boxed, for it goes on to the store and from transaction to transaction.
    pub(crate) stage: Box<Stage>,
    #[cfg(feature = "planted")]
    pub(crate) planted: Option<crate::Planted>,
}

impl Apply<'_> {
    pub(crate) fn run(&mut self) -> Result<(), StoreError> {
        let txn = self.txn;
        self.stage.onodes.resize_with(txn.objects().len(), || None);
        for (at, op) in txn.ops().iter().enumerate() {
            self.op(at as u32, op)?;
        }
        Ok(())
    }

    fn op(&mut self, at: u32, op: &Op) -> Result<(), StoreError> {
        match op {
            Op::Touch { object } | Op::AllocHint { object, .. } => self.edit(*object).map(|_| ()),
            Op::Write { object, offset, data } => self.write(at, *object, *offset, data),
            Op::Zero { object, offset, len } => self.zero(*object, *offset, *len),
            Op::Truncate { object, size } => self.truncate(*object, *size),
            Op::Remove { object } => self.remove(*object),
            Op::SetAttr { object, name, value } => {
                self.edit(*object)?.set_attr(name, value);
                Ok(())
            }
            Op::RmAttr { object, name } => self.edit_existing(*object, |o| o.rm_attr(name)),
            Op::RmAttrs { object } => self.edit_existing(*object, |o| o.attrs.clear()),
            Op::OmapSetHeader { object, header } => {
                self.edit(*object)?.omap_header = Bytes::copy_from_slice(header);
                Ok(())
            }
            Op::OmapSet { object, entries } => self.omap_set(*object, entries),
            Op::OmapRm { object, keys } => self.omap_rm(*object, keys),
            Op::OmapRmRange { object, start, end } => self.omap_rm_range(*object, start, end),
            Op::OmapClear { object } => self.omap_clear(*object),
            Op::Clone { src, dst } => self.clone_object(*src, *dst),
            Op::CloneRange { src, dst, src_offset, len, dst_offset } => {
                self.clone_range(*src, *dst, *src_offset, *len, *dst_offset)
            }
            Op::MoveRange { .. } => self.move_range(op),
            Op::Rename { src, dst } => self.rename(*src, *dst),
            Op::Set { .. } | Op::Unset { .. } | Op::UnsetRange { .. } | Op::DropSpace { .. } => {
                self.space_op(op)
            }
        }
    }

    fn space_op(&mut self, op: &Op) -> Result<(), StoreError> {
        match op {
            Op::Set { space, key, value } => {
                self.stage.kv.put(space_key(*space, key), Some(Bytes::copy_from_slice(value)));
                Ok(())
            }
            Op::Unset { space, key } => {
                self.stage.kv.put(space_key(*space, key), None);
                Ok(())
            }
            Op::UnsetRange { space, start, end } => {
                self.remove_keys(&space_key(*space, start), &space_key(*space, end))
            }
            Op::DropSpace { space } => {
                self.stage.releases = true;
                let prefix = space_prefix(*space);
                let end = prefix_end(&prefix).unwrap_or_default();
                self.remove_keys(&prefix, &end)
            }
            _ => Ok(()),
        }
    }

    /// Marks every existing key of the range removed.
    fn remove_keys(&mut self, start: &[u8], end: &[u8]) -> Result<(), StoreError> {
        let mut keys = Vec::new();
        let from = Bound::Included(start);
        self.index.scan(Some(self.stage.kv.sorted()), from, end, &mut |key, _| {
            keys.push(key);
            true
        })?;
        keys.into_iter().for_each(|k| self.stage.kv.put(k, None));
        Ok(())
    }

    /// The object as the transaction has it so far.
    pub(crate) fn staged(&mut self, object: ObjectIndex) -> Result<&mut StagedOnode, StoreError> {
        let at = object.0 as usize;
        if let Some(None) = self.stage.onodes.get(at) {
            let key = self.txn.object(object).ok_or(StoreError::Misuse(Misuse::BadKey))?;
            if key.object.max {
                return Err(StoreError::Misuse(Misuse::BadKey));
            }
            let key = onode_key(key);
            let before = self.index.onode(&key)?;
            let now = before.clone();
            if let Some(slot) = self.stage.onodes.get_mut(at) {
                *slot = Some(StagedOnode { key, before, now });
            }
        }
        let slot = self.stage.onodes.get_mut(at).and_then(Option::as_mut);
        slot.ok_or(StoreError::Misuse(Misuse::BadKey))
    }

    pub(crate) fn current(&mut self, object: ObjectIndex) -> Result<Option<Arc<Onode>>, StoreError> {
        Ok(self.staged(object)?.now.clone())
    }

    /// The object for changing; created when it is missing.
    pub(crate) fn edit(&mut self, object: ObjectIndex) -> Result<&mut Onode, StoreError> {
        let now = self.staged(object)?.now.get_or_insert_default();
        Ok(Arc::make_mut(now))
    }

    pub(crate) fn edit_existing(
        &mut self,
        object: ObjectIndex,
        change: impl FnOnce(&mut Onode),
    ) -> Result<(), StoreError> {
        if let Some(now) = &mut self.staged(object)?.now {
            change(Arc::make_mut(now));
        }
        Ok(())
    }

    fn new_omap_id(&mut self) -> u64 {
        self.stage.new_omap_ids += 1;
        self.next_omap_id + self.stage.new_omap_ids - 1
    }

    fn omap_set(&mut self, object: ObjectIndex, entries: &[(Bytes, Bytes)]) -> Result<(), StoreError> {
        let mut id = self.edit(object)?.omap_id;
        if id == 0 && !entries.is_empty() {
            id = self.new_omap_id();
            self.edit(object)?.omap_id = id;
        }
        for (key, value) in entries {
            self.stage.kv.put(omap_key(id, key), Some(Bytes::copy_from_slice(value)));
        }
        Ok(())
    }

    fn omap_rm(&mut self, object: ObjectIndex, keys: &[Bytes]) -> Result<(), StoreError> {
        let id = self.current(object)?.map_or(0, |o| o.omap_id);
        if id != 0 {
            keys.iter().for_each(|k| self.stage.kv.put(omap_key(id, k), None));
        }
        Ok(())
    }

    fn omap_rm_range(&mut self, object: ObjectIndex, start: &[u8], end: &[u8]) -> Result<(), StoreError> {
        let id = self.current(object)?.map_or(0, |o| o.omap_id);
        if id == 0 {
            return Ok(());
        }
        self.remove_keys(&omap_key(id, start), &omap_key(id, end))
    }

    fn omap_clear(&mut self, object: ObjectIndex) -> Result<(), StoreError> {
        let Some(o) = self.current(object)? else { return Ok(()) };
        self.kill_omap(o.omap_id);
        self.edit_existing(object, |o| {
            o.omap_id = 0;
            o.omap_header = Bytes::new();
        })
    }

    /// Nothing will name this omap any more.
    fn kill_omap(&mut self, id: u64) {
        if id == 0 {
            return;
        }
        let range = omap_range(id);
        let staged: Vec<Bytes> =
            self.stage.kv.sorted().range(range.start..range.end).map(|(k, _)| k.clone()).collect();
        for key in &staged {
            self.stage.kv.sorted().remove(key);
        }
        self.stage.dead_omaps.push(id);
    }

    fn remove(&mut self, object: ObjectIndex) -> Result<(), StoreError> {
        self.stage.releases = true;
        let Some(o) = self.staged(object)?.now.take() else { return Ok(()) };
        self.kill_omap(o.omap_id);
        for (_, slot) in o.mapped_slots() {
            self.release(o.shared, slot)?;
        }
        Ok(())
    }

    fn rename(&mut self, src: ObjectIndex, dst: ObjectIndex) -> Result<(), StoreError> {
        if src == dst {
            return Ok(());
        }
        if self.current(src)?.is_none() {
            return Err(StoreError::Misuse(Misuse::NoCloneSource));
        }
        self.remove(dst)?;
        let moved = self.staged(src)?.now.take();
        if moved.as_ref().is_some_and(|o| o.has_lost()) {
            self.tell_lost(dst);
        }
        self.staged(dst)?.now = moved;
        Ok(())
    }

    fn clone_object(&mut self, src: ObjectIndex, dst: ObjectIndex) -> Result<(), StoreError> {
        if src == dst {
            return Ok(());
        }
        let Some(source) = self.current(src)? else {
            return Err(StoreError::Misuse(Misuse::NoCloneSource));
        };
        self.remove(dst)?;
        for (_, slot) in source.mapped_slots().filter(|(_, s)| s.is_placed()) {
            self.refs(slot.place)?.add_user(slot.place);
        }
        let mut copy = source.as_ref().clone();
        if copy.has_lost() {
            // Whoever replaces the source does not touch the copy.
            self.tell_lost(dst);
        }
        if copy.mapped() > 0 {
            copy.shared = true;
            self.edit_existing(src, |o| o.shared = true)?;
        }
        if source.omap_id != 0 {
            copy.omap_id = self.copy_omap(source.omap_id)?;
        }
        self.staged(dst)?.now = Some(Arc::new(copy));
        Ok(())
    }

    fn copy_omap(&mut self, from: u64) -> Result<u64, StoreError> {
        let id = self.new_omap_id();
        let range = omap_range(from);
        let mut copies = Vec::new();
        self.index.scan(
            Some(self.stage.kv.sorted()),
            Bound::Included(&range.start),
            &range.end,
            &mut |key, value| {
                let value = Bytes::copy_from_slice(&value);
                copies.push((omap_key(id, key.get(9..).unwrap_or_default()), Some(value)));
                true
            },
        )?;
        copies.into_iter().for_each(|(k, v)| self.stage.kv.put(k, v));
        Ok(id)
    }
}

/// Keys of a space as a scan wants them: start and end in the index.
pub(crate) fn space_bounds(space: Space, from: &[u8], until: Option<&[u8]>) -> (Bytes, Bytes) {
    let end = match until {
        Some(until) => space_key(space, until),
        None => prefix_end(&space_prefix(space)).unwrap_or_default().into(),
    };
    (space_key(space, from), end)
}
