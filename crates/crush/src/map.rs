//! The map's data: buckets, rules, names, tunables, device classes, weight sets.

use std::collections::BTreeMap;

/// "No device here": a hole in the result of an indep rule. Source: src/crush/crush.h.
pub const ITEM_NONE: i32 = 0x7fff_ffff;
/// A position not chosen yet; never leaves the mapper.
pub const ITEM_UNDEF: i32 = 0x7fff_fffe;
/// The weight sets used when none exist for the id asked for. Source: src/crush/CrushWrapper.h.
pub const DEFAULT_CHOOSE_ARGS: i64 = -1;

/// A CRUSH map. Every field is plain data; [`CrushMap::validate`] tells whether the parts fit together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CrushMap {
    /// The bucket with id `-1 - i` stands at index `i`; a free slot is `None`.
    pub buckets: Vec<Option<Bucket>>,
    /// The rule with id `i` stands at index `i`.
    pub rules: Vec<Option<Rule>>,
    /// One more than the highest device id known; see [`CrushMap::finalize`].
    pub max_devices: i32,
    /// Names of the levels of the hierarchy; type 0 is the device.
    pub type_names: BTreeMap<i32, String>,
    /// Names of buckets and devices; shadow buckets are called `bucket~class`.
    pub item_names: BTreeMap<i32, String>,
    pub rule_names: BTreeMap<i32, String>,
    pub tunables: Tunables,
    /// Device class id of each item that has one. Shadow buckets have one as well.
    pub device_classes: BTreeMap<i32, i32>,
    pub class_names: BTreeMap<i32, String>,
    /// Shadow bucket for each bucket and class: `class_buckets[bucket][class]`.
    pub class_buckets: BTreeMap<i32, BTreeMap<i32, i32>>,
    /// Replacement weights by pool id, or [`DEFAULT_CHOOSE_ARGS`].
    pub choose_args: BTreeMap<i64, ChooseArgMap>,
}

/// An inner node of the hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// Below 0.
    pub id: i32,
    /// The level, above 0; named in [`CrushMap::type_names`].
    pub type_id: u16,
    /// The hash function: 0 is rjenkins1, the only one there is.
    pub hash: u8,
    /// Sum of the items' weights, 16.16.
    pub weight: u32,
    /// Children: devices (from 0) and buckets (below 0).
    pub items: Vec<i32>,
    /// The selection algorithm and its per-item data.
    pub data: BucketData,
}

/// Per-item data of a bucket, by selection algorithm. All weights are 16.16; lists run parallel to the items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BucketData {
    Uniform {
        item_weight: u32,
    },
    List {
        item_weights: Vec<u32>,
        /// Sum of the weights up to and including each item.
        sum_weights: Vec<u32>,
    },
    /// Weights of an implicit binary tree's nodes; item `i` is node `2i + 1`.
    Tree {
        node_weights: Vec<u32>,
    },
    Straw {
        item_weights: Vec<u32>,
        straws: Vec<u32>,
    },
    Straw2 {
        item_weights: Vec<u32>,
    },
}

/// Bucket selection algorithms, with their wire numbers. Source: enum crush_algorithm in src/crush/crush.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Alg {
    Uniform = 1,
    List = 2,
    Tree = 3,
    Straw = 4,
    Straw2 = 5,
}

/// How to turn an input into devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Legacy ruleset number; equals the rule's id in maps made since Luminous.
    pub ruleset: u8,
    /// The pool type served: 1 replicated, 3 erasure.
    pub rule_type: u8,
    pub min_size: u8,
    pub max_size: u8,
    pub steps: Vec<Step>,
}

/// One step of a rule. Kept raw so that steps of newer releases survive a round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub op: u32,
    pub arg1: i32,
    pub arg2: i32,
}

/// Knobs of the placement function. Source: src/crush/crush.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunables {
    pub choose_local_tries: u32,
    pub choose_local_fallback_tries: u32,
    /// Retries of a whole descent; the tries are one more.
    pub choose_total_tries: u32,
    pub chooseleaf_descend_once: u32,
    pub chooseleaf_vary_r: u8,
    pub chooseleaf_stable: u8,
    pub straw_calc_version: u8,
    /// Bit `1 << alg` for each algorithm that new buckets may use.
    pub allowed_bucket_algs: u32,
}

