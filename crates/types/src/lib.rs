//! Ids, names, versions, addresses and feature bits that every part of Loligo shares, with their wire forms.
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod addr;
mod compat_set;
mod entity;
mod errno;
mod feature_bits;
pub mod features;
mod hobject;
mod ids;
mod intervals;
mod locator;
mod name;
mod outside;
mod pgid;
mod planted;
mod printable;
mod snap;
mod time;
mod version;

pub use addr::{AddrKind, AddrVec, EntityAddr};
pub use compat_set::{CompatSet, FeatureSet, INLINE_DATA};
pub use entity::{AuthName, EntityInst, EntityName, EntityType, ReqId};
pub use errno::Errno;
pub use feature_bits::FeatureBits;
pub use hobject::HObject;
pub use ids::{Epoch, Fsid, GlobalId, Ino, OsdId, PoolId};
pub use intervals::{InoSet, Intervals, SnapIntervals};
pub use locator::{ObjectLocator, RequestRedirect};
pub use name::Name;
pub use outside::{ConnId, Entropy, Now, SeededEntropy};
pub use pgid::{PgId, PgShard, SpgId};
pub use printable::printable;
pub use snap::{SnapContext, SnapId};
pub use time::{RealTime, Utime};
pub use version::Eversion;
