//! Buckets: an index, an instance that says what the bucket is, an entry point under the bucket's name, and
//! an entry in its owner's list. Source: RGWRados::create_bucket in src/rgw/rgw_rados.cc, RGWBucketCtl in
//! src/rgw/rgw_bucket.cc.
//!
//! 1. Making goes in that order, so that a name leads to what is whole; removing goes the other way round.
//! 2. Of two that make a bucket of one name, the one whose entry point comes first has it; the other one
//!    takes its index and its instance back.

use std::time::Duration;

use bytes::Bytes;
use classes::client::{EmptyEnvelope, Nothing, index, user as list};
use codec::Encode;
use rgw::index::Resharding;
use rgw::{
    AccessControl, Bucket, BucketInfo, EntryPoint, Layout, ObjectLock, PlacementRule, RawObject, UserBucket,
    UserBucketEntry, UserId, Versioning,
};
use types::{Errno, RealTime};

use crate::error::BUSY_RESHARDING;
use crate::objects::SharedBucket;
use crate::plan::optional;
use crate::system::{self, Attrs, Over, Stored, Write};
use crate::{Error, Moment, Op, Plan, Reply, Request, Site};

pub(crate) const ATTR_ACL: &[u8] = b"user.rgw.acl";
/// In front of the names of index shards.
const INDEX: &[u8] = b".dir.";
/// In place of the instance that an index moves to: its bucket is being removed.
const REMOVING: &[u8] = b"loligo.removing";
/// How often a change is tried that others come before. Source: retry_raced_bucket_write in
/// src/rgw/rgw_op.cc.
const TRIES: u32 = 15;
/// How often it is looked whether an index has moved, and how long it is waited in between. Source:
/// RGWRados::block_while_resharding in src/rgw/rgw_rados.cc, which looks ten times, each five seconds.
const MOVE_TRIES: u32 = 25;
const MOVE_WAIT: Duration = Duration::from_secs(2);
/// Source: RGW_SHARDS_PRIME_0 and RGW_SHARDS_PRIME_1 in src/rgw/rgw_tools.h.
const PRIMES: [u32; 2] = [7877, 65521];

/// What somebody wants to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBucket {
    pub name: Bytes,
    pub acl: AccessControl,
    /// The zone group's own for an empty one.
    pub placement: PlacementRule,
    pub flags: Versioning,
    /// Differs for each bucket that this gateway makes while it runs.
    pub number: u64,
    /// Buckets that the owner may have; none for no bound.
    pub max_buckets: Option<usize>,
    /// What is kept of it besides its list of grants.
    pub attrs: Attrs,
}

/// A bucket as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketState {
    pub entry: Stored<EntryPoint>,
    pub instance: Stored<BucketInfo>,
}

/// What a bucket holds, by category of objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BucketStats {
    pub categories: std::collections::BTreeMap<u8, rgw::index::Stats>,
    /// Of its shards, in order.
    pub shards: Vec<ShardState>,
}

/// How far a shard of an index has come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShardState {
    /// Counts its changes.
    pub version: u64,
    pub master_version: u64,
    /// The largest id in its log.
    pub max_marker: Bytes,
}

impl BucketStats {
    /// Objects, parts of uploads not counted.
    pub fn objects(&self) -> u64 {
        self.categories.values().map(|c| c.entries).sum()
    }

    pub fn bytes(&self) -> u64 {
        self.categories.values().map(|c| c.size).sum()
    }
}

/// A number's place among `count` shards. Source: rgw_shards_mod in src/rgw/rgw_tools.h.
pub(crate) fn shard_of(hash: u32, count: u32) -> u32 {
    let [small, large] = PRIMES;
    let prime = if count <= small { small } else { large };
    (hash % prime).checked_rem(count).unwrap_or(0)
}

/// The shard of an object's entry, by its name without namespace and version. Source: bucket_shard_index in
/// src/rgw/services/svc_bi_rados.h.
fn index_shard(name: &[u8], count: u32) -> u32 {
    let hash = crush::str_hash_linux(name);
    shard_of(hash ^ ((hash & 0xff) << 24), count)
}

impl Site {
    pub(crate) fn entry_object(&self, tenant: &Bytes, name: &Bytes) -> RawObject {
        let bucket = Bucket { tenant: tenant.clone(), name: name.clone(), ..Bucket::default() };
        RawObject::new(&self.zone.domain_root, bucket.entry_point())
    }

    pub(crate) fn instance_object(&self, bucket: &Bucket) -> RawObject {
        RawObject::new(&self.zone.domain_root, bucket.instance())
    }

