//! Placing, moving and removing items.
//!
//! Source: src/crush/CrushWrapper.cc. Every public edit happens wholly or not at all.

use crate::bucket::empty_data;
use crate::query::{is_valid_name, weight_from_f32, weight_to_f32};
use crate::{Alg, Bucket, BucketData, ChooseArg, CrushMap, EditError, Location, MapError};

/// Slots of a map's first bucket table; it doubles when full. Source: crush_add_bucket in src/crush/builder.c.
const FIRST_SLOTS: usize = 8;
/// Bucket slots a map may have: bounds what one edit with a far-off id can allocate.
const MAX_SLOTS: usize = 1 << 20;

impl CrushMap {
    /// Puts an item of some weight (16.16) into the buckets that `location` names, making those that do not exist.
    /// The item goes into the lowest one, that into the next, up to the first that existed before.
    /// Source: CrushWrapper::insert_item.
    pub fn insert_item(
        &mut self,
        item: i32,
        weight: u32,
        name: &str,
        location: &Location,
    ) -> Result<(), EditError> {
        self.transact(|map| map.insert(item, weight, name, location, true))
    }

    /// Puts an item into a location, or leaves it where it stands when that is the lowest bucket of the location. An
    /// item that stands elsewhere keeps its old weight. Whether anything changed.
    /// Source: CrushWrapper::create_or_move_item.
    pub fn create_or_move_item(
        &mut self,
        item: i32,
        weight: u32,
        name: &str,
        location: &Location,
    ) -> Result<bool, EditError> {
        check_name(name)?;
        if self.weight_at(item, location).is_some() {
            return Ok(false);
        }
        self.transact(|map| {
            let mut weight = weight;
            if map.is_placed(item) {
                weight = through_float(map.item_weight(item).unwrap_or(weight))?;
                map.remove(item, true)?;
            }
            map.insert(item, weight, name, location, true)?;
            Ok(true)
        })
    }

    /// Puts an item into a location with a weight and a name, wherever it was before. Whether anything changed.
    /// Source: CrushWrapper::update_item.
    pub fn update_item(
        &mut self,
        item: i32,
        weight: u32,
        name: &str,
        location: &Location,
    ) -> Result<bool, EditError> {
        check_name(name)?;
        check_location(location)?;
        self.transact(|map| {
            let Some(old) = map.weight_at(item, location) else {
                if map.item_names.contains_key(&item) {
                    map.remove(item, true)?;
                }
                map.insert(item, weight, name, location, true)?;
                return Ok(true);
            };
            let mut changed = false;
            if old != weight {
                map.set_weight_at_location(item, weight, location, true)?;
                map.rebuild_shadow_trees()?;
                changed = true;
            }
            if map.item_name(item) != Some(name) {
                map.item_names.insert(item, name.to_owned());
                changed = true;
            }
            Ok(changed)
        })
    }

    /// Adds an empty bucket of a type and name that stands nowhere yet; its id. As in `ceph osd crush add-bucket`.
    pub fn add_bucket(&mut self, name: &str, type_name: &str) -> Result<i32, EditError> {
        check_name(name)?;
        let type_id = self.type_id(type_name).ok_or_else(|| EditError::NoSuchType(type_name.to_owned()))?;
        if self.item_id(name).is_some() {
            return Err(EditError::NameExists(name.to_owned()));
        }
        self.transact(|map| {
            let bucket = map.empty_bucket(type_id)?;
            let id = map.place_bucket(0, bucket)?;
            map.item_names.insert(id, name.to_owned());
            Ok(id)
        })
    }

    /// Moves a bucket with all below it. Source: CrushWrapper::move_bucket.
    pub fn move_bucket(&mut self, id: i32, location: &Location) -> Result<(), EditError> {
        let (name, weight) = self.movable(id)?;
        self.transact(|map| {
            if let Some(parent) = map.parent(id) {
                map.set_weight_in_bucket(id, 0, parent, true)?;
                map.take_from_bucket(id, parent);
            }
            map.insert(id, through_float(weight)?, &name, location, false)
        })
    }

