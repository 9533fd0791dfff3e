//! The wire form of a file system's map of metadata servers, as 16.2.15 writes it for peers of Nautilus and later.
//!
//! Source: MDSMap::encode, MDSMap::mds_info_t::encode_versioned in src/mds/MDSMap.cc.

use std::collections::{BTreeMap, BTreeSet};

use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::{AddrVec, CompatSet, Epoch, Utime};

use crate::mdsmap::{MdsInfo, MdsMap, MdsState, NO_RANK};

/// The version of what follows the parts that kernels read.
const EXTENDED: u16 = 16;

impl Encode for MdsState {
    fn encode(&self, w: &mut Writer) {
        w.i32(self.0);
    }
}
impl Decode for MdsState {
    const MIN_SIZE: usize = 4;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.i32().map(Self)
    }
}

impl Encode for MdsInfo {
    fn encode(&self, w: &mut Writer) {
        w.envelope(10, 4, |w| {
            w.u64(self.gid);
            self.name.encode(w);
            w.i32(self.rank);
            w.i32(self.inc);
            self.state.encode(w);
            w.u64(self.state_seq);
            self.addrs.encode(w);
            self.laggy_since.encode(w);
            // The rank and the name that a daemon stood by for.
            w.i32(NO_RANK);
            w.u32(0);
            self.export_targets.encode(w);
            w.u64(self.features);
            w.i32(self.join_fscid);
            // It once said that it wants to follow a journal.
            false.encode(w);
            w.u64(self.flags);
            self.compat.encode(w);
        });
    }
}
impl Decode for MdsInfo {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("mds_info_t", 10, |r, env| {
            if env.version < 8 {
                return Err(DecodeError::Invalid { what: "mds_info_t version", value: env.version.into() });
            }
            let mut info = Self {
                gid: r.u64()?,
                name: String::decode(r)?,
                rank: r.i32()?,
                inc: r.i32()?,
                state: MdsState::decode(r)?,
                state_seq: r.u64()?,
                addrs: AddrVec::decode(r)?,
                laggy_since: Utime::decode(r)?,
                ..Self::default()
            };
            r.skip(4)?;
            String::decode(r)?;
            info.export_targets = Decode::decode(r)?;
            info.features = r.u64()?;
            info.join_fscid = r.i32()?;
            bool::decode(r)?;
            if env.version >= 9 {
                info.flags = r.u64()?;
            }
            info.compat = if env.version >= 10 { Decode::decode(r)? } else { CompatSet::base() };
            Ok(info)
        })
    }
}

impl Encode for MdsMap {
    fn encode(&self, w: &mut Writer) {
        w.envelope(5, 4, |w| {
            self.epoch.encode(w);
            w.u32(self.flags);
            self.last_failure.encode(w);
            w.i32(self.root);
            w.u32(self.session_timeout);
            w.u32(self.session_autoclose);
            w.u64(self.max_file_size);
            w.i32(self.max_mds);
            self.info.encode(w);
            self.data_pools.encode(w);
            w.i64(self.cas_pool);
            w.u16(EXTENDED);
            self.compat.encode(w);
            w.i64(self.metadata_pool);
            self.created.encode(w);
            self.modified.encode(w);
            w.i32(self.tableserver);
            self.r#in.encode(w);
            // Monitors of old had an incarnation for each rank.
            let incarnation = i32::try_from(self.epoch.0).unwrap_or(i32::MAX);
            let incarnations: BTreeMap<i32, i32> = self.r#in.iter().map(|r| (*r, incarnation)).collect();
            incarnations.encode(w);
            self.up.encode(w);
            self.failed.encode(w);
            self.stopped.encode(w);
            self.last_failure_osd_epoch.encode(w);
            w.u8(self.ever_allowed_features);
            w.u8(self.explicitly_allowed_features);
            self.inline_data.encode(w);
            self.enabled.encode(w);
            self.fs_name.encode(w);
            self.damaged.encode(w);
            self.balancer.encode(w);
            w.i32(self.standby_count_wanted);
            w.i32(self.old_max_mds);
            // The oldest release of clients, before features took its place.
            w.u8(0);
            self.required_client_features.encode(w);
        });
    }
}
/// Reads the forms since Nautilus.
impl Decode for MdsMap {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("MDSMap", 5, |r, env| {
            if env.version < 5 {
                return Err(DecodeError::Invalid { what: "MDSMap version", value: env.version.into() });
            }
            let mut map = Self {
                epoch: Epoch::decode(r)?,
                flags: r.u32()?,
                last_failure: Epoch::decode(r)?,
                root: r.i32()?,
                session_timeout: r.u32()?,
                session_autoclose: r.u32()?,
                max_file_size: r.u64()?,
                max_mds: r.i32()?,
                info: Decode::decode(r)?,
                data_pools: Decode::decode(r)?,
                cas_pool: r.i64()?,
                ..Self::default()
            };
            let extended = r.u16()?;
            if extended < EXTENDED {
                return Err(DecodeError::Invalid { what: "MDSMap extension", value: extended.into() });
            }
            decode_extended(&mut map, r)?;
            Ok(map)
        })
    }
}

fn decode_extended(map: &mut MdsMap, r: &mut Reader) -> Result<(), DecodeError> {
    map.compat = Decode::decode(r)?;
    map.metadata_pool = r.i64()?;
    map.created = Decode::decode(r)?;
    map.modified = Decode::decode(r)?;
    map.tableserver = r.i32()?;
    map.r#in = Decode::decode(r)?;
    BTreeMap::<i32, i32>::decode(r)?;
    map.up = Decode::decode(r)?;
    map.failed = Decode::decode(r)?;
    map.stopped = Decode::decode(r)?;
    map.last_failure_osd_epoch = Decode::decode(r)?;
    map.ever_allowed_features = r.u8()?;
    map.explicitly_allowed_features = r.u8()?;
    map.inline_data = Decode::decode(r)?;
    map.enabled = Decode::decode(r)?;
    map.fs_name = Decode::decode(r)?;
    map.damaged = BTreeSet::decode(r)?;
    map.balancer = Decode::decode(r)?;
    map.standby_count_wanted = r.i32()?;
    map.old_max_mds = r.i32()?;
    r.skip(1)?;
    map.required_client_features = Decode::decode(r)?;
    Ok(())
}
