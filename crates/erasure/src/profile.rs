//! The key and value words of `osd erasure-code-profile set`, checked as Ceph 16.2 checks them.
//!
//! Reading a profile fills its gaps: [`Profile::values`] is what Ceph's monitor would store. Beyond Ceph's
//! own checks it refuses what Ceph's plug-ins accept and then cannot do (no room for packets, parity laid
//! over data, a chunk that no layer makes), and what this crate does not have; each refusal says which.
//!
//! Source: OSDMonitor::normalize_profile, prepare_pool_stripe_width, ErasureCode::init, and the `parse` of
//! each plug-in.

mod lrc;
mod lrc_json;
mod plain;
mod values;

use std::collections::BTreeMap;

use crate::error::ProfileError;
use values::Values;

pub(crate) use lrc::{Layer, Layers};
pub(crate) use plain::{Plain, Technique};

/// The largest stripe_unit, in bytes.
const MAX_STRIPE_UNIT: i64 = 16 << 20;

/// Keys that a plug-in or the rule of placement knows, of all plug-ins: Ceph's own commands leave those of
/// another technique in a profile. `directory` is from before 0.94 and has no effect.
const KEYS: &[&str] = &[
    "c",
    "crush-device-class",
    "crush-failure-domain",
    "crush-locality",
    "crush-root",
    "crush-steps",
    "d",
    "directory",
    "jerasure-per-chunk-alignment",
    "k",
    "l",
    "layers",
    "m",
    "mapping",
    "packetsize",
    "plugin",
    "scalar_mds",
    "stripe_unit",
    "technique",
    "w",
];

/// A profile that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    values: BTreeMap<String, String>,
    pub(crate) scheme: Scheme,
    placement: Placement,
    stripe_unit: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scheme {
    Plain(Plain),
    Layered(Layers),
}

/// How the chunks of an object are spread: what a CRUSH rule is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// One chunk in each bucket of a type. Source: ErasureCode::create_rule.
    Simple { root: String, failure_domain: String, device_class: String },
    /// Steps in order between taking the root and the end. Source: ErasureCodeLrc::create_rule.
    Steps { root: String, device_class: String, steps: Vec<PlacementStep> },
}

/// `choose` or `chooseleaf` so many buckets of a type; 0 stands for as many as are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacementStep {
    pub leaf: bool,
    pub bucket_type: String,
    pub count: i32,
}

impl Profile {
    /// Reads what is stored, or about to be. Keys that are not known are left alone.
    pub fn new(values: &BTreeMap<String, String>) -> Result<Self, ProfileError> {
        let mut values = Values(values.clone());
        let plugin =
            values.get("plugin").ok_or_else(|| ProfileError::NoPlugin(values.to_string()))?.to_owned();
        let (scheme, steps) = match plugin.as_str() {
            "jerasure" => (Scheme::Plain(plain::jerasure(&mut values)?), None),
            "isa" => (Scheme::Plain(plain::isa(&mut values)?), None),
            "lrc" => {
                let (layers, steps) = lrc::parse(&mut values)?;
                (Scheme::Layered(layers), Some(steps))
            }
            other => return Err(no_such_plugin(other)),
        };
        let root = values.text("crush-root", "default");
        let failure_domain = values.text("crush-failure-domain", "host");
        let device_class = values.text("crush-device-class", "");
        let placement = match steps {
            None => Placement::Simple { root, failure_domain, device_class },
            Some(steps) => Placement::Steps { root, device_class, steps },
        };
        let stripe_unit = values.get("stripe_unit").map(stripe_unit).transpose()?;
        Ok(Self { values: values.0, scheme, placement, stripe_unit })
    }