    /// Puts a bucket into one more place. Source: CrushWrapper::link_bucket.
    pub fn link_bucket(&mut self, id: i32, location: &Location) -> Result<(), EditError> {
        let (name, weight) = self.movable(id)?;
        self.transact(|map| map.insert(id, through_float(weight)?, &name, location, true))
    }

    /// Exchanges the contents and names of two buckets of which neither is above the other.
    /// Source: CrushWrapper::swap_bucket.
    pub fn swap_buckets(&mut self, a: i32, b: i32) -> Result<(), EditError> {
        let ((a_name, a_weight), (b_name, b_weight)) = (self.movable(a)?, self.movable(b)?);
        if a == b || self.subtree_contains(a, b) || self.subtree_contains(b, a) {
            return Err(EditError::Related(a, b));
        }
        self.transact(|map| {
            map.set_weight_everywhere(a, b_weight, true)?;
            map.set_weight_everywhere(b, a_weight, true)?;
            let mut from_a = map.empty_out(a);
            let from_b = map.empty_out(b);
            from_a.sort_unstable();
            for (item, weight) in from_b {
                map.add_to_bucket(item, weight, a)?;
            }
            for (item, weight) in from_a {
                map.add_to_bucket(item, weight, b)?;
            }
            map.item_names.insert(a, b_name);
            map.item_names.insert(b, a_name);
            map.rebuild_shadow_trees()
        })
    }

    /// Takes an item out of every bucket, and out of the map unless `unlink_only`. Buckets have to be empty and not
    /// in use then. Source: CrushWrapper::remove_item.
    pub fn remove_item(&mut self, item: i32, unlink_only: bool) -> Result<(), EditError> {
        self.transact(|map| map.remove(item, unlink_only))
    }

    /// Takes an item out of the bucket `ancestor` and of those below it.
    /// Source: CrushWrapper::remove_item_under.
    pub fn remove_item_under(
        &mut self,
        item: i32,
        ancestor: i32,
        unlink_only: bool,
    ) -> Result<(), EditError> {
        self.transact(|map| {
            if !unlink_only && map.bucket_is_in_use(item) {
                return Err(EditError::Busy(map.describe(item)));
            }
            map.bucket(ancestor).ok_or(EditError::NoSuchItem(ancestor))?;
            let mut within = map.descendants(ancestor);
            within.insert(ancestor);
            let mut found = false;
            for bucket in within.into_iter().filter(|i| *i < 0) {
                found |= map.unlink(item, bucket)?;
            }
            if !found {
                return Err(EditError::NoSuchItem(item));
            }
            if !unlink_only && map.bucket(item).is_some_and(|b| !b.items.is_empty()) {
                return Err(EditError::NotEmpty(item));
            }
            map.forget_if_gone(item, unlink_only)?;
            Ok(())
        })
    }

    /// Gives a bucket another name. Source: CrushWrapper::rename_bucket.
    pub fn rename_bucket(&mut self, from: &str, to: &str) -> Result<(), EditError> {
        let id = self.item_id(from).ok_or_else(|| EditError::NoSuchName(from.to_owned()))?;
        if self.item_id(to).is_some() {
            return Err(EditError::NameExists(to.to_owned()));
        }
        check_name(to)?;
        if id >= 0 {
            return Err(EditError::NotABucket(from.to_owned()));
        }
        self.transact(|map| {
            map.item_names.insert(id, to.to_owned());
            // The shadow buckets are named after it.
            map.rebuild_shadow_trees()
        })
    }

    /// Gives every straw bucket the newer algorithm, with the weights it has.
    /// Source: OSDMonitor::prepare_command_impl (set-all-straw-buckets-to-straw2).
    pub fn straw_buckets_to_straw2(&mut self) -> Result<(), EditError> {
        self.transact(|map| {
            for bucket in map.buckets.iter_mut().flatten() {
                if let BucketData::Straw { item_weights, .. } = &mut bucket.data {
                    bucket.data = BucketData::Straw2 { item_weights: std::mem::take(item_weights) };
                }
            }
            Ok(())
        })
    }

