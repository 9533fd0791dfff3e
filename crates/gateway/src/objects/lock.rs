//! Locks on versions of objects: until a time, or for as long as somebody holds them. Source:
//! verify_object_lock in src/rgw/rgw_common.cc, RGWRados::Object::Write::_do_write_meta in
//! src/rgw/rgw_rados.cc.

use bytes::Bytes;
use codec::{Decode, Encode};
use rgw::{BucketInfo, LegalHold, Retention, Versioning};
use types::{RealTime, Utime};

use super::attr::{LEGAL_HOLD, RETENTION};
use crate::Error;
use crate::system::Attrs;

const DAY_S: u32 = 24 * 3600;

/// What keeps a version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lock {
    pub retention: Option<Retention>,
    pub hold: Option<LegalHold>,
}

impl Lock {
    /// The lock that attributes of a head tell of; one that does not decode is an error, not none.
    pub fn of(attrs: &Attrs) -> Result<Self, Error> {
        let retention = attrs.get(RETENTION).map(|raw| Retention::from_bytes(raw.clone())).transpose()?;
        let hold = attrs.get(LEGAL_HOLD).map(|raw| LegalHold::from_bytes(raw.clone())).transpose()?;
        Ok(Self { retention, hold })
    }

    /// Whether the version may be removed: also in spite of a retention that lets itself be bypassed.
    pub fn lets_go(&self, now: RealTime, bypasses: bool) -> bool {
        let is_held = self.hold.as_ref().is_some_and(LegalHold::is_on);
        let kept = self.retention.as_ref().filter(|retention| retention.until.0.sec > now.0.sec);
        !is_held && kept.is_none_or(|retention| bypasses && retention.mode == Retention::GOVERNANCE)
    }
}

/// Whether a bucket's versions can have locks.
pub(crate) fn has_locks(bucket: &BucketInfo) -> bool {
    bucket.flags.has(Versioning::OBJECT_LOCK)
}

/// Gives a new version the retention that its bucket's rule says, unless it has one of its own.
pub(crate) fn lock_new(bucket: &BucketInfo, attrs: &mut Attrs, now: RealTime) {
    let rule = bucket.object_lock.rule.as_ref().filter(|_| has_locks(bucket));
    let Some(rule) = rule.filter(|_| !attrs.contains_key(RETENTION)) else { return };
    let days = if rule.days > 0 { rule.days } else { rule.years.saturating_mul(365) };
    let seconds = u32::try_from(days).unwrap_or(0).saturating_mul(DAY_S);
    let until = RealTime(Utime { sec: now.0.sec.saturating_add(seconds), nsec: now.0.nsec });
    let retention = Retention { mode: rule.mode.clone(), until };
    attrs.insert(Bytes::from_static(RETENTION), retention.to_bytes());
}

#[cfg(test)]
mod tests {
    use rgw::{DefaultRetention, Key, ObjectLock};

    use super::super::tests::finish;
    use super::super::versions_tests::{bucket, get, ids, owner, remover, version, with_flags};
    use super::super::{AttrChange, Condition, Remover, SharedBucket};
    use super::*;
    use crate::cluster::{Cluster, NOW, run, site};

    const LOCKED: u32 = Versioning::VERSIONED | Versioning::OBJECT_LOCK;

    fn at(seconds: u32) -> RealTime {
        RealTime(Utime { sec: NOW.0.sec + seconds, nsec: 0 })
    }

    fn put(c: &mut Cluster, b: &SharedBucket) -> Bytes {
        let number = c.done.len() as u64;
        run(c, |m| {
            let upload = site().put(b, Key::plain("k"), Bytes::new(), number, m).unwrap();
            upload.finish(finish(Condition::Any))
        })
        .unwrap()
        .version
    }

    fn set(c: &mut Cluster, b: &SharedBucket, id: &Bytes, change: AttrChange) -> Result<RealTime, Error> {
        let key = version("k", id);
        let head = site().head(b, &key, 0).run(c).unwrap().unwrap();
        run(c, |m| site().set_attrs_as_seen(b, &key, head, vec![change], m))
    }

    fn retention(mode: &'static [u8], until: RealTime) -> AttrChange {
        let value = Retention { mode: mode.into(), until }.to_bytes();
        (RETENTION.into(), Some(value))
    }

    fn remove(c: &mut Cluster, b: &SharedBucket, id: &Bytes, bypasses: bool) -> Result<(), Error> {
        let by = Remover { owner: owner(), bypasses, ..Remover::default() };
        run(c, |m| site().remove_version(b, version("k", id), &by, m)).map(drop)
    }