/// Replacement weights and ids of a whole map, by bucket index; short or empty entries mean "as in the bucket".
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChooseArgMap {
    /// Entry `i` is for the bucket with id `-1 - i`.
    pub args: Vec<ChooseArg>,
}

/// Replacements for one straw2 bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChooseArg {
    /// Weights (16.16) by position in the result, then by item; positions beyond the last use the last.
    pub weight_sets: Vec<Vec<u32>>,
    /// Ids fed to the hash instead of the items; empty for none.
    pub ids: Vec<i32>,
}

impl ChooseArg {
    pub fn is_empty(&self) -> bool {
        self.weight_sets.is_empty() && self.ids.is_empty()
    }
}

impl ChooseArgMap {
    /// The replacements for bucket `id`, when there are any.
    pub fn get(&self, id: i32) -> Option<&ChooseArg> {
        self.args.get(CrushMap::bucket_index(id)?).filter(|a| !a.is_empty())
    }

    /// Result positions the weight sets distinguish. Source: CrushWrapper::get_choose_args_positions.
    pub fn positions(&self) -> usize {
        self.args.iter().map(|a| a.weight_sets.len()).find(|n| *n > 0).unwrap_or(1)
    }
}

impl Alg {
    pub fn from_wire(alg: u32) -> Option<Self> {
        Some(match alg {
            1 => Self::Uniform,
            2 => Self::List,
            3 => Self::Tree,
            4 => Self::Straw,
            5 => Self::Straw2,
            _ => return None,
        })
    }

    /// The name in text forms.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::List => "list",
            Self::Tree => "tree",
            Self::Straw => "straw",
            Self::Straw2 => "straw2",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Uniform, Self::List, Self::Tree, Self::Straw, Self::Straw2]
            .into_iter()
            .find(|a| a.name() == name)
    }

    /// The bit in [`Tunables::allowed_bucket_algs`].
    pub fn bit(self) -> u32 {
        1 << self as u32
    }
}

impl Bucket {
    pub fn alg(&self) -> Alg {
        match self.data {
            BucketData::Uniform { .. } => Alg::Uniform,
            BucketData::List { .. } => Alg::List,
            BucketData::Tree { .. } => Alg::Tree,
            BucketData::Straw { .. } => Alg::Straw,
            BucketData::Straw2 { .. } => Alg::Straw2,
        }
    }

    /// Weight (16.16) of the item at `pos`; 0 behind the end.
    pub fn item_weight(&self, pos: usize) -> u32 {
        if pos >= self.items.len() {
            return 0;
        }
        let w = match &self.data {
            BucketData::Uniform { item_weight } => Some(item_weight),
            BucketData::List { item_weights, .. }
            | BucketData::Straw { item_weights, .. }
            | BucketData::Straw2 { item_weights } => item_weights.get(pos),
            BucketData::Tree { node_weights } => node_weights.get(2 * pos + 1),
        };
        w.copied().unwrap_or(0)
    }

    /// Items with their weights (16.16), in order.
    pub fn weighted_items(&self) -> impl Iterator<Item = (i32, u32)> + '_ {
        self.items.iter().enumerate().map(|(i, item)| (*item, self.item_weight(i)))
    }

    pub fn position(&self, item: i32) -> Option<usize> {
        self.items.iter().position(|i| *i == item)
    }
}

/// Step numbers. Source: enum crush_opcodes in src/crush/crush.h.
impl Step {
    pub const NOOP: u32 = 0;
    pub const TAKE: u32 = 1;
    pub const CHOOSE_FIRSTN: u32 = 2;
    pub const CHOOSE_INDEP: u32 = 3;
    pub const EMIT: u32 = 4;
    pub const CHOOSELEAF_FIRSTN: u32 = 6;
    pub const CHOOSELEAF_INDEP: u32 = 7;
    pub const SET_CHOOSE_TRIES: u32 = 8;
    pub const SET_CHOOSELEAF_TRIES: u32 = 9;
    pub const SET_CHOOSE_LOCAL_TRIES: u32 = 10;
    pub const SET_CHOOSE_LOCAL_FALLBACK_TRIES: u32 = 11;
    pub const SET_CHOOSELEAF_VARY_R: u32 = 12;
    pub const SET_CHOOSELEAF_STABLE: u32 = 13;

