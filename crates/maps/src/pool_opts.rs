//! Optional settings of a pool (`osd pool set` keys that most pools do not have): typed values by key.

use std::collections::BTreeMap;

use codec::{Decode, DecodeError, Encode, Reader, Writer};

/// A value. Source: pool_opts_t::value_t in src/osd/osd_types.h.
#[derive(Debug, Clone, PartialEq)]
pub enum OptValue {
    Str(String),
    Int(i64),
    Double(f64),
}

/// What type a key's value has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptType {
    Str,
    Int,
    Double,
}

/// Every key that 16.2.15 knows: name, number, type; sorted by name, as dumps list them.
/// Source: opt_mapping in src/osd/osd_types.cc.
pub const POOL_OPTS: [(&str, i32, OptType); 24] = [
    ("compression_algorithm", 7, OptType::Str),
    ("compression_max_blob_size", 9, OptType::Int),
    ("compression_min_blob_size", 10, OptType::Int),
    ("compression_mode", 6, OptType::Str),
    ("compression_required_ratio", 8, OptType::Double),
    ("csum_max_block", 12, OptType::Int),
    ("csum_min_block", 13, OptType::Int),
    ("csum_type", 11, OptType::Int),
    ("dedup_cdc_chunk_size", 22, OptType::Int),
    ("dedup_chunk_algorithm", 21, OptType::Str),
    ("dedup_tier", 20, OptType::Int),
    ("deep_scrub_interval", 2, OptType::Double),
    ("fingerprint_algorithm", 14, OptType::Str),
    ("pg_autoscale_bias", 18, OptType::Double),
    ("pg_num_max", 23, OptType::Int),
    ("pg_num_min", 15, OptType::Int),
    ("read_lease_interval", 19, OptType::Double),
    ("recovery_op_priority", 4, OptType::Int),
    ("recovery_priority", 3, OptType::Int),
    ("scrub_max_interval", 1, OptType::Double),
    ("scrub_min_interval", 0, OptType::Double),
    ("scrub_priority", 5, OptType::Int),
    ("target_size_bytes", 16, OptType::Int),
    ("target_size_ratio", 17, OptType::Double),
];

/// Values by key number; keys of newer releases are kept.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PoolOpts {
    values: BTreeMap<i32, OptValue>,
}

impl PoolOpts {
    /// Key number and type of the option called `name`.
    pub fn describe(name: &str) -> Option<(i32, OptType)> {
        POOL_OPTS.iter().find(|(n, _, _)| *n == name).map(|(_, key, kind)| (*key, *kind))
    }

    pub fn get(&self, name: &str) -> Option<&OptValue> {
        self.values.get(&Self::describe(name)?.0)
    }

    /// Sets an option; false when the name is unknown or the value has another type.
    pub fn set(&mut self, name: &str, value: OptValue) -> bool {
        let fits = |kind| {
            matches!(
                (kind, &value),
                (OptType::Str, OptValue::Str(_))
                    | (OptType::Int, OptValue::Int(_))
                    | (OptType::Double, OptValue::Double(_))
            )
        };
        match Self::describe(name) {
            Some((key, kind)) if fits(kind) => {
                self.values.insert(key, value);
                true
            }
            _ => false,
        }
    }

    /// Removes an option; false when it was not set.
    pub fn unset(&mut self, name: &str) -> bool {
        Self::describe(name).is_some_and(|(key, _)| self.values.remove(&key).is_some())
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Names and values of the known options that are set, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &OptValue)> {
        POOL_OPTS.iter().filter_map(|(name, key, _)| self.values.get(key).map(|v| (*name, v)))
    }
}

impl Encode for PoolOpts {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| self.values.encode(w));
    }
}
impl Decode for PoolOpts {
    const MIN_SIZE: usize = 10;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("pool_opts_t", 2, |r, env| {
            let n = r.count("pool options", 12)?;
            let mut values = BTreeMap::new();
            for _ in 0..n {
                let key = r.i32()?;
                let value = match r.i32()? {
                    0 => OptValue::Str(String::decode(r)?),
                    1 if env.version >= 2 => OptValue::Int(r.i64()?),
                    1 => OptValue::Int(r.i32()?.into()),
                    2 => OptValue::Double(f64::decode(r)?),
                    t => {
                        return Err(DecodeError::Invalid {
                            what: "pool option type",
                            value: u64::from(t as u32),
                        });
                    }
                };
                values.insert(key, value);
            }
            Ok(Self { values })
        })
    }
}
impl Encode for OptValue {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Str(s) => {
                w.i32(0);
                s.encode(w);
            }
            Self::Int(i) => {
                w.i32(1);
                w.i64(*i);
            }
            Self::Double(d) => {
                w.i32(2);
                d.encode(w);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_complete() {
        assert!(POOL_OPTS.is_sorted_by_key(|o| o.0));
        let mut keys: Vec<i32> = POOL_OPTS.iter().map(|o| o.1).collect();
        keys.sort_unstable();
        assert_eq!(keys, (0..24).collect::<Vec<_>>());
    }

    #[test]
    fn values_have_the_type_of_their_key() {
        let mut o = PoolOpts::default();
        assert!(o.set("pg_num_min", OptValue::Int(16)));
        assert!(!o.set("pg_num_min", OptValue::Double(1.0)));
        assert!(!o.set("no_such_option", OptValue::Int(1)));
        assert!(o.set("compression_mode", OptValue::Str("force".into())));
        assert_eq!(PoolOpts::from_bytes(o.to_bytes()), Ok(o.clone()));
        assert!(o.unset("pg_num_min") && !o.unset("pg_num_min"));
        assert_eq!(o.iter().map(|(n, _)| n).collect::<Vec<_>>(), ["compression_mode"]);
    }
}
