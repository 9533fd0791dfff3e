//! Changes to a bucket's index, each in two steps around that to the object. Source:
//! RGWRados::Bucket::UpdateIndex in src/rgw/rgw_rados.cc.

use bytes::Bytes;
use classes::client::index::{self, CompleteArgs, GuardArgs, LinkArgs, PrepareArgs, UnlinkArgs};
use rgw::index::log::op;
use rgw::index::{Key as IndexKey, Meta, Written, Zones};
use rgw::{BucketInfo, Key, RawObject};
use types::Errno;

use super::SharedBucket;
use crate::error::BUSY_RESHARDING;
use crate::{Error, Op, Plan, Reply, Request, Site};

/// Source: RGW_BILOG_FLAG_VERSIONED_OP in src/cls/rgw/cls_rgw_types.h.
const VERSIONED: u16 = 1;

/// One change, from its preparation to its completion.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    shard: RawObject,
    /// What the shard follows from.
    hashed: Bytes,
    key: IndexKey,
    locator: Bytes,
    pub tag: Bytes,
    zones: Zones,
    log_flags: u16,
}

impl Change {
    /// `hashed` is the name that the shard follows from: the object's own, or that of the object that parts
    /// are uploaded for.
    pub fn new(
        site: &Site,
        bucket: &BucketInfo,
        key: &Key,
        hashed: &[u8],
        tag: Bytes,
    ) -> Result<Self, Error> {
        let b = &bucket.bucket;
        let place = [&b.entry_point()[..], b":", &b.id].concat();
        Ok(Self {
            shard: site.index_object(bucket, hashed)?,
            hashed: Bytes::copy_from_slice(hashed),
            key: IndexKey { name: key.index_name(), instance: key.instance.clone() },
            locator: key.locator(),
            tag,
            zones: Zones::of(&site.zone.id, &place),
            log_flags: 0,
        })
    }

    /// The same for a version of an object.
    pub fn of_version(self) -> Self {
        Self { log_flags: VERSIONED, ..self }
    }

    /// The same in the index that the bucket has.
    pub fn in_bucket(&self, site: &Site, bucket: &BucketInfo) -> Result<Self, Error> {
        Ok(Self { shard: site.index_object(bucket, &self.hashed)?, ..self.clone() })
    }

    /// Has the index do something that may fail with ENOENT itself: `NoSuchBucket` where its shard is gone.
    pub fn ask(&self, request: Request) -> Plan<Reply> {
        let shard = Request::new(self.shard.clone()).op(Op::Stat);
        Plan::ask(request).then(move |done| match done {
            Err(Error::Rados(Errno::ENOENT)) => Plan::ask(shard).then(|there| match there {
                Err(Error::Rados(Errno::ENOENT)) => Plan::failed(Error::NoSuchBucket),
                Err(e) => Plan::failed(e),
                Ok(_) => Plan::failed(Error::Rados(Errno::ENOENT)),
            }),
            done => Plan::Done(done),
        })
    }

    /// The object's name without a version.
    pub fn name(&self) -> IndexKey {
        IndexKey::plain(self.key.name.clone())
    }

    /// Shows the version at the object's name, which has this tag; a delete marker with what listings say of
    /// it. Epoch 0 is the next one; at an older one a version is listed, and not shown.
    pub fn link(&self, name_tag: Bytes, marker: Option<Meta>, epoch: u64) -> Request {
        let args = LinkArgs {
            key: self.key.clone(),
            tag: name_tag,
            delete_marker: marker.is_some(),
            op_tag: self.tag.clone(),
            meta: marker.unwrap_or_default(),
            epoch,
            zones: self.zones.clone(),
            ..LinkArgs::default()
        };
        self.guarded().call(&index::LINK, &args)
    }

    /// Takes the version off the object's name, which has this tag.
    pub fn unlink(&self, name_tag: Bytes) -> Request {
        let args = UnlinkArgs {
            key: self.key.clone(),
            op_tag: self.tag.clone(),
            epoch: 0,
            log: false,
            log_flags: 0,
            tag: name_tag,
            zones: self.zones.clone(),
        };
        self.guarded().call(&index::UNLINK, &args)
    }

    pub fn guarded(&self) -> Request {
        let args = GuardArgs { result: -BUSY_RESHARDING };
        // A shard that is gone is not made anew: its bucket is gone, too.
        Request::new(self.shard.clone()).op(Op::Stat).call(&index::GUARD_RESHARDING, &args)
    }

    fn prepare_here(&self, op: u8) -> Plan<Reply> {
        let args = PrepareArgs {
            op,
            key: self.key.clone(),
            tag: self.tag.clone(),
            locator: self.locator.clone(),
            log_flags: self.log_flags,
            zones: self.zones.clone(),
            ..PrepareArgs::default()
        };
        let prepared = Plan::ask(self.guarded().call(&index::PREPARE, &args));
        prepared.when(Error::Rados(Errno::ENOENT), Error::NoSuchBucket)
    }

    /// Prepares the change in the index that the bucket has, and goes on with that.
    fn prepare(self, site: &Site, bucket: SharedBucket, op: u8) -> Plan<Prepared> {
        let of = site.clone();
        let prepared = site.follow(bucket, move |bucket| match self.in_bucket(&of, bucket) {
            Ok(change) => change.prepare_here(op).and_then(|reply| Plan::ok((change, reply))),
            Err(e) => Plan::failed(e),
        });
        prepared.and_then(|(bucket, (change, reply))| Plan::ok(Prepared { bucket, change, reply }))
    }

    pub fn prepare_add(self, site: &Site, bucket: SharedBucket) -> Plan<Prepared> {
        self.prepare(site, bucket, op::ADD)
    }

    pub fn prepare_delete(self, site: &Site, bucket: SharedBucket) -> Plan<Prepared> {
        self.prepare(site, bucket, op::DELETE)
    }

    fn complete(&self, op: u8, written: Written, meta: Meta, remove: Vec<IndexKey>) -> Request {
        let args = CompleteArgs {
            op,
            key: self.key.clone(),
            locator: self.locator.clone(),
            written,
            meta,
            tag: self.tag.clone(),
            remove: remove.into_iter().collect(),
            log_flags: self.log_flags,
            zones: self.zones.clone(),
            ..CompleteArgs::default()
        };
        self.guarded().call(&index::COMPLETE, &args)
    }

    /// The object is as `meta` says; `remove` are entries that go with the change.
    pub fn added(&self, head: &Reply, meta: Meta, remove: Vec<IndexKey>) -> Request {
        self.complete(op::ADD, written(head), meta, remove)
    }

    /// The object is gone.
    pub fn deleted(&self, head: &Reply, meta: Meta, remove: Vec<IndexKey>) -> Request {
        self.complete(op::DELETE, written(head), meta, remove)
    }

    /// The entry goes, with what others began.
    pub fn taken_out(&self) -> Request {
        self.complete(op::CANCEL, Written::default(), Meta::default(), vec![self.key.clone()])
    }

    /// Nothing came of it.
    pub fn cancelled(&self) -> Request {
        self.complete(op::CANCEL, Written::default(), Meta::default(), Vec::new())
    }
}

/// A change that the index knows of.
#[derive(Debug)]
pub(crate) struct Prepared {
    /// As it is then.
    pub bucket: SharedBucket,
    pub change: Change,
    pub reply: Reply,
}

fn written(head: &Reply) -> Written {
    Written { pool: head.pool, epoch: head.version }
}
