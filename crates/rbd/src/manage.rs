//! Making an image's objects, and the directory's entry of it.
//!
//! Source: src/librbd/image/CreateRequest.cc (which objects, in which order), src/librbd/Utils.cc (ids).

use bytes::Bytes;
use codec::Encode;
use rados::{IoCtx, PoolId, WriteOp};
use types::{Entropy, Errno};

use crate::class::{self, CreateArgs, NameId, Striping};
use crate::error::{Context, Error, Result};
use crate::header::feature;
use crate::image;
use crate::layout::Layout;
use crate::object_map;

/// Source: rbd_default_features of Ceph 16.
pub const DEFAULT_FEATURES: u64 = feature::LAYERING
    | feature::EXCLUSIVE_LOCK
    | feature::OBJECT_MAP
    | feature::FAST_DIFF
    | feature::DEEP_FLATTEN;

/// Source: RBD_MAX_IMAGE_ID_LENGTH.
const MAX_ID: usize = 14;
/// Source: RBD_MAX_OBJ_NAME_SIZE.
const MAX_NAME: usize = 96;
/// Objects of an image with an object map. Source: MAX_OBJECT_MAP_OBJECT_COUNT.
const MAX_MAP_OBJECTS: u64 = 256_000_000;

/// How a new image is laid out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateOptions {
    /// Data objects have `1 << order` bytes.
    pub order: u8,
    pub features: u64,
    /// Stripe unit in bytes and count in objects.
    pub striping: Option<(u64, u64)>,
    /// The pool for data objects, when not that of the header.
    pub data_pool: Option<i64>,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self { order: 22, features: DEFAULT_FEATURES, striping: None, data_pool: None }
    }
}

impl CreateOptions {
    /// The features that follow from the others, and what is not possible.
    fn checked(&self, name: &str, size: u64) -> Result<(u64, Layout)> {
        let bad = |what: String| Err(Error::refused(Errno::EINVAL, what));
        if name.is_empty() || name.len() > MAX_NAME || name.contains(['/', '@', '\0']) {
            return bad(format!("'{name}' cannot be an image's name"));
        }
        if !(12..=25).contains(&self.order) {
            return bad(format!("objects of 2^{} bytes: 4 KiB to 32 MiB are possible", self.order));
        }
        let mut features = self.features & !(feature::STRIPING | feature::DATA_POOL);
        let mut layout = Layout::simple(self.order);
        if let Some((unit, count)) = self.striping {
            layout = Layout { stripe_unit: unit, stripe_count: count, ..layout };
            if !layout.is_possible(0) {
                return bad(format!("stripes of {unit} bytes over {count} objects"));
            }
            if (unit, count) != (layout.object_size, 1) {
                features |= feature::STRIPING;
            }
        }
        if !layout.is_possible(size) {
            return bad(format!("{size} bytes are more than an image can have"));
        }
        if self.data_pool.is_some() {
            features |= feature::DATA_POOL;
        }
        let needs = [
            (feature::OBJECT_MAP, feature::EXCLUSIVE_LOCK, "object-map needs exclusive-lock"),
            (feature::FAST_DIFF, feature::OBJECT_MAP, "fast-diff needs object-map"),
        ];
        for (has, needed, what) in needs {
            if features & has != 0 && features & needed == 0 {
                return bad(what.into());
            }
        }
        let unknown = features & !feature::WRITABLE | features & feature::OPERATIONS;
        if unknown != 0 {
            return bad(format!("features {unknown:#x} cannot be given to a new image"));
        }
        if features & feature::OBJECT_MAP != 0 && layout.objects(size) > MAX_MAP_OBJECTS {
            return bad("more objects than an object map holds".into());
        }
        Ok((features, layout))
    }
}

/// Makes an image and gives its id.
pub(crate) async fn create(io: &IoCtx, name: &str, size: u64, options: &CreateOptions) -> Result<String> {
    let (features, layout) = options.checked(name, size)?;
    let id = new_id(io);
    let entry = NameId { name: name.to_owned(), id: id.clone() };
    // The directory first: it decides between two who make the same name.
    match class::change(io, class::object::DIRECTORY, "dir_add_image", entry.to_bytes()).await {
        Err(e) if e.errno() == Errno::EEXIST => {
            return Err(Error::refused(Errno::EEXIST, format!("there is an image {name} already")));
        }
        other => other?,
    }
    let made = match create_objects(io, name, &id, size, features, layout, options).await {
        Ok(()) => check_entry(io, &entry).await,
        failed => failed,
    };
    match made {
        Ok(()) => Ok(id),
        Err(e) => {
            for object in [class::object::map(&id, None), class::object::header(&id)] {
                let _ = io.remove(&object).await;
            }
            let _ = remove_id(io, name, &id).await;
            let _ = class::change(io, class::object::DIRECTORY, "dir_remove_image", entry.to_bytes()).await;
            Err(e)
        }
    }
}

