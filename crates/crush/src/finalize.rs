//! What follows from the rest of a map: `max_devices` and the shape of the weight sets.

use crate::{Alg, ChooseArg, ChooseArgMap, CrushMap};

impl CrushMap {
    /// Recomputes `max_devices` from the items and names. Source: CrushWrapper::finalize, crush_finalize.
    pub fn finalize(&mut self) {
        let highest = self.buckets.iter().flatten().flat_map(|b| b.items.iter()).max().copied().unwrap_or(-1);
        let named = self.item_names.last_key_value().map_or(-1, |(id, _)| *id);
        self.max_devices = highest.max(named).max(-1).saturating_add(1);
    }

    /// Drops replacement weights of buckets that are gone or not straw2, and gives weight sets one weight for each
    /// item. Source: CrushWrapper::update_choose_args.
    pub fn repair_choose_args(&mut self) {
        let Self { buckets, choose_args, .. } = self;
        for set in choose_args.values_mut() {
            set.args.resize(buckets.len(), ChooseArg::default());
            let positions = set.positions();
            for (arg, bucket) in set.args.iter_mut().zip(buckets.iter()) {
                match bucket {
                    Some(b) if b.alg() == Alg::Straw2 => {
                        if arg.weight_sets.len() == positions {
                            arg.weight_sets.iter_mut().for_each(|s| s.resize(b.items.len(), 0));
                        }
                    }
                    _ => *arg = ChooseArg::default(),
                }
            }
        }
    }

    /// Adds weight sets with `positions` positions that start as the buckets' own weights; false when `id` has some.
    /// Source: CrushWrapper::create_choose_args.
    pub fn create_choose_args(&mut self, id: i64, positions: usize) -> bool {
        if self.choose_args.contains_key(&id) {
            return false;
        }
        let args = self.buckets.iter().map(|slot| match slot {
            Some(b) if b.alg() == Alg::Straw2 => {
                let own: Vec<u32> = b.weighted_items().map(|(_, w)| w).collect();
                ChooseArg { weight_sets: vec![own; positions.max(1)], ids: Vec::new() }
            }
            _ => ChooseArg::default(),
        });
        let args = args.collect();
        self.choose_args.insert(id, ChooseArgMap { args });
        true
    }
}
