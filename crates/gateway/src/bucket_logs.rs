//! Logs of buckets: records are appended to an object that is no client's, and that becomes a client's object
//! of the bucket that has the logs. Source: set_logging_object_name, write_logging_object and
//! commit_logging_object in src/rgw/driver/rados/rgw_sal_rados.cc of 20; 16.2 has nothing of the kind.
//!
//! 1. The name of the log under way is in an object of its own, of which the version counts: of two that
//!    begin the next log, one does.
//! 2. A log is closed before it becomes an object: nothing is appended to it any more, and its bytes are
//!    those that were summed up. Whoever finds it closed brings it to its end, and begins the next one.

use bytes::Bytes;
use codec::{Decode, DecodeError, Encode, Reader, Writer};
use rgw::{Key, Manifest, Object, ObjectVersion, Pool, RawObject};
use types::Errno;

use crate::objects::{Change, Condition, Finish, NewHead, SharedBucket, is_versioned};
use crate::plan::optional;
use crate::system::{self, Attrs, Over, Write};
use crate::{Error, Moment, Op, Plan, Request, Site};

/// Bytes of one log, which is one RADOS object. Source: osd_max_object_size in src/common/options.cc.
const MAX_LOG: u64 = 128 << 20;
/// An attribute of what is closed. Other gateways than ours take no notice of it.
const CLOSED: &[u8] = b"user.rgw.loligo.closed";

/// What stands in an object, and nothing around it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Bare(Bytes);

impl Encode for Bare {
    fn encode(&self, w: &mut Writer) {
        w.raw(&self.0);
    }
}
impl Decode for Bare {
    fn decode(r: &mut Reader) -> Result<Self, DecodeError> {
        Ok(Self(r.rest()))
    }
}

/// The log under way of a bucket that has logs, and of a prefix in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogUnderWay {
    pub name: Bytes,
    version: ObjectVersion,
}

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appended {
    Done,
    /// The log takes no more.
    Closed,
}

impl Site {
    fn log_pool(&self, bucket: &SharedBucket) -> Result<Pool, Error> {
        let rule = &bucket.placement;
        self.placement(rule)?.data(rule.storage_class()).cloned().ok_or(Error::NoSuchPlacement)
    }

    fn log_name_object(&self, bucket: &SharedBucket, prefix: &Bytes) -> Result<RawObject, Error> {
        let b = &bucket.bucket;
        let oid = [b"logging.", &b.tenant[..], b".bucket.", &b.id, b"/", prefix].concat();
        Ok(RawObject::new(&self.log_pool(bucket)?, oid))
    }

    fn log_manifest(bucket: &SharedBucket, name: &Bytes, size: u64) -> Manifest {
        let object = Object { bucket: bucket.bucket.clone(), key: Key::plain(name.clone()) };
        Manifest::whole(object, bucket.placement.clone(), name.clone(), size, 0, MAX_LOG)
    }

    fn log_object(&self, bucket: &SharedBucket, name: &Bytes) -> Result<RawObject, Error> {
        let stripe = Self::log_manifest(bucket, name, 1).stripe_at(0).ok_or(Error::Unexpected)?;
        self.raw(&stripe.object, &stripe.placement)
    }

    /// The log under way; nothing where none was begun.
    pub fn log_under_way(&self, bucket: &SharedBucket, prefix: &Bytes) -> Plan<Option<LogUnderWay>> {
        match self.log_name_object(bucket, prefix) {
            Err(e) => Plan::failed(e),
            Ok(object) => optional(system::read::<Bare>(object)).try_map(|stored| {
                Ok(stored.map(|stored| LogUnderWay { name: stored.value.0, version: stored.version }))
            }),
        }
    }

    /// Begins a log in place of the one that was under way, or the first one; whether it was not somebody
    /// else who did.
    pub fn begin_log(
        &self,
        bucket: &SharedBucket,
        prefix: &Bytes,
        name: Bytes,
        known: Option<&LogUnderWay>,
        moment: &mut Moment,
    ) -> Plan<bool> {
        let places =
            self.log_name_object(bucket, prefix).and_then(|at| Ok((at, self.log_object(bucket, &name)?)));
        let (object, log) = match places {
            Ok(places) => places,
            Err(e) => return Plan::failed(e),
        };
        let (over, version) = match known {
            None => (Over::Nothing, system::first_version(moment.version_tag())),
            Some(known) => (Over::Version(known.version.clone()), system::next_version(&known.version)),
        };
        let (data, version, now) = (name, Some(version), moment.now);
        let write = Write { object, data, attrs: Attrs::new(), over, version, now };
        let (site, made) = (self.clone(), Request::new(log.clone()).op(Op::Create { exclusive: true }));
        Plan::ask(made).and_then(move |_| system::write(&site, write)).then(move |done| match done {
            Ok(()) => Plan::ok(true),
            Err(e) if e.is_unclear() => Plan::failed(e),
            Err(e) => {
                let gone = Plan::ask(Request::new(log).op(Op::Remove { may_miss: true }));
                gone.then(move |_| match e {
                    Error::Raced | Error::Rados(Errno::EEXIST | Errno::ENOENT) => Plan::ok(false),
                    e => Plan::failed(e),
                })
            }
        })
    }