    /// All shards of an index, in order.
    pub(crate) fn index_objects(&self, info: &BucketInfo) -> Result<Vec<RawObject>, Error> {
        let (pool, base) = (self.index_pool(&info.placement)?, [INDEX, &info.bucket.id].concat());
        let count = info.layout.current.shards.count;
        if count == 0 {
            return Ok(vec![RawObject::new(&pool, base)]);
        }
        let shard = |n| RawObject::new(&pool, [&base[..], format!(".{n}").as_bytes()].concat());
        Ok((0..count).map(shard).collect())
    }

    /// The shard that an object's entries are in.
    pub fn index_object(&self, info: &BucketInfo, name: &[u8]) -> Result<RawObject, Error> {
        let count = info.layout.current.shards.count;
        let base = [INDEX, &info.bucket.id].concat();
        let oid = match count {
            0 => base,
            _ => [&base[..], format!(".{}", index_shard(name, count)).as_bytes()].concat(),
        };
        Ok(RawObject::new(&self.index_pool(&info.placement)?, oid))
    }

    pub fn bucket(&self, tenant: &Bytes, name: &Bytes) -> Plan<BucketState> {
        let site = self.clone();
        no_bucket(system::read::<EntryPoint>(self.entry_object(tenant, name))).and_then(move |entry| {
            no_bucket(system::read(site.instance_object(&entry.value.bucket)))
                .try_map(move |instance| Ok(BucketState { entry, instance }))
        })
    }

    /// A bucket with the index that it has now, where that is another one than is known; nothing where the
    /// bucket is gone. `Resharding` where its index is not there, and not elsewhere yet.
    pub(crate) fn moved(&self, known: &BucketInfo) -> Plan<Option<SharedBucket>> {
        let (marker, id) = (known.bucket.marker.clone(), known.bucket.id.clone());
        self.bucket(&known.bucket.tenant, &known.bucket.name).then(move |state| match state {
            Ok(state) if state.instance.value.bucket.marker != marker => Plan::ok(None),
            Ok(state) if state.instance.value.bucket.id == id => Plan::failed(Error::Resharding),
            Ok(state) => Plan::ok(Some(state.instance.value.into())),
            Err(Error::NoSuchBucket) => Plan::ok(None),
            Err(e) => Plan::failed(e),
        })
    }

