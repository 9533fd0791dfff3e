//! What an image's header says: read at once, read again when somebody changed it.

use bytes::Bytes;
use codec::{Decode, Encode};
use rados::{IoCtx, PoolId};
use types::{Errno, SnapContext, Utime};

use crate::class::{
    self, FeaturesArgs, FeaturesReply, HEAD, Namespace, ParentSpec, SizeReply, SnapInfo, Striping,
};
use crate::error::{Error, Result};
use crate::image::LockPolicy;
use crate::layout::Layout;
use crate::manage;
use crate::mark::{Seen, refuse_dirty};

/// Feature bits. Source: src/include/rbd/features.h.
pub mod feature {
    pub const LAYERING: u64 = 1;
    pub const STRIPING: u64 = 1 << 1;
    pub const EXCLUSIVE_LOCK: u64 = 1 << 2;
    pub const OBJECT_MAP: u64 = 1 << 3;
    pub const FAST_DIFF: u64 = 1 << 4;
    pub const DEEP_FLATTEN: u64 = 1 << 5;
    pub const JOURNALING: u64 = 1 << 6;
    pub const DATA_POOL: u64 = 1 << 7;
    pub const OPERATIONS: u64 = 1 << 8;
    pub const MIGRATING: u64 = 1 << 9;
    pub const NON_PRIMARY: u64 = 1 << 10;
    pub const DIRTY_CACHE: u64 = 1 << 11;

    /// What a writer here must understand; an image with others is opened for reading only.
    pub const WRITABLE: u64 =
        LAYERING | STRIPING | EXCLUSIVE_LOCK | OBJECT_MAP | FAST_DIFF | DEEP_FLATTEN | DATA_POOL | OPERATIONS;

    const NAMES: [(u64, &str); 12] = [
        (LAYERING, "layering"),
        (STRIPING, "striping"),
        (EXCLUSIVE_LOCK, "exclusive-lock"),
        (OBJECT_MAP, "object-map"),
        (FAST_DIFF, "fast-diff"),
        (DEEP_FLATTEN, "deep-flatten"),
        (JOURNALING, "journaling"),
        (DATA_POOL, "data-pool"),
        (OPERATIONS, "operations"),
        (MIGRATING, "migrating"),
        (NON_PRIMARY, "non-primary"),
        (DIRTY_CACHE, "dirty-cache"),
    ];

    /// The names of the set bits, in the order `rbd info` has them.
    #[must_use]
    pub fn names(features: u64) -> Vec<&'static str> {
        NAMES.iter().filter(|(bit, _)| features & bit != 0).map(|(_, name)| *name).collect()
    }

    #[must_use]
    pub fn parse(name: &str) -> Option<u64> {
        NAMES.iter().find(|(_, known)| *known == name).map(|(bit, _)| *bit)
    }
}

/// Flags: what cannot be relied upon. Source: RBD_FLAG_* in src/include/rbd/librbd.h.
pub mod flag {
    pub const OBJECT_MAP_INVALID: u64 = 1;
    pub const FAST_DIFF_INVALID: u64 = 2;

    #[must_use]
    pub fn names(flags: u64) -> Vec<&'static str> {
        let all = [(OBJECT_MAP_INVALID, "object map invalid"), (FAST_DIFF_INVALID, "fast diff invalid")];
        all.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name).collect()
    }
}

/// Left behind by operations. Source: RBD_OPERATION_FEATURE_*.
pub mod op_feature {
    pub const CLONE_CHILD: u64 = 1 << 1;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotKind {
    User,
    /// Removed by its user; clones still need it.
    Trash,
    /// Of a group or of mirroring.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub id: u64,
    pub name: String,
    pub kind: SnapshotKind,
    /// Bytes of the image then.
    pub size: u64,
    pub is_protected: bool,
    /// [`flag`]s of its object map.
    pub flags: u64,
    pub timestamp: Utime,
    pub child_count: u32,
    /// Bytes that it shares with the parent.
    pub parent_overlap: u64,
}

/// Where a clone came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    pub pool: i64,
    pub namespace: String,
    pub image_id: String,
    pub snap: u64,
}

/// The header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub size: u64,
    pub order: u8,
    pub features: u64,
    pub op_features: u64,
    pub flags: u64,
    pub snap_context: SnapContext,
    /// By id.
    pub snaps: Vec<Snapshot>,
    pub prefix: String,
    pub data_pool: Option<i64>,
    pub layout: Layout,
    pub parent: Option<Parent>,
    pub parent_overlap: u64,
    pub created: Utime,
    pub accessed: Utime,
    pub modified: Utime,
}

impl Header {
    pub fn has(&self, feature: u64) -> bool {
        self.features & feature == feature
    }

    /// Whether the layout is more than objects one behind the other.
    #[must_use]
    pub fn has_stripes(&self) -> bool {
        self.has(feature::STRIPING)
    }

    /// Whether its data objects are those that an image of this id has whose header is in this pool. Whoever
    /// may write to a header can have it name another image's.
    #[must_use]
    pub fn has_own_data(&self, pool: PoolId, id: &str) -> bool {
        self.prefix == manage::data_prefix(pool, id, self.data_pool.is_some())
    }

