//! Operations on the objects of one pool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use codec::Decode;
use messages::osd::{
    Checksums, ListWatchersResponse, OmapKeysResponse, OmapValsResponse, SparseReadResponse, StatResponse,
    WatchItem, checksum_type, flags,
};
use objecter::{OpRequest, Request};
use types::{Errno, HObject, PoolId, SnapContext, SnapId, Utime};

use crate::ops::Steps;
use crate::{Cluster, CopyFrom, Error, Pending, ReadOp, Result, WriteOp};

/// A pool, and how its objects are addressed: namespace, locator, snapshot. Cheap to clone; the `with_` methods give a
/// changed copy.
#[derive(Debug, Clone)]
pub struct IoCtx {
    cluster: Cluster,
    pool: PoolId,
    address: Arc<Address>,
}

#[derive(Debug, Clone, Default)]
struct Address {
    nspace: String,
    locator: String,
    snap: SnapId,
    snapc: SnapContext,
    timeout: Option<Duration>,
    flags: u32,
}

/// Size and modification time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectStat {
    pub size: u64,
    pub mtime: Utime,
}

/// Extents that hold data, and their bytes one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SparseRead {
    /// Offset and length, ascending.
    pub extents: Vec<(u64, u64)>,
    pub data: Bytes,
}

/// Some of an object's omap entries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OmapPage {
    pub entries: BTreeMap<Bytes, Bytes>,
    /// There are more behind the last one.
    pub more: bool,
}

impl IoCtx {
    pub(crate) fn new(cluster: Cluster, pool: PoolId) -> Self {
        let timeout = cluster.handle.config.op_timeout;
        Self { cluster, pool, address: Arc::new(Address { timeout, ..Address::default() }) }
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }
    pub fn pool_id(&self) -> PoolId {
        self.pool
    }
    /// The pool's name now; pools can be renamed. ENOENT when it is gone.
    pub fn pool_name(&self) -> Result<String> {
        self.cluster.map().pool_name(self.pool).map(str::to_owned).ok_or(Error::Os(Errno::ENOENT))
    }
    pub fn namespace(&self) -> &str {
        &self.address.nspace
    }
    pub fn locator(&self) -> &str {
        &self.address.locator
    }
    /// The snapshot that reads see.
    pub fn snap(&self) -> SnapId {
        self.address.snap
    }
    pub fn snap_context(&self) -> &SnapContext {
        &self.address.snapc
    }

    fn with(&self, change: impl FnOnce(&mut Address)) -> Self {
        let mut copy = self.clone();
        change(Arc::make_mut(&mut copy.address));
        copy
    }

    /// Objects of this namespace; `""` is the default one.
    #[must_use]
    pub fn with_namespace(&self, nspace: impl Into<String>) -> Self {
        self.with(|a| a.nspace = nspace.into())
    }

    /// Objects that this key places instead of their names; `""` for none.
    #[must_use]
    pub fn with_locator(&self, key: impl Into<String>) -> Self {
        self.with(|a| a.locator = key.into())
    }

    /// Reads see this snapshot; `SnapId::HEAD` for the present.
    #[must_use]
    pub fn at_snap(&self, snap: SnapId) -> Self {
        self.with(|a| a.snap = snap)
    }

    /// Writes preserve these self-managed snapshots; EINVAL when they are out of order.
    pub fn with_snap_context(&self, snapc: SnapContext) -> Result<Self> {
        if !snapc.is_valid() {
            return Err(Error::Os(Errno::EINVAL));
        }
        Ok(self.with(|a| a.snapc = snapc))
    }

    /// Operations give up after this long.
    #[must_use]
    pub fn with_timeout(&self, limit: Option<Duration>) -> Self {
        self.with(|a| a.timeout = limit)
    }

    /// The object as requests name it; the hash is filled in later.
    pub(crate) fn object(&self, name: &str, snap: SnapId) -> HObject {
        let a = &self.address;
        let key = if a.locator == name { "" } else { a.locator.as_str() };
        HObject {
            pool: self.pool,
            hash: 0,
            nspace: a.nspace.as_str().into(),
            key: key.into(),
            name: name.into(),
            snap,
            max: false,
        }
    }

    fn submit(&self, name: &str, snap: SnapId, steps: Steps, kind: u32, snapc: SnapContext) -> Pending {
        let errno = if name.is_empty() { Some(Errno::EINVAL) } else { steps.error };
        if let Some(errno) = errno {
            return Pending::failed(errno.into());
        }
        self.submit_object(self.object(name, snap), steps, kind, snapc)
    }