    /// Does something with a bucket's index, wherever that is: what finds no shard, with `NoSuchBucket`, or
    /// shards that are being moved, with `Resharding`, is done again where they went, with the bucket as it
    /// is then. A move is waited for as long as radosgw waits. `what` leaves nothing behind that is half
    /// done.
    pub(crate) fn follow<T: Send + 'static>(
        &self,
        bucket: SharedBucket,
        what: impl Fn(&SharedBucket) -> Plan<T> + Send + 'static,
    ) -> Plan<(SharedBucket, T)> {
        self.follow_on(bucket, what, MOVE_TRIES)
    }

    fn follow_on<T: Send + 'static>(
        &self,
        bucket: SharedBucket,
        what: impl Fn(&SharedBucket) -> Plan<T> + Send + 'static,
        tries: u32,
    ) -> Plan<(SharedBucket, T)> {
        let site = self.clone();
        what(&bucket).then(move |done| {
            let e = match done {
                Ok(value) => return Plan::ok((bucket, value)),
                Err(e @ (Error::NoSuchBucket | Error::Resharding)) if tries > 0 => e,
                Err(e) => return Plan::failed(e),
            };
            let waited = if e == Error::Resharding { Plan::wait(MOVE_WAIT) } else { Plan::ok(()) };
            waited.and_then(move |()| {
                site.moved(&bucket).then(move |moved| match moved {
                    Ok(Some(bucket)) => site.follow_on(bucket, what, tries - 1),
                    Ok(None) => Plan::failed(Error::NoSuchBucket),
                    // It is where it was: the move goes on, or was given up.
                    Err(Error::Resharding) if e == Error::Resharding => {
                        site.follow_on(bucket, what, tries - 1)
                    }
                    Err(e) => Plan::failed(e),
                })
            })
        })
    }

    /// Makes a bucket; with `BucketExists` it had been there, whoever's it is.
    pub fn create_bucket(&self, new: NewBucket, moment: &mut Moment) -> Plan<BucketInfo> {
        let (now, site, owner) = (moment.now, self.clone(), new.acl.owner.id.clone());
        let tags = [moment.version_tag(), moment.version_tag()];
        let entry = self.entry_object(&owner.tenant, &new.name);
        let room = match new.max_buckets {
            None => Plan::ok(()),
            Some(max) => self.room(owner, max),
        };
        room.and_then(move |()| optional(system::read::<EntryPoint>(entry))).and_then(move |found| {
            if found.is_some() {
                return Plan::failed(Error::BucketExists);
            }
            match site.new_info(&new, now) {
                Ok(info) => {
                    let acl = (Bytes::from_static(ATTR_ACL), new.acl.to_bytes());
                    let attrs = new.attrs.into_iter().chain([acl]).collect();
                    site.make_bucket(info, attrs, tags, now)
                }
                Err(e) => Plan::failed(e),
            }
        })
    }

    /// Fails when the owner has as many buckets as it may have.
    fn room(&self, owner: UserId, max: usize) -> Plan<()> {
        self.count_buckets(owner, Bytes::new(), 0, max)
    }

    fn count_buckets(&self, owner: UserId, marker: Bytes, counted: usize, max: usize) -> Plan<()> {
        let site = self.clone();
        self.user_buckets(&owner, marker, i32::MAX).and_then(move |(page, more)| {
            let counted = counted.saturating_add(page.len());
            match page.last() {
                _ if counted >= max => Plan::failed(Error::TooManyBuckets),
                Some(last) if more => site.count_buckets(owner, last.bucket.name.clone(), counted, max),
                _ => Plan::ok(()),
            }
        })
    }

    fn new_info(&self, new: &NewBucket, now: RealTime) -> Result<BucketInfo, Error> {
        let owner = new.acl.owner.id.clone();
        let rule = match new.placement.name.is_empty() {
            true => {
                let class = new.placement.storage_class.clone();
                PlacementRule { storage_class: class, ..self.default_placement.clone() }
            }
            false => new.placement.clone(),
        };
        let pools = self.placement(&rule)?;
        if !pools.classes.contains_key(rule.storage_class()) || new.name.is_empty() {
            let error = if new.name.is_empty() { Error::InvalidArgument } else { Error::NoSuchPlacement };
            return Err(error);
        }
        let id = self.unique(new.number);
        let (tenant, name) = (owner.tenant.clone(), new.name.clone());
        Ok(BucketInfo {
            bucket: Bucket { tenant, name, marker: id.clone(), id, ..Bucket::default() },
            owner,
            flags: new.flags,
            object_lock: ObjectLock { enabled: new.flags.has(Versioning::OBJECT_LOCK), rule: None },
            zonegroup: self.zonegroup.clone(),
            created: now,
            placement: rule,
            has_instance: true,
            layout: Layout::of_shards(self.shards),
            ..BucketInfo::default()
        })
    }

    fn make_bucket(
        &self,
        info: BucketInfo,
        attrs: Attrs,
        [instance_tag, entry_tag]: [Bytes; 2],
        now: RealTime,
    ) -> Plan<BucketInfo> {
        let shards = match self.index_objects(&info) {
            Ok(shards) => shards,
            Err(e) => return Plan::failed(e),
        };
        let init =
            |object| Request::new(object).op(Op::Create { exclusive: true }).call(&index::INIT, &Nothing);
        let instance = Write {
            object: self.instance_object(&info.bucket),
            data: info.to_bytes(),
            attrs,
            over: Over::Nothing,
            version: Some(system::first_version(instance_tag.clone())),
            now,
        };
        let entry = EntryPoint {
            bucket: info.bucket.clone(),
            owner: info.owner.clone(),
            linked: true,
            created: info.created,
            old: None,
        };
        let entry = Write {
            object: self.entry_object(&info.bucket.tenant, &info.bucket.name),
            data: entry.to_bytes(),
            attrs: Attrs::new(),
            over: Over::Nothing,
            version: Some(system::first_version(entry_tag)),
            now,
        };
        let (first, second, third) = (self.clone(), self.clone(), self.clone());
        Plan::ask_all(shards.into_iter().map(init).collect())
            .and_then(move |_: Vec<Reply>| system::write(&first, instance))
            .and_then(move |()| system::write(&second, entry))
            .then(move |written| match written {
                Ok(()) => third.link(&info, now).and_then(|()| Plan::ok(info)),
                Err(e) => {
                    let lost = e == Error::Rados(Errno::EEXIST);
                    let version = system::first_version(instance_tag);
                    let error = if lost { Error::BucketExists } else { e };
                    third.remove_parts(info, Some(version)).then(move |_| Plan::failed(error))
                }
            })
    }

    /// Puts a bucket on its owner's list.
    pub fn link(&self, info: &BucketInfo, now: RealTime) -> Plan<()> {
        self.link_as(&info.owner, &info.bucket, info.created, now)
    }

    pub(crate) fn link_as(
        &self,
        owner: &UserId,
        bucket: &Bucket,
        created: RealTime,
        now: RealTime,
    ) -> Plan<()> {
        let bucket = list_entry(bucket);
        let entry = UserBucketEntry { bucket, created, ..UserBucketEntry::default() };
        let args = list::SetArgs { entries: vec![entry], add: true, time: now };
        Plan::ask(Request::new(self.user_buckets_object(owner)).call(&list::SET, &args))
            .and_then(|_| Plan::ok(()))
    }

    /// Puts a bucket that is there on its owner's list, which the gateway that made it may not have come to.
    pub fn link_again(&self, info: &BucketInfo, now: RealTime) -> Plan<()> {
        let (site, again) = (self.clone(), info.clone());
        self.link(info, now).and_then(move |()| {
            site.sync_bucket_stats(&again, now)
                .then(move |synced| site.unlink_if_gone(again, now).and_then(move |()| Plan::Done(synced)))
        })
    }

    /// Takes a bucket off its owner's list if its name leads to it no longer: one that is removed at the same
    /// time as it is linked may have been taken off before. The list knows buckets by name: where the owner
    /// has made another one of that name, it is the one on the list.
    fn unlink_if_gone(&self, info: BucketInfo, now: RealTime) -> Plan<()> {
        let site = self.clone();
        let entry = self.entry_object(&info.bucket.tenant, &info.bucket.name);
        optional(system::read::<EntryPoint>(entry)).and_then(move |entry| {
            match entry.map(|entry| entry.value) {
                Some(entry) if entry.bucket.id == info.bucket.id => Plan::ok(()),
                Some(entry) if entry.owner == info.owner => {
                    site.link_as(&entry.owner, &entry.bucket, entry.created, now)
                }
                _ => site.unlink(&info),
            }
        })
    }

    /// Takes a bucket off its owner's list.
    pub fn unlink(&self, info: &BucketInfo) -> Plan<()> {
        let args = list::RemoveArgs { bucket: list_entry(&info.bucket) };
        let request = Request::new(self.user_buckets_object(&info.owner)).call(&list::REMOVE, &args);
        optional(Plan::ask(request)).and_then(|_| Plan::ok(()))
    }

    /// What the index's shards have counted.
    pub fn bucket_stats(&self, info: &BucketInfo) -> Plan<BucketStats> {
        let shards = match self.index_objects(info) {
            Ok(shards) => shards,
            Err(e) => return Plan::failed(e),
        };
        let args = index::ListArgs::default();
        let look = |object| Request::new(object).call(&index::LIST, &args);
        Plan::ask_all(shards.into_iter().map(look).collect()).try_map(|replies| {
            let mut sum = BucketStats::default();
            for reply in replies {
                let header = reply.answer(0, &index::LIST)?.header;
                for (category, stats) in &header.stats {
                    sum.categories.entry(*category).or_default().merge(stats);
                }
                let (version, master_version) = (header.version, header.master_version);
                sum.shards.push(ShardState { version, master_version, max_marker: header.max_marker });
            }
            Ok(sum)
        })
    }

    /// Tells the owner's list how much a bucket holds.
    pub fn sync_bucket_stats(&self, info: &BucketInfo, now: RealTime) -> Plan<()> {
        let (site, info) = (self.clone(), info.clone());
        self.bucket_stats(&info).and_then(move |stats| {
            let entry = UserBucketEntry {
                bucket: list_entry(&info.bucket),
                size: stats.bytes(),
                size_rounded: stats.categories.values().map(|c| c.size_rounded).sum(),
                count: stats.objects(),
                ..UserBucketEntry::default()
            };
            let args = list::SetArgs { entries: vec![entry], add: false, time: now };
            Plan::ask(Request::new(site.user_buckets_object(&info.owner)).call(&list::SET, &args))
                .and_then(|_| Plan::ok(()))
        })
    }

    /// Changes what a bucket is, and its attributes; another's change meanwhile makes it fail with `Raced`.
    pub fn modify_bucket(
        &self,
        state: BucketState,
        now: RealTime,
        change: impl FnOnce(&mut BucketInfo, &mut Attrs) -> Result<(), Error>,
    ) -> Plan<BucketInfo> {
        let Stored { value: mut info, mut attrs, version, .. } = state.instance;
        let bucket = info.bucket.clone();
        if let Err(e) = change(&mut info, &mut attrs) {
            return Plan::failed(e);
        }
        let write = Write {
            object: self.instance_object(&bucket),
            data: info.to_bytes(),
            attrs,
            version: Some(system::next_version(&version)),
            over: Over::Version(version),
            now,
        };
        system::write(self, write).and_then(move |()| Plan::ok(info))
    }

    /// Changes a bucket that somebody was found to have a right to, as it is now; again when another change
    /// came before. `Raced` also where another bucket has the name since, to which there may be no right.
    pub fn change_bucket(
        &self,
        known: &Bucket,
        now: RealTime,
        change: impl Fn(&mut BucketInfo, &mut Attrs) + Send + 'static,
    ) -> Plan<BucketInfo> {
        self.change_bucket_again(known.clone(), now, change, TRIES)
    }

    fn change_bucket_again(
        &self,
        known: Bucket,
        now: RealTime,
        change: impl Fn(&mut BucketInfo, &mut Attrs) + Send + 'static,
        tries: u32,
    ) -> Plan<BucketInfo> {
        let (site, again) = (self.clone(), self.clone());
        self.bucket(&known.tenant, &known.name).and_then(move |state| {
            if state.entry.value.bucket.id != known.id {
                return Plan::failed(Error::Raced);
            }
            let (mut info, mut attrs) = (state.instance.value.clone(), state.instance.attrs.clone());
            change(&mut info, &mut attrs);
            let set = move |into: &mut BucketInfo, into_attrs: &mut Attrs| {
                (*into, *into_attrs) = (info, attrs);
                Ok(())
            };
            site.modify_bucket(state, now, set).then(move |changed| match changed {
                Err(Error::Raced) if tries > 0 => again.change_bucket_again(known, now, change, tries - 1),
                changed => Plan::Done(changed),
            })
        })
    }

    /// Removes a bucket that holds nothing: versions and uploads are something, too. Writers are
    /// held off first, as by an index that moves: what is begun before is seen, and what comes later is
    /// refused.
    pub fn remove_bucket(&self, state: BucketState, now: RealTime) -> Plan<()> {
        let (site, info) = (self.clone(), state.instance.value);
        self.hold_off(&info).and_then(move |()| {
            let (first, entry_site, of_entry) = (site.clone(), site.clone(), info.bucket.clone());
            let emptied = first.is_empty(&info, now).and_then(move |empty| {
                if !empty {
                    return Plan::failed(Error::BucketNotEmpty);
                }
                let entry = entry_site.entry_object(&of_entry.tenant, &of_entry.name);
                system::remove(&entry_site, entry, Some(&state.entry.version))
            });
            emptied.then(move |removed| match removed {
                // Nobody finds the rest any more: it goes whoever changed it meanwhile.
                Ok(()) => site
                    .remove_parts(info.clone(), None)
                    .then(move |done| site.unlink(&info).and_then(move |()| Plan::Done(done))),
                Err(e) => site.let_in(&info).then(move |_| Plan::failed(e)),
            })
        })
    }

    /// Shards of an index that is held off from writers, and what they say of it.
    fn held_off(&self, info: &BucketInfo) -> Plan<Vec<(RawObject, Resharding)>> {
        let shards = match self.index_objects(info) {
            Ok(shards) => shards,
            Err(e) => return Plan::failed(e),
        };
        let get = |o: &RawObject| Request::new(o.clone()).call(&index::GET_RESHARDING, &EmptyEnvelope);
        Plan::<Vec<Reply>>::ask_all(shards.iter().map(get).collect()).try_map(move |replies| {
            let of = |reply: &Reply| reply.answer(0, &index::GET_RESHARDING);
            shards.into_iter().zip(&replies).map(|(shard, r)| Ok((shard, of(r)?.resharding))).collect()
        })
    }

    fn hold_off(&self, info: &BucketInfo) -> Plan<()> {
        let (site, info) = (self.clone(), info.clone());
        self.held_off(&info).and_then(move |shards| {
            let ours = |r: &Resharding| r.status != 0 && r.new_instance == REMOVING;
            if shards.iter().any(|(_, r)| r.status != 0 && !ours(r)) {
                return Plan::failed(Error::Resharding);
            }
            let set = |(shard, r): &(RawObject, Resharding)| {
                let new_instance = Bytes::from_static(REMOVING);
                let args = index::SetReshardingArgs {
                    resharding: Resharding { status: 1, new_instance, shards: r.shards },
                };
                Request::new(shard.clone())
                    .call(&index::GUARD_RESHARDING, &index::GuardArgs { result: -BUSY_RESHARDING })
                    .call(&index::SET_RESHARDING, &args)
            };
            let requests = shards.iter().filter(|(_, r)| !ours(r)).map(set).collect();
            Plan::<Vec<Reply>>::ask_all(requests).then(move |done| match done {
                Ok(_) => Plan::ok(()),
                Err(e) => site.let_in(&info).then(move |_| Plan::failed(e)),
            })
        })
    }

    /// Ends what `hold_off` began.
    fn let_in(&self, info: &BucketInfo) -> Plan<()> {
        self.held_off(info).and_then(|shards| {
            let ours = shards.into_iter().filter(|(_, r)| r.status != 0 && r.new_instance == REMOVING);
            let clear = |(o, _)| Request::new(o).call(&index::CLEAR_RESHARDING, &EmptyEnvelope);
            Plan::<Vec<Reply>>::ask_all(ours.map(clear).collect()).and_then(|_| Plan::ok(()))
        })
    }

    /// Removes a bucket's instance and its index.
    fn remove_parts(&self, info: BucketInfo, version: Option<rgw::ObjectVersion>) -> Plan<()> {
        let shards = match self.index_objects(&info) {
            Ok(shards) => shards,
            Err(e) => return Plan::failed(e),
        };
        let instance = self.instance_object(&info.bucket);
        optional(system::remove(self, instance, version.as_ref())).and_then(move |_| {
            let remove = |object| Request::new(object).op(Op::Remove { may_miss: true });
            Plan::ask_all(shards.into_iter().map(remove).collect()).and_then(|_: Vec<Reply>| Plan::ok(()))
        })
    }
}