    /// Reads what an operator gives: as [`Profile::new`], and every key has to be known, and a `stripe_unit`
    /// has to be a whole number of alignments, of 4,096 bytes too unless `force`.
    pub fn checked(values: &BTreeMap<String, String>, force: bool) -> Result<Self, ProfileError> {
        let profile = Self::new(values)?;
        if let Some(key) = values.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(ProfileError::UnknownKey(key.clone()));
        }
        if let Some(unit) = profile.stripe_unit {
            let padded = profile.chunk_size_of_unit(unit);
            if padded != u64::from(unit) {
                return Err(ProfileError::StripeUnitAlignment { unit, padded });
            }
            if unit % 4096 != 0 && !force {
                return Err(ProfileError::StripeUnitPages);
            }
        }
        Ok(profile)
    }

    /// The words with every gap filled, as Ceph stores them.
    pub fn values(&self) -> &BTreeMap<String, String> {
        &self.values
    }

    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// `k`: chunks that hold data, at most [`crate::MAX_CHUNKS`] less one.
    pub fn data_chunks(&self) -> usize {
        match &self.scheme {
            Scheme::Plain(plain) => plain.k,
            Scheme::Layered(layers) => layers.data.len(),
        }
    }

    /// All chunks, at most [`crate::MAX_CHUNKS`]: the size of a pool.
    pub fn chunks(&self) -> usize {
        match &self.scheme {
            Scheme::Plain(plain) => plain.k + plain.m,
            Scheme::Layered(layers) => layers.chunks,
        }
    }

    /// The positions of data chunks in the order of the data. Source: ErasureCode::to_mapping.
    pub(crate) fn data_positions(&self) -> Vec<usize> {
        match &self.scheme {
            Scheme::Plain(plain) => (0..plain.k).collect(),
            Scheme::Layered(layers) => layers.data.clone(),
        }
    }

    /// Bytes of each chunk of a stripe with `bytes` of data, which may be padded. Source: get_chunk_size of
    /// each plug-in.
    pub fn chunk_size(&self, bytes: u32) -> u64 {
        self.first_layer().chunk_size(bytes.into())
    }

    /// Bytes of data in each stripe of a pool: `default_unit` (osd_pool_erasure_code_stripe_unit) or the
    /// profile's own stripe_unit from each data chunk, padded. Source: OSDMonitor::prepare_pool_stripe_width.
    pub fn stripe_width(&self, default_unit: u32) -> Result<u32, ProfileError> {
        let chunk = self.chunk_size_of_unit(self.stripe_unit.unwrap_or(default_unit));
        u32::try_from(chunk.saturating_mul(self.data_chunks() as u64))
            .map_err(|_| ProfileError::StripeTooWide)
    }

    fn chunk_size_of_unit(&self, unit: u32) -> u64 {
        self.first_layer().chunk_size(u64::from(unit) * self.data_chunks() as u64)
    }

    /// The code that says how large chunks are.
    fn first_layer(&self) -> &Plain {
        match &self.scheme {
            Scheme::Plain(plain) => plain,
            Scheme::Layered(layers) => &layers.first,
        }
    }
}

fn no_such_plugin(name: &str) -> ProfileError {
    let (family, instead) = match name.split('_').next().unwrap_or_default() {
        "shec" => ("shec", "choose jerasure or isa, or lrc for cheaper recovery"),
        "clay" => ("clay", "choose jerasure or isa, or lrc for cheaper recovery"),
        // jerasure_generic, jerasure_sse3, jerasure_sse4, jerasure_neon: the processor is found out here.
        "jerasure" => ("jerasure", "choose plugin=jerasure, which finds out what the processor has"),
        _ => return ProfileError::UnknownPlugin(name.to_owned()),
    };
    let is_legacy = name != family;
    let what = if is_legacy { format!("plugin={name}") } else { format!("plugin={family}") };
    ProfileError::Unsupported { what, instead }
}

fn stripe_unit(text: &str) -> Result<u32, ProfileError> {
    let unit = admin::units::parse_iec(text)
        .map_err(|reason| ProfileError::StripeUnitNumber { value: text.to_owned(), reason })?;
    match u32::try_from(unit) {
        Ok(bytes) if (1..=MAX_STRIPE_UNIT).contains(&unit) => Ok(bytes),
        _ => Err(ProfileError::StripeUnitRange(unit)),
    }
}