    /// The user's snapshot of this name.
    pub fn snapshot(&self, name: &str) -> Option<&Snapshot> {
        self.snaps.iter().find(|s| s.kind == SnapshotKind::User && s.name == name)
    }
}

/// What a header is read for: some features only matter to writers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    /// A write-back cache's, which may find its own mark.
    Cache,
}

impl Access {
    pub fn of(read_only: bool, policy: LockPolicy) -> Self {
        match (read_only, policy) {
            (true, _) => Self::Read,
            (false, LockPolicy::Share) => Self::Write,
            (false, LockPolicy::Keep) => Self::Cache,
        }
    }
}

/// Reads the header of the image with this id.
pub async fn read(io: &IoCtx, id: &str, access: Access) -> Result<Header> {
    let object = class::object::header(id);
    loop {
        match try_read(io, &object, access).await {
            // A snapshot that was listed went away meanwhile.
            Err(Error::Cluster { cause, .. }) if cause.errno() == Errno::ESTALE => {}
            other => return other,
        }
    }
}

async fn try_read(io: &IoCtx, object: &str, access: Access) -> Result<Header> {
    let read_only = access == Access::Read;
    let head = class::number(HEAD);
    let none = Bytes::new();
    let methods = [
        ("get_size", head.clone()),
        ("get_features", FeaturesArgs { snap: HEAD, read_only }.to_bytes()),
        ("get_flags", head.clone()),
        ("get_snapcontext", none.clone()),
        ("get_object_prefix", none.clone()),
        ("parent_get", none.clone()),
        ("parent_overlap_get", head),
        ("op_features_get", none.clone()),
        ("get_data_pool", none.clone()),
        ("get_create_timestamp", none.clone()),
        ("get_access_timestamp", none.clone()),
        ("get_modify_timestamp", none.clone()),
    ];
    let out = class::call_all(io, object, &methods).await?;
    let basics = Basics::of(object, &out, access)?;
    if access == Access::Write && basics.features & feature::DIRTY_CACHE != 0 {
        return Err(refuse_dirty(Seen::read(io, object).await?.mark.as_ref()));
    }
    let striping = match basics.features & feature::STRIPING {
        0 => None,
        _ => Some(class::call(io, object, "get_stripe_unit_count", none).await?),
    };
    let snaps = snapshots(io, object, &basics.context).await?;
    basics.with(object, &out, striping, snaps)
}

/// What is known of a header before its snapshots and its layout are read.
pub(crate) struct Basics {
    size: u64,
    order: u8,
    features: u64,
    pub context: SnapContext,
}

impl Basics {
    /// From the replies to the methods of `try_read`, in their order.
    pub fn of(object: &str, replies: &[Bytes], access: Access) -> Result<Self> {
        let part = |at: usize| replies.get(at).cloned().unwrap_or_default();
        let SizeReply { order, size } = Decode::from_bytes(part(0))?;
        let FeaturesReply { features, incompatible } = Decode::from_bytes(part(1))?;
        check_features(features, incompatible, access)?;
        if !(9..=40).contains(&order) {
            return Err(Error::refused(Errno::EINVAL, format!("{object} has objects of 2^{order} bytes")));
        }
        Ok(Self { size, order, features, context: SnapContext::from_bytes(part(3))? })
    }

    /// The whole header.
    pub fn with(
        self,
        object: &str,
        replies: &[Bytes],
        striping: Option<Striping>,
        snaps: Vec<Snapshot>,
    ) -> Result<Header> {
        let Self { size, order, features, context } = self;
        let part = |at: usize| replies.get(at).cloned().unwrap_or_default();
        let simple = Layout::simple(order);
        let layout = match striping {
            None => simple,
            Some(Striping { unit, count }) => Layout { stripe_unit: unit, stripe_count: count, ..simple },
        };
        let ParentSpec { pool, namespace, image, snap } = ParentSpec::from_bytes(part(5))?;
        let overlap: Option<u64> = Decode::from_bytes(part(6))?;
        let data_pool = i64::from_bytes(part(8))?;
        check_sizes(object, &layout, [size, overlap.unwrap_or(0)], &snaps)?;
        let has_parent = pool >= 0 && !image.is_empty();
        Ok(Header {
            size,
            order,
            features,
            op_features: Decode::from_bytes(part(7))?,
            flags: Decode::from_bytes(part(2))?,
            snaps,
            snap_context: context,
            prefix: Decode::from_bytes(part(4))?,
            data_pool: (data_pool >= 0).then_some(data_pool),
            layout,
            parent: has_parent.then_some(Parent { pool, namespace, image_id: image, snap }),
            parent_overlap: overlap.unwrap_or(0),
            created: Decode::from_bytes(part(9))?,
            accessed: Decode::from_bytes(part(10))?,
            modified: Decode::from_bytes(part(11))?,
        })
    }
}

