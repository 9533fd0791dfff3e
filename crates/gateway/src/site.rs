//! The zone that a gateway works in, and what operations are given from outside.

use std::sync::Arc;

use bytes::Bytes;
use rgw::{PlacementPools, PlacementRule, Pool, Zone};
use types::{Entropy, RealTime};

use crate::Error;

/// Objects that gateways tell each other of changes by. Source: rgw_num_control_oids in
/// src/common/options.cc.
pub(crate) const NOTICES: u32 = 8;

/// Letters of made-up texts. Source: alphanum_table in src/common/random_string.cc (gen_rand_alphanumeric).
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

#[derive(Debug, Clone)]
pub struct Site {
    pub zone: Arc<Zone>,
    /// The zone group's id.
    pub zonegroup: Bytes,
    /// What the zone group takes for buckets that ask for nothing.
    pub default_placement: PlacementRule,
    /// Index shards of new buckets.
    pub shards: u32,
    /// Number of this gateway's client in the cluster: no other has it.
    pub instance: u64,
}

/// What is new with each operation: the time, and texts that nobody else makes.
pub struct Moment<'a> {
    pub now: RealTime,
    pub entropy: &'a mut dyn Entropy,
}

impl Moment<'_> {
    /// Made-up letters.
    pub fn letters(&mut self, count: usize) -> Bytes {
        let mut bytes = vec![0; count];
        self.entropy.fill(&mut bytes);
        bytes.iter().map(|b| LETTERS.get(usize::from(b & 63)).copied().unwrap_or(b'A')).collect()
    }

    /// Made-up digits and small letters. Source: gen_rand_alphanumeric_lower in src/common/random_string.cc.
    pub(crate) fn lower_letters(&mut self, count: usize) -> Bytes {
        let mut bytes = vec![0; count];
        self.entropy.fill(&mut bytes);
        let letter = |b: &u8| std::char::from_digit(u32::from(*b) % 36, 36).map_or(b'0', |c| c as u8);
        bytes.iter().map(letter).collect()
    }

    /// An object's version. Source: gen_rand_obj_instance_name in src/rgw/rgw_rados.cc, of letters without
    /// underscores.
    pub(crate) fn version_id(&mut self) -> Bytes {
        self.letters(31).iter().map(|b| if *b == b'_' { b'.' } else { *b }).collect()
    }

    /// Tag of a version. Source: RGWObjVersionTracker::generate_new_write_ver in src/rgw/rgw_common.cc.
    pub fn version_tag(&mut self) -> Bytes {
        [b"_", &self.letters(23)[..]].concat().into()
    }
}

impl Site {
    /// A text that no other gateway and no other request has.
    pub fn unique(&self, number: u64) -> Bytes {
        let Self { zone, instance, .. } = self;
        [&zone.id[..], format!(".{instance}.{number}").as_bytes()].concat().into()
    }

    pub(crate) fn placement(&self, rule: &PlacementRule) -> Result<&PlacementPools, Error> {
        self.zone.placement.get(&rule.name).ok_or(Error::NoSuchPlacement)
    }

    pub(crate) fn index_pool(&self, rule: &PlacementRule) -> Result<Pool, Error> {
        Ok(self.placement(rule)?.index.clone())
    }

    /// The object by which gateways tell each other that `pool` and `oid` changed. Source:
    /// RGWSI_Notify::pick_control_obj.
    pub(crate) fn notice_oid(pool: &Pool, oid: &Bytes) -> Bytes {
        let name = [&pool.name[..], b"+", &pool.namespace, b"+", oid].concat();
        format!("notify.{}", crush::str_hash_linux(&name) % NOTICES).into()
    }
}
