//! Users, and the objects that lead to them from a key, an address or a Swift name. Source:
//! RGWSI_User_RADOS in src/rgw/services/svc_user_rados.cc.
//!
//! 1. A user's own object is written first: what leads to it is never there without it, but for a moment.
//! 2. What leads to another user is never taken over.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use classes::client::user as list;
use codec::Encode;
use rgw::{AccessKey, Pool, RawObject, Subuser, UserBucketEntry, UserId, UserInfo, UserPointer, UserRecord};
use types::RealTime;

use crate::plan::optional;
use crate::system::{self, Attrs, Over, Stored, Write};
use crate::{Error, Moment, Plan, Request, Site};

/// Buckets in one answer of a user's list. Source: rgw_list_buckets_max_chunk in src/common/options.cc.
const PAGE: i32 = 1000;
/// Behind a user's id in the name of the list of buckets. Source: RGW_BUCKETS_OBJ_SUFFIX.
const BUCKETS: &[u8] = b".buckets";

/// Where something leads to a user.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Lead {
    pool: Pool,
    name: Bytes,
    taken: Taken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Taken {
    Key,
    Email,
}

impl Lead {
    fn error(&self) -> Error {
        match self.taken {
            Taken::Key => Error::KeyTaken,
            Taken::Email => Error::EmailTaken,
        }
    }
}

fn leads(site: &Site, info: &UserInfo) -> BTreeSet<Lead> {
    let zone = &site.zone;
    let lead = |pool: &Pool, name: &Bytes, taken| Lead { pool: pool.clone(), name: name.clone(), taken };
    let keys = info.keys.values().map(|key| lead(&zone.user_keys, &key.id, Taken::Key));
    let swift = info.swift_keys.values().map(|key| lead(&zone.user_swift, &key.id, Taken::Key));
    // Addresses are found whatever their letters' case.
    let email: Bytes = info.email.to_ascii_lowercase().into();
    let email = Some(email).filter(|email| !email.is_empty());
    keys.chain(swift).chain(email.map(|email| lead(&zone.user_email, &email, Taken::Email))).collect()
}

/// Parts of a user's that have rules of their own.
pub trait Subusers {
    /// Gives the user, or one of its subusers, a key for S3.
    fn add_key(&mut self, id: Bytes, secret: Bytes, subuser: Bytes) -> Result<(), Error>;
    fn remove_key(&mut self, id: &Bytes) -> Result<(), Error>;
    /// Makes a subuser with a key for Swift, or gives it other rights and another secret.
    fn set_subuser(&mut self, name: Bytes, rights: u32, secret: Option<Bytes>);
    /// Its keys go with it.
    fn remove_subuser(&mut self, name: &Bytes) -> Result<(), Error>;
}

impl Subusers for UserInfo {
    fn add_key(&mut self, id: Bytes, secret: Bytes, subuser: Bytes) -> Result<(), Error> {
        if id.is_empty() || secret.is_empty() {
            return Err(Error::InvalidArgument);
        }
        if !subuser.is_empty() && !self.subusers.contains_key(&subuser) {
            return Err(Error::NoSuchSubuser);
        }
        self.keys.insert(id.clone(), AccessKey { id, secret, subuser });
        Ok(())
    }

    fn remove_key(&mut self, id: &Bytes) -> Result<(), Error> {
        self.keys.remove(id).map(|_| ()).ok_or(Error::NoSuchKey)
    }

    fn set_subuser(&mut self, name: Bytes, rights: u32, secret: Option<Bytes>) {
        if let Some(secret) = secret {
            let id: Bytes = [&self.id.to_text()[..], b":", &name].concat().into();
            let key = AccessKey { id: id.clone(), secret, subuser: name.clone() };
            self.swift_keys.insert(id, key);
        }
        self.subusers.insert(name.clone(), Subuser { name, rights });
    }

    fn remove_subuser(&mut self, name: &Bytes) -> Result<(), Error> {
        self.subusers.remove(name).ok_or(Error::NoSuchSubuser)?;
        self.keys.retain(|_, key| key.subuser != *name);
        self.swift_keys.retain(|_, key| key.subuser != *name);
        Ok(())
    }
}