    /// Ends what was under way: the next record begins anew. Whether it was not somebody else who did.
    pub fn end_log(&self, bucket: &SharedBucket, prefix: &Bytes, known: &LogUnderWay) -> Plan<bool> {
        let object = match self.log_name_object(bucket, prefix) {
            Ok(object) => object,
            Err(e) => return Plan::failed(e),
        };
        system::remove(self, object, Some(&known.version)).then(|done| match done {
            Ok(()) => Plan::ok(true),
            Err(Error::Raced | Error::Rados(Errno::ENOENT)) => Plan::ok(false),
            Err(e) => Plan::failed(e),
        })
    }

    /// Puts a record behind the others of a log.
    pub fn append_log(&self, bucket: &SharedBucket, name: &Bytes, record: Bytes) -> Plan<Appended> {
        let object = match self.log_object(bucket, name) {
            Ok(object) => object,
            Err(e) => return Plan::failed(e),
        };
        let open = Op::AttrIs { name: Bytes::from_static(CLOSED), value: Bytes::new() };
        let request = Request::new(object).op(Op::Stat).op(open).op(Op::Append(record));
        Plan::ask(request).then(|done| match done {
            Ok(_) => Plan::ok(Appended::Done),
            Err(Error::Raced | Error::Rados(Errno::ENOENT | Errno::EFBIG)) => Plan::ok(Appended::Closed),
            Err(e) => Plan::failed(e),
        })
    }

    /// Closes a log, and tells its bytes; nothing where it is not there any more.
    pub fn close_log(&self, bucket: &SharedBucket, name: &Bytes) -> Plan<Option<u64>> {
        let object = match self.log_object(bucket, name) {
            Ok(object) => object,
            Err(e) => return Plan::failed(e),
        };
        let close = Request::new(object.clone()).op(Op::Stat).set_attr(CLOSED, "1");
        let look = Request::new(object).op(Op::Stat);
        let closed = Plan::ask(close).and_then(|_| Plan::ask(look)).try_map(|reply| Ok(reply.stat(0)?.0));
        optional(closed)
    }

    /// Bytes of a log that is closed.
    pub fn read_log(&self, bucket: &SharedBucket, name: &Bytes, offset: u64, length: u64) -> Plan<Bytes> {
        match self.log_object(bucket, name) {
            Ok(object) => {
                Plan::ask(Request::new(object).op(Op::Read { offset, length })).try_map(|reply| reply.data(0))
            }
            Err(e) => Plan::failed(e),
        }
    }

    /// Makes an object of a log that is closed, unless that was done. One without a record goes. `number` no
    /// two requests of this gateway have.
    pub fn commit_log(
        &self,
        bucket: &SharedBucket,
        name: &Bytes,
        (size, attrs): (u64, Attrs),
        number: u64,
        moment: &mut Moment,
    ) -> Plan<()> {
        if size == 0 {
            return match self.log_object(bucket, name) {
                Ok(log) => {
                    Plan::ask(Request::new(log).op(Op::Remove { may_miss: true })).and_then(|_| Plan::ok(()))
                }
                Err(e) => Plan::failed(e),
            };
        }
        match self.log_head(bucket, name, (size, attrs), number, moment) {
            Err(e) => Plan::failed(e),
            Ok(new) => new.write().then(|made| match made {
                Ok(_) | Err(Error::PreconditionFailed) => Plan::ok(()),
                Err(e) => Plan::failed(e),
            }),
        }
    }

    fn log_head(
        &self,
        bucket: &SharedBucket,
        name: &Bytes,
        (size, attrs): (u64, Attrs),
        number: u64,
        moment: &mut Moment,
    ) -> Result<NewHead, Error> {
        let (manifest, key) = (Self::log_manifest(bucket, name, size), Key::plain(name.clone()));
        let tag = self.unique(number);
        let change = Change::new(self, bucket, &key, name, tag.clone())?;
        // Its tail is one, whoever makes the object of it: there is one version.
        let showing = is_versioned(bucket).then(|| self.showing(bucket, &key, moment));
        let ended: Bytes = [&tag[..], b"\0"].concat().into();
        Ok(NewHead {
            site: self.clone(),
            bucket: bucket.clone(),
            object: self.head_object(bucket, &key)?,
            data: Some(Bytes::new()),
            manifest,
            tag: ended.clone(),
            tail_tag: ended,
            change: if showing.is_some() { change.of_version() } else { change },
            first: None,
            keeps_tail: false,
            unchanged: Vec::new(),
            showing,
            remove: Vec::new(),
            finish: Finish { attrs, accounted_size: None, condition: Condition::Missing, now: moment.now },
        })
    }

