//! An object's head: its attributes, its manifest, and the first of its bytes.

use bytes::Bytes;
use codec::Decode;
use rgw::{BucketInfo, Key, Manifest, RawObject};
use types::RealTime;

use super::attr;
use super::versions::{NAME_TAG, without_null};
use crate::plan::optional;
use crate::system::{Attrs, own};
use crate::{Error, Op, Plan, Reply, Request, Site};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub object: RawObject,
    /// Its id; empty for the object's only one, and for the one that clients call `null`.
    pub version: Bytes,
    pub attrs: Attrs,
    /// None for objects that an administrator's tools left.
    pub manifest: Option<Manifest>,
    /// Bytes of the head alone.
    pub head_size: u64,
    pub modified: RealTime,
    /// As many of the head's bytes as were asked for with it.
    pub first: Bytes,
}

impl Head {
    /// Bytes of the whole object, as stored.
    pub fn size(&self) -> u64 {
        self.manifest.as_ref().map_or(self.head_size, |m| m.size)
    }

    /// Of the request that wrote it.
    pub fn id_tag(&self) -> Option<&Bytes> {
        self.attrs.get(attr::ID_TAG)
    }

    /// What its tail's objects are referred to by.
    pub(crate) fn tail_tag(&self) -> Bytes {
        self.attrs.get(attr::TAIL_TAG).or_else(|| self.id_tag()).cloned().unwrap_or_default()
    }

    /// Whether another head, which had the same name before, is that of the same object.
    pub(crate) fn is_same_object(&self, before: &Self) -> bool {
        self.tail_tag() == before.tail_tag() && !self.tail_tag().is_empty()
    }

    /// What holds as long as nobody wrote here, where the head says it: of one without a tag, that there is
    /// none still, and that the name is the same.
    pub(crate) fn is_in_place(&self) -> Vec<Op> {
        let is = |name: &'static [u8], value: &Bytes| Op::AttrIs {
            name: Bytes::from_static(name),
            value: value.clone(),
        };
        match (self.id_tag(), self.name_tag()) {
            (Some(tag), _) => vec![is(attr::ID_TAG, tag)],
            (None, Some(tag)) => {
                vec![Op::Stat, is(attr::ID_TAG, &Bytes::new()), is(NAME_TAG, tag)]
            }
            (None, None) => vec![Op::Stat, is(attr::ID_TAG, &Bytes::new())],
        }
    }

    /// What holds as long as the object is there with the data that it has.
    pub(crate) fn is_there(&self) -> [Op; 2] {
        let tag = self.id_tag().cloned().unwrap_or_default();
        // A head without a tag is as one with an empty one.
        [Op::Stat, Op::AttrIs { name: Bytes::from_static(attr::ID_TAG), value: tag }]
    }

    /// What holds as long as attributes are what they are that may change.
    pub(crate) fn is_unchanged(&self) -> Vec<Op> {
        let value = |name| self.attrs.get(name).cloned().unwrap_or_default();
        let is = |name: &'static [u8]| Op::AttrIs { name: Bytes::from_static(name), value: value(name) };
        attr::CHANGEABLE.into_iter().map(is).collect()
    }

    pub fn etag(&self) -> Bytes {
        self.attrs.get(attr::ETAG).map(super::text).unwrap_or_default()
    }

    pub(super) fn read(object: RawObject, version: Bytes, reply: &Reply) -> Result<Self, Error> {
        let attrs = own(reply.attrs(0)?);
        let (head_size, modified) = reply.stat(1)?;
        let manifest = attrs.get(attr::MANIFEST).map(|raw| Manifest::from_bytes(raw.clone())).transpose()?;
        let first = if reply.outputs.len() > 2 { reply.data(2)? } else { Bytes::new() };
        Ok(Self { object, version, attrs, manifest, head_size, modified, first })
    }
}

impl Site {
    /// What lies under a key, with up to `prefetch` of its bytes: where a bucket keeps versions, under one
    /// without a version, what says which version is shown.
    pub fn head(&self, bucket: &BucketInfo, key: &Key, prefetch: u64) -> Plan<Option<Head>> {
        let object = match self.head_object(bucket, key) {
            Ok(object) => object,
            Err(e) => return Plan::failed(e),
        };
        let version = without_null(key.clone()).instance;
        let mut request = Request::new(object.clone()).op(Op::Attrs).op(Op::Stat);
        if prefetch > 0 {
            request = request.op(Op::Read { offset: 0, length: prefetch });
        }
        optional(Plan::ask(request))
            .try_map(move |reply| reply.map(|reply| Head::read(object, version, &reply)).transpose())
    }
}
