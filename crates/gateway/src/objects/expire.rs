//! Objects that go because their time has come: what a list told of them is looked at again. Source:
//! remove_expired_obj in src/rgw/rgw_lc.cc.

use std::collections::BTreeMap;

use bytes::Bytes;
use rgw::Key;
use rgw::index::entry::{CURRENT, DELETE_MARKER, VERSIONED};

use super::change::Change;
use super::remove::remove_head;
use super::versions::{is_versioned, without_null};
use super::{Head, Remover, SharedBucket};
use crate::lifecycle::{Seen, has_tags};
use crate::{Error, Moment, Plan, Request, Site};

const TAGS: &[u8] = b"user.rgw.x-amz-tagging";

/// Whether it is what was listed, with all of some tags. A version with an id has the data that it had; a
/// list of versions does not tell when its attributes changed.
pub(super) fn is_seen(head: &Head, seen: &Seen, tags: &BTreeMap<Bytes, Bytes>) -> Result<bool, Error> {
    let is_same = head.modified <= seen.meta.mtime || !head.version.is_empty();
    Ok(is_same && has_tags(head.attrs.get(TAGS), tags)?)
}

impl Site {
    /// Removes what is shown, as long as it is what was listed.
    pub(crate) fn expire_shown(
        &self,
        bucket: &SharedBucket,
        key: Key,
        seen: &Seen,
        tags: &BTreeMap<Bytes, Bytes>,
        (by, moment): (Remover, &mut Moment),
    ) -> Plan<bool> {
        let (site, bucket, seen, tags) = (self.clone(), bucket.clone(), seen.clone(), tags.clone());
        if is_versioned(&bucket) {
            let shown = self.shown(&bucket, &key, 0, moment);
            let removed = self.remove_version(&bucket, key, &by, moment);
            return shown.and_then(move |head| {
                let id = without_null(seen.key.clone()).instance;
                let is_it = head.filter(|head| head.version == id).map(|head| is_seen(&head, &seen, &tags));
                match is_it.transpose() {
                    Err(e) => Plan::failed(e),
                    Ok(Some(true)) => removed.and_then(|_| Plan::ok(true)),
                    Ok(_) => Plan::ok(false),
                }
            });
        }
        let tag: Bytes = [b"_", &moment.letters(31)[..]].concat().into();
        let change = match Change::new(self, &bucket, &key, &key.name, tag) {
            Ok(change) => change,
            Err(e) => return Plan::failed(e),
        };
        self.head(&bucket, &key, 0).and_then(move |head| {
            let Some(head) = head.filter(|head| head.name_tag().is_none()) else { return Plan::ok(false) };
            match is_seen(&head, &seen, &tags) {
                Err(e) => Plan::failed(e),
                Ok(false) => Plan::ok(false),
                Ok(true) => {
                    let request = Request::new(head.object.clone());
                    let request = head.is_in_place().into_iter().fold(request, Request::op);
                    let request = head.is_unchanged().into_iter().fold(request, Request::op);
                    remove_head((site, bucket), head, request, change, Vec::new()).then(|done| match done {
                        Err(Error::Rados(types::Errno::ENOENT)) => Plan::ok(false),
                        done => Plan::Done(done.map(|()| true)),
                    })
                }
            }
        })
    }

    /// Removes a version, as long as it is not the one that is shown: a delete marker may be.
    pub(crate) fn expire_version(
        &self,
        bucket: &SharedBucket,
        seen: &Seen,
        tags: &BTreeMap<Bytes, Bytes>,
        (by, moment): (Remover, &mut Moment),
    ) -> Plan<bool> {
        if !is_versioned(bucket) {
            return Plan::ok(false);
        }
        let (is_marker, key) = (seen.is_marker, without_null(seen.key.clone()));
        let removed = self.remove_version(bucket, seen.key.clone(), &by, moment);
        let (entry, head) = (self.entry_of(bucket, &key), self.head(bucket, &key, 0));
        let (seen, tags) = (seen.clone(), tags.clone());
        let has_all = move |head: Option<Head>| match head {
            _ if is_marker => Ok(true),
            Some(head) => is_seen(&head, &seen, &tags),
            None => Ok(false),
        };
        entry.and_then(move |entry| {
            let is_shown = !entry.has(VERSIONED) || entry.has(CURRENT);
            if is_marker != entry.has(DELETE_MARKER) || (is_shown && !is_marker) {
                return Plan::ok(false);
            }
            head.try_map(has_all).and_then(|is_it| match is_it {
                true => removed.and_then(|_| Plan::ok(true)),
                false => Plan::ok(false),
            })
        })
    }
}
