//! Inputs and outputs of the class `rbd`'s methods, and calling them.
//!
//! Source: src/cls/rbd/cls_rbd_client.cc, src/cls/rbd/cls_rbd_types.h.

use bytes::Bytes;
use codec::{Decode, Encode, Reader, Writer, wire_plain, wire_struct};
use rados::{IoCtx, ReadOp, WriteOp};
use types::Utime;

use crate::error::{self, Context};

/// Stands for the image itself where a snapshot is asked for.
pub const HEAD: u64 = types::SnapId::HEAD.0;

/// Names of a pool's and an image's objects. Source: src/include/rbd_types.h, src/librbd/Utils.cc.
pub mod object {
    pub const DIRECTORY: &str = "rbd_directory";
    pub const CHILDREN: &str = "rbd_children";
    pub const NAMESPACES: &str = "rbd_namespace";
    pub const TRASH: &str = "rbd_trash";

    pub fn id(name: &str) -> String {
        format!("rbd_id.{name}")
    }

    pub fn header(id: &str) -> String {
        format!("rbd_header.{id}")
    }

    /// The map of the image itself, or of a snapshot.
    pub fn map(id: &str, snap: Option<u64>) -> String {
        match snap {
            None => format!("rbd_object_map.{id}"),
            Some(snap) => format!("rbd_object_map.{id}.{snap:016x}"),
        }
    }
}

/// Calls a method that reads.
pub async fn call<T: Decode>(io: &IoCtx, object: &str, method: &str, input: Bytes) -> error::Result<T> {
    let output = io.exec(object, "rbd", method, input).await.context(|| format!("{method} of {object}"))?;
    Ok(T::from_bytes(output)?)
}

/// Calls a method that writes.
pub async fn change(io: &IoCtx, object: &str, method: &str, input: Bytes) -> error::Result<()> {
    let op = WriteOp::new().exec("rbd", method, input);
    io.write_op(object, op).await.map(drop).context(|| format!("{method} of {object}"))
}

/// Several reading methods in one request; outputs in their order.
pub async fn call_all(io: &IoCtx, object: &str, methods: &[(&str, Bytes)]) -> error::Result<Vec<Bytes>> {
    let op = methods.iter().fold(ReadOp::new(), |op, (method, input)| op.exec("rbd", method, input.clone()));
    let reply = io.read_op(object, op).await.context(|| format!("reading {object}"))?;
    Ok((0..methods.len()).map(|at| reply.output(at)).collect())
}

/// A plain `u64`, as most methods take one.
pub fn number(n: u64) -> Bytes {
    n.to_bytes()
}

pub struct SizeReply {
    pub order: u8,
    pub size: u64,
}
wire_plain!(SizeReply { order, size });

pub struct FeaturesArgs {
    pub snap: u64,
    pub read_only: bool,
}
wire_plain!(FeaturesArgs { snap, read_only });

pub struct FeaturesReply {
    pub features: u64,
    /// Those that a client must know to open the image so.
    pub incompatible: u64,
}
wire_plain!(FeaturesReply { features, incompatible });

pub struct Striping {
    pub unit: u64,
    pub count: u64,
}
wire_plain!(Striping { unit, count });

pub struct CreateArgs {
    pub size: u64,
    pub order: u8,
    pub features: u64,
    pub prefix: String,
    /// -1 for none.
    pub data_pool: i64,
}
wire_plain!(CreateArgs { size, order, features, prefix, data_pool });

pub struct NameId {
    pub name: String,
    pub id: String,
}
wire_plain!(NameId { name, id });

pub struct RenameArgs {
    pub from: String,
    pub to: String,
    pub id: String,
}
wire_plain!(RenameArgs { from, to, id });

pub struct ListArgs {
    pub start_after: String,
    pub max: u64,
}
wire_plain!(ListArgs { start_after, max });

/// The group that an image is in.
pub struct GroupSpec {
    /// Negative for none.
    pub pool: i64,
    pub id: String,
}
wire_struct!(GroupSpec(1, 1) { pool, id });

pub struct MaskArgs {
    pub bits: u64,
    pub mask: u64,
}
wire_plain!(MaskArgs { bits, mask });