fn list_entry(bucket: &Bucket) -> UserBucket {
    UserBucket {
        name: bucket.name.clone(),
        marker: bucket.marker.clone(),
        id: bucket.id.clone(),
        ..UserBucket::default()
    }
}

fn no_bucket<T: Send + 'static>(plan: Plan<T>) -> Plan<T> {
    plan.when(Error::Rados(Errno::ENOENT), Error::NoSuchBucket)
}

#[cfg(test)]
mod tests {
    use rgw::Owner;

    use super::*;
    use crate::cluster::{Cluster, NOW, run, site};

    fn new(name: &'static str, owner: &'static str, number: u64) -> NewBucket {
        let owner = Owner { id: UserId::plain(owner), display_name: owner.into() };
        NewBucket {
            name: name.into(),
            acl: AccessControl::private(owner),
            placement: PlacementRule::default(),
            flags: Versioning::default(),
            number,
            max_buckets: Some(2),
            attrs: <_>::default(),
        }
    }

    fn create(c: &mut Cluster, bucket: NewBucket) -> Result<BucketInfo, Error> {
        run(c, |moment| site().create_bucket(bucket, moment))
    }

    fn state(c: &mut Cluster, name: &'static str) -> Result<BucketState, Error> {
        site().bucket(&Bytes::new(), &name.into()).run(c)
    }

