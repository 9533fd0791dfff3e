//! What must hold of an object that is removed.
//!
//! 1. Of what is not there nothing must hold: who wants it gone has that, and no delete marker is put there.
//! 2. A delete marker that is shown is there: it has no bytes and no tag, and the time that it was put there.
//!
//! Source: check_preconditions of RGWRados::Object::Delete in src/rgw/driver/rados/rgw_rados.cc of later
//! releases; 16.2 knows no such conditions.

use bytes::Bytes;
use codec::Decode;
use rgw::{Compression, Key, OlhInfo};
use types::RealTime;

use super::versions::INFO;
use super::{Head, SharedBucket, attr};
use crate::{Error, Plan, Site};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// `*` where any will do.
    pub etag: Option<Bytes>,
    /// Bytes as clients see them.
    pub size: Option<u64>,
    /// Seconds since the epoch: headers have no parts of one.
    pub modified_s: Option<u64>,
}

impl Wanted {
    /// Whether anything will do.
    pub fn is_anything(&self) -> bool {
        *self == Self::default()
    }

    fn check(&self, etag: &Bytes, size: u64, modified: RealTime) -> Result<(), Error> {
        let tag = self.etag.as_ref().is_none_or(|wanted| wanted == "*" || wanted == etag);
        let size = self.size.is_none_or(|wanted| wanted == size);
        let time = self.modified_s.is_none_or(|wanted| wanted == u64::from(modified.0.sec));
        if tag && size && time { Ok(()) } else { Err(Error::PreconditionFailed) }
    }

    pub(super) fn check_head(&self, head: &Head) -> Result<(), Error> {
        let told = head.attrs.get(attr::COMPRESSION).map(|raw| Compression::from_bytes(raw.clone()));
        let told = told.transpose()?.filter(|c| c.kind != Compression::default().kind);
        self.check(&head.etag(), told.map_or_else(|| head.size(), |c| c.size), head.modified)
    }
}

impl Site {
    /// Fails with `PreconditionFailed` unless something holds of the version that a key shows or names, or
    /// the one that it names is not there; with `NoSuchKey` where it shows nothing. `removal` is the tag of
    /// removals that looking brings with it.
    pub(super) fn check_wanted(
        &self,
        bucket: &SharedBucket,
        key: &Key,
        wanted: &Wanted,
        removal: Bytes,
    ) -> Plan<()> {
        if wanted.is_anything() {
            return Plan::ok(());
        }
        let (wanted, of_marker, names_version) = (wanted.clone(), wanted.clone(), !key.instance.is_empty());
        let marker = self.marker_shown(bucket, key);
        self.shown_by(bucket, key, 0, removal).and_then(move |shown| match shown {
            Some(head) => Plan::Done(wanted.check_head(&head)),
            None if names_version => Plan::ok(()),
            None => marker.try_map(move |marker| match marker {
                Some((_, put)) => of_marker.check(&Bytes::new(), 0, put),
                None => Err(Error::NoSuchKey),
            }),
        })
    }

    /// The id of the delete marker that a name shows, and when it was put there.
    pub fn marker_shown(&self, bucket: &SharedBucket, key: &Key) -> Plan<Option<(Bytes, RealTime)>> {
        let plain = Key { instance: Bytes::new(), ..key.clone() };
        let (site, bucket) = (self.clone(), bucket.clone());
        self.head(&bucket, &plain, 0).and_then(move |name| {
            let info = name.and_then(|name| name.attrs.get(INFO).cloned()).map(OlhInfo::from_bytes);
            let shown = match info.transpose() {
                Ok(Some(info)) if info.removed => Key { instance: info.target.key.instance, ..plain },
                Ok(_) => return Plan::ok(None),
                Err(e) => return Plan::failed(e.into()),
            };
            let id = super::versions::null_or(&shown.instance);
            site.entry_of(&bucket, &shown).then(move |entry| match entry {
                Ok(entry) => Plan::ok(Some((id, entry.meta.mtime))),
                Err(Error::NoSuchKey) => Plan::ok(None),
                Err(e) => Plan::failed(e),
            })
        })
    }
}