/// Another client that removed the name meanwhile, taking the image for what an interrupted removal left, removed the
/// directory's entry: the image would be there without a name.
async fn check_entry(io: &IoCtx, entry: &NameId) -> Result<()> {
    let input = entry.name.clone().to_bytes();
    let found: Result<String> = class::call(io, class::object::DIRECTORY, "dir_get_id", input).await;
    let is_ours = match found {
        Ok(id) => id == entry.id,
        Err(e) if e.is_not_found() => false,
        Err(e) => return Err(e),
    };
    if !is_ours {
        let what = format!("image {} was removed by another client while it was made", entry.name);
        return Err(Error::refused(Errno::EBUSY, what));
    }
    Ok(())
}

/// Removes the object that leads from a name to this id; one that leads to another image, made meanwhile, stays.
pub(crate) async fn remove_id(io: &IoCtx, name: &str, id: &str) -> Result<()> {
    let object = class::object::id(name);
    let op = WriteOp::new().cmpext(0, id.to_owned().to_bytes()).remove();
    match io.write_op(&object, op).await {
        Ok(_) | Err(rados::Error::Mismatch { .. }) => Ok(()),
        Err(e) if e.errno() == Errno::ENOENT => Ok(()),
        Err(e) => Err(e).context(|| format!("removing {object}")),
    }
}

/// Gives an image a name: false where another has it.
pub(crate) async fn give_name(io: &IoCtx, name: &str, id: &str) -> Result<bool> {
    let entry = NameId { name: name.to_owned(), id: id.to_owned() };
    match class::change(io, class::object::DIRECTORY, "dir_add_image", entry.to_bytes()).await {
        // The name or the id is in use.
        Err(e) if e.errno() == Errno::EEXIST || e.errno() == Errno::EBADF => {
            if name_of(io, id).await?.as_deref() != Some(name) {
                return Ok(false);
            }
        }
        other => other?,
    }
    let id_object = class::object::id(name);
    let op = WriteOp::new().create(true).exec("rbd", "set_id", id.to_owned().to_bytes());
    match io.write_op(&id_object, op).await {
        Err(e) if e.errno() == Errno::EEXIST => {
            if image::id_of(io, name).await? == id {
                return Ok(true);
            }
            class::change(io, class::object::DIRECTORY, "dir_remove_image", entry.to_bytes()).await?;
            Ok(false)
        }
        other => other.map(|_| true).context(|| format!("making {id_object}")),
    }
}

/// The name that the directory has for an id.
pub(crate) async fn name_of(io: &IoCtx, id: &str) -> Result<Option<String>> {
    let input = id.to_owned().to_bytes();
    match class::call(io, class::object::DIRECTORY, "dir_get_name", input).await {
        Err(e) if e.is_not_found() => Ok(None),
        other => other.map(Some),
    }
}

async fn create_objects(
    io: &IoCtx,
    name: &str,
    id: &str,
    size: u64,
    features: u64,
    layout: Layout,
    options: &CreateOptions,
) -> Result<()> {
    let id_object = class::object::id(name);
    let op = WriteOp::new().create(true).exec("rbd", "set_id", id.to_owned().to_bytes());
    io.write_op(&id_object, op).await.context(|| format!("making {id_object}"))?;
    let header = class::object::header(id);
    let args = CreateArgs {
        size,
        order: options.order,
        features,
        prefix: data_prefix(io.pool_id(), id, options.data_pool.is_some()),
        data_pool: options.data_pool.unwrap_or(-1),
    };
    let op = WriteOp::new().create(true).exec("rbd", "create", args.to_bytes());
    io.write_op(&header, op).await.context(|| format!("making {header}"))?;
    if features & feature::STRIPING != 0 {
        let args = Striping { unit: layout.stripe_unit, count: layout.stripe_count };
        class::change(io, &header, "set_stripe_unit_count", args.to_bytes()).await?;
    }
    if features & feature::OBJECT_MAP != 0 {
        object_map::resize(io, id, layout.objects(size), true).await?;
    }
    Ok(())
}

/// How the names of an image's data objects begin, whose header is in this pool.
pub(crate) fn data_prefix(pool: PoolId, id: &str, has_data_pool: bool) -> String {
    match has_data_pool {
        // Images of two pools may have their data in one.
        true => format!("rbd_data.{}.{id}", pool.0),
        false => format!("rbd_data.{id}"),
    }
}

/// Our number in the cluster and a random one, in hexadecimal.
fn new_id(io: &IoCtx) -> String {
    let random = runtime::OsEntropy.next_u64() as u32;
    let text = format!("{:x}{random:x}", io.cluster().global_id());
    text.get(text.len().saturating_sub(MAX_ID)..).unwrap_or(&text).to_owned()
}

/// No input.
pub(crate) fn nothing() -> Bytes {
    Bytes::new()
}