impl Site {
    pub(crate) fn user_object(&self, id: &UserId) -> RawObject {
        RawObject::new(&self.zone.user_uid, id.to_text())
    }

    pub(crate) fn user_buckets_object(&self, id: &UserId) -> RawObject {
        RawObject::new(&self.zone.user_uid, [&id.to_text()[..], BUCKETS].concat())
    }

    pub fn user(&self, id: &UserId) -> Plan<Stored<UserRecord>> {
        no_user(system::read(self.user_object(id)))
    }

    /// Who signs with an access key.
    pub fn user_by_key(&self, access_key: &Bytes) -> Plan<Stored<UserRecord>> {
        self.user_at(&self.zone.user_keys, access_key.clone())
    }

    pub fn user_by_email(&self, email: &Bytes) -> Plan<Stored<UserRecord>> {
        self.user_at(&self.zone.user_email, email.to_ascii_lowercase().into())
    }

    /// `user:subuser`.
    pub fn user_by_swift_name(&self, name: &Bytes) -> Plan<Stored<UserRecord>> {
        self.user_at(&self.zone.user_swift, name.clone())
    }

    fn user_at(&self, pool: &Pool, name: Bytes) -> Plan<Stored<UserRecord>> {
        let site = self.clone();
        no_user(system::read::<UserPointer>(RawObject::new(pool, name)))
            .and_then(move |pointer| site.user(&pointer.value.0))
    }

    pub fn create_user(&self, info: UserInfo, moment: &mut Moment) -> Plan<()> {
        if info.id.id.is_empty() {
            return Plan::failed(Error::InvalidArgument);
        }
        let (site, now, tag) = (self.clone(), moment.now, moment.version_tag());
        let new = leads(self, &info);
        self.free(&new, &info.id).and_then(move |()| {
            let write = Write {
                object: site.user_object(&info.id),
                data: UserRecord::new(info.clone()).to_bytes(),
                attrs: Attrs::new(),
                over: Over::Nothing,
                version: Some(system::first_version(tag)),
                now,
            };
            let exists = Error::Rados(types::Errno::EEXIST);
            system::write(&site, write)
                .when(exists, Error::UserExists)
                .and_then(move |()| site.lead(new.into_iter().collect(), info.id, now))
        })
    }

    /// Changes a user as `change` says; another's change meanwhile makes it fail with `Raced`.
    pub fn modify_user(
        &self,
        id: &UserId,
        now: RealTime,
        change: impl FnOnce(&mut UserInfo) -> Result<(), Error> + Send + 'static,
    ) -> Plan<UserInfo> {
        let site = self.clone();
        self.user(id).and_then(move |stored| {
            let before = leads(&site, &stored.value.info);
            let mut info = stored.value.info;
            let id = info.id.clone();
            if let Err(e) = change(&mut info) {
                return Plan::failed(e);
            }
            if info.id != id {
                return Plan::failed(Error::InvalidArgument);
            }
            let after = leads(&site, &info);
            let new: BTreeSet<Lead> = after.difference(&before).cloned().collect();
            let old: Vec<Lead> = before.difference(&after).cloned().collect();
            let write = Write {
                object: site.user_object(&id),
                data: UserRecord::new(info.clone()).to_bytes(),
                attrs: stored.attrs,
                version: Some(system::next_version(&stored.version)),
                over: Over::Version(stored.version),
                now,
            };
            let (first, second, third) = (site.clone(), site.clone(), site.clone());
            site.free(&new, &id)
                .and_then(move |()| system::write(&first, write))
                .and_then(move |()| second.lead(new.into_iter().collect(), id, now))
                .and_then(move |()| third.unlead(old))
                .and_then(move |()| Plan::ok(info))
        })
    }

    /// Removes a user that has no buckets.
    pub fn remove_user(&self, id: &UserId) -> Plan<()> {
        let (site, id) = (self.clone(), id.clone());
        self.user(&id).and_then(move |stored| {
            let of_user = leads(&site, &stored.value.info).into_iter().collect();
            let (buckets, user) = (site.user_buckets_object(&id), site.user_object(&id));
            site.user_buckets(&id, Bytes::new(), 1).and_then(move |(found, _)| {
                if !found.is_empty() {
                    return Plan::failed(Error::UserHasBuckets);
                }
                let last = site.clone();
                site.unlead(of_user)
                    .and_then(move |()| optional(system::remove(&site, buckets, None)))
                    .and_then(move |_| system::remove(&last, user, Some(&stored.version)))
            })
        })
    }

