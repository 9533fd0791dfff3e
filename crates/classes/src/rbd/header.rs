//! An image's header: size, layout, times; and the object that maps an image's name to its id.

use std::collections::BTreeMap;

use bytes::Bytes;
use codec::{Encode, wire_plain};
use types::{Errno, Utime};

use super::types::{Parent, SnapArgs};
use super::{features, parent, snapshot};
use crate::registry::{Done, Nothing, Raw, Tail, input, stored};
use crate::{ObjectView, keys};

const SIZE: &str = "size";
const ORDER: &str = "order";
const PREFIX: &str = "object_prefix";
const DATA_POOL: &str = "data_pool_id";
const STRIPE_UNIT: &str = "stripe_unit";
const STRIPE_COUNT: &str = "stripe_count";
const CREATED: &str = "create_timestamp";
const ACCESSED: &str = "access_timestamp";
const MODIFIED: &str = "modify_timestamp";

/// Stands for the pool of the header itself.
const NO_POOL: i64 = -1;

pub(super) struct CreateArgs {
    /// Bytes.
    size: u64,
    /// Size of the data objects: 1 shifted by it, in bytes.
    order: u8,
    features: u64,
    object_prefix: Bytes,
    data_pool: Tail<i64>,
}
wire_plain!(CreateArgs { size, order, features, object_prefix, data_pool });

pub(super) struct SizeReply {
    order: u8,
    size: u64,
}
wire_plain!(SizeReply { order, size });

pub(super) struct SizeArgs {
    size: u64,
}
wire_plain!(SizeArgs { size });

pub(super) struct Striping {
    /// Bytes.
    unit: u64,
    /// Data objects.
    count: u64,
}
wire_plain!(Striping { unit, count });

pub(super) fn create(v: &mut dyn ObjectView, args: CreateArgs) -> Result<Done, Errno> {
    if args.features & !features::ALL != 0 {
        return Err(Errno::ENOSYS);
    }
    if args.object_prefix.is_empty() {
        return Err(Errno::EINVAL);
    }
    if v.omap_value(PREFIX.as_bytes()).err() != Some(Errno::ENOENT) {
        return Err(Errno::EEXIST);
    }
    if args.features & features::OPERATIONS != 0 {
        return Err(Errno::EINVAL);
    }
    let data_pool = args.data_pool.0.unwrap_or(NO_POOL);
    if (args.features & features::DATA_POOL != 0) != (data_pool != NO_POOL) {
        return Err(Errno::EINVAL);
    }
    let now = v.now().to_bytes();
    let mut values = BTreeMap::from([
        (SIZE, args.size.to_bytes()),
        (ORDER, args.order.to_bytes()),
        ("features", args.features.to_bytes()),
        (PREFIX, args.object_prefix.to_bytes()),
        (snapshot::SEQ, 0u64.to_bytes()),
        (CREATED, now.clone()),
        (ACCESSED, now.clone()),
        (MODIFIED, now),
    ]);
    if data_pool != NO_POOL {
        values.insert(DATA_POOL, data_pool.to_bytes());
    }
    v.omap_set(values.into_iter().map(|(k, v)| (k.into(), v)).collect())?;
    Ok(Done)
}

/// Bytes of the image itself.
pub(super) fn head_size(v: &mut dyn ObjectView) -> Result<u64, Errno> {
    keys::read(v, SIZE)
}

pub(super) fn get_size(v: &mut dyn ObjectView, args: SnapArgs) -> Result<SizeReply, Errno> {
    let order = keys::read(v, ORDER)?;
    let size = match args.snapshot() {
        None => head_size(v)?,
        Some(id) => snapshot::read(v, id)?.image_size,
    };
    Ok(SizeReply { order, size })
}

/// A smaller image shares less with its parent.
pub(super) fn set_size(v: &mut dyn ObjectView, args: SizeArgs) -> Result<Done, Errno> {
    let old = head_size(v)?;
    keys::write(v, SIZE, &args.size)?;
    if args.size < old {
        let mut of: Parent = parent::find(v)?.unwrap_or_default();
        if of.exists() && of.head_overlap.unwrap_or(0) > args.size {
            of.head_overlap = Some(args.size);
            parent::write(v, &of)?;
        }
    }
    Ok(Done)
}