    /// Removes the log under way, with what it has: its bucket is gone.
    pub fn drop_log(&self, bucket: &SharedBucket, prefix: &Bytes) -> Plan<()> {
        let (site, bucket, at) = (self.clone(), bucket.clone(), prefix.clone());
        self.log_under_way(&bucket, prefix).and_then(move |known| {
            let Some(known) = known else { return Plan::ok(()) };
            let log = match site.log_object(&bucket, &known.name) {
                Ok(log) => Request::new(log).op(Op::Remove { may_miss: true }),
                Err(e) => return Plan::failed(e),
            };
            site.end_log(&bucket, &at, &known).and_then(|_| Plan::ask(log)).and_then(|_| Plan::ok(()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Cluster, run, site};
    use crate::objects::tests::{bucket, get, list};
    use crate::objects::versions_tests;

    fn begin(c: &mut Cluster, b: &SharedBucket, name: &'static str, known: Option<&LogUnderWay>) -> bool {
        run(c, |moment| site().begin_log(b, &"p/".into(), name.into(), known, moment)).unwrap()
    }

    fn under_way(c: &mut Cluster, b: &SharedBucket) -> Option<LogUnderWay> {
        site().log_under_way(b, &"p/".into()).run(c).unwrap()
    }

    fn append(c: &mut Cluster, b: &SharedBucket, name: &'static str, record: &'static str) -> Appended {
        site().append_log(b, &name.into(), record.into()).run(c).unwrap()
    }

    fn commit(c: &mut Cluster, b: &SharedBucket, name: &'static str) -> Option<u64> {
        let size = site().close_log(b, &name.into()).run(c).unwrap()?;
        let data = site().read_log(b, &name.into(), 0, size).run(c).unwrap();
        assert_eq!(data.len() as u64, size);
        let (attrs, number) = (Attrs::from([("user.rgw.etag".into(), "sum".into())]), c.done.len() as u64);
        run(c, |moment| site().commit_log(b, &name.into(), (size, attrs), number, moment)).unwrap();
        Some(size)
    }

    #[test]
    fn records_become_an_object() {
        for b in [bucket, versions_tests::bucket] {
            let mut c = Cluster::default();
            let b = b(&mut c);
            assert_eq!(under_way(&mut c, &b), None);
            assert!(begin(&mut c, &b, "p/1", None));
            assert_eq!(append(&mut c, &b, "p/1", "one\n"), Appended::Done);
            assert_eq!(append(&mut c, &b, "p/1", "two\n"), Appended::Done);
            // Where later releases look for it.
            let log = site().log_object(&b, &"p/1".into()).unwrap();
            assert_eq!(log.oid, [&b.bucket.id[..], b"__shadow_p/10"].concat());
            let name = site().log_name_object(&b, &"p/".into()).unwrap();
            assert_eq!(name.oid, [&b"logging..bucket."[..], &b.bucket.id, b"/p/"].concat());
            assert_eq!(list(&mut c, &b), Vec::<String>::new());
            assert_eq!(commit(&mut c, &b, "p/1"), Some(8));
            assert_eq!(append(&mut c, &b, "p/1", "three\n"), Appended::Closed);
            assert_eq!(commit(&mut c, &b, "p/1"), Some(8), "it is done once");
            let read = versions_tests::get(&mut c, &b, Key::plain("p/1"));
            assert_eq!((read, list(&mut c, &b)), (Ok("one\ntwo\n".into()), vec!["p/1".to_owned()]));
        }
    }

    #[test]
    fn of_two_that_begin_a_log_one_does() {
        let mut c = Cluster::default();
        let b = bucket(&mut c);
        assert!(begin(&mut c, &b, "p/1", None));
        assert!(!begin(&mut c, &b, "p/2", None));
        let first = under_way(&mut c, &b).unwrap();
        assert_eq!((&first.name[..], append(&mut c, &b, "p/2", "x")), (&b"p/1"[..], Appended::Closed));
        assert!(begin(&mut c, &b, "p/3", Some(&first)) && !begin(&mut c, &b, "p/4", Some(&first)));
        let next = under_way(&mut c, &b).unwrap();
        assert_eq!(next.name, "p/3");
        let ended =
            |c: &mut Cluster, known: &LogUnderWay| site().end_log(&b, &"p/".into(), known).run(c).unwrap();
        assert_eq!((ended(&mut c, &first), ended(&mut c, &next), ended(&mut c, &next)), (false, true, false));
        assert_eq!(under_way(&mut c, &b), None);
    }

    #[test]
    fn logs_without_a_record_are_none() {
        let mut c = Cluster::default();
        let b = bucket(&mut c);
        begin(&mut c, &b, "p/1", None);
        assert_eq!((commit(&mut c, &b, "p/1"), commit(&mut c, &b, "p/1")), (Some(0), None));
        assert_eq!(list(&mut c, &b), Vec::<String>::new());
        // Of a bucket that goes nothing stays.
        let known = under_way(&mut c, &b);
        begin(&mut c, &b, "p/2", known.as_ref());
        append(&mut c, &b, "p/2", "one\n");
        site().drop_log(&b, &"p/".into()).run(&mut c).unwrap();
        assert_eq!((under_way(&mut c, &b), c.names("default.rgw.buckets.data")), (None, Vec::new()));
        assert_eq!(get(&mut c, &b, "p/2"), Err(Error::NoSuchKey));
    }
}