    fn of_user(c: &mut Cluster) -> Vec<Bytes> {
        let (page, _) = site().user_buckets(&UserId::plain("u"), Bytes::new(), 10).run(c).unwrap();
        page.into_iter().map(|entry| entry.bucket.name).collect()
    }

    #[test]
    fn buckets_are_on_their_owners_list_until_they_are_removed() {
        let mut c = Cluster::default();
        let info = create(&mut c, new("b", "u", 1)).unwrap();
        create(&mut c, new("a", "u", 2)).unwrap();
        assert_eq!(of_user(&mut c), ["a", "b"]);
        let there = state(&mut c, "b").unwrap();
        assert_eq!((&there.instance.value, there.entry.value.linked), (&info, true));
        assert_eq!(create(&mut c, new("c", "u", 3)), Err(Error::TooManyBuckets));
        assert_eq!(create(&mut c, new("b", "v", 3)), Err(Error::BucketExists));

        site().remove_bucket(there, NOW).run(&mut c).unwrap();
        assert_eq!(
            (of_user(&mut c), state(&mut c, "b").err()),
            (vec!["a".into()], Some(Error::NoSuchBucket))
        );
        assert_eq!(c.names("default.rgw.meta:root"), [".bucket.meta.a:zone-id.4161.2", "a"]);
        assert_eq!(c.names("default.rgw.buckets.index").len(), 11);
    }