    #[test]
    fn a_version_stays_as_long_as_its_lock_says() {
        for (mode, by_bypass) in [(Retention::GOVERNANCE, true), (Retention::COMPLIANCE, false)] {
            let mut c = Cluster::default();
            let b = with_flags(&bucket(&mut c), LOCKED);
            let id = put(&mut c, &b);
            set(&mut c, &b, &id, retention(mode, at(1))).unwrap();
            assert_eq!(remove(&mut c, &b, &id, false), Err(Error::Locked));
            // A delete marker takes nothing away, and goes as it came.
            let marker = run(&mut c, |m| site().remove_version(&b, Key::plain("k"), &remover(), m)).unwrap();
            assert_eq!(get(&mut c, &b, version("k", &id)).unwrap(), "");
            remove(&mut c, &b, &marker.version, false).unwrap();
            let want = if by_bypass { Ok(()) } else { Err(Error::Locked) };
            assert_eq!(remove(&mut c, &b, &id, true), want);
            assert_eq!(ids(&mut c, &b, "k").is_empty(), by_bypass);
        }
        let mut c = Cluster::default();
        let b = with_flags(&bucket(&mut c), LOCKED);
        let id = put(&mut c, &b);
        set(&mut c, &b, &id, retention(Retention::COMPLIANCE, at(0))).unwrap();
        let hold = |status: &'static str| LegalHold { status: status.into() }.to_bytes();
        set(&mut c, &b, &id, (LEGAL_HOLD.into(), Some(hold("ON")))).unwrap();
        assert_eq!(remove(&mut c, &b, &id, true), Err(Error::Locked));
        set(&mut c, &b, &id, (LEGAL_HOLD.into(), Some("damaged".into()))).unwrap();
        assert!(matches!(remove(&mut c, &b, &id, true), Err(Error::Damaged(_))));
        set(&mut c, &b, &id, (LEGAL_HOLD.into(), Some(hold("OFF")))).unwrap();
        remove(&mut c, &b, &id, false).unwrap();
    }

    #[test]
    fn a_lock_that_another_one_set_is_not_replaced_unseen() {
        let mut c = Cluster::default();
        let b = with_flags(&bucket(&mut c), LOCKED);
        let id = put(&mut c, &b);
        let key = version("k", &id);
        let seen = site().head(&b, &key, 0).run(&mut c).unwrap().unwrap();
        set(&mut c, &b, &id, retention(Retention::COMPLIANCE, at(100))).unwrap();
        let late = vec![retention(Retention::GOVERNANCE, at(1))];
        let late = run(&mut c, |m| site().set_attrs_as_seen(&b, &key, seen, late, m));
        assert_eq!(late, Err(Error::Raced));
        assert_eq!(remove(&mut c, &b, &id, true), Err(Error::Locked));
    }

    #[test]
    fn new_versions_have_the_retention_of_their_bucket() {
        let mut c = Cluster::default();
        let mut b = BucketInfo::clone(&with_flags(&bucket(&mut c), LOCKED));
        let of = |days, years| DefaultRetention { mode: "COMPLIANCE".into(), days, years };
        for (days, years, until) in
            [(2, 0, NOW.0.sec + 2 * DAY_S), (0, 1, NOW.0.sec + 365 * DAY_S), (i32::MAX, 0, u32::MAX)]
        {
            b.object_lock = ObjectLock { enabled: true, rule: Some(of(days, years)) };
            let b = SharedBucket::new(b.clone());
            let id = put(&mut c, &b);
            let head = site().head(&b, &version("k", &id), 0).run(&mut c).unwrap().unwrap();
            let lock = Lock::of(&head.attrs).unwrap();
            let want = Retention {
                mode: "COMPLIANCE".into(),
                until: RealTime(Utime { sec: until, nsec: NOW.0.nsec }),
            };
            assert_eq!((lock.retention, lock.hold), (Some(want), None));
        }
        // One that is given counts, and a bucket without locks gives none.
        let (name, value) = retention(Retention::GOVERNANCE, at(5));
        let mut attrs = Attrs::from([(name, value.unwrap())]);
        let given = attrs.clone();
        lock_new(&b, &mut attrs, NOW);
        assert_eq!(attrs, given);
        b.flags = Versioning(Versioning::VERSIONED);
        let mut none = Attrs::new();
        lock_new(&b, &mut none, NOW);
        assert_eq!(none, Attrs::new());
    }

    #[test]
    fn versions_with_locks_have_ids_also_where_versions_are_suspended() {
        let mut c = Cluster::default();
        let b = with_flags(&bucket(&mut c), LOCKED | Versioning::VERSIONS_SUSPENDED);
        let first = put(&mut c, &b);
        let second = put(&mut c, &b);
        assert_eq!(ids(&mut c, &b, "k"), [second, first]);
    }
}