    pub const fn new(op: u32, arg1: i32, arg2: i32) -> Self {
        Self { op, arg1, arg2 }
    }

    /// Starts at `item`.
    pub fn take(item: i32) -> Self {
        Self::new(Self::TAKE, item, 0)
    }

    pub fn emit() -> Self {
        Self::new(Self::EMIT, 0, 0)
    }
}

impl Tunables {
    const STRAW2_ALGS: u32 = 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5;
    const LEGACY_ALGS: u32 = 1 << 1 | 1 << 2 | 1 << 4;

    /// The oldest behaviour, and what a map without tunables means. `argonaut` alone keeps the straw version.
    pub const LEGACY: Self = Self {
        choose_local_tries: 2,
        choose_local_fallback_tries: 5,
        choose_total_tries: 19,
        chooseleaf_descend_once: 0,
        chooseleaf_vary_r: 0,
        chooseleaf_stable: 0,
        straw_calc_version: 0,
        allowed_bucket_algs: Self::LEGACY_ALGS,
    };
    pub const BOBTAIL: Self = Self {
        choose_local_tries: 0,
        choose_local_fallback_tries: 0,
        choose_total_tries: 50,
        chooseleaf_descend_once: 1,
        ..Self::LEGACY
    };
    pub const FIREFLY: Self = Self { chooseleaf_vary_r: 1, ..Self::BOBTAIL };
    pub const HAMMER: Self = Self { allowed_bucket_algs: Self::STRAW2_ALGS, ..Self::FIREFLY };
    /// What new clusters have: `optimal` and `default`.
    pub const JEWEL: Self = Self { chooseleaf_stable: 1, straw_calc_version: 1, ..Self::HAMMER };

    /// A profile by its name in `ceph osd crush tunables`. Only legacy, optimal and default set the straw version;
    /// the others keep `self`'s. Source: CrushWrapper::set_tunables_*.
    pub fn with_profile(self, profile: &str) -> Option<Self> {
        let keep = |t: Self| Self { straw_calc_version: self.straw_calc_version, ..t };
        Some(match profile {
            "legacy" => Self::LEGACY,
            "argonaut" => keep(Self::LEGACY),
            "bobtail" => keep(Self::BOBTAIL),
            "firefly" => keep(Self::FIREFLY),
            "hammer" => keep(Self::HAMMER),
            "jewel" => keep(Self::JEWEL),
            "optimal" | "default" => Self::JEWEL,
            _ => return None,
        })
    }

    /// The algorithm new buckets get. Source: CrushWrapper::get_default_bucket_alg.
    pub fn default_bucket_alg(&self) -> Option<Alg> {
        [Alg::Straw2, Alg::Straw, Alg::Tree, Alg::List, Alg::Uniform]
            .into_iter()
            .find(|a| self.allowed_bucket_algs & a.bit() != 0)
    }
}

impl Default for Tunables {
    fn default() -> Self {
        Self::JEWEL
    }
}

impl CrushMap {
    /// Where bucket `id` stands in [`CrushMap::buckets`]; `None` for devices.
    pub fn bucket_index(id: i32) -> Option<usize> {
        if id < 0 { usize::try_from(-1 - i64::from(id)).ok() } else { None }
    }

    /// The id of the bucket at `index`.
    pub fn bucket_id(index: usize) -> i32 {
        i32::try_from(index).map_or(i32::MIN, |i| -1 - i)
    }

    pub fn bucket(&self, id: i32) -> Option<&Bucket> {
        self.buckets.get(Self::bucket_index(id)?)?.as_ref()
    }

    pub fn bucket_mut(&mut self, id: i32) -> Option<&mut Bucket> {
        self.buckets.get_mut(Self::bucket_index(id)?)?.as_mut()
    }

    pub fn rule(&self, id: u32) -> Option<&Rule> {
        self.rules.get(id as usize)?.as_ref()
    }

    /// The weight sets for `id`, else the default ones. Source: CrushWrapper::choose_args_get_with_fallback.
    pub fn choose_args_with_fallback(&self, id: i64) -> Option<&ChooseArgMap> {
        self.choose_args.get(&id).or_else(|| self.choose_args.get(&DEFAULT_CHOOSE_ARGS))
    }
}
