//! The wire form of the map of all file systems, and of the short one for clients.
//!
//! Source: FSMap::encode, Filesystem::encode, MirrorInfo::encode in src/mds/FSMap.cc; src/mds/FSMapUser.h.

use std::collections::BTreeMap;

use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_struct};
use types::{CompatSet, Epoch};

use crate::fsmap::{Filesystem, FsMap, MirrorInfo, MirrorPeer};
use crate::mdsmap::{FsId, MdsGid, MdsInfo, MdsMap, NO_FS};

wire_struct!(MirrorPeer(1, 1) { client_name, cluster_name, fs_name });

impl Encode for MirrorInfo {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            self.mirrored.encode(w);
            w.count(self.peers.len());
            for (uuid, peer) in &self.peers {
                w.envelope(1, 1, |w| {
                    uuid.encode(w);
                    peer.encode(w);
                });
            }
        });
    }
}
impl Decode for MirrorInfo {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("MirrorInfo", 1, |r, _| {
            let mirrored = bool::decode(r)?;
            let n = r.count("mirror peers", 6)?;
            let peer = |r: &mut Reader| {
                r.envelope("mirror peer", 1, |r, _| Ok((String::decode(r)?, MirrorPeer::decode(r)?)))
            };
            Ok(Self { mirrored, peers: (0..n).map(|_| peer(r)).collect::<Result<_, _>>()? })
        })
    }
}

impl Encode for Filesystem {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.i32(self.fscid);
            w.sized(|w| self.map.encode(w));
            self.mirror.encode(w);
        });
    }
}
impl Decode for Filesystem {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("Filesystem", 2, |r, env| {
            let fscid = r.i32()?;
            let map = MdsMap::from_bytes(r.blob()?)?;
            let mirror = if env.version >= 2 { MirrorInfo::decode(r)? } else { MirrorInfo::default() };
            Ok(Self { fscid, map, mirror })
        })
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
            w.count(self.filesystems.len());
            self.filesystems.values().for_each(|fs| fs.encode(w));
            // Which file system each daemon is in.
            let standbys = self.standbys.keys().map(|gid| (*gid, NO_FS));
            let held =
                self.filesystems.values().flat_map(|fs| fs.map.info.keys().map(|gid| (*gid, fs.fscid)));
            let roles: BTreeMap<MdsGid, FsId> = standbys.chain(held).collect();
            roles.encode(w);
            w.count(self.standbys.len());
            for (gid, (info, _)) in &self.standbys {
                w.u64(*gid);
                info.encode(w);
            }
            w.count(self.standbys.len());
            for (gid, (_, epoch)) in &self.standbys {
                w.u64(*gid);
                epoch.encode(w);
            }
            self.ever_enabled_multiple.encode(w);
        });
    }
}

/// Refuses what does not hold together.
impl Decode for FsMap {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("FSMap", 7, |r, env| {
            if env.version < 7 {
                return Err(DecodeError::Invalid { what: "FSMap version", value: env.version.into() });
            }
            let (epoch, next_filesystem_id, legacy_client_fscid) = (Epoch::decode(r)?, r.u64()?, r.i32()?);
            let (compat, enable_multiple) = (CompatSet::decode(r)?, bool::decode(r)?);
            let list: Vec<Filesystem> = Decode::decode(r)?;
            let count = list.len();
            let filesystems: BTreeMap<FsId, Filesystem> = list.into_iter().map(|fs| (fs.fscid, fs)).collect();
            let roles: BTreeMap<MdsGid, FsId> = Decode::decode(r)?;
            let infos: BTreeMap<MdsGid, MdsInfo> = Decode::decode(r)?;
            let epochs: BTreeMap<MdsGid, Epoch> = Decode::decode(r)?;
            let of = |gid: &MdsGid| epochs.get(gid).copied().unwrap_or_default();
            let standbys = infos.into_iter().map(|(gid, info)| (gid, (info, of(&gid)))).collect();
            let map = Self {
                epoch,
                next_filesystem_id,
                legacy_client_fscid,
                compat,
                enable_multiple,
                filesystems,
                standbys,
                ever_enabled_multiple: bool::decode(r)?,
            };
            let agree = roles.iter().all(|(gid, fscid)| match map.filesystems.get(fscid) {
                Some(fs) => fs.map.info.contains_key(gid),
                None => *fscid == NO_FS && map.standbys.contains_key(gid),
            });
            let whole = count == map.filesystems.len() && epochs.len() == map.standbys.len();
            if !agree || !whole || roles.len() != map.daemons().count() || map.check().is_err() {
                return Err(DecodeError::Invalid { what: "FSMap roles", value: roles.len() as u64 });
            }
            Ok(map)
        })
    }
}

/// The names of file systems, for clients.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FsMapUser {
    pub epoch: Epoch,
    pub legacy_client_fscid: FsId,
    pub names: BTreeMap<FsId, String>,
}

impl FsMapUser {
    pub fn of(map: &FsMap) -> Self {
        let names = map.filesystems.iter().map(|(id, fs)| (*id, fs.map.fs_name.clone()));
        Self { epoch: map.epoch, legacy_client_fscid: map.legacy_client_fscid, names: names.collect() }
    }
}

impl Encode for FsMapUser {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            self.epoch.encode(w);
            w.i32(self.legacy_client_fscid);
            w.count(self.names.len());
            for (id, name) in &self.names {
                w.envelope(1, 1, |w| {
                    w.i32(*id);
                    name.encode(w);
                });
            }
        });
    }
}
impl Decode for FsMapUser {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("FSMapUser", 1, |r, _| {
            let (epoch, legacy_client_fscid) = (Epoch::decode(r)?, r.i32()?);
            let n = r.count("file systems", 6)?;
            let one = |r: &mut Reader| r.envelope("fs_info_t", 1, |r, _| Ok((r.i32()?, String::decode(r)?)));
            Ok(Self { epoch, legacy_client_fscid, names: (0..n).map(|_| one(r)).collect::<Result<_, _>>()? })
        })
    }
}