    /// Runs an edit on a copy and keeps it only when it succeeds and leaves a valid map.
    pub(crate) fn transact<T>(
        &mut self,
        edit: impl FnOnce(&mut Self) -> Result<T, EditError>,
    ) -> Result<T, EditError> {
        let mut copy = self.clone();
        let result = edit(&mut copy)?;
        copy.validate().map_err(|e| match e {
            MapError::TooDeep { .. } => EditError::TooDeep,
            MapError::Cycle { id } => EditError::Cycle { inner: id, outer: id },
            other => EditError::Broken(other),
        })?;
        *self = copy;
        Ok(result)
    }

    fn movable(&self, id: i32) -> Result<(String, u32), EditError> {
        let name = self.item_name(id).ok_or(EditError::NoSuchItem(id))?;
        let bucket = self.bucket(id).ok_or_else(|| EditError::NotABucket(name.to_owned()))?;
        if self.is_shadow(id) {
            return Err(EditError::Shadow(name.to_owned()));
        }
        Ok((name.to_owned(), bucket.weight))
    }

    fn describe(&self, item: i32) -> String {
        self.item_name(item).map_or_else(|| item.to_string(), str::to_owned)
    }

    fn insert(
        &mut self,
        item: i32,
        weight: u32,
        name: &str,
        location: &Location,
        init_weight_sets: bool,
    ) -> Result<(), EditError> {
        check_name(name)?;
        check_location(location)?;
        match self.item_id(name) {
            Some(id) if id != item => return Err(EditError::NameExists(name.to_owned())),
            Some(_) => {}
            None => {
                self.item_names.insert(item, name.to_owned());
            }
        }
        let mut at = item;
        let levels = self.type_names.clone();
        for (&type_id, type_name) in levels.iter().filter(|(id, _)| **id != 0) {
            let Some(bucket_name) = location.get(type_name) else { continue };
            match self.item_id(bucket_name) {
                None => {
                    let bucket = self.empty_bucket(type_id)?;
                    let id = self.place_bucket(0, bucket)?;
                    self.add_to_bucket(at, 0, id)?;
                    self.give_weight_sets(id);
                    self.item_names.insert(id, bucket_name.clone());
                    at = id;
                }
                Some(id) => {
                    self.hang_below(at, id, type_id, bucket_name)?;
                    break;
                }
            }
        }
        if self.set_weight_at_location(item, weight, location, item >= 0 && init_weight_sets)? == 0 {
            return Err(EditError::NoParentInLocation { item });
        }
        if item >= self.max_devices {
            self.max_devices = item.saturating_add(1);
        }
        self.rebuild_shadow_trees()
    }

    /// Adds `item` to a bucket that exists, with weight 0 for now.
    fn hang_below(&mut self, item: i32, id: i32, type_id: i32, name: &str) -> Result<(), EditError> {
        let bucket = self.bucket(id).ok_or_else(|| EditError::NotABucket(name.to_owned()))?;
        let got = i32::from(bucket.type_id);
        if self.subtree_contains(id, item) {
            return Err(EditError::ItemExists { item, bucket: id });
        }
        if got != type_id {
            return Err(EditError::WrongType { name: name.to_owned(), got, wanted: type_id });
        }
        if self.subtree_contains(item, id) {
            return Err(EditError::Cycle { inner: item, outer: id });
        }
        self.add_to_bucket(item, 0, id)
    }