    #[test]
    fn a_bucket_comes_back_to_its_owners_list() {
        let mut c = Cluster::default();
        let info = create(&mut c, new("b", "u", 1)).unwrap();
        // A gateway dies in front of the list.
        site().unlink(&info).run(&mut c).unwrap();
        assert_eq!(of_user(&mut c), Vec::<Bytes>::new());
        site().link_again(&info, NOW).run(&mut c).unwrap();
        site().link_again(&info, NOW).run(&mut c).unwrap();
        assert_eq!(of_user(&mut c), ["b"]);
    }

    /// At whatever moment a bucket is removed that is put on the list again, it is not on the list then.
    #[test]
    fn a_bucket_that_goes_meanwhile_stays_off_its_owners_list() {
        for is_made_anew in [false, true] {
            let mut steps = 0;
            loop {
                let mut c = Cluster::default();
                let info = create(&mut c, new("b", "u", 1)).unwrap();
                let there = state(&mut c, "b").unwrap();
                let mut plan = site().link_again(&info, NOW);
                for _ in 0..steps {
                    let Plan::Ask(requests, next) = plan else { break };
                    plan = next(requests.into_iter().map(|r| crate::Rados::perform(&mut c, r)).collect());
                }
                let Plan::Ask(..) = plan else { break };
                site().remove_bucket(there, NOW).run(&mut c).unwrap();
                if is_made_anew {
                    create(&mut c, new("b", "u", 2)).unwrap();
                }
                let _ = plan.run(&mut c);
                let want = if is_made_anew { vec![Bytes::from("b")] } else { Vec::new() };
                assert_eq!(of_user(&mut c), want, "{steps}");
                steps += 1;
            }
            assert!(steps > 2, "{steps}");
        }
    }

