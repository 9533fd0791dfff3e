//! What the class stores about images and their snapshots, and what it answers about them.
//! Source: src/cls/rbd/cls_rbd.h, src/cls/rbd/cls_rbd_types.h.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer, wire_plain, wire_struct};
use types::{SnapId, Utime};

/// Stands for the image itself where a snapshot's id is asked for.
pub(super) const HEAD: u64 = SnapId::HEAD.0;

/// Input of methods that are about the image or one of its snapshots.
pub(super) struct SnapArgs {
    pub snap_id: u64,
}
wire_plain!(SnapArgs { snap_id });

impl SnapArgs {
    /// Nothing for the image itself.
    pub(super) fn snapshot(&self) -> Option<u64> {
        (self.snap_id != HEAD).then_some(self.snap_id)
    }
}

/// Input of listings.
pub(super) struct ListArgs {
    pub start_after: Bytes,
    /// Entries.
    pub max: u64,
}
wire_plain!(ListArgs { start_after, max });

/// Input of methods that are about one name or one id.
pub(super) struct NameArgs {
    pub name: Bytes,
}
wire_plain!(NameArgs { name });

/// A name and the id behind it.
pub(super) struct NameIdArgs {
    pub name: Bytes,
    pub id: Bytes,
}
wire_plain!(NameIdArgs { name, id });

/// Protection of a snapshot against removal. Source: rbd_types.h.
pub(super) mod protection {
    pub const UNPROTECTED: u8 = 0;
    /// Statuses from here on do not exist.
    pub const LAST: u8 = 3;
}

/// Where an image was cloned from. Two are equal whatever their overlap.
#[derive(Debug, Clone)]
pub(super) struct Parent {
    /// Below 0 for none.
    pub pool_id: i64,
    pub pool_namespace: Bytes,
    pub image_id: Bytes,
    pub snap_id: u64,
    /// Bytes that the image still shares with its parent; nothing when only snapshots do.
    pub head_overlap: Option<u64>,
}

impl Default for Parent {
    fn default() -> Self {
        let none = Bytes::new();
        Self { pool_id: -1, pool_namespace: none.clone(), image_id: none, snap_id: HEAD, head_overlap: None }
    }
}

impl PartialEq for Parent {
    fn eq(&self, other: &Self) -> bool {
        (self.pool_id, &self.pool_namespace, &self.image_id, self.snap_id)
            == (other.pool_id, &other.pool_namespace, &other.image_id, other.snap_id)
    }
}

impl Parent {
    pub(super) fn exists(&self) -> bool {
        self.pool_id >= 0 && !self.image_id.is_empty() && self.snap_id != HEAD
    }

    pub(super) fn spec(&self) -> ParentSpec {
        ParentSpec {
            pool_id: self.pool_id,
            pool_namespace: self.pool_namespace.clone(),
            image_id: self.image_id.clone(),
            snap_id: self.snap_id,
        }
    }
}

impl Encode for Parent {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| {
            self.pool_id.encode(w);
            self.pool_namespace.encode(w);
            self.image_id.encode(w);
            self.snap_id.encode(w);
            self.head_overlap.encode(w);
        });
    }
}
impl Decode for Parent {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("rbd parent", 2, |r, env| {
            Ok(Self {
                pool_id: r.i64()?,
                pool_namespace: if env.version >= 2 { r.blob()? } else { Bytes::new() },
                image_id: r.blob()?,
                snap_id: r.u64()?,
                head_overlap: if env.version == 1 { Some(r.u64()?) } else { Decode::decode(r)? },
            })
        })
    }
}

/// A parent as clients name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ParentSpec {
    pub pool_id: i64,
    pub pool_namespace: Bytes,
    pub image_id: Bytes,
    pub snap_id: u64,
}
wire_struct!(ParentSpec(1, 1) { pool_id, pool_namespace, image_id, snap_id });

impl ParentSpec {
    pub(super) fn with_overlap(self, overlap: u64) -> Parent {
        Parent {
            pool_id: self.pool_id,
            pool_namespace: self.pool_namespace,
            image_id: self.image_id,
            snap_id: self.snap_id,
            head_overlap: Some(overlap),
        }
    }
}

/// What a snapshot was made for. Source: SnapshotNamespaceType.
#[derive(Debug, Clone)]
pub(super) enum Namespace {
    User,
    /// Part of a snapshot of a group.
    Group {
        pool_id: i64,
        group_id: Bytes,
        snap_id: Bytes,
    },
    /// Removed while clones still need it.
    Trash {
        original_name: Bytes,
        original_kind: u32,
    },
    Mirror(MirrorNamespace),
    Unknown,
}

impl Namespace {
    pub(super) const USER: u32 = 0;
    const GROUP: u32 = 1;
    const TRASH: u32 = 2;
    const MIRROR: u32 = 3;

    pub(super) fn kind(&self) -> u32 {
        match self {
            Self::User => Self::USER,
            Self::Group { .. } => Self::GROUP,
            Self::Trash { .. } => Self::TRASH,
            Self::Mirror(_) => Self::MIRROR,
            Self::Unknown => u32::MAX,
        }
    }