    pub(crate) fn submit_object(
        &self,
        object: HObject,
        steps: Steps,
        kind: u32,
        snapc: SnapContext,
    ) -> Pending {
        let a = &self.address;
        let request = OpRequest {
            object,
            ops: steps.ops,
            flags: steps.flags | a.flags | kind,
            snapc,
            mtime: steps.mtime,
            timeout: a.timeout,
        };
        let (_, rx) = self.cluster.shared().submit(Request::Op(Box::new(request)));
        Pending::new(rx)
    }

    /// Submits a compound read at once.
    pub fn submit_read(&self, object: &str, op: ReadOp) -> Pending {
        self.submit(object, self.address.snap, op.0, flags::READ, SnapContext::default())
    }

    /// Submits a compound write at once. EROFS on a copy that reads a snapshot.
    pub fn submit_write(&self, object: &str, op: WriteOp) -> Pending {
        if self.address.snap != SnapId::HEAD {
            return Pending::failed(Errno::EROFS.into());
        }
        self.submit(object, SnapId::HEAD, op.0, flags::WRITE, self.address.snapc.clone())
    }

    /// Runs a compound read.
    pub async fn read_op(&self, object: &str, op: ReadOp) -> Result<crate::Reply> {
        self.submit_read(object, op).await
    }

    /// Runs a compound write.
    pub async fn write_op(&self, object: &str, op: WriteOp) -> Result<crate::Reply> {
        self.submit_write(object, op).await
    }

    async fn read_one(&self, object: &str, op: ReadOp) -> Result<Bytes> {
        Ok(self.submit_read(object, op).await?.output(0))
    }

    async fn write_one(&self, object: &str, op: WriteOp) -> Result<()> {
        self.submit_write(object, op).await.map(drop)
    }

    // Data.

    /// Fewer bytes than `len` when the object ends before; none behind its end. `len` 0 reads nothing.
    pub async fn read(&self, object: &str, offset: u64, len: u64) -> Result<Bytes> {
        if len == 0 {
            return Ok(Bytes::new());
        }
        self.read_one(object, ReadOp::new().read(offset, len)).await
    }

    pub async fn sparse_read(&self, object: &str, offset: u64, len: u64) -> Result<SparseRead> {
        let output = self.read_one(object, ReadOp::new().sparse_read(offset, len)).await?;
        let r = SparseReadResponse::from_bytes(output)?;
        Ok(SparseRead { extents: r.extents.into_iter().collect(), data: r.data })
    }

    pub async fn write(&self, object: &str, offset: u64, data: impl Into<Bytes>) -> Result<()> {
        self.write_one(object, WriteOp::new().write(offset, data)).await
    }

    /// Replaces the contents.
    pub async fn write_full(&self, object: &str, data: impl Into<Bytes>) -> Result<()> {
        self.write_one(object, WriteOp::new().write_full(data)).await
    }

    pub async fn append(&self, object: &str, data: impl Into<Bytes>) -> Result<()> {
        self.write_one(object, WriteOp::new().append(data)).await
    }

    /// Repeats `data` over the range; its length divides `length`, else EINVAL.
    pub async fn write_same(
        &self,
        object: &str,
        offset: u64,
        length: u64,
        data: impl Into<Bytes>,
    ) -> Result<()> {
        self.write_one(object, WriteOp::new().write_same(offset, length, data)).await
    }

    pub async fn zero(&self, object: &str, offset: u64, length: u64) -> Result<()> {
        self.write_one(object, WriteOp::new().zero(offset, length)).await
    }

    pub async fn truncate(&self, object: &str, size: u64) -> Result<()> {
        self.write_one(object, WriteOp::new().truncate(size)).await
    }

    pub async fn remove(&self, object: &str) -> Result<()> {
        self.write_one(object, WriteOp::new().remove()).await
    }

    /// With `exclusive` an existing object is EEXIST.
    pub async fn create(&self, object: &str, exclusive: bool) -> Result<()> {
        self.write_one(object, WriteOp::new().create(exclusive)).await
    }

    pub async fn stat(&self, object: &str) -> Result<ObjectStat> {
        let r = StatResponse::from_bytes(self.read_one(object, ReadOp::new().stat()).await?)?;
        Ok(ObjectStat { size: r.size, mtime: r.mtime })
    }

    /// Whether the object's bytes are these; the offset of the first that is not, when they are not.
    pub async fn cmpext(&self, object: &str, offset: u64, data: impl Into<Bytes>) -> Result<Option<u64>> {
        match self.submit_read(object, ReadOp::new().cmpext(offset, data)).await {
            Ok(_) => Ok(None),
            Err(Error::Mismatch { offset }) => Ok(Some(offset)),
            Err(e) => Err(e),
        }
    }