pub(super) fn get_stripe_unit_count(v: &mut dyn ObjectView, _: Nothing) -> Result<Striping, Errno> {
    v.stat()?;
    features::require(v, features::STRIPING_V2)?;
    let unit = match keys::find(v, STRIPE_UNIT)? {
        Some(unit) => unit,
        None => object_size(keys::read(v, ORDER).map_err(|_| Errno::EIO)?).ok_or(Errno::EIO)?,
    };
    Ok(Striping { unit, count: keys::find(v, STRIPE_COUNT)?.unwrap_or(1) })
}

pub(super) fn set_stripe_unit_count(v: &mut dyn ObjectView, args: Striping) -> Result<Done, Errno> {
    if args.count == 0 || args.unit == 0 {
        return Err(Errno::EINVAL);
    }
    v.stat()?;
    features::require(v, features::STRIPING_V2)?;
    let size = object_size(keys::read(v, ORDER)?).ok_or(Errno::EINVAL)?;
    if size % args.unit != 0 || args.unit > size {
        return Err(Errno::EINVAL);
    }
    keys::write(v, STRIPE_UNIT, &args.unit)?;
    keys::write(v, STRIPE_COUNT, &args.count)?;
    Ok(Done)
}

/// Bytes of a data object.
fn object_size(order: u8) -> Option<u64> {
    1u64.checked_shl(order.into())
}

pub(super) fn get_object_prefix(v: &mut dyn ObjectView, _: Nothing) -> Result<Bytes, Errno> {
    keys::read(v, PREFIX)
}

pub(super) fn get_data_pool(v: &mut dyn ObjectView, _: Nothing) -> Result<i64, Errno> {
    Ok(keys::find(v, DATA_POOL)?.unwrap_or(NO_POOL))
}

/// Images older than the timestamp have it as 0.
fn time(v: &mut dyn ObjectView, key: &str) -> Result<Utime, Errno> {
    Ok(keys::find(v, key)?.unwrap_or(Utime::ZERO))
}

fn touch(v: &mut dyn ObjectView, key: &'static str) -> Result<Done, Errno> {
    v.stat()?;
    let now = v.now();
    keys::write(v, key, &now)?;
    Ok(Done)
}

pub(super) fn get_create_timestamp(v: &mut dyn ObjectView, _: Nothing) -> Result<Utime, Errno> {
    time(v, CREATED)
}

pub(super) fn get_access_timestamp(v: &mut dyn ObjectView, _: Nothing) -> Result<Utime, Errno> {
    time(v, ACCESSED)
}

pub(super) fn get_modify_timestamp(v: &mut dyn ObjectView, _: Nothing) -> Result<Utime, Errno> {
    time(v, MODIFIED)
}

pub(super) fn set_access_timestamp(v: &mut dyn ObjectView, _: Nothing) -> Result<Done, Errno> {
    touch(v, ACCESSED)
}

pub(super) fn set_modify_timestamp(v: &mut dyn ObjectView, _: Nothing) -> Result<Done, Errno> {
    touch(v, MODIFIED)
}

pub(super) fn get_id(v: &mut dyn ObjectView, _: Nothing) -> Result<Bytes, Errno> {
    match v.stat()?.size {
        0 => Err(Errno::ENOENT),
        size => stored(v.read(0, size)?),
    }
}

/// The object must exist and hold no id yet.
pub(super) fn set_id(v: &mut dyn ObjectView, raw: Raw) -> Result<Done, Errno> {
    let size = v.stat()?.size;
    let id: Bytes = input(&raw.0)?;
    if !is_valid_id(&id) {
        return Err(Errno::EINVAL);
    }
    if size != 0 {
        return Err(Errno::EEXIST);
    }
    v.write(0, id.to_bytes())?;
    Ok(Done)
}

pub(super) fn is_valid_id(id: &[u8]) -> bool {
    !id.is_empty() && id.iter().all(u8::is_ascii_alphanumeric)
}
