//! What the OSD map knows of one OSD.

use codec::{Decode, DecodeError, Encode, Reader, Writer};
use types::{AddrVec, Epoch, Fsid, Utime};

use crate::flags::osd_state;

/// Everything of one OSD but its weight and primary affinity, which the mapping wants as plain arrays.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Osd {
    /// Bits of [`osd_state`]; 0 for a number that is not in use.
    pub state: u32,
    pub uuid: Fsid,
    pub info: OsdInfo,
    pub xinfo: OsdXInfo,
    /// Where clients and monitors reach it.
    pub client_addrs: AddrVec,
    pub cluster_addrs: AddrVec,
    pub hb_back_addrs: AddrVec,
    pub hb_front_addrs: AddrVec,
}

impl Osd {
    pub fn exists(&self) -> bool {
        self.state & osd_state::EXISTS != 0
    }
    pub fn is_up(&self) -> bool {
        self.state & (osd_state::EXISTS | osd_state::UP) == osd_state::EXISTS | osd_state::UP
    }
}

/// When an OSD was alive. Source: osd_info_t in src/osd/OSDMap.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OsdInfo {
    /// The last interval that ended with a clean shutdown.
    pub last_clean_begin: Epoch,
    pub last_clean_end: Epoch,
    pub up_from: Epoch,
    /// It surely served until this epoch.
    pub up_thru: Epoch,
    pub down_at: Epoch,
    /// When an operator declared its data lost; 0 for never.
    pub lost_at: Epoch,
}

impl Encode for OsdInfo {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        for e in [
            self.last_clean_begin,
            self.last_clean_end,
            self.up_from,
            self.up_thru,
            self.down_at,
            self.lost_at,
        ] {
            e.encode(w);
        }
    }
}
impl Decode for OsdInfo {
    const MIN_SIZE: usize = 25;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.skip(1)?;
        Ok(Self {
            last_clean_begin: Epoch::decode(r)?,
            last_clean_end: Epoch::decode(r)?,
            up_from: Epoch::decode(r)?,
            up_thru: Epoch::decode(r)?,
            down_at: Epoch::decode(r)?,
            lost_at: Epoch::decode(r)?,
        })
    }
}
impl std::fmt::Display for OsdInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "up_from {} up_thru {} down_at {} last_clean_interval [{},{})",
            self.up_from, self.up_thru, self.down_at, self.last_clean_begin, self.last_clean_end
        )?;
        if self.lost_at.0 != 0 {
            write!(f, " lost_at {}", self.lost_at)?;
        }
        Ok(())
    }
}

/// Further facts about an OSD that clients do not need. Source: osd_xinfo_t in src/osd/OSDMap.h.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct OsdXInfo {
    /// When it was last marked down.
    pub down_stamp: Utime,
    /// 0 for never slow, `u32::MAX` for surely slow: the wire's fixed point form of a probability.
    pub laggy_probability: LaggyProbability,
    /// Seconds between being marked laggy and recovering, on average.
    pub laggy_interval: u32,
    /// Feature bits it booted with.
    pub features: u64,
    /// Weight (16.16) before it was marked out automatically.
    pub old_weight: u32,
    pub last_purged_snaps_scrub: Utime,
    /// The epoch in which it was last known to be dead, not only down.
    pub dead_epoch: Epoch,
}

/// A probability in units of `1 / (2^32 - 1)`.
///
/// Ceph keeps a float and scales it on the wire; the 32-bit form is kept here, rounded as a float would be, so that
/// maps come back byte for byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LaggyProbability(u32);

impl LaggyProbability {
    pub fn from_f32(p: f32) -> Self {
        // `as` saturates: a product that rounds up to 2^32 stays the largest number, where C++ leaves it undefined.
        Self((p * u32::MAX as f32) as u32)
    }
    pub fn as_f32(self) -> f32 {
        self.0 as f32 / u32::MAX as f32
    }
}

impl Encode for OsdXInfo {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 1, |w| {
            self.down_stamp.encode(w);
            w.u32(self.laggy_probability.0);
            w.u32(self.laggy_interval);
            w.u64(self.features);
            w.u32(self.old_weight);
            self.last_purged_snaps_scrub.encode(w);
            self.dead_epoch.encode(w);
        });
    }
}
impl Decode for OsdXInfo {
    const MIN_SIZE: usize = 22;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("osd_xinfo_t", 4, |r, env| {
            let mut x = Self {
                down_stamp: Utime::decode(r)?,
                laggy_probability: LaggyProbability(r.u32()?),
                laggy_interval: r.u32()?,
                ..Self::default()
            };
            // Through the float and back, as a Ceph daemon would send it on.
            x.laggy_probability = LaggyProbability::from_f32(x.laggy_probability.as_f32());
            if env.version >= 2 {
                x.features = r.u64()?;
            }
            if env.version >= 3 {
                x.old_weight = r.u32()?;
            }
            if env.version >= 4 {
                x.last_purged_snaps_scrub = Utime::decode(r)?;
                x.dead_epoch = Epoch::decode(r)?;
            }
            Ok(x)
        })
    }
}