/// What is computed from the sizes of the image and its snapshots, and of what they share with a parent, must be numbers.
fn check_sizes(object: &str, layout: &Layout, of_head: [u64; 2], snaps: &[Snapshot]) -> Result<()> {
    let of_snaps = snaps.iter().flat_map(|s| [s.size, s.parent_overlap]);
    match of_head.into_iter().chain(of_snaps).find(|size| !layout.is_possible(*size)) {
        Some(size) => Err(Error::refused(Errno::EINVAL, format!("{object} has {size} bytes in {layout:?}"))),
        None => Ok(()),
    }
}

fn check_features(features: u64, incompatible: u64, access: Access) -> Result<()> {
    let needed = if access == Access::Read { incompatible } else { features };
    let unknown = needed & !(feature::WRITABLE | feature::DIRTY_CACHE);
    if unknown == 0 {
        return Ok(());
    }
    let known: String = feature::names(unknown).into_iter().map(|name| format!("{name}, ")).collect();
    let what = format!("the image has features that are not supported: {known}{unknown:#x}");
    Err(Error::refused(Errno::ENOSYS, what))
}

async fn snapshots(io: &IoCtx, object: &str, context: &SnapContext) -> Result<Vec<Snapshot>> {
    let mut out = Vec::with_capacity(context.snaps.len());
    for id in context.snaps.iter().rev() {
        let id_input = class::number(*id);
        let methods = ["snapshot_get", "get_flags", "get_protection_status", "parent_overlap_get"]
            .map(|method| (method, id_input.clone()));
        let replies = match class::call_all(io, object, &methods).await {
            Err(e) if e.is_not_found() => {
                return Err(Error::Cluster { what: object.into(), cause: Errno::ESTALE.into() });
            }
            other => other?,
        };
        out.push(Snapshot::of(&replies)?);
    }
    Ok(out)
}

impl Snapshot {
    /// From the replies to the methods of `snapshots`, in their order.
    pub(crate) fn of(replies: &[Bytes]) -> Result<Self> {
        let part = |at: usize| replies.get(at).cloned().unwrap_or_default();
        let info = SnapInfo::from_bytes(part(0))?;
        let overlap: Option<u64> = Decode::from_bytes(part(3))?;
        let protection = u8::from_bytes(part(2))?;
        Ok(Self {
            id: info.id,
            kind: match info.namespace.kind {
                Namespace::USER => SnapshotKind::User,
                Namespace::TRASH => SnapshotKind::Trash,
                _ => SnapshotKind::Other,
            },
            name: info.name,
            size: info.size,
            is_protected: protection != 0,
            flags: Decode::from_bytes(part(1))?,
            timestamp: info.timestamp,
            child_count: info.child_count,
            parent_overlap: overlap.unwrap_or(0),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn header(prefix: &str, data_pool: Option<i64>) -> Header {
        Header {
            size: 0,
            order: 22,
            features: 0,
            op_features: 0,
            flags: 0,
            snap_context: SnapContext::default(),
            snaps: Vec::new(),
            prefix: prefix.into(),
            data_pool,
            layout: Layout::simple(22),
            parent: None,
            parent_overlap: 0,
            created: Utime::default(),
            accessed: Utime::default(),
            modified: Utime::default(),
        }
    }

    /// A snapshot that shares so many bytes with the parent.
    pub(crate) fn snap_sharing(parent_overlap: u64) -> Snapshot {
        Snapshot {
            id: 1,
            name: "snap".into(),
            kind: SnapshotKind::User,
            size: parent_overlap,
            is_protected: false,
            flags: 0,
            timestamp: Utime::default(),
            child_count: 0,
            parent_overlap,
        }
    }

    #[test]
    fn data_of_another_image_is_not_an_images_own() {
        for (prefix, data_pool, is_own) in [
            ("rbd_data.12ab", None, true),
            ("rbd_data.3.12ab", Some(9), true),
            ("rbd_data.12ac", None, false),
            ("rbd_data.12a", None, false),
            ("rbd_data.12ab.", None, false),
            ("rbd_data.3.12ab", None, false),
            ("rbd_data.4.12ab", Some(9), false),
            // In another pool an image may have this one's id.
            ("rbd_data.12ab", Some(9), false),
            ("", None, false),
        ] {
            assert_eq!(header(prefix, data_pool).has_own_data(PoolId(3), "12ab"), is_own, "{prefix}");
        }
    }

    #[test]
    fn sizes_that_cannot_be_computed_with_are_refused_in_snapshots_too() {
        let snap = |size, parent_overlap| Snapshot { size, ..snap_sharing(parent_overlap) };
        let layout = Layout { object_size: 1 << 22, stripe_unit: 1 << 16, stripe_count: 5 };
        let check = |of_head, snaps: &[Snapshot]| check_sizes("header", &layout, of_head, snaps).is_ok();
        let most = 1 << 62;
        assert!(check([most, most], &[snap(0, 0), snap(most, most)]));
        for bad in [most + 1, u64::MAX] {
            assert!(!check([bad, 0], &[]), "{bad}");
            assert!(!check([0, bad], &[]), "{bad}");
            assert!(!check([0, 0], &[snap(0, 0), snap(bad, 0)]), "{bad}");
            assert!(!check([0, 0], &[snap(0, bad), snap(0, 0)]), "{bad}");
        }
    }
}