    pub(super) fn is_trash(&self) -> bool {
        matches!(self, Self::Trash { .. })
    }
}

/// Two snapshots in the trash share a namespace whatever they were called.
impl PartialEq for Namespace {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Group { pool_id, group_id, snap_id },
                Self::Group { pool_id: p, group_id: g, snap_id: s },
            ) => (pool_id, group_id, snap_id) == (p, g, s),
            (Self::Mirror(a), Self::Mirror(b)) => a == b,
            _ => self.kind() == other.kind(),
        }
    }
}

impl Encode for Namespace {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u32(self.kind());
            match self {
                Self::Group { pool_id, group_id, snap_id } => {
                    pool_id.encode(w);
                    group_id.encode(w);
                    snap_id.encode(w);
                }
                Self::Trash { original_name, original_kind } => {
                    original_name.encode(w);
                    original_kind.encode(w);
                }
                Self::Mirror(mirror) => mirror.encode(w),
                Self::User | Self::Unknown => {}
            }
        });
    }
}
impl Decode for Namespace {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("rbd snapshot namespace", 1, |r, _| {
            Ok(match r.u32()? {
                Self::USER => Self::User,
                Self::GROUP => Self::Group { pool_id: r.i64()?, group_id: r.blob()?, snap_id: r.blob()? },
                Self::TRASH => Self::Trash { original_name: r.blob()?, original_kind: r.u32()? },
                Self::MIRROR => Self::Mirror(Decode::decode(r)?),
                _ => Self::Unknown,
            })
        })
    }
}

/// A snapshot that mirroring copies from one cluster to the other.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MirrorNamespace {
    pub state: u8,
    pub complete: bool,
    pub peers: BTreeSet<Bytes>,
    pub primary_mirror_uuid: Bytes,
    pub primary_snap_id: u64,
    pub last_copied_object: u64,
    pub snap_seqs: BTreeMap<u64, u64>,
}
wire_plain!(MirrorNamespace {
    state,
    complete,
    peers,
    primary_mirror_uuid,
    primary_snap_id,
    last_copied_object,
    snap_seqs,
});

impl MirrorNamespace {
    /// The copy, demoted or not. Source: MirrorSnapshotState.
    pub(super) fn is_non_primary(&self) -> bool {
        matches!(self.state, 2 | 3)
    }
}

/// A snapshot as stored in its image's header.
#[derive(Debug, Clone)]
pub(super) struct Snap {
    pub id: u64,
    pub name: Bytes,
    /// Bytes.
    pub image_size: u64,
    pub protection: u8,
    /// Only in what clusters before Nautilus wrote.
    pub parent: Parent,
    pub flags: u64,
    pub timestamp: Utime,
    pub namespace: Namespace,
    pub child_count: u32,
    /// Bytes that the snapshot shares with the image's parent.
    pub parent_overlap: Option<u64>,
}

impl Snap {
    pub(super) fn has_parent(&self) -> bool {
        self.parent.pool_id != -1 || self.parent_overlap.is_some()
    }
}

impl Encode for Snap {
    fn encode(&self, w: &mut Writer) {
        w.envelope(8, 8, |w| {
            self.id.encode(w);
            self.name.encode(w);
            self.image_size.encode(w);
            self.protection.encode(w);
            self.flags.encode(w);
            self.namespace.encode(w);
            self.timestamp.encode(w);
            self.child_count.encode(w);
            self.parent_overlap.encode(w);
        });
    }
}
impl Decode for Snap {
    const MIN_SIZE: usize = 6;
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        r.envelope("rbd snapshot", 8, |r, env| {
            let (id, name, image_size) = (r.u64()?, r.blob()?, r.u64()?);
            let before_nautilus = env.compat < 8;
            if before_nautilus {
                r.u64()?; // the features that snapshots once had
            }
            let mut snap = Self { id, name, image_size, ..Self::default() };
            let v = env.version;
            if v >= 2 && before_nautilus {
                snap.parent = Decode::decode(r)?;
            }
            if v >= 3 {
                snap.protection = r.u8()?;
            }
            if v >= 4 {
                snap.flags = r.u64()?;
            }
            if v >= 5 {
                snap.namespace = Decode::decode(r)?;
            }
            if v >= 6 {
                snap.timestamp = Decode::decode(r)?;
            }
            if v >= 7 {
                snap.child_count = r.u32()?;
            }
            if v >= 8 {
                snap.parent_overlap = Decode::decode(r)?;
            }
            Ok(snap)
        })
    }
}
impl Default for Snap {
    fn default() -> Self {
        Self {
            id: HEAD,
            name: Bytes::new(),
            image_size: 0,
            protection: protection::UNPROTECTED,
            parent: Parent::default(),
            flags: 0,
            timestamp: Utime::ZERO,
            namespace: Namespace::User,
            child_count: 0,
            parent_overlap: None,
        }
    }
}

/// A snapshot as clients see it.
pub(super) struct SnapInfo {
    pub id: u64,
    pub namespace: Namespace,
    pub name: Bytes,
    pub image_size: u64,
    pub timestamp: Utime,
    pub child_count: u32,
}
wire_struct!(SnapInfo(1, 1) { id, namespace, name, image_size, timestamp, child_count });