    fn remove(&mut self, item: i32, unlink_only: bool) -> Result<(), EditError> {
        if !self.item_names.contains_key(&item) && !self.is_placed(item) {
            return Err(EditError::NoSuchItem(item));
        }
        if item < 0 && !unlink_only {
            let bucket = self.bucket(item).ok_or(EditError::NoSuchItem(item))?;
            if !bucket.items.is_empty() {
                return Err(EditError::NotEmpty(item));
            }
            if self.bucket_is_in_use(item) {
                return Err(EditError::Busy(self.describe(item)));
            }
        }
        let holders: Vec<i32> = self.buckets.iter().flatten().map(|b| b.id).collect();
        let mut found = false;
        for bucket in holders {
            found |= self.unlink(item, bucket)?;
        }
        found |= self.forget_if_gone(item, unlink_only)?;
        if found { Ok(()) } else { Err(EditError::NoSuchItem(item)) }
    }

    /// Takes an item out of one bucket, its weight first out of all above; whether it was there.
    fn unlink(&mut self, item: i32, bucket: i32) -> Result<bool, EditError> {
        let mut found = false;
        while self.children(bucket).contains(&item) {
            // All items of a uniform bucket share one weight, so there it cannot be set to 0 for one of them alone.
            // (Ceph does that, and leaves the other items without weight.)
            let uniform = matches!(self.bucket(bucket).map(Bucket::alg), Some(Alg::Uniform));
            if !uniform {
                self.set_weight_in_bucket(item, 0, bucket, true)?;
            }
            self.take_from_bucket(item, bucket);
            if uniform {
                let total = self.bucket(bucket).map_or(0, |b| b.weight);
                self.set_weight_everywhere(bucket, total, false)?;
            }
            found = true;
            if matches!(self.bucket(bucket).map(|b| &b.data), Some(BucketData::Tree { .. })) {
                // A tree bucket may keep a hole that looks like device 0.
                break;
            }
        }
        Ok(found)
    }

    /// Drops what the map knows of an item that no bucket holds any more; whether it was so.
    /// Source: CrushWrapper::_maybe_remove_last_instance.
    fn forget_if_gone(&mut self, item: i32, unlink_only: bool) -> Result<bool, EditError> {
        if self.is_placed(item) || (item < 0 && self.bucket_is_in_use(item)) {
            return Ok(false);
        }
        if item < 0 && !unlink_only {
            self.drop_bucket(item);
        }
        if item >= 0 || !unlink_only {
            self.item_names.remove(&item);
            if !unlink_only {
                self.device_classes.remove(&item);
            }
        }
        self.rebuild_shadow_trees()?;
        Ok(true)
    }

    /// Whether a bucket is a shadow bucket, or a rule starts from it or one of its shadow buckets.
    pub fn bucket_is_in_use(&self, id: i32) -> bool {
        let shadow = self.class_buckets.values().flat_map(|m| m.values()).any(|b| *b == id);
        let taken =
            |take: i32| take == id || self.split_id_class(take).is_some_and(|(original, _)| original == id);
        shadow || self.takes().into_iter().any(taken)
    }

    /// Frees a bucket's slot and forgets its class and shadow buckets.
    pub(crate) fn drop_bucket(&mut self, id: i32) {
        if let Some(slot) = Self::bucket_index(id).and_then(|i| self.buckets.get_mut(i)) {
            *slot = None;
        }
        self.class_buckets.remove(&id);
        self.device_classes.remove(&id);
        self.repair_choose_args();
    }

    fn empty_bucket(&self, type_id: i32) -> Result<Bucket, EditError> {
        let alg = self.tunables.default_bucket_alg().ok_or(EditError::NoAllowedAlg)?;
        let type_id = u16::try_from(type_id).ok().filter(|t| *t > 0);
        let type_id = type_id.ok_or_else(|| EditError::NoSuchType("of devices".to_owned()))?;
        Ok(Bucket { id: 0, type_id, hash: 0, weight: 0, items: Vec::new(), data: empty_data(alg) })
    }