    /// One checksum per chunk; `kind`: `checksum_type::*`.
    pub async fn checksum(
        &self,
        object: &str,
        kind: u8,
        init: u64,
        (offset, length): (u64, u64),
        chunk_size: u32,
    ) -> Result<Vec<u64>> {
        let op = ReadOp::new().checksum(kind, init, offset, length, chunk_size);
        let output = self.read_one(object, op).await?;
        Ok(match kind {
            checksum_type::XXHASH64 => Checksums::<u64>::from_bytes(output)?.0,
            _ => Checksums::<u32>::from_bytes(output)?.0.into_iter().map(u64::from).collect(),
        })
    }

    pub async fn copy_from(&self, object: &str, from: &CopyFrom<'_>) -> Result<()> {
        self.write_one(object, WriteOp::new().copy_from(from)).await
    }

    // Extended attributes.

    pub async fn get_xattr(&self, object: &str, name: &str) -> Result<Bytes> {
        self.read_one(object, ReadOp::new().get_xattr(name)).await
    }

    pub async fn get_xattrs(&self, object: &str) -> Result<BTreeMap<String, Bytes>> {
        let output = self.read_one(object, ReadOp::new().get_xattrs()).await?;
        Ok(BTreeMap::from_bytes(output)?)
    }

    pub async fn set_xattr(&self, object: &str, name: &str, value: impl Into<Bytes>) -> Result<()> {
        self.write_one(object, WriteOp::new().set_xattr(name, value)).await
    }

    pub async fn rm_xattr(&self, object: &str, name: &str) -> Result<()> {
        self.write_one(object, WriteOp::new().rm_xattr(name)).await
    }

    // Omap.

    /// Keys behind `start_after`, at most `max` (servers have a limit of their own), and whether there are more.
    pub async fn omap_keys(
        &self,
        object: &str,
        start_after: impl Into<Bytes>,
        max: u64,
    ) -> Result<(Vec<Bytes>, bool)> {
        let output = self.read_one(object, ReadOp::new().omap_get_keys(start_after, max)).await?;
        let r = OmapKeysResponse::from_bytes(output)?;
        Ok((r.keys, r.more))
    }

    /// Entries behind `start_after` whose keys begin with `prefix`, at most `max`. Go on behind the last key while there
    /// are more.
    pub async fn omap_vals(
        &self,
        object: &str,
        start_after: impl Into<Bytes>,
        prefix: impl Into<Bytes>,
        max: u64,
    ) -> Result<OmapPage> {
        let output = self.read_one(object, ReadOp::new().omap_get_vals(start_after, prefix, max)).await?;
        let r = OmapValsResponse::from_bytes(output)?;
        Ok(OmapPage { entries: r.vals, more: r.more })
    }

    /// Every entry, page by page in memory.
    pub async fn omap_all(&self, object: &str) -> Result<BTreeMap<Bytes, Bytes>> {
        let (mut all, mut after) = (BTreeMap::new(), Bytes::new());
        loop {
            let mut page = self.omap_vals(object, after, Bytes::new(), 1024).await?;
            let last = page.entries.last_key_value().map(|(k, _)| k.clone());
            all.append(&mut page.entries);
            match last {
                Some(last) if page.more => after = last,
                _ => return Ok(all),
            }
        }
    }

    pub async fn omap_by_keys(&self, object: &str, keys: BTreeSet<Bytes>) -> Result<BTreeMap<Bytes, Bytes>> {
        let output = self.read_one(object, ReadOp::new().omap_get_by_keys(keys)).await?;
        Ok(BTreeMap::from_bytes(output)?)
    }

    pub async fn omap_header(&self, object: &str) -> Result<Bytes> {
        self.read_one(object, ReadOp::new().omap_get_header()).await
    }

    pub async fn omap_set(&self, object: &str, vals: BTreeMap<Bytes, Bytes>) -> Result<()> {
        self.write_one(object, WriteOp::new().omap_set(vals)).await
    }

    pub async fn omap_set_header(&self, object: &str, header: impl Into<Bytes>) -> Result<()> {
        self.write_one(object, WriteOp::new().omap_set_header(header)).await
    }

    pub async fn omap_rm_keys(&self, object: &str, keys: BTreeSet<Bytes>) -> Result<()> {
        self.write_one(object, WriteOp::new().omap_rm_keys(keys)).await
    }

    pub async fn omap_clear(&self, object: &str) -> Result<()> {
        self.write_one(object, WriteOp::new().omap_clear()).await
    }

    // Class methods and watchers.

    /// Calls a class method; the method itself says whether it changes the object. Source: librados exec.
    pub async fn exec(
        &self,
        object: &str,
        class: &str,
        method: &str,
        input: impl Into<Bytes>,
    ) -> Result<Bytes> {
        self.read_one(object, ReadOp::new().exec(class, method, input)).await
    }

    pub async fn list_watchers(&self, object: &str) -> Result<Vec<WatchItem>> {
        let output = self.read_one(object, ReadOp::new().list_watchers()).await?;
        Ok(ListWatchersResponse::from_bytes(output)?.entries)
    }
}