    /// A page of a user's buckets behind `marker`, and whether more follow.
    pub fn user_buckets(&self, id: &UserId, marker: Bytes, max: i32) -> Plan<(Vec<UserBucketEntry>, bool)> {
        let args = list::ListArgs { marker, max: max.clamp(1, PAGE), end: Bytes::new() };
        let request = Request::new(self.user_buckets_object(id)).call(&list::LIST, &args);
        optional(Plan::ask(request)).try_map(|reply| {
            let Some(reply) = reply else { return Ok((Vec::new(), false)) };
            let answer = reply.answer(0, &list::LIST)?;
            Ok((answer.entries, answer.more))
        })
    }

    /// Fails where something leads to another user already.
    fn free(&self, leads: &BTreeSet<Lead>, id: &UserId) -> Plan<()> {
        let plans: Vec<(Error, RawObject)> =
            leads.iter().map(|lead| (lead.error(), RawObject::new(&lead.pool, lead.name.clone()))).collect();
        let mut all: Plan<()> = Plan::ok(());
        for (taken, object) in plans {
            let id = id.clone();
            all = all.and_then(move |()| {
                optional(system::read::<UserPointer>(object)).try_map(move |found| match found {
                    Some(stored) if stored.value.0 != id => Err(taken),
                    _ => Ok(()),
                })
            });
        }
        all
    }

    /// Writes what leads to a user.
    fn lead(&self, leads: Vec<Lead>, id: UserId, now: RealTime) -> Plan<()> {
        let mut all: Plan<()> = Plan::ok(());
        for lead in leads {
            let (site, data) = (self.clone(), UserPointer(id.clone()).to_bytes());
            let write = Write {
                object: RawObject::new(&lead.pool, lead.name),
                data,
                attrs: BTreeMap::new(),
                over: Over::Anything,
                version: None,
                now,
            };
            all = all.and_then(move |()| system::write(&site, write));
        }
        all
    }

    fn unlead(&self, leads: Vec<Lead>) -> Plan<()> {
        let mut all: Plan<()> = Plan::ok(());
        for lead in leads {
            let (site, object) = (self.clone(), RawObject::new(&lead.pool, lead.name));
            all = all
                .and_then(move |()| optional(system::remove(&site, object, None)).and_then(|_| Plan::ok(())));
        }
        all
    }
}