    /// Puts a bucket into the slot of `id`, or into the first free one for 0; its id. The table grows by doubling.
    pub(crate) fn place_bucket(&mut self, id: i32, mut bucket: Bucket) -> Result<i32, EditError> {
        let free = || self.buckets.iter().position(Option::is_none).unwrap_or(self.buckets.len());
        let index = if id == 0 { free() } else { Self::bucket_index(id).ok_or(EditError::NoSuchItem(id))? };
        if index >= MAX_SLOTS {
            return Err(EditError::NoFreeId);
        }
        let mut slots = self.buckets.len();
        while index >= slots {
            slots = if slots == 0 { FIRST_SLOTS } else { slots * 2 };
        }
        self.buckets.resize(slots, None);
        for set in self.choose_args.values_mut() {
            set.args.resize(slots, ChooseArg::default());
        }
        let id = Self::bucket_id(index);
        bucket.id = id;
        match self.buckets.get_mut(index) {
            Some(slot) if slot.is_none() => *slot = Some(bucket),
            _ => return Err(EditError::BucketExists(id)),
        }
        Ok(id)
    }

    /// Gives a new bucket entries in every weight set. Source: CrushWrapper::add_bucket.
    fn give_weight_sets(&mut self, id: i32) {
        let Some(bucket) = self.bucket(id) else { return };
        let own: Vec<u32> = bucket.weighted_items().map(|(_, w)| w).collect();
        let Some(index) = Self::bucket_index(id) else { return };
        for set in self.choose_args.values_mut() {
            let positions = set.positions();
            if let Some(arg) = set.args.get_mut(index) {
                arg.weight_sets = vec![own.clone(); positions];
            }
        }
    }

    /// Source: CrushWrapper::bucket_add_item.
    pub(crate) fn add_to_bucket(&mut self, item: i32, weight: u32, id: i32) -> Result<(), EditError> {
        let straw_version = self.tunables.straw_calc_version;
        let bucket = self.bucket_mut(id).ok_or(EditError::NoSuchItem(id))?;
        bucket.add_item(item, weight, straw_version)?;
        let Some(index) = Self::bucket_index(id) else { return Ok(()) };
        for arg in self.choose_args.values_mut().filter_map(|set| set.args.get_mut(index)) {
            arg.weight_sets.iter_mut().for_each(|s| s.push(weight));
            if !arg.ids.is_empty() {
                arg.ids.push(item);
            }
        }
        Ok(())
    }

    /// Source: CrushWrapper::bucket_remove_item.
    pub(crate) fn take_from_bucket(&mut self, item: i32, id: i32) {
        let straw_version = self.tunables.straw_calc_version;
        let Some(bucket) = self.bucket_mut(id) else { return };
        let Some(position) = bucket.position(item) else { return };
        bucket.remove_item(item, straw_version);
        let Some(index) = Self::bucket_index(id) else { return };
        for arg in self.choose_args.values_mut().filter_map(|set| set.args.get_mut(index)) {
            for set in arg.weight_sets.iter_mut().filter(|s| position < s.len()) {
                set.remove(position);
            }
            if position < arg.ids.len() {
                arg.ids.remove(position);
            }
        }
    }

    fn empty_out(&mut self, id: i32) -> Vec<(i32, u32)> {
        let items: Vec<(i32, u32)> =
            self.bucket(id).map(|b| b.weighted_items().collect()).unwrap_or_default();
        for (item, _) in &items {
            self.take_from_bucket(*item, id);
        }
        items
    }
}

fn check_name(name: &str) -> Result<(), EditError> {
    if is_valid_name(name) { Ok(()) } else { Err(EditError::InvalidName(name.to_owned())) }
}

fn check_location(location: &Location) -> Result<(), EditError> {
    location.iter().try_for_each(|(type_name, name)| {
        check_name(type_name)?;
        check_name(name)
    })
}

/// Ceph carries the weight of a moved item in single precision, so weights above 256 lose their lowest bits.
fn through_float(weight: u32) -> Result<u32, EditError> {
    weight_from_f32(weight_to_f32(weight))
}