    #[test]
    fn a_change_is_of_the_bucket_that_it_was_meant_for() {
        let mut c = Cluster::default();
        let first = create(&mut c, new("b", "u", 1)).unwrap().bucket;
        let pays = |info: &mut BucketInfo, _: &mut Attrs| info.requester_pays = true;
        // Another change comes between.
        let mut plan = site().change_bucket(&first, NOW, pays);
        for _ in 0..2 {
            let Plan::Ask(requests, next) = plan else { panic!("nothing asked") };
            plan = next(requests.into_iter().map(|r| crate::Rados::perform(&mut c, r)).collect());
        }
        let named = |info: &mut BucketInfo, _: &mut Attrs| info.zonegroup = "other".into();
        site().change_bucket(&first, NOW, named).run(&mut c).unwrap();
        plan.run(&mut c).unwrap();
        let there = state(&mut c, "b").unwrap();
        let info = &there.instance.value;
        assert_eq!((info.requester_pays, &info.zonegroup[..]), (true, &b"other"[..]));

        site().remove_bucket(there, NOW).run(&mut c).unwrap();
        assert_eq!(site().change_bucket(&first, NOW, pays).run(&mut c), Err(Error::NoSuchBucket));
        create(&mut c, new("b", "v", 2)).unwrap();
        assert_eq!(site().change_bucket(&first, NOW, pays).run(&mut c), Err(Error::Raced));
        assert!(!state(&mut c, "b").unwrap().instance.value.requester_pays);
    }

    #[test]
    fn of_two_that_make_one_bucket_the_second_leaves_nothing() {
        let mut c = Cluster::default();
        let mut entropy = types::SeededEntropy(9);
        let mut moment = Moment { now: NOW, entropy: &mut entropy };
        let mut late = site().create_bucket(new("b", "v", 7), &mut moment);
        // The late one looks before the other one begins: for its owner's buckets, and for the name.
        for _ in 0..2 {
            let Plan::Ask(requests, next) = late else { panic!("nothing asked") };
            late = next(requests.into_iter().map(|r| crate::Rados::perform(&mut c, r)).collect());
        }
        create(&mut c, new("b", "u", 1)).unwrap();
        assert_eq!(late.run(&mut c).err(), Some(Error::BucketExists));
        assert_eq!(state(&mut c, "b").unwrap().instance.value.owner, UserId::plain("u"));
        assert_eq!(c.names("default.rgw.meta:root"), [".bucket.meta.b:zone-id.4161.1", "b"]);
        assert_eq!(c.names("default.rgw.buckets.index").len(), 11);
    }

    /// Wherever a gateway dies, the bucket is there whole or its name is free.
    #[test]
    fn a_bucket_that_was_begun_can_be_made_again() {
        let mut whole = Cluster::default();
        create(&mut whole, new("b", "u", 1)).unwrap();
        for left in 0..40 {
            let mut c = Cluster::default();
            c.left = Some(left);
            let made = create(&mut c, new("b", "u", 1));
            c.left = None;
            match state(&mut c, "b") {
                Ok(found) => assert_eq!(found.instance.value.bucket.id, "zone-id.4161.1"),
                Err(e) => {
                    assert!(e == Error::NoSuchBucket && made.is_err(), "{left}: {e:?}");
                    create(&mut c, new("b", "u", 2)).unwrap();
                    assert_eq!(of_user(&mut c), ["b"]);
                }
            }
        }
    }

    /// Wherever a gateway dies that removes a bucket, it can be removed again, or its name is free.
    #[test]
    fn a_bucket_whose_removal_died_can_be_removed() {
        for left in 0..50 {
            let mut c = Cluster::default();
            create(&mut c, new("b", "u", 1)).unwrap();
            let there = state(&mut c, "b").unwrap();
            c.left = Some(left);
            let done = site().remove_bucket(there, NOW).run(&mut c);
            c.left = None;
            match state(&mut c, "b") {
                Ok(there) => {
                    assert!(done.is_err());
                    site().remove_bucket(there, NOW).run(&mut c).unwrap();
                    assert_eq!((of_user(&mut c), c.names("default.rgw.meta:root")), (vec![], vec![]));
                    assert_eq!(c.names("default.rgw.buckets.index"), Vec::<String>::new());
                }
                Err(e) => assert_eq!(e, Error::NoSuchBucket),
            }
            create(&mut c, new("b", "u", 2)).unwrap();
        }
    }