fn no_user<T: Send + 'static>(plan: Plan<T>) -> Plan<T> {
    plan.when(Error::Rados(types::Errno::ENOENT), Error::NoSuchUser)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Cluster, NOW, run, site};

    fn user(id: &'static str, key: &'static str, email: &'static str) -> UserInfo {
        let mut info = UserInfo { id: UserId::plain(id), email: email.into(), ..UserInfo::default() };
        info.add_key(key.into(), "secret".into(), Bytes::new()).unwrap();
        info
    }

    fn create(cluster: &mut Cluster, info: UserInfo) -> Result<(), Error> {
        run(cluster, |moment| site().create_user(info, moment))
    }

    #[test]
    fn users_are_found_by_all_that_leads_to_them() {
        let mut c = Cluster::default();
        let mut info = user("u", "K", "U@Example.com");
        info.set_subuser("swift".into(), 15, Some("sw".into()));
        create(&mut c, info.clone()).unwrap();
        for plan in [
            site().user(&info.id),
            site().user_by_key(&"K".into()),
            site().user_by_email(&"u@example.COM".into()),
            site().user_by_swift_name(&"u:swift".into()),
        ] {
            assert_eq!(plan.run(&mut c).map(|stored| stored.value.info), Ok(info.clone()));
        }
        for missing in [site().user(&UserId::plain("v")), site().user_by_key(&"L".into())] {
            assert_eq!(missing.run(&mut c).err(), Some(Error::NoSuchUser));
        }
    }

    #[test]
    fn nobody_takes_another_ones_name_key_or_address() {
        let mut c = Cluster::default();
        create(&mut c, user("u", "K", "e")).unwrap();
        for (info, error) in [
            (user("u", "L", "f"), Error::UserExists),
            (user("v", "K", "f"), Error::KeyTaken),
            (user("v", "L", "E"), Error::EmailTaken),
            (user("", "L", ""), Error::InvalidArgument),
        ] {
            let before = c.done.len();
            assert_eq!(create(&mut c, info.clone()), Err(error), "{info:?}");
            assert_eq!(c.done.len(), before);
        }
        create(&mut c, user("v", "L", "f")).unwrap();
        let change = |info: &mut UserInfo| info.add_key("K".into(), "s".into(), Bytes::new());
        let changed = site().modify_user(&UserId::plain("v"), NOW, change);
        assert_eq!(changed.run(&mut c).err(), Some(Error::KeyTaken));
    }

    #[test]
    fn what_no_longer_leads_to_a_user_is_removed() {
        let mut c = Cluster::default();
        create(&mut c, user("u", "K", "e")).unwrap();
        let id = UserId::plain("u");
        let change = |info: &mut UserInfo| {
            info.remove_key(&"K".into())?;
            info.set_subuser("s".into(), 1, Some("sw".into()));
            info.add_key("L".into(), "s".into(), "s".into())?;
            info.email = "f".into();
            info.user_quota.enabled = true;
            Ok(())
        };
        let info = site().modify_user(&id, NOW, change).run(&mut c).unwrap();
        assert_eq!(c.names("default.rgw.meta:users.keys"), ["L"]);
        assert_eq!(c.names("default.rgw.meta:users.email"), ["f"]);
        assert_eq!(c.names("default.rgw.meta:users.swift"), ["u:s"]);
        let stored = site().user(&id).run(&mut c).unwrap();
        assert_eq!((stored.value.info, stored.version.version), (info, 2));

        let drop = |info: &mut UserInfo| info.remove_subuser(&"s".into());
        site().modify_user(&id, NOW, drop).run(&mut c).unwrap();
        assert_eq!(c.names("default.rgw.meta:users.keys"), Vec::<String>::new());
        assert_eq!(c.names("default.rgw.meta:users.swift"), Vec::<String>::new());
        let again = site().modify_user(&id, NOW, drop).run(&mut c);
        assert_eq!(again.err(), Some(Error::NoSuchSubuser));
        site().remove_user(&id).run(&mut c).unwrap();
        assert_eq!(c.names("default.rgw.meta:users.uid"), Vec::<String>::new());
        assert_eq!(c.names("default.rgw.meta:users.email"), Vec::<String>::new());
    }

    #[test]
    fn of_two_changes_at_once_one_is_refused() {
        let mut c = Cluster::default();
        create(&mut c, user("u", "K", "e")).unwrap();
        let id = UserId::plain("u");
        let name = |name: &'static str| {
            move |info: &mut UserInfo| {
                info.display_name = name.into();
                Ok(())
            }
        };
        // Both read before either writes.
        let (first, second) =
            (site().modify_user(&id, NOW, name("a")), site().modify_user(&id, NOW, name("b")));
        let Plan::Ask(requests, next) = second else { panic!("nothing asked") };
        let read = requests.into_iter().map(|r| crate::Rados::perform(&mut c, r)).collect();
        first.run(&mut c).unwrap();
        assert_eq!(next(read).run(&mut c).err(), Some(Error::Raced));
        assert_eq!(site().user(&id).run(&mut c).unwrap().value.info.display_name, "a");
    }

    #[test]
    fn other_gateways_hear_of_each_change() {
        let mut c = Cluster::default();
        create(&mut c, user("u", "K", "")).unwrap();
        let told: Vec<_> =
            c.notices.iter().map(|n| (n.op, n.object.oid.clone(), n.info.data.len())).collect();
        let stored = c.get("default.rgw.meta:users.uid", "u").unwrap().data.len();
        let update = rgw::NoticeOp::UPDATE;
        assert_eq!(told[..], [(update, "u".into(), stored), (update, "K".into(), 5)]);
        site().remove_user(&UserId::plain("u")).run(&mut c).unwrap();
        assert_eq!(c.notices.last().map(|n| n.op), Some(rgw::NoticeOp::REMOVE));
    }
}