pub struct FlagsArgs {
    pub bits: u64,
    pub mask: u64,
    pub snap: u64,
}
wire_plain!(FlagsArgs { bits, mask, snap });

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentSpec {
    pub pool: i64,
    pub namespace: String,
    pub image: String,
    pub snap: u64,
}
wire_struct!(ParentSpec(1, 1) { pool, namespace, image, snap });

pub struct ParentAttachArgs {
    pub spec: ParentSpec,
    pub overlap: u64,
    pub reattach: bool,
}
wire_plain!(ParentAttachArgs { spec, overlap, reattach });

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChildSpec {
    pub pool: i64,
    pub image: String,
    pub namespace: String,
}
wire_struct!(ChildSpec(2, 1) { pool, image, namespace });

pub struct ChildArgs {
    pub snap: u64,
    pub child: ChildSpec,
}
wire_plain!(ChildArgs { snap, child });

/// A snapshot as the first generation's list of children names it.
pub struct OldParentKey {
    pub pool: i64,
    pub image: String,
    pub snap: u64,
}
wire_plain!(OldParentKey { pool, image, snap });

pub struct OldChildArgs {
    pub parent: OldParentKey,
    pub child: String,
}
wire_plain!(OldChildArgs { parent, child });

/// What a snapshot was made for. Source: SnapshotNamespaceType.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    pub kind: u32,
    /// Of one in the trash.
    pub original_name: String,
}

impl Namespace {
    pub const USER: u32 = 0;
    pub const TRASH: u32 = 2;

    pub fn user() -> Self {
        Self { kind: Self::USER, original_name: String::new() }
    }
}

impl Encode for Namespace {
    fn encode(&self, w: &mut Writer) {
        // Only snapshots of users are made here.
        w.envelope(1, 1, |w| w.u32(Self::USER));
    }
}

impl Decode for Namespace {
    fn decode(r: &mut Reader) -> Result<Self, codec::DecodeError> {
        r.envelope("rbd snapshot namespace", 1, |r, _| {
            let kind = r.u32()?;
            let original_name = if kind == Self::TRASH { Decode::decode(r)? } else { String::new() };
            Ok(Self { kind, original_name })
        })
    }
}

pub struct SnapInfo {
    pub id: u64,
    pub namespace: Namespace,
    pub name: String,
    pub size: u64,
    pub timestamp: Utime,
    pub child_count: u32,
}
wire_struct!(SnapInfo(1, 1) { id, namespace, name, size, timestamp, child_count });

pub struct SnapAddArgs {
    pub name: String,
    pub id: u64,
    pub namespace: Namespace,
}
wire_plain!(SnapAddArgs { name, id, namespace });

pub struct ProtectArgs {
    pub id: u64,
    pub status: u8,
}
wire_plain!(ProtectArgs { id, status });

pub struct SnapRenameArgs {
    pub id: u64,
    pub name: String,
}
wire_plain!(SnapRenameArgs { id, name });

/// An image in the trash. Source: TrashImageSpec.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrashSpec {
    pub source: u8,
    pub name: String,
    pub deleted: Utime,
    pub deferred_until: Utime,
    pub state: u8,
}
wire_struct!(TrashSpec(2, 1) { source, name, deleted, deferred_until } since 2 { state });

pub struct TrashAddArgs {
    pub id: String,
    pub spec: TrashSpec,
}
wire_plain!(TrashAddArgs { id, spec });

pub struct MapResizeArgs {
    pub objects: u64,
    pub state: u8,
}
wire_plain!(MapResizeArgs { objects, state });

pub struct MapUpdateArgs {
    pub from: u64,
    pub to: u64,
    pub state: u8,
    pub expected: Option<u8>,
}
wire_plain!(MapUpdateArgs { from, to, state, expected });

/// Of the class `lock`: fails unless we hold it.
pub struct AssertLocked {
    pub name: String,
    pub kind: u8,
    pub cookie: String,
    pub tag: String,
}
wire_struct!(AssertLocked(1, 1) { name, kind, cookie, tag });