    /// Another one changes what a bucket is while it is removed: nothing of it stays.
    #[test]
    fn a_bucket_that_changes_is_removed_whole() {
        let mut c = Cluster::default();
        create(&mut c, new("b", "u", 1)).unwrap();
        let there = state(&mut c, "b").unwrap();
        site().modify_bucket(there.clone(), NOW, |_, _| Ok(())).run(&mut c).unwrap();
        site().remove_bucket(there, NOW).run(&mut c).unwrap();
        assert_eq!((of_user(&mut c), c.names("default.rgw.meta:root")), (vec![], vec![]));
        assert_eq!(c.names("default.rgw.buckets.index"), Vec::<String>::new());
    }

    /// An index that moves is left alone.
    #[test]
    fn a_bucket_whose_index_moves_is_not_removed() {
        let mut c = Cluster::default();
        let info = create(&mut c, new("b", "u", 1)).unwrap();
        let shard = site().index_object(&info, b"k").unwrap();
        let resharding = Resharding { status: 1, new_instance: "other".into(), shards: 23 };
        let args = index::SetReshardingArgs { resharding };
        Plan::ask(Request::new(shard).call(&index::SET_RESHARDING, &args)).run(&mut c).unwrap();
        let there = state(&mut c, "b").unwrap();
        assert_eq!(site().remove_bucket(there, NOW).run(&mut c), Err(Error::Resharding));
        let moving = site().held_off(&info).run(&mut c).unwrap();
        assert_eq!(moving.iter().filter(|(_, r)| r.status != 0).count(), 1);
    }

    #[test]
    fn a_bucket_that_holds_something_stays() {
        let mut c = Cluster::default();
        let info = create(&mut c, new("b", "u", 1)).unwrap();
        let shard = site().index_object(&info, b"k").unwrap();
        let entry = rgw::index::Entry { exists: true, ..Default::default() };
        let entries = std::collections::BTreeMap::from([("k".into(), entry.to_bytes())]);
        Plan::ask(Request::new(shard).op(Op::OmapSet(entries))).run(&mut c).unwrap();
        let there = state(&mut c, "b").unwrap();
        assert_eq!(site().remove_bucket(there, NOW).run(&mut c), Err(Error::BucketNotEmpty));
        assert!(state(&mut c, "b").is_ok());
    }

    #[test]
    fn shards_are_summed_up_and_the_owners_list_is_told() {
        let mut c = Cluster::default();
        let info = create(&mut c, new("b", "u", 1)).unwrap();
        let one = rgw::index::Stats { size: 5, size_rounded: 4096, entries: 1, stored: 5 };
        for name in ["k", "l"] {
            let shard = site().index_object(&info, name.as_bytes()).unwrap();
            let args = index::UpdateStatsArgs { absolute: false, stats: [(1, one.clone())].into() };
            Plan::ask(Request::new(shard).call(&index::UPDATE_STATS, &args)).run(&mut c).unwrap();
        }
        let stats = site().bucket_stats(&info).run(&mut c).unwrap();
        assert_eq!((stats.objects(), stats.bytes()), (2, 10));
        site().sync_bucket_stats(&info, NOW).run(&mut c).unwrap();
        let (page, _) = site().user_buckets(&UserId::plain("u"), Bytes::new(), 10).run(&mut c).unwrap();
        assert_eq!((page[0].count, page[0].size, page[0].size_rounded), (2, 10, 8192));
    }

    #[test]
    fn placement_is_what_the_zone_has() {
        let mut c = Cluster::default();
        let placed = |name: &'static str, class: &'static str| NewBucket {
            placement: PlacementRule { name: name.into(), storage_class: class.into() },
            ..new("b", "u", 1)
        };
        for (name, class) in [("other", ""), ("default-placement", "COLD"), ("", "COLD")] {
            assert_eq!(create(&mut c, placed(name, class)), Err(Error::NoSuchPlacement), "{name} {class}");
        }
        assert!(c.done.is_empty());
        let made = create(&mut c, placed("", "STANDARD")).unwrap();
        assert_eq!(made.placement.name, "default-placement");
    }

    #[test]
    fn a_change_is_held_to_what_was_read() {
        let mut c = Cluster::default();
        create(&mut c, new("b", "u", 1)).unwrap();
        let there = state(&mut c, "b").unwrap();
        let pays = |info: &mut BucketInfo, attrs: &mut Attrs| {
            info.requester_pays = true;
            attrs.insert("user.rgw.cors".into(), "x".into());
            Ok(())
        };
        site().modify_bucket(there.clone(), NOW, pays).run(&mut c).unwrap();
        let changed = state(&mut c, "b").unwrap().instance;
        assert_eq!(
            (changed.value.requester_pays, changed.attrs.len(), changed.version.version),
            (true, 2, 2)
        );
        assert_eq!(site().modify_bucket(there, NOW, pays).run(&mut c).err(), Some(Error::Raced));
    }
}
