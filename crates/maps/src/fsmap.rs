//! The map of file systems, as far as a cluster without any has one: epoch, flags, and what a metadata server must know.
//!
//! Source: FSMap::encode, dump and print in src/mds/FSMap.cc; src/include/CompatSet.h.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use codec::{Decode, DecodeError, Encode, Reader, Writer};
use serde_json::{Value, json};
use types::Epoch;

use crate::json::object;

/// Named feature numbers, each from 1 to 63.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeatureSet(pub BTreeMap<u64, String>);

/// What a reader may, should and must know. Source: CompatSet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CompatSet {
    pub compat: FeatureSet,
    pub ro_compat: FeatureSet,
    pub incompat: FeatureSet,
}

codec::wire_plain!(CompatSet { compat, ro_compat, incompat });

impl Encode for FeatureSet {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.0.keys().filter_map(|n| 1u64.checked_shl(u32::try_from(*n).ok()?)).fold(0, |m, b| m | b));
        self.0.encode(w);
    }
}
impl Decode for FeatureSet {
    const MIN_SIZE: usize = 12;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        // The mask repeats what the names say.
        r.skip(8)?;
        let names: BTreeMap<u64, String> = Decode::decode(r)?;
        match names.keys().find(|n| !(1..64).contains(*n)) {
            Some(n) => Err(DecodeError::Invalid { what: "feature number", value: *n }),
            None => Ok(Self(names)),
        }
    }
}

impl FeatureSet {
    fn dump(&self) -> Value {
        object(self.0.iter().map(|(n, name)| (format!("feature_{n}"), Value::from(name.as_str()))))
    }
}
impl std::fmt::Display for FeatureSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pairs: Vec<String> = self.0.iter().map(|(n, name)| format!("{n}={name}")).collect();
        write!(f, "{{{}}}", pairs.join(","))
    }
}

/// The map of a cluster without file systems and metadata servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsMap {
    pub epoch: Epoch,
    pub next_filesystem_id: u64,
    /// The file system of clients that name none; -1 for none.
    pub legacy_client_fscid: i32,
    pub compat: CompatSet,
    pub enable_multiple: bool,
    pub ever_enabled_multiple: bool,
}

impl FsMap {
    /// What a new 16.2 cluster starts with. Source: get_mdsmap_compat_set_default in src/mds/MDSMap.cc.
    pub fn initial() -> Self {
        let names = [
            (1, "base v0.20"),
            (2, "client writeable ranges"),
            (3, "default file layouts on dirs"),
            (4, "dir inode in separate object"),
            (5, "mds uses versioned encoding"),
            (6, "dirfrag is stored in omap"),
            (8, "no anchor table"),
            (9, "file layout v2"),
            (10, "snaprealm v2"),
        ];
        let incompat = FeatureSet(names.into_iter().map(|(n, s)| (n, s.to_owned())).collect());
        Self {
            epoch: Epoch(1),
            next_filesystem_id: 1,
            legacy_client_fscid: -1,
            compat: CompatSet { incompat, ..CompatSet::default() },
            enable_multiple: true,
            ever_enabled_multiple: true,
        }
    }

    /// `ceph fs dump --format json`.
    pub fn dump(&self) -> Value {
        json!({
            "epoch": self.epoch.0,
            "default_fscid": self.legacy_client_fscid,
            "compat": {
                "compat": self.compat.compat.dump(),
                "ro_compat": self.compat.ro_compat.dump(),
                "incompat": self.compat.incompat.dump(),
            },
            "feature_flags": {
                "enable_multiple": self.enable_multiple,
                "ever_enabled_multiple": self.ever_enabled_multiple,
            },
            "standbys": [],
            "filesystems": [],
        })
    }

    /// `ceph fs dump`.
    pub fn print(&self) -> String {
        let c = &self.compat;
        let mut out = format!("e{}\n", self.epoch);
        let flags = (u8::from(self.enable_multiple), u8::from(self.ever_enabled_multiple));
        let _ = writeln!(out, "enable_multiple, ever_enabled_multiple: {},{}", flags.0, flags.1);
        let _ = writeln!(
            out,
            "default compat: compat={},rocompat={},incompat={}",
            c.compat, c.ro_compat, c.incompat
        );
        let _ =
            writeln!(out, "legacy client fscid: {}\n \nNo filesystems configured", self.legacy_client_fscid);
        out
    }

    /// The `fsmap` part of `ceph status --format json`. Source: FSMap::print_summary.
    pub fn dump_summary(&self) -> Value {
        json!({ "epoch": self.epoch.0, "by_rank": [], "up:standby": 0 })
    }
}

impl Encode for FsMap {
    fn encode(&self, w: &mut Writer) {
        w.envelope(7, 6, |w| {
            self.epoch.encode(w);
            w.u64(self.next_filesystem_id);
            w.i32(self.legacy_client_fscid);
            self.compat.encode(w);
            self.enable_multiple.encode(w);
            // No file systems, no daemons with roles, no standby daemons, no epochs of those.
            (0..4).for_each(|_| w.u32(0));
            self.ever_enabled_multiple.encode(w);
        });
    }
}

/// Refuses maps with file systems or metadata servers, for their contents would be lost.
impl Decode for FsMap {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("FSMap", 7, |r, env| {
            if env.version < 7 {
                return Err(DecodeError::Invalid { what: "FSMap version", value: env.version.into() });
            }
            let (epoch, next_filesystem_id, legacy_client_fscid) = (Epoch::decode(r)?, r.u64()?, r.i32()?);
            let (compat, enable_multiple) = (CompatSet::decode(r)?, bool::decode(r)?);
            for what in ["FSMap file systems", "FSMap roles", "FSMap standbys", "FSMap standby epochs"] {
                let n = r.u32()?;
                if n != 0 {
                    return Err(DecodeError::Invalid { what, value: n.into() });
                }
            }
            let ever_enabled_multiple = bool::decode(r)?;
            Ok(Self {
                epoch,
                next_filesystem_id,
                legacy_client_fscid,
                compat,
                enable_multiple,
                ever_enabled_multiple,
            })
        })
    }
}
